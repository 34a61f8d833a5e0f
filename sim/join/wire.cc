#include "sim/join/wire.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"

namespace lockstep {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Addresses resolve(const HostPort& address, int flags, int type, std::string* why) {
  addrinfo hints{};
  hints.ai_socktype = type;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const char* host = address.host.empty() ? nullptr : address.host.c_str();
  const int error = ::getaddrinfo(host, std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) *why = fmt::format("{}: {}", address.host, ::gai_strerror(error));
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

UniqueFd listen_on(const addrinfo& where) {
  UniqueFd fd(::socket(where.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), where.ai_addr, where.ai_addrlen) == 0 && ::listen(fd.get(), 512) == 0)
    return fd;
  return UniqueFd();
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char host[NI_MAXHOST] = "";
  ::getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

int connect_error(int fd, const addrinfo& where, Deadline deadline) {
  if (::connect(fd, where.ai_addr, where.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{fd, POLLOUT, 0};
  int count = 0;
  do {
    count = ::poll(&ready, 1, static_cast<int>(time_left(deadline).count()));
  } while (count < 0 && errno == EINTR);
  if (count == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

// A connection to a free port of one's own host may meet itself, if the kernel picks just that port
// for this end.
bool is_itself(int fd) {
  sockaddr_storage own{}, peer{};
  socklen_t own_length = sizeof own, peer_length = sizeof peer;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_length);
  ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &peer_length);
  return own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0;
}

// Would other hosts find another address behind this name?
bool own_name_only(const addrinfo& found, const std::string& host) {
  if (host.empty() || host == "localhost" || is_loopback(host)) return false;
  for (const addrinfo* one = &found; one != nullptr; one = one->ai_next)
    if (!is_loopback(numeric(one->ai_addr, one->ai_addrlen))) return false;
  return true;
}

template <class Visit>
void each_interface(const Visit& visit) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next)
    if (one->ifa_addr != nullptr) visit(*one);
  ::freeifaddrs(list);
}

}  // namespace

std::string to_text(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port)
            : fmt::format("{}:{}", address.host, address.port);
}

std::optional<HostPort> parse_host_port(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort address{text.substr(0, colon), 0};
  if (address.host.front() == '[' && address.host.back() == ']')
    address.host = address.host.substr(1, address.host.size() - 2);
  address.port = number_in<decltype(address.port)>(text.substr(colon + 1)).value_or(0);
  if (address.port < 1 || address.port > 65535) return std::nullopt;
  return address;
}

UniqueFd listen_at(const HostPort& address, std::string* why) {
  const Addresses found = resolve(address, AI_PASSIVE, SOCK_STREAM, why);
  if (found && own_name_only(*found, address.host)) return listen_at({"", address.port}, why);
  int error = 0;
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    UniqueFd fd = listen_on(*one);
    if (fd.valid()) return fd;
    error = errno;
  }
  if (found == nullptr) return UniqueFd();
  if (error == EADDRNOTAVAIL && !address.host.empty()) return listen_at({"", address.port}, why);
  *why = fmt::format("cannot listen at {}: {}", to_text(address), std::strerror(error));
  return UniqueFd();
}

int64_t port_of(const UniqueFd& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

UniqueFd connect_to(const HostPort& address, Deadline deadline, std::string* why) {
  const Addresses found = resolve(address, 0, SOCK_STREAM, why);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    UniqueFd fd(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int error = fd.valid() ? connect_error(fd.get(), *one, deadline) : errno;
    if (error == 0 && !is_itself(fd.get())) return fd;
    *why =
        fmt::format("{}: {}", to_text(address), std::strerror(error == 0 ? ECONNREFUSED : error));
  }
  return UniqueFd();
}

std::string own_address(int connected_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return ::getsockname(connected_fd, plain, &length) == 0 ? numeric(plain, length) : "";
}

std::string peer_address(int connected_fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  return ::getpeername(connected_fd, plain, &length) == 0 ? numeric(plain, length) : "";
}

bool is_loopback(const std::string& numeric_address) {
  return numeric_address.starts_with("127.") || numeric_address == "::1" ||
         numeric_address.starts_with("::ffff:127.");
}

std::optional<std::string> address_of_interface(const std::string& name) {
  std::string v4, v6;
  each_interface([&](const ifaddrs& one) {
    if (name != one.ifa_name) return;
    const int family = one.ifa_addr->sa_family;
    if (family == AF_INET && v4.empty()) v4 = numeric(one.ifa_addr, sizeof(sockaddr_in));
    if (family == AF_INET6 && v6.empty()) v6 = numeric(one.ifa_addr, sizeof(sockaddr_in6));
  });
  if (v4.empty() && v6.empty()) return std::nullopt;
  return v4.empty() ? v6 : v4;
}

std::string interfaces() {
  std::string names;
  each_interface([&](const ifaddrs& one) {
    const int family = one.ifa_addr->sa_family;
    const std::string name = one.ifa_name;
    if (family != AF_INET && family != AF_INET6) return;
    if ((", " + names + ", ").find(", " + name + ", ") == std::string::npos)
      names += (names.empty() ? "" : ", ") + name;
  });
  return names;
}

std::optional<std::string> address_towards(const std::string& host) {
  std::string why;
  const Addresses found = resolve({host, 9}, 0, SOCK_DGRAM, &why);
  for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    const UniqueFd fd(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd.valid() && ::connect(fd.get(), one->ai_addr, one->ai_addrlen) == 0)
      return own_address(fd.get());
  }
  return std::nullopt;
}

std::string to_hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto value = static_cast<unsigned char>(c);
    text += kDigits[value >> 4];
    text += kDigits[value & 15];
  }
  return text;
}

std::string hmac_sha256(const std::string& key, const std::string& text) {
  std::string proof(kProofBytes, '\0');
  unsigned int length = 0;
  const auto* done = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                            reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                            reinterpret_cast<unsigned char*>(proof.data()), &length);
  LOCKSTEP_CHECK(done != nullptr && length == kProofBytes, "libcrypto computes no HMAC-SHA256");
  return proof;
}

bool equal_bytes(const std::string& a, const std::string& b) {
  return a.size() == b.size() && ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool has_key(const Credentials& credentials, const std::string& notice_key) {
  return !credentials.job_key.empty() || !notice_key.empty();
}

std::string rendezvous_secret(const Credentials& credentials, const std::string& notice_key) {
  const std::string given = hmac_sha256("lockstep rendezvous: job", credentials.job_key);
  const std::string found = hmac_sha256(given, notice_key);
  return has_key(credentials, notice_key) ? found : hmac_sha256(found, credentials.identity);
}

ConnectionKeys connection_keys(const std::string& secret, const std::string& coordinator_nonce,
                               const std::string& member_nonce) {
  const auto key = [&](const char* purpose) {
    return hmac_sha256(secret, coordinator_nonce + member_nonce + purpose);
  };
  return {key("member proves"), key("coordinator proves"), key("to coordinator"), key("to member")};
}

std::string Seal::next(const std::string& message) {
  std::string counted;
  for (int byte = 0; byte < 8; ++byte) counted += static_cast<char>(count_ >> (8 * byte));
  ++count_;
  return hmac_sha256(key_, counted + message);
}

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
