#include "sim/sweep/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "scenarios/base/hash.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

template <class Get>
std::vector<double> over_runs(const std::vector<SweepRun>& runs, Get get) {
  std::vector<double> values;
  for (const SweepRun& run : runs) values.push_back(get(run.numbers));
  return values;
}

CellResult summary_of(const Cell& cell, std::vector<SweepRun> runs, uint64_t seed) {
  CellResult result;
  result.cell = cell;
  std::sort(runs.begin(), runs.end(),
            [](const SweepRun& a, const SweepRun& b) { return a.round < b.round; });
  const auto estimate = [&](double RunNumbers::*member) {
    return bootstrap_median(over_runs(runs, [&](const RunNumbers& n) { return n.*member; }),
                            kConfidence, seed);
  };
  result.step_ms = estimate(&RunNumbers::step_ms);
  result.backward_ms = estimate(&RunNumbers::backward_ms);
  result.exposed_ms = estimate(&RunNumbers::exposed_ms);
  result.skew_ms = estimate(&RunNumbers::skew_ms);
  std::vector<double> overlaps;
  for (const SweepRun& run : runs) {
    if (run.numbers.overlap) overlaps.push_back(*run.numbers.overlap);
    result.wrong += run.replicas == "differ";
    result.not_compared += run.replicas == "not_compared";
  }
  if (!overlaps.empty()) result.overlap = bootstrap_median(overlaps, kConfidence, seed);
  result.tail_mb = runs.back().numbers.tail_mb;
  result.buckets = runs.back().numbers.buckets;
  result.outlier_runs = static_cast<int64_t>(
      outliers(over_runs(runs, [](const RunNumbers& n) { return n.step_ms; })).size());
  result.runs = std::move(runs);
  return result;
}

}  // namespace

bool has_interval(const CellResult& line) { return line.runs.size() > 1; }

std::string interval_text(const CellResult& line, int digits) {
  if (!has_interval(line)) return "-";
  return fmt::format("{:.{}f} .. {:.{}f}", line.step_ms.low, digits, line.step_ms.high, digits);
}

std::vector<CellResult> cell_results(const std::vector<Cell>& cells,
                                     const std::vector<SweepRun>& runs, uint64_t seed) {
  std::vector<CellResult> results;
  for (size_t i = 0; i < cells.size(); ++i) {
    std::vector<SweepRun> own;
    std::copy_if(runs.begin(), runs.end(), std::back_inserter(own),
                 [&](const SweepRun& run) { return run.cell == i; });
    if (!own.empty())
      results.push_back(
          summary_of(cells[i], std::move(own), substream_seed(seed, "sweep_cell", i)));
  }
  return results;
}

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = {"step_ms", "backward_ms", "exposed_ms", "overlap",
                                                 "skew_ms", "tail_mb",     "buckets",    "wrong"};
  return names;
}

std::optional<Estimate> metric_of(const CellResult& cell, const std::string& name) {
  const auto exact = [](auto value) {
    const auto number = static_cast<double>(value);
    return Estimate{number, number, number};
  };
  if (name == "step_ms") return cell.step_ms;
  if (name == "backward_ms") return cell.backward_ms;
  if (name == "exposed_ms") return cell.exposed_ms;
  if (name == "overlap") return cell.overlap;
  if (name == "skew_ms") return cell.skew_ms;
  if (name == "tail_mb") return exact(cell.tail_mb);
  if (name == "buckets") return exact(cell.buckets);
  LOCKSTEP_CHECK(name == "wrong", "metric " + name);
  return exact(cell.wrong);
}

