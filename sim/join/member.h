#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/launch/executor.h"

namespace lockstep {

// What members of a run tell each other, as text. What comes in is checked for more than its form:
// nothing is found in a decoded value that its comment does not allow.

// What a member says of itself when it joins.
struct MemberIdentity {
  std::string nonce;           // as published with the address: an old notice leads nowhere
  std::string about;           // program, job and world size, for messages: printable
  std::string identity;        // of all that must be equal; empty where it is itself the secret
  std::vector<int64_t> ranks;  // at least one, ascending
  std::string host;            // equal for members that share memory and the run directory
  std::string where;           // for messages: a host's name or address; printable
};
std::string encode(const MemberIdentity& member);
std::optional<MemberIdentity> decode_member(const std::string& text);
std::string encode(const std::vector<MemberIdentity>& members);
std::optional<std::vector<MemberIdentity>> decode_members(const std::string& text);

// With the age of the end instead of a time, which is one clock's only.
std::string encode(const ProcessEnd& end);
std::optional<ProcessEnd> decode_end(const std::string& text);

// What is printed of a stranger's text: printable ASCII, at most `most` characters of it.
std::string plain_ascii(const std::string& text, size_t most = 300);

}  // namespace lockstep
