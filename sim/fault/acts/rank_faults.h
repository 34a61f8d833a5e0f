#pragma once

#include <string>
#include <vector>

#include "sim/fault/acts/schedule.h"
#include "sim/record/recorder.h"

namespace lockstep {

// What a fault does to the process that calls it.

// Sleeps: no core is busy. Interrupted by nothing but a deadly signal.
void pause_for(double duration_ms);

// Ends, stops or confuses this process as the fault's kind says; returns where it goes on: from a
// stop that is over, a pause, or a reset of its connections. Kinds that act elsewhere do nothing.
// Throws std::runtime_error (exception) and std::bad_alloc (out_of_memory). Any thread.
void act_out(const Act& act);

// SIGSTOP to this process; SIGCONT after duration_ms, sent by a process forked for it, which dies
// with this one. 0: nobody continues it.
void stop_for(double duration_ms);

// Shuts down every TCP connection of this process, as a network that resets them.
void reset_connections();

// The faults of one rank while it runs: lets them act where they have their address, each with a
// receipt in the records before. With gradient accumulation delays act in every micro-batch, what
// acts once in the first. Without faults nothing happens. Steps are the recorder's. One
// thread, but at_bucket() and at_layer(), which autograd's threads call.
class RankFaults {
 public:
  RankFaults(const Scenario& scenario, int64_t rank, Recorder& recorder);

  // Faults of configuration act in every pass, all others in the primary run only.
  void begin_double_run() { primary_ = false; }

  // Records that the phase begins, then lets act what acts there. Throws as act_out() does.
  void enter(Phase phase);
  // Before the collective of a bucket. Returns whether it is never to be called (skip_collective).
  bool at_bucket(int64_t bucket);
  // In the backward of a layer, before its gradients are there.
  void at_layer(const std::string& layer);

  // The fault of a kind without an address in time ("mismatched_seed"), with a receipt, or null.
  const Fault* standing(FaultKind kind);
  // Does this kind act in the step under way? With a receipt if so.
  const Fault* in_step(FaultKind kind);
  // How many times as long forward and backward of the step under way take; with a receipt of each
  // fault that makes them.
  double slow_down();
  // Acts of a kind in the step under way, without receipts: for those who ask often.
  std::vector<Act> acts_of(FaultKind kind) const;
  void receipt(const Act& act);

  bool any() const { return any_; }
  bool any_of_class(FaultClass wanted) const;  // on any rank

 private:
  bool acts(const Fault& fault) const;
  bool act_once(const Act& act);

  const Scenario& scenario_;
  const FaultSchedule schedule_;
  Recorder& recorder_;
  const bool any_;
  bool primary_ = true;
  std::vector<bool> done_;  // by fault: it has acted, and acts once
};

}  // namespace lockstep
