#pragma once

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <vector>

#include "sim/des/simulate.h"

namespace lockstep {

// What tests of engines and of laws ask of a job.

inline std::vector<StepNumbers> steps_by(const Job& job, Engine engine, int64_t threads = 1) {
  const auto run = simulate(job, {engine, threads});
  if (!run) {
    ADD_FAILURE() << to_text(run.errors().front());
    return {};
  }
  return run.value().steps;
}

inline int64_t in_range(int64_t least, int64_t most) { return *rc::gen::inRange(least, most + 1); }

inline int64_t total_ns(const Job& job) {
  return simulate(job, {{}, 1}).value().steps.back().end_ns;
}

// Of any rank that is late by up to `most_ns` in each step: it makes nobody earlier, and all no
// later than that.
inline void a_later_rank_makes_nobody_earlier(Job job, int64_t RankEvents::*late, int64_t most_ns) {
  const int64_t before = total_ns(job);
  job.schedule.touched = {in_range(0, job.ranks - 1)};
  const int64_t delay_ns = in_range(0, most_ns);
  job.schedule.at = [=](int64_t, int64_t) {
    RankEvents events;
    events.*late = delay_ns;
    return events;
  };
  const int64_t after = total_ns(job);
  RC_ASSERT(after >= before);
  RC_ASSERT(after <= before + job.steps * delay_ns);
}

}  // namespace lockstep
