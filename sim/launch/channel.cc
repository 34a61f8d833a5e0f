#include "sim/launch/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <system_error>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

// A datagram: one byte, 1 if more of the same message follows, then a piece of it.
constexpr size_t kPieceBytes = 48 << 10;
constexpr size_t kMessageBytesMax = size_t{256} << 20;

std::string pack(const Channel::Message& message) {
  std::string bytes;
  for (const std::string& field : message) {
    const auto length = static_cast<uint32_t>(field.size());
    bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += field;
  }
  return bytes;
}

Channel::Message unpack(std::string_view bytes) {
  Channel::Message message;
  while (!bytes.empty()) {
    uint32_t length = 0;
    LOCKSTEP_CHECK(bytes.size() >= sizeof length, "a damaged message");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes.remove_prefix(sizeof length);
    LOCKSTEP_CHECK(bytes.size() >= length, "a damaged message");
    message.emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return message;
}

struct FdSpace {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))] = {};
};

void attach_fd(msghdr* header, FdSpace* space, int fd) {
  header->msg_control = space->bytes;
  header->msg_controllen = sizeof space->bytes;
  cmsghdr* control = CMSG_FIRSTHDR(header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(control), &fd, sizeof fd);
}

UniqueFd detach_fd(msghdr* header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return UniqueFd(fd);
  }
  return UniqueFd();
}

bool wait_for_room(int fd, std::chrono::milliseconds patience) {
  pollfd p{fd, POLLOUT, 0};
  int rc = 0;
  do {
    rc = ::poll(&p, 1, static_cast<int>(patience.count()));
  } while (rc < 0 && errno == EINTR);
  return rc > 0;
}

// False when the other side is gone or takes nothing for `patience`.
bool send_piece(int fd, bool more, std::string_view piece, int fd_to_pass,
                std::chrono::milliseconds patience) {
  char flag = more ? 1 : 0;
  iovec parts[2] = {{&flag, 1}, {const_cast<char*>(piece.data()), piece.size()}};
  msghdr header{};
  header.msg_iov = parts;
  header.msg_iovlen = 2;
  FdSpace space;
  if (fd_to_pass >= 0) attach_fd(&header, &space, fd_to_pass);
  while (::sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return false;
    if (errno != EAGAIN)
      throw std::system_error(errno, std::generic_category(), "cannot send to a worker process");
    if (!wait_for_room(fd, patience)) return false;
  }
  return true;
}

}  // namespace

std::pair<Channel, Channel> Channel::pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "cannot make a socket pair");
  const int wanted = 1 << 20;  // the kernel cuts it to its own limit
  for (const int end : ends) {
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
    ::setsockopt(end, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof wanted);
  }
  return {Channel(UniqueFd(ends[0])), Channel(UniqueFd(ends[1]))};
}

bool Channel::send(const Message& message, int fd_to_pass, std::chrono::milliseconds patience) {
  if (!is_open()) return false;
  const std::string bytes = pack(message);
  std::string_view rest = bytes;
  do {
    const std::string_view piece = rest.substr(0, kPieceBytes);
    rest.remove_prefix(piece.size());
    if (!send_piece(fd(), !rest.empty(), piece, fd_to_pass, patience)) {
      // Half a message would take the next one for its rest: rather none at all.
      if (piece.data() != bytes.data()) ::shutdown(fd(), SHUT_RDWR);
      return false;
    }
    fd_to_pass = -1;
  } while (!rest.empty());
  return true;
}

Channel::Got Channel::receive(Message* message, UniqueFd* passed) {
  if (!is_open()) return Got::closed;
  thread_local char buffer[kPieceBytes + 1];
  while (true) {
    iovec part{buffer, sizeof buffer};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    FdSpace space;
    header.msg_control = space.bytes;
    header.msg_controllen = sizeof space.bytes;
    const ssize_t got = ::recvmsg(fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Got::nothing;
    if (got <= 0) return Got::closed;
    // The kernel drops a descriptor that this process has no number left for, and says so here.
    if ((header.msg_flags & MSG_CTRUNC) != 0)
      throw std::system_error(EMFILE, std::generic_category(),
                              "cannot take over the descriptor of a worker process");
    if (UniqueFd fd = detach_fd(&header); fd.valid()) passed_ = std::move(fd);
    LOCKSTEP_CHECK((header.msg_flags & MSG_TRUNC) == 0, "a datagram longer than we send");
    unfinished_.append(buffer + 1, static_cast<size_t>(got) - 1);
    LOCKSTEP_CHECK(unfinished_.size() <= kMessageBytesMax, "a message without an end");
    if (buffer[0] == 1) continue;
    *message = unpack(unfinished_);
    unfinished_.clear();
    if (passed != nullptr) *passed = std::move(passed_);
    passed_.reset();
    return Got::message;
  }
}

}  // namespace lockstep
