#include "sim/tools/program/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "golden/reduction_order.h"
#include "scenarios/base/file.h"
#include "scenarios/base/same_bits.h"

namespace lockstep {
namespace {

constexpr int64_t kFileBytesMost = int64_t{1} << 30;
constexpr int64_t kSumBytesMost = int64_t{256} << 20;  // of all contributions to one sum
constexpr int64_t kControlsMost = 64;                  // sums that are tried, zeros mostly

// One sum as all its ranks recorded it; by their order in the group.
struct Sum {
  SumKind kind = SumKind::all_reduce;
  SumType type = SumType::float64;
  int64_t call = 0, step = 0, elements = 0;
  std::vector<int64_t> ranks;
  std::vector<TappedCall> calls;
};

struct Recording {
  std::vector<TappedRank> ranks;
  std::vector<ForeignFile> files;
  std::vector<Sum> sums;  // that were kept on all their ranks
  int64_t seen = 0;       // sums of floating point over more than one rank, kept or not
};

std::string text_of(const TappedCall& call) {
  return fmt::format("{} of {} elements", call.name, call.elements);
}

// What such a text leaves out.
std::string kind_of(const TappedCall& call) {
  if (call.sum == SumKind::not_a_sum) return " (no sum)";
  return call.type == SumType::float32   ? " (float32)"
         : call.type == SumType::float64 ? " (float64)"
                                         : " (of another type)";
}

// Throw std::string, the reason why nothing can be concluded.
void check_same(const TappedCall& a, const TappedCall& b, int64_t rank_a, int64_t rank_b) {
  const bool sums = a.sum != SumKind::not_a_sum || b.sum != SumKind::not_a_sum;
  if (a.name == b.name && a.sum == b.sum &&
      (!sums || (a.elements == b.elements && a.type == b.type)))
    return;
  const bool alike = text_of(a) == text_of(b);
  throw fmt::format("collective {} is {}{} on rank {}, and {}{} on rank {}", a.call, text_of(a),
                    alike ? kind_of(a) : "", rank_a, text_of(b), alike ? kind_of(b) : "", rank_b);
}

const TappedCall* call_numbered(const TappedGroup& group, int64_t number) {
  const auto found = std::lower_bound(group.calls.begin(), group.calls.end(), number,
                                      [](const auto& a, int64_t n) { return a.call < n; });
  return found != group.calls.end() && found->call == number ? &*found : nullptr;
}

bool is_kept(const Sum& sum) {
  return sum.calls.size() == sum.ranks.size() &&
         std::all_of(sum.calls.begin(), sum.calls.end(),
                     [](const TappedCall& call) { return call.input >= 0 && call.result >= 0; });
}

void check_ranks(const std::string& name, const TappedGroup& group, int64_t world) {
  std::vector<int64_t> sorted = group.ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (sorted.empty() || sorted.front() < 0 || sorted.back() >= world || !distinct)
    throw fmt::format("group {} has ranks that the run has not", name);
}

void collect_group(const std::string& name, const TappedGroup& group, Recording* all) {
  std::vector<const TappedGroup*> of_ranks;
  for (const int64_t rank : group.ranks) {
    const auto& groups = all->ranks[static_cast<size_t>(rank)].groups;
    const auto found = groups.find(name);
    if (found == groups.end() || found->second.ranks != group.ranks)
      throw fmt::format("rank {} called no collective of group {}", rank, name);
    of_ranks.push_back(&found->second);
  }
  for (const TappedCall& call : group.calls) {
    Sum sum{call.sum, call.type, call.call, call.step, call.elements, group.ranks, {}};
    for (size_t i = 0; i < of_ranks.size(); ++i) {
      const TappedCall* own = call_numbered(*of_ranks[i], call.call);
      if (own == nullptr) break;  // beyond what a recording holds
      check_same(call, *own, group.ranks[0], group.ranks[i]);
      sum.calls.push_back(*own);
    }
    if (call.sum == SumKind::not_a_sum || call.type == SumType::other || group.ranks.size() < 2)
      continue;
    ++all->seen;
    if (is_kept(sum)) all->sums.push_back(std::move(sum));
  }
}

Recording read_all(const std::string& folder, int64_t world) {
  Recording all;
  for (int64_t rank = 0; rank < world; ++rank) {
    auto read = read_tapped_rank(folder, rank);
    if (!read) throw to_text(read.errors()[0]);
    all.ranks.push_back(std::move(read.value()));
    all.files.emplace_back();
    if (all.ranks.back().tap == TapKind::none) continue;
    auto file = open_foreign_file(all.ranks.back().contributions, kFileBytesMost);
    if (!file) throw to_text(file.errors()[0]);
    all.files.back() = std::move(file.value());
  }
  return all;
}

void collect(int64_t world, Recording* all) {
  for (size_t rank = 0; rank < all->ranks.size(); ++rank) {
    const TappedRank& one = all->ranks[rank];
    if (one.tap != TapKind::none && !one.ended)
      throw fmt::format("rank {} left no whole recording of its collectives", rank);
    for (const auto& [name, group] : one.groups) {
      check_ranks(name, group, world);
      if (group.ranks[0] == static_cast<int64_t>(rank)) collect_group(name, group, all);
    }
  }
}

template <class T>
std::vector<T> read_part(const Recording& all, int64_t rank, int64_t offset, int64_t count) {
  const ForeignFile& file = all.files[static_cast<size_t>(rank)];
  // Before room is made for it.
  const bool there = count <= (file.bytes - offset) / static_cast<int64_t>(sizeof(T));
  std::vector<T> part(there ? static_cast<size_t>(count) : 0);
  if (!there || !read_at(file.fd.get(), offset, part.data(), part.size() * sizeof(T)))
    throw fmt::format("rank {} kept less than its recording says", rank);
  return part;
}

// A reduce_scatter, too: c10d has Gloo all-reduce the whole, and each rank takes its part.
template <class T>
std::vector<T> in_gloos_order(const std::vector<std::vector<T>>& inputs) {
  std::vector<const T*> from;
  for (const std::vector<T>& input : inputs) from.push_back(input.data());
  std::vector<T> out(inputs[0].size());
  sum_in_order<T>("ring", from, static_cast<int64_t>(out.size()), out.data());
  return out;
}

template <class T>
std::vector<std::vector<T>> read_inputs(const Recording& all, const Sum& sum) {
  const auto world = static_cast<int64_t>(sum.ranks.size());
  const auto bytes = static_cast<int64_t>(sizeof(T));
  if (sum.elements < 1 || sum.elements > kSumBytesMost / bytes / world ||
      (sum.kind == SumKind::reduce_scatter && sum.elements % world != 0))
    throw fmt::format("collective {} cannot have {} elements", sum.call, sum.elements);
  std::vector<std::vector<T>> inputs;
  for (size_t i = 0; i < sum.ranks.size(); ++i)
    inputs.push_back(read_part<T>(all, sum.ranks[i], sum.calls[i].input, sum.elements));
  return inputs;
}

// Changes the sign of the largest element of the last contribution; false where that changes
// nothing.
template <class T>
bool flip_a_bit(std::vector<std::vector<T>>* inputs) {
  std::vector<T>& last = inputs->back();
  const auto largest = std::max_element(last.begin(), last.end(),
                                        [](T a, T b) { return std::abs(a) < std::abs(b); });
  if (*largest == 0 || !std::isfinite(*largest)) return false;
  *largest = -*largest;
  return true;
}

ProgramFinding other_bits(const Sum& sum, size_t index, size_t element, double got,
                          double expected) {
  ProgramFinding found;
  found.verdict = Verdict::fail;
  found.cause = ProgramCause::unknown;
  found.step = sum.step;
  found.entry = fmt::format("{}, collective {} of its group", text_of(sum.calls[index]), sum.call);
  found.words = fmt::format(
      "element {} is {:.17g} on rank {}; its contributions in Gloo's order give {:.17g}", element,
      got, sum.ranks[index], expected);
  return found;
}

template <class T>
std::optional<ProgramFinding> difference(const Recording& all, const Sum& sum,
                                         const std::vector<std::vector<T>>& inputs) {
  const std::vector<T> expected = in_gloos_order(inputs);
  const bool scattered = sum.kind == SumKind::reduce_scatter;
  const size_t part = scattered ? expected.size() / sum.ranks.size() : expected.size();
  for (size_t i = 0; i < sum.ranks.size(); ++i) {
    const size_t begin = scattered ? i * part : 0;
    const auto got =
        read_part<T>(all, sum.ranks[i], sum.calls[i].result, static_cast<int64_t>(part));
    for (size_t e = 0; e < part; ++e)
      if (!same_bits(got[e], expected[begin + e]))
        return other_bits(sum, i, begin + e, static_cast<double>(got[e]),
                          static_cast<double>(expected[begin + e]));
  }
  return std::nullopt;
}

template <class T>
std::optional<ProgramFinding> replay_one(const Recording& all, const Sum& sum) {
  return difference(all, sum, read_inputs<T>(all, sum));
}

template <class T>
std::optional<bool> control_of(const Recording& all, const Sum& sum) {
  auto inputs = read_inputs<T>(all, sum);
  if (!flip_a_bit(&inputs)) return std::nullopt;
  return difference(all, sum, inputs).has_value();
}

// Nothing: the sums are of zeros, which no order and no sign changes.
std::optional<bool> control_fails(const Recording& all) {
  const int64_t tries = std::min(kControlsMost, static_cast<int64_t>(all.sums.size()));
  for (int64_t i = 0; i < tries; ++i) {
    const Sum& sum = all.sums[static_cast<size_t>(i)];
    const auto fails =
        sum.type == SumType::float32 ? control_of<float>(all, sum) : control_of<double>(all, sum);
    if (fails) return fails;
  }
  return std::nullopt;
}

ProgramFinding judge(const Recording& all) {
  ProgramFinding passed;
  std::set<int64_t> steps;
  for (const Sum& sum : all.sums) {
    const auto found =
        sum.type == SumType::float32 ? replay_one<float>(all, sum) : replay_one<double>(all, sum);
    if (found) return *found;
    steps.insert(sum.step);
  }
  passed.steps = static_cast<int64_t>(steps.size());
  passed.words = fmt::format("{} of {} sums over Gloo, bit for bit", all.sums.size(), all.seen);
  return passed;
}

void judge_into(const Recording& all, ProgramReplay* replay) {
  const bool all_seen = replay->tap == TapKind::hooks;
  if (all.sums.empty() && (all.seen == 0 || !all_seen)) return;
  if (all.sums.empty()) {
    replay->finding = inconclusive(fmt::format(
        "of {} sums, none was kept on all ranks (too large, or not over Gloo)", all.seen));
    return;
  }
  const std::optional<bool> control = control_fails(all);
  ProgramFinding found = judge(all);
  // Flags of a library's own, as those of Join: of what DistributedDataParallel adds nothing is
  // seen.
  const bool all_tried = std::ssize(all.sums) <= kControlsMost;
  if (!control && !all_seen && all_tried && found.verdict == Verdict::pass) return;
  replay->finding = std::move(found);
  replay->control_failed = control.value_or(false);
}

}  // namespace

ProgramReplay replay_program(const std::string& folder, int64_t world) {
  ProgramReplay replay;
  try {
    Recording all = read_all(folder, world);
    replay.tap = all.ranks[0].tap;
    replay.torch = all.ranks[0].torch;
    replay.collectives = all.ranks[0].collectives;
    for (const TappedRank& rank : all.ranks) replay.kept_bytes += rank.bytes;
    collect(world, &all);
    judge_into(all, &replay);
  } catch (const std::string& why) {
    replay.finding = inconclusive(why);
  }
  return replay;
}

}  // namespace lockstep
