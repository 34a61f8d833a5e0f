#pragma once

#include <cstdint>
#include <vector>

#include "sim/des/job.h"
#include "sim/des/walk.h"

namespace lockstep {

// Of many ranks that faults touch, few decide a step: those that no other is held up more than, and
// those that no other is held up less than; noise of a rank's compute is one more thing that holds
// it up. What a step takes, its skew and its time-outs are maxima and minima over ranks, and each
// of these is reached by one of the few; who is to blame for a failure is looked up rank by rank.

// May a job's ranks be left out of a step like that? Where all leave each step together, a rank has
// one draw of noise a step at most, and it is worth it.
bool has_fronts(const Job& job);

// The members of one step, of the job's classes_of(): those few, and all untouched ranks as one.
// Any thread.
std::vector<Member> front_of(const Job& job, const std::vector<Member>& classes, int64_t step);

// Of weights as Schedule::weigh() gives them: the places of those that no other exceeds in all, and
// of those that no other falls below in all; of equal ones the first. Ascending; for tests.
std::vector<size_t> extremes(const std::vector<int64_t>& by_fault, size_t ranks);

}  // namespace lockstep
