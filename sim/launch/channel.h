#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/base/file.h"

namespace lockstep {

// One end of a SOCK_SEQPACKET pair that carries messages: lists of byte strings, of any length (a
// long one goes in several datagrams), with at most one file descriptor. One reader and one writer
// at a time on each end.
class Channel {
 public:
  using Message = std::vector<std::string>;
  enum class Got { message, nothing, closed };

  Channel() = default;
  explicit Channel(UniqueFd fd) : fd_(std::move(fd)) {}

  // Both ends close-on-exec. Throws std::system_error.
  static std::pair<Channel, Channel> pair();

  // Waits for room where it must, up to `patience`. False when the other side is gone or takes
  // nothing. Throws std::system_error on what cannot be the other side's doing.
  bool send(const Message& message, int fd_to_pass = -1,
            std::chrono::milliseconds patience = std::chrono::seconds(5));

  // The next whole message, without blocking; poll fd() for readability first. Throws
  // std::system_error where a descriptor came with it and this process may open no more.
  Got receive(Message* message, UniqueFd* passed = nullptr);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.valid(); }
  void close() { fd_.reset(); }
  UniqueFd take_fd() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  std::string unfinished_;  // datagrams of a message whose last has not come yet
  UniqueFd passed_;
};

}  // namespace lockstep
