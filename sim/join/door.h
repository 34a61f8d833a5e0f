#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/clock.h"
#include "sim/join/wire.h"
#include "sim/launch/event_loop.h"
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

// Where a run's members come in, and strangers do not. Whoever connects is sent a nonce, and shall
// prove with it that it knows the secret:
//   -> lockstep VERSION NONCE
//   <- join NONCE MEMBER PROOF
//   -> ok PROOF | stale | refused WHY PROOF      a PROOF only to a member that has given its own
// Who has not after some seconds is closed; at most so many may try at a time, and where one more
// comes, the oldest goes. What strangers are told holds neither secret nor identity. Nothing
// blocks.
class Door {
 public:
  struct Options {
    std::string nonce;   // of the notice: who has another one has read an old notice
    std::string secret;  // rendezvous_secret()
    std::string about;   // as MemberIdentity::about
    bool keyed = false;  // the secret rests on a key
    std::function<void(const std::string& what)> tell = {};  // for a log; the first few
    std::chrono::milliseconds patience{5000};                // for a join
  };
  // Why this member, who knows the secret, is refused; empty: it is not.
  using Decide = std::function<std::string(const MemberIdentity& member)>;
  using Enter = std::function<void(Wire wire, const MemberIdentity& member)>;
  using Refused = std::function<void(const MemberIdentity& member, const std::string& why)>;
  struct Handlers {
    Decide decide;
    Enter enter;      // with its connection sealed
    Refused refused;  // by decide(), once it has been told
  };
  Door(EventLoop& loop, UniqueFd listener, Options options, Handlers handlers);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  size_t strangers() const { return strangers_.size(); }

 private:
  struct Stranger {
    Wire wire;
    std::string nonce, from;
    Deadline until;
    bool answered = false;  // and so refused
  };
  void on_connection();
  void admit(UniqueFd fd);
  void on_ready(int64_t number);
  bool handle(int64_t number, Stranger& stranger, const Wire::Message& message);
  bool handle_join(int64_t number, Stranger& stranger, const Wire::Message& message);
  bool answer(Stranger& stranger, const Wire::Message& message);
  std::string problem_of(const MemberIdentity& member) const;
  void send_away(int64_t number);
  void send_away_late_ones();
  void tell(const std::string& what);

  EventLoop& loop_;
  UniqueFd listener_, timer_;
  const Options options_;
  const Handlers handlers_;
  std::map<int64_t, Stranger> strangers_;  // oldest first
  int64_t last_ = 0, told_ = 0;
};

// The other side: proves who `member` is, and returns the sealed connection; or none, and why.
// Runs the loop meanwhile.
struct Joined {
  Wire wire;  // closed: not joined
  bool refused = false;
  std::string why;
};
Joined ask_to_join(EventLoop& loop, Wire wire, const MemberIdentity& member,
                   const std::string& secret, Deadline deadline);

}  // namespace lockstep
