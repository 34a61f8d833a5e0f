#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "sim/explore/chooser.h"

namespace lockstep {

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
  std::string kind;   // finding kinds of sim/explore/result.h
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
