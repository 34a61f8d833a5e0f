#pragma once

#include <memory>
#include <optional>
#include <string>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "sim/join/environment.h"
#include "sim/join/tcp.h"

namespace lockstep {

// How the processes of a job find the one of rank 0.
struct Rendezvous {
  std::string kind;  // tcp: at `address` | file: named in `path` | redis: under `key` there
  HostPort address;  // of rank 0's process, or of the Redis server
  std::string path, key;
  bool local = false;  // all processes are on this host: 127.0.0.1 is enough
};
std::string to_text(const Rendezvous& rendezvous);  // "tcp://127.0.0.1:29500"

// text: env:// | tcp://HOST:PORT | file:///PATH | redis://HOST:PORT[/KEY], or empty. Where it does
// not decide: MASTER_ADDR and MASTER_PORT, a file of the job's name on one host. Bad input where
// nothing leads to rank 0.
Expected<Rendezvous> choose_rendezvous(const std::string& text, const Placement& placement);

// What rank 0's process leaves for the others where its address is not known before.
struct Notice {
  HostPort address;
  std::string nonce;  // an old notice leads nowhere
  std::string key;    // part of the secret, where only the user can read the notice; or empty
};

// Leaves and finds it. publish() takes an earlier one's place; withdraw() takes it away, also when
// this ends. Throws std::runtime_error where the place cannot be used.
class NoticeBoard {
 public:
  virtual ~NoticeBoard() = default;
  virtual void publish(const Notice& notice) = 0;
  virtual std::optional<Notice> read() = 0;
  // Nobody but this user (and root) can read what is published.
  virtual bool keeps_secrets() const = 0;
};
// Of kind file or redis; none for kind tcp. `deadline`: of all that it does.
std::unique_ptr<NoticeBoard> make_notice_board(const Rendezvous& rendezvous, Deadline deadline);

}  // namespace lockstep
