#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/join/wire.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/launch/store.h"

namespace lockstep {

inline constexpr int kExitLostCoordinator = 3;  // nothing was judged: inconclusive
inline constexpr int kExitRefused = 2;          // bad input: a member that does not belong

// What a member says of itself when it joins.
struct MemberIdentity {
  std::string nonce;     // as published with the address: an old notice leads nowhere
  std::string identity;  // of job, scenario and options: equal on all members
  std::vector<int64_t> ranks;
  std::string host;   // equal for members that share memory and the run directory
  std::string where;  // for messages: a host's name or address
};
std::string encode(const MemberIdentity& member);
std::optional<MemberIdentity> decode_member(const std::string& text);

// For the message "end": with the age of the end instead of a time, which is one clock's only.
std::string encode(const ProcessEnd& end);
std::optional<ProcessEnd> decode_end(const std::string& text);

// The process through which the members of a run, started by somebody else, meet: it serves their
// rendezvous store and gathers what their ranks leave behind. It trusts whoever connects and knows
// the identity: run it in networks in which that is right. One thread, the event loop's; nothing
// blocks. Every message is a list of byte strings, answered with its ID first:
//   join ID MEMBER                  -> ID ok | ID stale | ID refused WHY
//   set, get, add, has, drop        as in sim/launch/store.h
//   clock ID                        -> ID NANOSECONDS
//   end ID RUN END                  a process of run RUN has ended
//   golden_problem ID RUN TEXT      a golden run failed by itself
//   file ID RUN NAME PIECE          appends to a file of the run directory
//   done ID RUN                     this member has no more to say about the run
// Unasked to all, when all is over: over CODE WHY. Keys that the coordinator sets once all have
// joined: "hosts" (a JSON array of MemberIdentity), "reached_at" (the address of this host that
// members of others have found, empty: none); and "run/N/go", "run/N/failure".
class Coordinator {
 public:
  struct Options {
    int64_t world_size = 1;
    std::string identity, nonce;
  };
  Coordinator(EventLoop& loop, UniqueFd listener, Options options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  bool all_joined() const { return joined_ == options_.world_size; }
  // "ranks 2, 3": for the error when they do not come.
  std::string missing_ranks() const;
  // A member was lost before the run that needs it, or one that is awaited was refused, so that all
  // have been told to exit: why, or empty.
  const std::string& problem() const { return problem_; }

  // Lets the members start run number `run`; files of hosts other than this go to `run_dir`.
  void begin_run(int64_t run, const RunPlan& plan, const std::string& run_dir);
  bool run_over() const;  // every member has said so, or is lost
  RunOutcome take_outcome();

  // Tells all members to exit with this code. They have gone when all_gone().
  void end(int code, const std::string& why);
  bool all_gone() const { return clients_.empty(); }

 private:
  struct Client {
    Wire wire;
    std::optional<MemberIdentity> member;
    bool done = false;
  };
  void on_connection();
  void on_readable(int64_t client);
  bool handle(int64_t client, const Wire::Message& message);
  bool handle_run(int64_t client, const Wire::Message& message);
  void handle_join(int64_t client, const std::string& id, const std::string& text);
  std::string join(int64_t client, const MemberIdentity& member, std::string* why);
  void publish_hosts();
  void note_end(const ProcessEnd& end);
  bool append_file(const std::string& name, const std::string& piece);
  void lose(int64_t client);
  void reply(int64_t client, const Wire::Message& message);
  void set(const std::string& key, const std::string& value);

  EventLoop& loop_;
  UniqueFd listener_;
  Options options_;
  RunStore store_;
  std::map<int64_t, Client> clients_;
  int64_t last_client_ = 0, joined_ = 0;
  std::vector<bool> taken_;  // by rank
  std::string problem_;
  int64_t run_ = -1;
  int64_t began_ns_ = 0;
  bool over_ = false;
  RunOutcome outcome_;
};

}  // namespace lockstep
