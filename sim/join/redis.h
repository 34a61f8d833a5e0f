#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/join/tcp.h"

namespace lockstep {

// Enough of a Redis client for a rendezvous: one command at a time, no password, no TLS. Every
// call blocks until answered; throws std::runtime_error on an error answer, a lost server, or past
// the deadline of all calls.
class Redis {
 public:
  Redis(const HostPort& server, Deadline deadline);
  // The answer as text (of a number: its digits); nothing for "no such key".
  std::optional<std::string> call(const std::vector<std::string>& command);

 private:
  std::string take(size_t bytes);
  std::string take_line();
  void receive();
  [[noreturn]] void fail(const std::string& why) const;

  const HostPort server_;
  const Deadline deadline_;
  UniqueFd fd_;
  std::string in_;
};

}  // namespace lockstep
