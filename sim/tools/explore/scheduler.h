#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include "scenarios/base/hash.h"

namespace lockstep {

// Who can act: ranks 0 .. W-1, and W + r, the network of rank r, whose act is to deliver the next
// completion to that rank.
using Actor = int32_t;

// One decision of a schedule. Two decisions in the same place of equal prefixes are equal, since
// nothing but decisions tells two schedules of a scenario apart.
struct Choice {
  uint16_t count = 0;     // alternatives, at least 2
  uint16_t usual = 0;     // the one that is taken where nobody asks for another
  uint16_t taken = 0;     // below count
  bool preempts = false;  // any but the usual one interrupts a rank that could have gone on
};

// Decides. One thread at a time.
class Chooser {
 public:
  virtual ~Chooser() = default;
  // actors: who can act, ascending; choice: filled in but for `taken`, which is the result.
  // `actors` is empty where a part under test asks which of its own alternatives comes next.
  virtual size_t choose(const std::vector<Actor>& actors, const Choice& choice) = 0;
};

// Takes the usual way but at some places: (number of the decision, alternative), ascending. An
// alternative that is not there is the usual one. The empty script is the usual schedule: a rank
// runs until it has to wait.
using Script = std::vector<std::pair<int64_t, uint16_t>>;
class ScriptedChooser : public Chooser {
 public:
  explicit ScriptedChooser(Script script) : script_(std::move(script)) {}
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  const Script script_;
  int64_t decision_ = 0;
  size_t next_ = 0;
};
// The script that gives the same choices.
Script script_of(const std::vector<Choice>& choices);
// Of these choices, those that interrupted somebody.
int64_t preemptions_of(const std::vector<Choice>& choices);

// All from one seed. Without `preemptions` half of the seeds draw every decision uniformly, the
// others run whoever has the highest of random priorities and take that priority away at 0 to 3
// points drawn from the schedule, which finds a bug of depth d with a probability of at least
// 1 / (n k^(d-1)) (Burckhardt et al. 2010, n actors, k decisions); with it, all seeds do, at that
// many points. decisions: about how many a schedule has. Used again for each seed: allocates once.
class SeededChooser : public Chooser {
 public:
  SeededChooser(int64_t actors, int64_t decisions, std::optional<int64_t> preemptions);
  void begin(uint64_t seed);
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  size_t by_priority(const std::vector<Actor>& actors);

  const int64_t actor_count_;
  const int64_t decisions_;
  const std::optional<int64_t> preemptions_;
  SplitMix64 draws_{0};
  bool uniform_ = true;
  int64_t decision_ = 0;
  int64_t lowest_ = 0;
  std::vector<int64_t> priority_;  // of actors; high goes first
  std::vector<int64_t> points_;    // decisions at which a priority is lost
};

// Every schedule with at most `preemptions` choices that interrupt somebody, depth first; the usual
// one comes first.
class ExhaustiveChooser : public Chooser {
 public:
  explicit ExhaustiveChooser(int64_t preemptions) : preemptions_(preemptions) {}
  // To the next schedule; false: there is none. Before each but the first.
  bool advance();
  size_t choose(const std::vector<Actor>& actors, const Choice& choice) override;

 private:
  struct Node {
    Choice choice;
    uint16_t tried = 0;  // alternatives, this one included
  };
  int64_t spent(size_t nodes) const;

  const int64_t preemptions_;
  std::vector<Node> path_;
  size_t depth_ = 0;
};

// Completions that wait to be delivered, rank by rank. Called by whichever thread has the token.
class Deliveries {
 public:
  virtual ~Deliveries() = default;
  virtual bool can_deliver(int64_t rank) const = 0;
  virtual void deliver(int64_t rank) = 0;
  // "all_reduce 3 of 50 float32": what deliver(rank) would deliver, for people.
  virtual std::string next_delivery(int64_t rank) const = 0;
};

// Thrown on ranks that must end since the schedule is over; never leaves Scheduler::run().
class ScheduleOver : public std::runtime_error {
 public:
  ScheduleOver() : std::runtime_error("the schedule is over") {}
};

// What is wrong with a schedule. The first one counts.
struct ScheduleFailure {
  std::string kind;   // finding kinds of sim/tools/explore/result.h
  int64_t rank = -1;  // -1: no particular one
  int64_t step = 0;   // 0: construction
  std::string what;
};

// An act of a schedule, for people.
struct ScheduledAct {
  int64_t rank = 0;
  int64_t step = 0;
  std::string operation;
};

// Runs a body on every rank, each a thread of its own that is kept from one schedule to the next,
// one at a time: whoever has the token runs until a point, where a Chooser decides who goes on.
// Thread rule: run() from one thread; everything else from the thread that has the token, which is
// the rank that calls or that the delivery interrupted.
class Scheduler {
 public:
  // cpu: where all of its threads run, so that handing over is a switch and no wake-up of another
  // core; -1: anywhere.
  Scheduler(int64_t ranks, int cpu);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // One schedule. Blocks until all ranks have ended. Exceptions of a body are failures of kind
  // "error". traced: keep acts().
  std::optional<ScheduleFailure> run(Chooser& chooser, Deliveries& deliveries,
                                     const std::function<void(int64_t rank)>& body, bool traced);
  const std::vector<Choice>& choices() const { return choices_; }
  int64_t points() const { return points_; }
  const std::vector<ScheduledAct>& acts() const { return acts_; }

  // `rank` is about to do something that others may notice; `operation` is called if traced. Throws
  // ScheduleOver.
  template <class Text>
  void point(int64_t rank, Text&& operation) {
    if (over_) throw ScheduleOver();
    if (traced_) note(rank, operation());
    reach(rank);
  }
  // Waits until `released`, which only another's act can make true. Throws ScheduleOver.
  void block(int64_t rank, const bool& released, const char* waits_for);
  // One of `count` alternatives, of which 0 is the usual one.
  size_t pick(size_t count);
  // The schedule has failed: ranks end at their next point. The rank that calls goes on to its own.
  void fail(ScheduleFailure failure);
  bool is_over() const { return over_; }
  // For acts and failures.
  void set_step(int64_t rank, int64_t step) { ranks_[static_cast<size_t>(rank)].step = step; }
  int64_t step(int64_t rank) const { return ranks_[static_cast<size_t>(rank)].step; }
  void note(int64_t rank, std::string operation);

 private:
  class Baton {
   public:
    void give();
    void take();  // blocks

   private:
    std::atomic<uint32_t> given_{0};
  };
  struct Rank {
    std::thread thread;
    Baton baton;
    bool ended = true;
    const bool* waits = nullptr;  // for this to be true; null: it can run
    const char* waits_for = "";
    int64_t step = 0;
  };
  static constexpr int64_t kDriver = -1;

  void live(int64_t rank, int cpu);
  void do_body(int64_t rank);
  void reach(int64_t rank);
  void hand_over(int64_t from, int64_t to);
  int64_t next_rank(int64_t current);
  Actor decide(int64_t current);
  int64_t any_unended() const;
  void fail_deadlocked();

  std::vector<Rank> ranks_;
  Baton driver_;
  bool ends_ = false;
  // Of the schedule under way.
  Chooser* chooser_ = nullptr;
  Deliveries* deliveries_ = nullptr;
  const std::function<void(int64_t)>* body_ = nullptr;
  bool traced_ = false;
  bool over_ = false;
  int64_t points_ = 0;
  std::optional<ScheduleFailure> failure_;
  std::vector<Actor> ready_;
  std::vector<Choice> choices_;
  std::vector<ScheduledAct> acts_;
};

}  // namespace lockstep
