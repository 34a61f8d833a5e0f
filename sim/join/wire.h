#pragma once

#include <chrono>
#include <string>

#include "scenarios/base/unique_fd.h"
#include "sim/launch/channel.h"

namespace lockstep {

// One end of a TCP connection that carries messages as Channel does between processes of one host:
// lists of byte strings, at most kMessageBytesMax together. Hosts must have the same byte order.
// One thread. What comes in is not trusted: a damaged or too long message closes the connection.
class Wire {
 public:
  using Message = Channel::Message;
  static constexpr size_t kMessageBytesMax = 8 << 20;

  Wire() = default;
  explicit Wire(UniqueFd fd);  // made non-blocking

  // Waits for room where it must, up to `patience`. False, and closed from now on, when the other
  // side is gone or takes nothing.
  bool send(const Message& message, std::chrono::milliseconds patience = std::chrono::seconds(5));
  // The next whole message, without blocking; poll fd() for readability first, and call until it
  // gives none.
  Channel::Got receive(Message* message);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid() && !broken_; }
  void close() { fd_.reset(); }

 private:
  Channel::Got take(Message* message);

  UniqueFd fd_;
  std::string in_;
  bool broken_ = false;
};

}  // namespace lockstep
