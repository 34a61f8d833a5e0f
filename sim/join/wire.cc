#include "sim/join/wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

using Length = uint32_t;

void append(std::string* bytes, size_t length) {
  const auto value = static_cast<Length>(length);
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

bool take_length(std::string_view* bytes, size_t* length) {
  Length value = 0;
  if (bytes->size() < sizeof value) return false;
  std::memcpy(&value, bytes->data(), sizeof value);
  bytes->remove_prefix(sizeof value);
  *length = value;
  return true;
}

// False if the fields do not fill the message exactly.
bool unpack_words(std::string_view bytes, Wire::Message* message) {
  message->clear();
  while (!bytes.empty()) {
    size_t length = 0;
    if (!take_length(&bytes, &length) || bytes.size() < length) return false;
    message->emplace_back(bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
  return !message->empty();
}

}  // namespace

Wire::Wire(UniqueFd fd) : fd_(std::move(fd)) {
  ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  // A host that vanished says nothing: found out after half a minute, not after two hours.
  const int idle_s = 10, interval_s = 5, probes = 4, unanswered_ms = 30'000;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

bool Wire::send(const Message& message, std::chrono::milliseconds patience) {
  if (!is_open()) return false;
  std::string bytes;
  for (const std::string& field : message) {
    append(&bytes, field.size());
    bytes += field;
  }
  std::string head;
  append(&head, bytes.size());
  bytes.insert(0, head);
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(fd(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) done += static_cast<size_t>(n);
    if (n >= 0 || errno == EINTR) continue;
    pollfd room{fd(), POLLOUT, 0};
    if (errno == EAGAIN && ::poll(&room, 1, static_cast<int>(patience.count())) > 0) continue;
    broken_ = true;  // half a message may be out: nothing can follow it
    ::shutdown(fd(), SHUT_RDWR);
    return false;
  }
  return true;
}

Channel::Got Wire::take(Message* message) {
  std::string_view rest = in_;
  size_t length = 0;
  if (!take_length(&rest, &length)) return Channel::Got::nothing;
  if (length > kMessageBytesMax) return Channel::Got::closed;
  if (rest.size() < length) return Channel::Got::nothing;
  if (!unpack_words(rest.substr(0, length), message)) return Channel::Got::closed;
  in_.erase(0, sizeof(Length) + length);
  return Channel::Got::message;
}

Channel::Got Wire::receive(Message* message) {
  if (!fd_.valid()) return Channel::Got::closed;
  char buffer[64 << 10];
  while (true) {
    const Channel::Got got = take(message);
    if (got != Channel::Got::nothing) return got;
    const ssize_t n = ::recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return Channel::Got::nothing;
    if (n <= 0) return Channel::Got::closed;
    in_.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace lockstep
