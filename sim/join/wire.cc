#include "sim/join/wire.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace lockstep {
namespace {

using Length = uint32_t;

// Of a member that is stopped; of a stranger, who is told two short messages.
constexpr size_t kUnsentBytesMax = 64 << 20;
constexpr size_t kStrangerUnsentMax = 4096;

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

// False if the fields do not fill the message exactly, or are too many.
bool unpack_words(std::string_view bytes, Wire::Message* message) {
  message->clear();
  while (!bytes.empty()) {
    size_t length = 0;
    if (!take_length(&bytes, &length) || bytes.size() < length) return false;
    if (message->size() == Wire::kFieldsMax) return false;
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

void Wire::seal(const std::string& send_key, const std::string& receive_key) {
  sent_.emplace(send_key);
  received_.emplace(receive_key);
}

bool Wire::give_up() {
  broken_ = true;  // half a message may be out: nothing can follow it
  ::shutdown(fd(), SHUT_RDWR);
  return false;
}

bool Wire::send(const Message& message) {
  if (!is_open()) return false;
  std::string bytes;
  for (const std::string& field : message) {
    append(&bytes, field.size());
    bytes += field;
  }
  if (sent_) bytes += sent_->next(bytes);
  const size_t unsent_max = sent_ ? kUnsentBytesMax : kStrangerUnsentMax;
  if (out_.size() + bytes.size() > unsent_max) return give_up();
  append(&out_, bytes.size());
  out_ += bytes;
  return flush();
}

bool Wire::flush() {
  if (!is_open()) return false;
  size_t done = 0;
  while (done < out_.size()) {
    const ssize_t n =
        ::send(fd(), out_.data() + done, out_.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) done += static_cast<size_t>(n);
    if (n >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN) break;
    return give_up();
  }
  out_.erase(0, done);
  return true;
}

void Wire::end_output() {
  if (is_open()) ::shutdown(fd(), SHUT_WR);
}

Channel::Got Wire::take(Message* message) {
  std::string_view rest = in_;
  size_t length = 0;
  if (!take_length(&rest, &length)) return Channel::Got::nothing;
  const size_t proof = received_ ? kProofBytes : 0;
  if (length > (received_ ? kMessageBytesMax + proof : kStrangerBytesMax) || length < proof)
    return Channel::Got::closed;
  if (rest.size() < length) return Channel::Got::nothing;
  const std::string body(rest.substr(0, length - proof));
  if (received_ &&
      !equal_bytes(received_->next(body), std::string(rest.substr(body.size(), proof))))
    return Channel::Got::closed;
  if (!unpack_words(body, message)) return Channel::Got::closed;
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
