#include "sim/join/tcp.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

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

}  // namespace lockstep
