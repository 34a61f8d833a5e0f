#include "sim/analysis/recorded_comparison.h"

#include <algorithm>
#include <map>
#include <set>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

using HashesByName = HashedStep::Tensors;
using GapKind = RecordedGap::Kind;

struct DifferingHash {
  std::string tensor, a, b;
  int64_t compared = 0, differing = 0;
};

// Names of a in their order, then what only b has.
DifferingHash compare_hashes(const HashesByName& a, const HashesByName& b) {
  const std::map<std::string, std::string> others(b.begin(), b.end());
  std::set<std::string> known;
  DifferingHash found;
  const auto one = [&](const std::string& name, const std::string& x, const std::string& y) {
    ++found.compared;
    if (x == y) return;
    if (found.differing++ == 0) {
      found.tensor = name;
      found.a = x;
      found.b = y;
    }
  };
  for (const auto& [name, hash] : a) {
    const auto other = others.find(name);
    one(name, hash, other == others.end() ? "" : other->second);
    known.insert(name);
  }
  for (const auto& [name, hash] : b)
    if (!known.contains(name)) one(name, "", hash);
  return found;
}

// Of one step on one rank; the first that differs is kept.
void compare_steps(const HashedStep& a, const HashedStep& b, int64_t rank, bool at_end,
                   RecordedDivergence* divergence) {
  RecordedDivergence here;
  for (size_t kind = 0; kind < HashedStep::kKinds.size(); ++kind) {
    const DifferingHash found = compare_hashes(a.tensors.at(kind), b.tensors.at(kind));
    here.in_step += found.compared;
    here.differing += found.differing;
    if (found.differing == 0 || !here.kind.empty()) continue;
    here.kind = HashedStep::kKinds.at(kind);
    here.tensor = found.tensor;
    here.a = found.a;
    here.b = found.b;
  }
  divergence->tensors += here.in_step;
  if (here.differing == 0 || divergence->differing != 0) return;
  here.steps = divergence->steps;
  here.tensors = divergence->tensors;
  here.last_step = divergence->last_step;
  here.step = std::max(a.step, b.step);
  here.at_end = at_end;
  here.rank = rank;
  *divergence = here;
}

const HashedStep* hashed_step(const RecordedRank& rank, int64_t step) {
  const auto at = std::lower_bound(
      rank.hashed.begin(), rank.hashed.end(), step,
      [](const HashedStep& hashed, int64_t wanted) { return hashed.step < wanted; });
  return at != rank.hashed.end() && at->step == step ? &*at : nullptr;
}

RecordedDivergence first_divergence(const RecordedHashes& a, const RecordedHashes& b) {
  std::set<int64_t> steps;
  for (const RecordedRank& rank : a.ranks)
    for (const HashedStep& hashed : rank.hashed) steps.insert(hashed.step);
  RecordedDivergence first;
  for (const int64_t step : steps) {
    bool compared = false;
    for (size_t rank = 0; rank < a.ranks.size(); ++rank) {
      const HashedStep *x = hashed_step(a.ranks[rank], step), *y = hashed_step(b.ranks[rank], step);
      if (x == nullptr || y == nullptr) continue;
      compared = true;
      compare_steps(*x, *y, static_cast<int64_t>(rank), false, &first);
    }
    if (!compared) continue;
    ++first.steps;
    first.last_step = step;
  }
  // Ends of runs of other lengths may well differ.
  for (size_t rank = 0; rank < a.ranks.size(); ++rank) {
    const auto &x = a.ranks[rank].end, &y = b.ranks[rank].end;
    if (!x || !y || x->step != y->step) continue;
    compare_steps(*x, *y, static_cast<int64_t>(rank), true, &first);
    first.last_step = std::max(first.last_step, x->step);
  }
  return first;
}

void add_gaps_of_side(const RecordedHashes& recording, RecordedSide side,
                      std::vector<RecordedGap>* gaps) {
  for (size_t i = 0; i < recording.ranks.size(); ++i) {
    const RecordedRank& rank = recording.ranks[i];
    const auto number = static_cast<int64_t>(i);
    if (!rank.finished) gaps->push_back({GapKind::no_end, side, number, rank.last_step, 0});
    if (const int64_t others = recording.ranks.front().last_step; rank.last_step != others)
      gaps->push_back({GapKind::ranks_apart, side, number, rank.last_step, others});
    for (int64_t step = recording.hash_every; step <= rank.last_step; step += recording.hash_every)
      if (hashed_step(rank, step) == nullptr) {
        gaps->push_back({GapKind::not_hashed, side, number, step, 0});
        break;
      }
    if (rank.finished && !rank.end && recording.hash_version > 1)
      gaps->push_back({GapKind::end_unhashed, side, number, rank.last_step, 0});
  }
}

