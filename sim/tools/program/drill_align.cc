#include "sim/tools/program/drill_align.h"

#include <algorithm>

namespace lockstep {
namespace {

using DrillCalls = std::vector<DrillCall>;

constexpr size_t kPassedOver = 64;  // calls at most, of both sides together
constexpr size_t kAgreeAgain = 3;   // calls, or as many as there are left

bool same_call(const DrillCall& a, const DrillCall& b) {
  return a.name == b.name && a.module == b.module && a.kind == b.kind &&
         a.outputs.size() == b.outputs.size();
}

bool go_on_alike(const DrillCalls& a, size_t i, const DrillCalls& b, size_t k) {
  if (i >= a.size() || k >= b.size()) return i == a.size() && k == b.size();
  for (size_t n = 0; n < kAgreeAgain && i + n < a.size() && k + n < b.size(); ++n)
    if (!same_call(a[i + n], b[k + n])) return false;
  return true;
}

// Moves on to where they agree again, with as few calls passed over as may be; or to the ends.
void pass_over(const DrillCalls& one, size_t* i, const DrillCalls& rank, size_t* k) {
  for (size_t passed = 1; passed <= kPassedOver; ++passed) {
    for (size_t of_rank = 0; of_rank <= passed; ++of_rank) {
      const size_t to_one = *i + passed - of_rank, to_rank = *k + of_rank;
      if (to_one > one.size() || to_rank > rank.size() || !go_on_alike(one, to_one, rank, to_rank))
        continue;
      *i = to_one;
      *k = to_rank;
      return;
    }
  }
  *i = one.size();
  *k = rank.size();
}

DrillPlace first_of(const DrillCalls& calls, size_t begin, size_t end) {
  return begin < end ? place_of(calls[begin]) : DrillPlace();
}

// By call of one device the same one of the rank, where there is one.
std::vector<std::optional<size_t>> matched(const DrillRank& one, const DrillRank& rank,
                                           std::optional<DrillParting>* parting) {
  std::vector<std::optional<size_t>> found(one.calls.size());
  for (size_t i = 0, k = 0; i < one.calls.size() || k < rank.calls.size();) {
    if (i < one.calls.size() && k < rank.calls.size() && same_call(one.calls[i], rank.calls[k])) {
      found[i++] = k++;
      continue;
    }
    const size_t at = i, rank_at = k;
    pass_over(one.calls, &i, rank.calls, &k);
    if (!*parting || at < (*parting)->before)
      *parting = {first_of(rank.calls, rank_at, k), first_of(one.calls, at, i), at};
  }
  return found;
}

}  // namespace

DrillPlace place_of(const DrillCall& call) {
  return {call.name, call.module, call.kind, call.line};
}

DrillAlignment align(const std::vector<DrillRank>& ranks, const DrillRank& one) {
  DrillAlignment made;
  std::vector<std::vector<std::optional<size_t>>> of_ranks;
  for (const DrillRank& rank : ranks) {
    of_ranks.push_back(matched(one, rank, &made.parting));
    made.of.emplace_back(rank.calls.size());
  }
  made.of_one.resize(one.calls.size());
  for (size_t call = 0; call < one.calls.size(); ++call) {
    if (!std::all_of(of_ranks.begin(), of_ranks.end(),
                     [&](const auto& rank) { return rank[call].has_value(); }))
      continue;
    made.of_one[call] = made.calls.size();
    AlignedCall& aligned = made.calls.emplace_back();
    aligned.one = call;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      aligned.ranks.push_back(*of_ranks[rank][call]);
      made.of[rank][*of_ranks[rank][call]] = made.calls.size() - 1;
    }
  }
  return made;
}

}  // namespace lockstep
