#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

// How members of a job prove to each other that they belong together without saying what they know:
// by HMAC-SHA256 over nonces that both sides have just drawn. Byte strings throughout.

inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;

std::string random_bytes(size_t count);  // from the operating system
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

}  // namespace lockstep