// The last step that all ranks of both hashed.
int64_t last_hashed_in_all(const RecordedHashes& a, const RecordedHashes& b) {
  const auto in_all = [](const RecordedHashes& recording, int64_t step) {
    return std::all_of(
        recording.ranks.begin(), recording.ranks.end(),
        [&](const RecordedRank& rank) { return hashed_step(rank, step) != nullptr; });
  };
  const auto& hashed = a.ranks.front().hashed;
  const auto last = std::find_if(hashed.rbegin(), hashed.rend(), [&](const HashedStep& step) {
    return in_all(a, step.step) && in_all(b, step.step);
  });
  return last == hashed.rend() ? 0 : last->step;
}

bool hashed_at_end(const RecordedHashes& recording) {
  return std::all_of(recording.ranks.begin(), recording.ranks.end(), [](const RecordedRank& rank) {
    return rank.end && rank.end->step == rank.last_step;
  });
}

// Lines of hashes and records were written side by side: where only one of them agrees, something
// has happened to a file.
void add_differing_chains(const RecordedHashes& a, const RecordedHashes& b,
                          std::vector<RecordedGap>* gaps) {
  if (a.hash_every != b.hash_every) return;
  for (size_t rank = 0; rank < a.ranks.size(); ++rank)
    for (const HashedStep& x : a.ranks[rank].hashed) {
      const HashedStep* y = hashed_step(b.ranks[rank], x.step);
      if (y == nullptr || x.tensors != y->tensors) break;
      for (size_t kind = 0; kind < x.chains.size(); ++kind)
        if (x.chains.at(kind) && y->chains.at(kind) && x.chains.at(kind) != y->chains.at(kind)) {
          gaps->push_back(
              {GapKind::chains_differ, std::nullopt, static_cast<int64_t>(rank), x.step, 0});
          return;
        }
    }
}

// Each rank against rank 0.
RankDivergence divergence_within(const RecordedHashes& recording, bool of_buffers) {
  RecordedHashes others = recording;
  const auto keep = [&](HashedStep* step) {
    for (size_t kind = 0; kind < step->tensors.size(); ++kind)
      if ((kind == HashedStep::kBuffers) != of_buffers) step->tensors.at(kind).clear();
  };
  for (RecordedRank& rank : others.ranks) {
    for (HashedStep& step : rank.hashed) keep(&step);
    if (rank.end) keep(&*rank.end);
  }
  RecordedHashes first = others;
  std::fill(first.ranks.begin() + 1, first.ranks.end(), others.ranks.front());
  const RecordedDivergence found = first_divergence(first, others);
  return {found.rank, found.step, found.kind, found.tensor};
}

}  // namespace

std::vector<RecordedGap> gaps_of(const RecordedHashes& a, const RecordedHashes& b) {
  std::vector<RecordedGap> gaps;
  const int64_t a_steps = a.ranks.front().last_step, b_steps = b.ranks.front().last_step;
  if (a_steps != b_steps)
    gaps.push_back({GapKind::other_length, std::nullopt, 0, a_steps, b_steps});
  add_gaps_of_side(a, RecordedSide::a, &gaps);
  add_gaps_of_side(b, RecordedSide::b, &gaps);
  const int64_t last = last_hashed_in_all(a, b), steps = std::min(a_steps, b_steps);
  if (last < steps && !(hashed_at_end(a) && hashed_at_end(b)))
    gaps.push_back({GapKind::last_unhashed, std::nullopt, 0, last, steps});
  return gaps;
}

RankDivergence divergence_of_ranks(const RecordedHashes& recording) {
  return divergence_within(recording, false);
}

RankDivergence divergence_of_buffers(const RecordedHashes& recording) {
  return divergence_within(recording, true);
}

RecordedComparison compare_recordings(const RecordedHashes& a, const RecordedHashes& b) {
  LOCKSTEP_CHECK(a.world_size == b.world_size && a.hash_version == b.hash_version,
                 "hashes that cannot be compared");
  RecordedComparison made;
  made.first = first_divergence(a, b);
  made.ranks_of_a = divergence_of_ranks(a);
  made.ranks_of_b = divergence_of_ranks(b);
  made.buffers_of_a = divergence_of_buffers(a);
  made.buffers_of_b = divergence_of_buffers(b);
  made.gaps = gaps_of(a, b);
  add_differing_chains(a, b, &made.gaps);
  if (made.first.found() || made.ranks_of_a.found() || made.ranks_of_b.found())
    made.verdict = RecordedVerdict::fail;
  else if (!made.gaps.empty())
    made.verdict = RecordedVerdict::inconclusive;
  else
    made.verdict = made.first.tensors == 0 ? RecordedVerdict::nothing : RecordedVerdict::pass;
  return made;
}

}  // namespace lockstep
