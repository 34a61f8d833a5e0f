#include "sim/judge/checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "sim/judge/last_position.h"

namespace lockstep {
namespace {

// ATen's ScalarType, as far as collectives carry it.
std::string dtype_word(uint8_t code) {
  switch (code) {
    case 0:
      return "uint8";
    case 1:
      return "int8";
    case 3:
      return "int32";
    case 4:
      return "int64";
    case 5:
      return "float16";
    case 6:
      return "float32";
    case 7:
      return "float64";
    case 11:
      return "bool";
    case 15:
      return "bfloat16";
    default:
      return fmt::format("type {}", code);
  }
}

std::string describe_arrival(const Event& arrival) {
  return collective_text(arrival) + " of " + dtype_word(unpack_collective(arrival.value).dtype);
}

std::string other_call(const RankView& a, const RankView& b) {
  std::unordered_map<uint32_t, const Event*> of_b;  // a long run has many
  for (const Event& y : b.arrivals) of_b.emplace(y.sequence, &y);
  for (const Event& x : a.arrivals) {
    const auto found = of_b.find(x.sequence);
    if (found == of_b.end() || x.value == found->second->value) continue;
    return fmt::format("rank {} called {}, rank {} called {}", a.rank, describe_arrival(x), b.rank,
                       describe_arrival(*found->second));
  }
  return fmt::format("ranks {} and {} made {} and {} collectives", a.rank, b.rank,
                     a.arrivals.size(), b.arrivals.size());
}

// Steps that a failure cut short have no hash: there, what both ranks called under one number.
std::optional<OtherCollective> in_unfinished_step(const std::vector<RankView>& ranks) {
  if (ranks.empty()) return {};
  std::unordered_map<uint32_t, const Event*> of_first;
  for (const Event& arrival : ranks[0].arrivals) of_first.emplace(arrival.sequence, &arrival);
  for (size_t r = 1; r < ranks.size(); ++r)
    for (const Event& arrival : ranks[r].arrivals) {
      const auto found = of_first.find(arrival.sequence);
      if (found == of_first.end() || found->second->value == arrival.value) continue;
      return OtherCollective{
          arrival.step,
          fmt::format("in step {}, rank 0 called {}, rank {} called {}", arrival.step,
                      describe_arrival(*found->second), ranks[r].rank, describe_arrival(arrival))};
    }
  return {};
}

// `compared`: did any two ranks end a step that both have logged?
std::optional<OtherCollective> other_collective(const std::vector<RankView>& ranks,
                                                bool* compared) {
  for (size_t r = 1; r < ranks.size(); ++r) {
    const StepValues& a = ranks[0].collectives;
    const StepValues& b = ranks[r].collectives;
    size_t j = 0;
    for (const auto& [step, value] : a) {
      while (j < b.size() && b[j].first < step) ++j;
      if (j == b.size() || b[j].first != step) continue;
      *compared = true;
      if (b[j].second == value) continue;
      return OtherCollective{
          step, fmt::format("up to step {}, {}", step, other_call(ranks[0], ranks[r]))};
    }
  }
  return in_unfinished_step(ranks);
}

std::string collective_log(const std::vector<RankView>& ranks, std::vector<std::string>* reasons) {
  bool compared = false;
  const auto other = other_collective(ranks, &compared);
  if (!other) return compared ? "pass" : "not_run";
  reasons->push_back("collective_log: " + other->text);
  return "fail";
}

std::string recorded(const std::vector<RankView>& ranks, Check which) {
  std::string verdict = "not_run";
  for (const RankView& rank : ranks) {
    for (const CheckReason& reason : rank.evidence.check_reasons)  // survives dropped events
      if (reason.check == which) return "fail";
    for (const auto& [check, passed] : rank.checks) {
      if (check != which) continue;
      if (!passed) return "fail";
      verdict = "pass";
    }
  }
  return verdict;
}

}  // namespace

std::optional<OtherCollective> first_other_collective(const std::vector<RankView>& ranks) {
  bool compared = false;
  return other_collective(ranks, &compared);
}

void decide_checks(const std::vector<RankView>& ranks, RunResult* result) {
  result->checks.emplace_back("collective_log", collective_log(ranks, &result->check_reasons));
  for (const Check which :
       {Check::manifest, Check::absent_gradients, Check::aliasing, Check::checkpoint})
    result->checks.emplace_back(to_word(which), recorded(ranks, which));
  std::vector<std::string>& reasons = result->check_reasons;
  for (const RankView& rank : ranks)
    for (const CheckReason& reason : rank.evidence.check_reasons)
      if (std::find(reasons.begin(), reasons.end(), to_text(reason)) == reasons.end())
        reasons.push_back(to_text(reason));
}

}  // namespace lockstep
