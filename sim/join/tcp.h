#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"

namespace lockstep {

// "node1:29500"
struct HostPort {
  std::string host;
  int64_t port = 0;
};
std::string to_text(const HostPort& address);
std::optional<HostPort> parse_host_port(const std::string& text);

// Listens at the address that `host` resolves to, or at all of this host's where that is none of
// them (an address that a router translates) or one of loopback behind a name (Debian gives a
// host's own name 127.0.1.1). Port 0: one that is free. Invalid, and `why`, if it cannot.
UniqueFd listen_at(const HostPort& address, std::string* why);
int64_t port_of(const UniqueFd& listener);
// One attempt, up to the deadline; invalid and `why` if nobody answers there.
UniqueFd connect_to(const HostPort& address, Deadline deadline, std::string* why);
std::string own_address(int connected_fd);             // numeric
std::string peer_address(int connected_fd);            // numeric; empty once it is gone
bool is_loopback(const std::string& numeric_address);  // 127.0.0.0/8 or ::1

// The numeric address of a network interface, IPv4 before IPv6; nothing if it has none.
std::optional<std::string> address_of_interface(const std::string& name);
std::string interfaces();  // "lo, eth0": for errors
// The address from which this host would speak to `host`; nothing if it cannot.
std::optional<std::string> address_towards(const std::string& host);

}  // namespace lockstep