namespace {

using Group = std::vector<size_t>;  // places in the results

// By what groups them, in the order of the results.
template <class Key>
std::vector<Group> groups_of(const std::vector<CellResult>& cells, Key key) {
  std::vector<Group> groups;
  std::map<std::string, size_t> known;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto [found, is_new] = known.try_emplace(key(cells[i].cell), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(i);
  }
  return groups;
}

// The one with DDP's default cap, or else with the largest, or the only one.
size_t usual_of(const std::vector<CellResult>& cells, const Group& group) {
  size_t usual = group.front();
  for (const size_t i : group) {
    const Cell& cell = cells[i].cell;
    if (cell.cap_mb == kDefaultCapMib) return i;
    if (cell.cap_mb.value_or(0) >= cells[usual].cell.cap_mb.value_or(0)) usual = i;
  }
  return usual;
}

struct Pairs {
  std::vector<double> after, before;
};

Pairs pairs_of(const CellResult& after, const CellResult& before) {
  Pairs pairs;
  for (const SweepRun& run : after.runs)
    for (const SweepRun& other : before.runs)
      if (other.round == run.round && other.numbers.step_ms > 0) {
        pairs.after.push_back(run.numbers.step_ms);
        pairs.before.push_back(other.numbers.step_ms);
      }
  return pairs;
}

// Nothing where no round measured both.
std::optional<Contrast> contrast(const std::vector<CellResult>& cells, size_t cell, size_t against,
                                 int64_t comparisons, uint64_t seed) {
  const Pairs pairs = pairs_of(cells[cell], cells[against]);
  if (pairs.after.empty()) return std::nullopt;
  Contrast made;
  made.cell = cell;
  made.against = against;
  made.rounds = static_cast<int64_t>(pairs.after.size());
  made.rounds_needed = least_rounds(comparisons);
  // One that was chosen as the best of many is judged as one of many.
  const double confidence = 1 - (1 - kConfidence) / static_cast<double>(comparisons);
  made.ratio = bootstrap_paired_ratio(pairs.after, pairs.before, confidence, seed);
  made.significant =
      made.rounds >= made.rounds_needed && (made.ratio.high < 1 || made.ratio.low > 1);
  return made;
}

// "1.7 % faster than WHAT (95 % interval 1.2 .. 2.1)"
std::string gain_text(const Contrast& made, const std::string& what) {
  const Estimate& ratio = made.ratio;
  const bool faster = ratio.value <= 1;
  const auto percent = [&](double r) { return (faster ? 1 - r : r - 1) * 100; };
  const double low = percent(faster ? ratio.high : ratio.low);
  const double high = percent(faster ? ratio.low : ratio.high);
  std::string gain =
      fmt::format("{:.1f} % {} than {}", percent(ratio.value), faster ? "faster" : "slower", what);
  if (made.rounds < 2) return gain;
  return fmt::format("{} (95 % interval {:.1f} .. {:.1f})", gain, low, high);
}

std::string caveat(const Contrast& made) {
  if (made.rounds >= made.rounds_needed) return "";
  return fmt::format("; {} {} too few to tell, {} would do", made.rounds,
                     made.rounds == 1 ? "round is" : "rounds are", made.rounds_needed);
}

// Only what was measured: the tail shrinks, and at least half of what is gained was exposed before.
std::string reason(const CellResult& best, const CellResult& usual) {
  const double gained_ms = usual.step_ms.value - best.step_ms.value;
  const double less_exposed_ms = usual.exposed_ms.value - best.exposed_ms.value;
  if (less_exposed_ms >= gained_ms / 2 && best.tail_mb < 0.9 * usual.tail_mb)
    return fmt::format(", because the tail bucket shrinks from {:.1f} to {:.1f} MB", usual.tail_mb,
                       best.tail_mb);
  if (best.buckets < usual.buckets)
    return fmt::format(", with {} buckets instead of {}", best.buckets, usual.buckets);
  return "";
}

std::string cap_text(const std::vector<CellResult>& cells, const Contrast& made) {
  const CellResult& best = cells[made.cell];
  const CellResult& usual = cells[made.against];
  const std::string what = fmt::format("{} MiB", *usual.cell.cap_mb);
  const std::string gain = gain_text(made, what);
  if (made.significant && made.ratio.value < 1)
    return fmt::format("recommended: bucket_cap_mb {}: {}{}", *best.cell.cap_mb, gain,
                       reason(best, usual));
  if (made.significant)
    return fmt::format("recommended: bucket_cap_mb {}: {}, the best of the others, is {}",
                       *usual.cell.cap_mb, *best.cell.cap_mb, gain);
  return fmt::format("no significant difference: bucket_cap_mb {} measured {}{}", *best.cell.cap_mb,
                     gain, caveat(made));
}

// Among cells of one reducer, `usual[0]` with the first value of every key: what `usual[i]` is
// compared with, the one in which the last key that has another value than the first has that.
size_t counterpart_of(const std::vector<CellResult>& cells, const Group& usual, size_t i) {
  const auto& first = cells[usual[0]].cell.varied;
  auto wanted = cells[usual[i]].cell.varied;
  for (size_t key = wanted.size(); key-- > 0;)
    if (wanted[key] != first[key]) {
      wanted[key] = first[key];
      break;
    }
  for (const size_t place : usual)
    if (place != usual[i] && cells[place].cell.varied == wanted) return place;
  return usual[0];
}

}  // namespace

std::vector<Contrast> cap_contrasts(const std::vector<CellResult>& cells, uint64_t seed) {
  std::vector<Contrast> found;
  for (const Group& group : groups_of(cells, group_of)) {
    if (group.size() < 2) continue;
    const size_t usual = usual_of(cells, group);
    std::optional<Contrast> made;  // of all, that with the least ratio
    for (const size_t i : group) {
      if (i == usual) continue;
      auto one = contrast(cells, i, usual, static_cast<int64_t>(group.size()) - 1,
                          substream_seed(seed, "cap_contrast", i));
      if (one && (!made || one->ratio.value < made->ratio.value)) made = std::move(one);
    }
    if (!made) continue;
    made->text = cap_text(cells, *made);
    found.push_back(std::move(*made));
  }
  return found;
}

std::vector<Contrast> reducer_contrasts(const std::vector<CellResult>& cells, uint64_t seed) {
  std::vector<Contrast> found;
  // Variations of one reducer are compared with each other, where there are any.
  const auto alike = [](const Cell& cell) {
    return fmt::format("{} {}", cell.world_size, cell.varied.empty() ? "" : cell.reducer);
  };
  for (const Group& group : groups_of(cells, alike)) {
    std::vector<size_t> usual;
    for (const Group& caps : groups_of(cells, group_of))
      if (alike(cells[caps.front()].cell) == alike(cells[group.front()].cell))
        usual.push_back(usual_of(cells, caps));
    for (size_t i = 1; i < usual.size(); ++i) {
      const size_t against = counterpart_of(cells, usual, i);
      auto made = contrast(cells, usual[i], against, static_cast<int64_t>(usual.size()) - 1,
                           substream_seed(seed, "reducer_contrast", usual[i]));
      if (!made) continue;
      made->text = fmt::format("{}: {}{}{}", label_of(cells[usual[i]].cell),
                               made->significant ? "" : "no significant difference: ",
                               gain_text(*made, label_of(cells[against].cell)), caveat(*made));
      found.push_back(std::move(*made));
    }
  }
  return found;
}

}  // namespace lockstep
