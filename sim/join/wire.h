#pragma once

#include <functional>
#include <optional>
#include <string>

#include "scenarios/base/file.h"
#include "sim/join/secret.h"
#include "sim/launch/channel.h"

namespace lockstep {

// One end of a TCP connection that carries messages as Channel does between processes of one host:
// lists of byte strings. Hosts must have the same byte order. One thread; nothing blocks.
// What comes in is not trusted: a damaged or too long message closes the connection. Until both
// sides have proved who they are and seal it, a message has at most kStrangerBytesMax bytes,
// from then on kMessageBytesMax, and each carries a proof that the other side checks.
class Wire {
 public:
  using Message = Channel::Message;
  static constexpr size_t kMessageBytesMax = 8 << 20;
  static constexpr size_t kStrangerBytesMax = 4096;
  static constexpr size_t kFieldsMax = 16;

  Wire() = default;
  explicit Wire(UniqueFd fd);  // made non-blocking

  // All that is sent and received from now on.
  void seal(const std::string& send_key, const std::string& receive_key);

  // What the connection does not take at once is kept for flush(). False, and closed from now on,
  // when the other side is gone, or leaves too much untaken.
  bool send(const Message& message);
  bool flush();
  void end_output();  // what has been sent is the last
  bool has_unsent() const { return !out_.empty(); }
  // The next whole message, without blocking; poll fd() for readability first, and call until it
  // gives none.
  Channel::Got receive(Message* message);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid() && !broken_; }
  void close() { fd_.reset(); }

 private:
  Channel::Got take(Message* message);
  bool give_up();

  UniqueFd fd_;
  std::string in_, out_;
  std::optional<Seal> sent_, received_;
  bool broken_ = false;
};

}  // namespace lockstep
