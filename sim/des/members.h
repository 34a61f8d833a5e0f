#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "sim/des/job.h"

namespace lockstep {

// Ranks that are one to an engine: a single one, or all that nothing tells apart but their noise.
struct Member {
  int64_t rank = 0;  // the first
  int64_t count = 1;
  bool touched = false;                             // the schedule may say something of it
  std::vector<std::pair<int64_t, int64_t>> ranges;  // [begin, end), ascending
};

std::vector<Member> each_rank(const Job& job);
// The touched ranks one by one, and all others together, by their first rank.
std::vector<Member> classes_of(const Job& job);

// Do ranks that differ by their noise alone come out of each step at the same time? They must, to
// be one class: each step ends in a collective that all of them wait for.
bool noise_ends_together(const Job& job);
// Do groups average parameters of which some have a touched rank, and others none?
bool groups_differ(const Job& job);

// The compute factors of the member that is latest and the one that is earliest.
struct Factors {
  int64_t late = kOne, early = kOne;
};
// Of one pass: by member, or with noise per bucket by bucket and member; by member as well where
// no bucket is communicated.
struct Draws {
  std::vector<Factors> ranks;
  std::vector<std::vector<Factors>> buckets;
};
// By looking at every rank's number.
Draws draws_of(const Job& job, const std::vector<Member>& members, int64_t pass);
// By one draw of the largest and one of the least of so many: L4. Of `count` independent numbers
// the largest is below u with probability u^count.
Draws order_statistics(const Job& job, const std::vector<Member>& members, int64_t pass);

}  // namespace lockstep
