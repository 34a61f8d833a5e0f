#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "sim/join/door.h"
#include "sim/join/wire.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/launch/protocol.h"

namespace lockstep {

inline constexpr int kExitLostCoordinator = 3;  // nothing was judged: inconclusive
inline constexpr int kExitRefused = 2;          // bad input: a member that does not belong

// The process through which the members of a run, started by somebody else, meet: it serves their
// rendezvous store and gathers what their ranks leave behind. Members have come in by the Door,
// each for ranks of its own, and their messages carry proofs; still each may only say what is its
// own to say. Who says anything else is lost. One thread, the event loop's; nothing blocks. Every
// message is a list of byte strings, answered with its ID first:
//   get, has, drop                  as in sim/launch/protocol.h
//   set, add                        too, of the keys that members set: "run/N/store/...", and
//                                   "run/N/dir/RANK" and "out/RANK" with a rank of their own
//   clock ID                        -> ID NANOSECONDS
//   end ID RUN END                  a process of run RUN has ended: a rank of its own, a golden run
//   golden_problem ID RUN TEXT      a golden run failed by itself
//   file ID RUN NAME PIECE          appends to a file that a rank of its own has left on its host
//   done ID RUN                     this member has no more to say about the run
// Unasked to all, when all is over: over CODE WHY. Keys that the coordinator sets once all have
// joined: "hosts" (encoded MemberIdentity values), "reached_at" (the address of this host that
// members of others have found, empty: none); and "run/N/go", "run/N/failure".
class Coordinator {
 public:
  struct Options {
    int64_t world_size = 1;
    Credentials credentials = {};
    std::string about = {};                                  // as MemberIdentity::about
    std::string nonce = {}, notice_key = {};                 // of the notice, if there is one
    std::function<void(const std::string& what)> tell = {};  // of strangers, for a log
  };
  Coordinator(EventLoop& loop, UniqueFd listener, Options options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  bool all_joined() const { return joined_ == options_.world_size; }
  // "2, 3": for the error when they do not come.
  std::string missing_ranks() const;
  // Who was refused last, and why, or empty. Without a key of the job it may have been a stranger,
  // and the others are still awaited.
  const std::string& refused() const { return refused_; }
  // A member was lost before the run that needs it, or one that has the job's key was refused, so
  // that all have been told to exit: why, or empty.
  const std::string& problem() const { return problem_; }

  // Lets the members start run number `run`; files of hosts other than this go to `run_dir`.
  void begin_run(int64_t run, const RunPlan& plan, const std::string& run_dir);
  bool run_over() const;  // every member has said so, or is lost
  RunOutcome take_outcome();

  // Tells all members to exit with this code. They have gone when all_gone(); strangers do not
  // count.
  void end(int code, const std::string& why);
  bool all_gone() const { return clients_.empty(); }

 private:
  struct Client {
    Wire wire;
    MemberIdentity member;
    bool done = false;
  };
  Door::Options door_options() const;
  std::string problem_of(const MemberIdentity& member) const;
  void enter(Wire wire, const MemberIdentity& member);
  void refuse(const MemberIdentity& member, const std::string& why);
  void on_ready(int64_t client);
  bool handle(int64_t client, const Wire::Message& message);
  bool handle_store(int64_t client, const Wire::Message& message);
  bool handle_run(int64_t client, const Wire::Message& message);
  bool may_say(const MemberIdentity& member, const ProcessEnd& end) const;
  bool may_leave(const MemberIdentity& member, const std::string& file) const;
  void publish_hosts();
  void note_end(const ProcessEnd& end);
  void lose(int64_t client);
  void send(Client& client, const Wire::Message& message);
  void reply(int64_t client, const Wire::Message& message);
  void set(const std::string& key, const std::string& value);

  EventLoop& loop_;
  const Options options_;
  RunStore store_;
  std::map<int64_t, Client> clients_;
  int64_t last_client_ = 0, joined_ = 0;
  std::vector<bool> taken_;  // by rank
  std::string first_host_;   // of rank 0
  std::string problem_, refused_;
  int64_t run_ = -1;
  int64_t began_ns_ = 0;
  bool over_ = false;
  RunOutcome outcome_;
  Door door_;  // last: it calls the others
};

}  // namespace lockstep
