#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/launch/channel.h"

namespace lockstep {

// The rendezvous store of one run, kept by the launcher: keys and values are bytes. A get of a key
// that is not there yet is answered when it is set. Clients are numbers chosen by the owner.
//   set ID KEY VALUE -> ID ok     get ID KEY -> ID VALUE     add ID KEY AMOUNT -> ID SUM
//   has ID KEY -> ID 0|1          drop ID KEY (no answer): the get ID is no longer wanted
class RunStore {
 public:
  using Reply = std::function<void(int64_t client, const Channel::Message& reply)>;
  explicit RunStore(Reply reply) : reply_(std::move(reply)) {}

  // False if the message is none of the store's.
  bool handle(int64_t client, const Channel::Message& message);
  // Its gets will not be answered any more.
  void leave(int64_t client);
  size_t parked() const { return parked_.size(); }
  // The key that this client waits for, or empty.
  std::string awaited_by(int64_t client) const;

 private:
  struct Parked {
    int64_t client;
    std::string id;
    std::string key;
  };
  void set(const std::string& key, const std::string& value);

  Reply reply_;
  std::map<std::string, std::string> values_;
  std::vector<Parked> parked_;
};

}  // namespace lockstep
