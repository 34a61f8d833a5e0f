#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "scenarios/base/clock.h"
#include "sim/launch/channel.h"

namespace lockstep {

// A worker's end of its control socket to the launcher (SOCK_SEQPACKET): the rendezvous store of
// the run, served by the launcher, and messages of a thread host. Thread-safe: one request at a
// time. When the launcher is gone the process exits (kExitOrphan). No LibTorch.
class Control {
 public:
  explicit Control(int fd);  // owns fd
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Store of the run; keys and values are bytes. Only get() waits for another worker: false past
  // the deadline. A number that add() made reads as decimal text; add() to a new key starts at 0.
  void set(const std::string& key, const std::string& value);
  bool get(const std::string& key, Deadline deadline, std::string* value);
  int64_t add(const std::string& key, int64_t amount);
  bool has(const std::string& key);

  // Thread hosts: the next message (a plan as JSON text) or false when there are no more; then the
  // word that this run is done, after which the launcher reads the records. `evidence`: a JSON
  // array with one to_json_text() per rank.
  bool next_run(std::string* plan_text);
  void run_done(const std::string& evidence);

 private:
  // The answer to a message; nothing past the deadline.
  bool request(Channel::Message message, Deadline deadline, Channel::Message* reply);
  void send(const Channel::Message& message);

  Channel channel_;
  std::mutex mutex_;
  uint64_t last_id_ = 0;
};

}  // namespace lockstep
