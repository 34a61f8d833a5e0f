#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "scenarios/base/clock.h"
#include "scenarios/base/file.h"
#include "sim/launch/protocol.h"

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

// How members of a job prove to each other that they belong together without saying what they know:
// by HMAC-SHA256 over nonces that both sides have just drawn. Byte strings throughout.

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

std::string to_hex(const std::string& bytes);
std::string hmac_sha256(const std::string& key, const std::string& text);
// In a time that tells nothing of where they differ.
bool equal_bytes(const std::string& a, const std::string& b);

// What a member knows and a stranger does not.
struct Credentials {
  std::string job_key;   // given, or handed out by the launcher; empty: none
  std::string identity;  // of program, job, scenario and options: equal on all members
};
// The secret of one rendezvous; `notice_key`: of the notice that leads there, or empty. With
// neither key it rests on the identity, which is no secret to who has the scenario.
std::string rendezvous_secret(const Credentials& credentials, const std::string& notice_key);
bool has_key(const Credentials& credentials, const std::string& notice_key);

// Of one connection, from its two nonces: recorded messages are worth nothing on another.
struct ConnectionKeys {
  std::string member_proves, coordinator_proves;  // of the hand-shake
  std::string to_coordinator, to_member;          // of the messages after it
};
ConnectionKeys connection_keys(const std::string& secret, const std::string& coordinator_nonce,
                               const std::string& member_nonce);

// Of messages in one direction: each proof counts, so that none can be left out or said twice.
class Seal {
 public:
  explicit Seal(std::string key) : key_(std::move(key)) {}
  std::string next(const std::string& message);

 private:
  std::string key_;
  uint64_t count_ = 0;
};

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
