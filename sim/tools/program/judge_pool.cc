#include "sim/tools/program/judge_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "sim/tools/program/sketch.h"

namespace lockstep {
namespace {

using Samples = std::set<std::string>;

// Of the steps [begin, end); empty: one has a sample twice.
Samples samples_of(const ProgramRank& rank, size_t begin, size_t end) {
  Samples had;
  for (size_t step = begin; step < end; ++step)
    for (const std::string& sample : rank.steps[step].samples)
      if (!had.insert(sample).second) return {};
  return had;
}

// What a rank trains on until it has a sample again.
size_t end_of_first_epoch(const ProgramRank& rank) {
  Samples had;
  for (size_t step = 0; step < rank.steps.size(); ++step) {
    const std::vector<std::string>& own = rank.steps[step].samples;
    if (std::any_of(own.begin(), own.end(), [&](const auto& one) { return had.contains(one); }))
      return step;
    had.insert(own.begin(), own.end());
  }
  return rank.steps.size();
}

// Where iterations of a loader begin, after the first.
std::vector<size_t> iterations(const ProgramRank& rank) {
  std::vector<size_t> begins;
  for (size_t step = 1; step < rank.steps.size(); ++step)
    if (rank.steps[step].position > 0 && rank.steps[step].position <= rank.steps[step - 1].position)
      begins.push_back(step);
  return begins;
}

ProgramFinding told(ProgramCause cause, const ProgramRank& rank, size_t step,
                    const std::string& words) {
  ProgramFinding found;
  found.verdict = Verdict::inconclusive;
  found.cause = cause;
  found.step = static_cast<int64_t>(step + 1);
  found.entry = "samples";
  found.line = rank.steps[step].line;
  found.words = "all steps agree with one device that is given the ranks' samples, but " + words;
  return found;
}

// Of an epoch that begins at `step`.
ProgramFinding judge_owners(const std::vector<ProgramRank>& ranks, const std::vector<Samples>& had,
                            const Samples& pool, size_t step) {
  std::map<std::string, size_t> owners;
  size_t dealt = 0;
  for (const Samples& own : had) {
    if (own.size() != had[0].size()) return {};  // they draw samples again
    for (const std::string& sample : own) ++owners[sample];
    dealt += own.size();
  }
  const auto is_of_pool = [&](const auto& owned) { return pool.contains(owned.first); };
  if (pool.empty() || dealt > pool.size() || owners.empty()) return {};
  if (!std::all_of(owners.begin(), owners.end(), is_of_pool)) return {};
  if (owners.size() == dealt) return {};
  return told(ProgramCause::other_shuffles, ranks[0], step,
              fmt::format("of {} samples, which one device trains on once each, {} are dealt to "
                          "several ranks and {} to none",
                          pool.size(),
                          std::count_if(owners.begin(), owners.end(),
                                        [](const auto& owned) { return owned.second > 1; }),
                          pool.size() - owners.size()));
}

ProgramFinding judge_first_epoch(const std::vector<ProgramRank>& ranks, const ProgramRank& alone) {
  std::vector<Samples> had;
  for (const ProgramRank& rank : ranks)
    had.push_back(samples_of(rank, 0, end_of_first_epoch(rank)));
  return judge_owners(ranks, had, samples_of(alone, 0, end_of_first_epoch(alone)), 0);
}

// Where a rank has another sample than `other` at the same index of the same data set.
std::string other_item(const ProgramRank& rank, const ProgramRank& other,
                       const std::string& where) {
  for (const auto& [place, hash] : rank.items) {
    const auto found = other.items.find(place);
    if (found != other.items.end() && found->second != hash)
      return fmt::format("sample {} of the data set is another one on rank {} than on {}",
                         place.second, rank.rank, where);
  }
  return "";
}

std::string other_items(const std::vector<ProgramRank>& ranks, const ProgramRank& alone) {
  for (size_t i = 1; i < ranks.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (std::string words = other_item(ranks[i], ranks[j], fmt::format("rank {}", ranks[j].rank));
          !words.empty())
        return words;
  for (const ProgramRank& rank : ranks)
    if (std::string words = other_item(rank, alone, "one device"); !words.empty()) return words;
  return "";
}

}  // namespace

ProgramFinding judge_pool(const std::vector<ProgramRank>& ranks, const ProgramRank& alone) {
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() < 2) return {};
  if (ProgramFinding found = judge_first_epoch(ranks, alone); found.verdict != Verdict::pass)
    return found;
  std::vector<size_t> begins = iterations(alone);
  for (const ProgramRank& rank : ranks)
    if (rank.steps.size() != alone.steps.size() || iterations(rank) != begins) return {};
  begins.push_back(alone.steps.size());
  for (size_t i = 0; i + 1 < begins.size(); ++i) {
    std::vector<Samples> had;
    for (const ProgramRank& rank : ranks) had.push_back(samples_of(rank, begins[i], begins[i + 1]));
    const Samples pool = samples_of(alone, begins[i], begins[i + 1]);
    if (ProgramFinding found = judge_owners(ranks, had, pool, begins[i]);
        found.verdict != Verdict::pass)
      return found;
  }
  return {};
}

ProgramFinding judge_items(const std::vector<ProgramRank>& ranks, const ProgramRank& alone) {
  const std::string words = other_items(ranks, alone);
  if (words.empty() || ranks[0].steps.empty()) return {};
  return told(ProgramCause::other_items, ranks[0], 0, words);
}

void take_cause_of_items(const std::vector<ProgramRank>& ranks, const ProgramRank& alone,
                         ProgramFinding* found) {
  if (found->verdict != Verdict::fail || found->cause != ProgramCause::unknown) return;
  const std::string words = other_items(ranks, alone);
  if (words.empty()) return;
  found->cause = ProgramCause::other_items;
  found->words += "; " + words;
}

ProgramFinding judge_first_weights(const std::vector<ProgramRank>& ranks,
                                   const ProgramRank& alone) {
  if (ranks[0].steps.empty() || alone.steps.empty()) return {};
  const ProgramStep &a = ranks[0].steps[0], &b = alone.steps[0];
  std::optional<std::pair<size_t, double>> scaled;
  bool some_alike = false;
  for (size_t i = 0; i < std::min(a.before.size(), b.before.size()); ++i) {
    const double factor = sketch_ratio(a.before[i], b.before[i]);
    if (!agree(a.before[i], scaled_by(b.before[i], factor))) return {};  // another number was drawn
    if (factor == 0) continue;
    if (std::abs(factor - 1) <= kProgramRatioBound)
      some_alike = true;
    else if (!scaled)
      scaled = {i, factor};
  }
  if (!scaled || !some_alike) return {};
  ProgramFinding found = inconclusive(
      fmt::format("all steps agree with one device that is given the ranks' first weights, but "
                  "ranks start with {:.6g} times its own values of {}: do they depend on the "
                  "number of ranks?",
                  scaled->second, a.names[scaled->first]));
  found.step = 1;
  return found;
}

}  // namespace lockstep
