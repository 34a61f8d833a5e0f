#include "sim/sweep/baseline.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/analysis/step_model.h"

namespace lockstep {
namespace {

InputError refused_threshold(const std::string& message) {
  return option_error(
      "--threshold: " + message,
      fmt::format("METRIC<=NUMBER, 0 or more, with <, <=, > or >=, METRIC one of {}",
                  quoted_list(metric_names())));
}

bool keeps(const Threshold& threshold, double value) {
  if (threshold.comparison == "<") return value < threshold.bound;
  if (threshold.comparison == "<=") return value <= threshold.bound;
  if (threshold.comparison == ">") return value > threshold.bound;
  return value >= threshold.bound;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

}  // namespace

std::string Threshold::text() const { return fmt::format("{}{}{}", metric, comparison, bound); }

Expected<Threshold> parse_threshold(const std::string& text) {
  Threshold threshold;
  const size_t at = text.find_first_of("<>");
  if (at == std::string::npos)
    return refused_threshold(fmt::format("\"{}\" has no <=", printable(text)));
  threshold.metric = trimmed(text.substr(0, at));
  const size_t length = text.substr(at + 1, 1) == "=" ? 2 : 1;
  threshold.comparison = text.substr(at, length);
  const std::string number = trimmed(text.substr(at + length));
  const auto bound = number_in<double>(number);
  if (!bound) return refused_threshold(fmt::format("\"{}\" is no number", printable(number)));
  if (*bound < 0)
    return refused_threshold(fmt::format("\"{}\": no metric is negative", printable(number)));
  threshold.bound = *bound;
  const auto& names = metric_names();
  if (std::find(names.begin(), names.end(), threshold.metric) != names.end()) return threshold;
  const auto meant = closest_word(threshold.metric, names);
  return refused_threshold(fmt::format("unknown metric \"{}\"{}", printable(threshold.metric),
                                       meant ? fmt::format("; did you mean \"{}\"?", *meant) : ""));
}

Judgement judge(const Threshold& threshold, const std::vector<CellResult>& cells) {
  Judgement judgement{cells.empty() ? Verdict::inconclusive : Verdict::pass, {}};
  for (const CellResult& cell : cells) {
    const auto value = metric_of(cell, threshold.metric);
    const int64_t kept =
        value ? int64_t{keeps(threshold, value->low)} + int64_t{keeps(threshold, value->high)} : 1;
    if (kept == 2) continue;
    const Verdict verdict = kept == 0 ? Verdict::fail : Verdict::inconclusive;
    judgement.verdict = worse_verdict(judgement.verdict, verdict);
    judgement.lines.push_back(
        value
            ? fmt::format("{}: {} is {:.4g} ({:.4g} .. {:.4g}): {}", label_of(cell.cell),
                          threshold.metric, value->value, value->low, value->high, to_word(verdict))
            : fmt::format("{}: has no {}", label_of(cell.cell), threshold.metric));
  }
  return judgement;
}

namespace {

using Json = nlohmann::ordered_json;

InputError refused_baseline(const std::string& path, const std::string& message) {
  return option_error(fmt::format("--baseline {}: {}", printable(path), message),
                      "a file that `lockstep sweep --json FILE` wrote");
}

Baseline baseline_of(const Json& document) {
  Baseline baseline;
  const Json& sweep = document.at("sweep");
  baseline.scenario = sweep.at("scenario").get<std::string>();
  const auto& cpu = document.at("machine").at("cpu");
  if (!cpu.is_null()) baseline.cpu = cpu.get<std::string>();
  baseline.cores = whole_number(document.at("machine").at("cores"));
  for (const Json& line : sweep.at("combinations")) {
    Baseline::Line& made = baseline.lines.emplace_back();
    made.label = line.at("label").get<std::string>();
    for (const Json& run : line.at("runs")) {
      const double step_ms = run.at("step_ms").get<double>();
      if (step_ms > 0) made.steps_ms.push_back(step_ms);
    }
  }
  return baseline;
}

// What makes a comparison worthless, or nothing.
std::string other_machine(const Baseline& before, const std::string& scenario,
                          const std::string& cpu, int64_t cores) {
  if (before.scenario != scenario)
    return fmt::format("it measured scenario {}, not {}", shortened(before.scenario), scenario);
  if (before.cpu != cpu || before.cores != cores)
    return fmt::format("it was measured on {} cores of {}, not {} of {}", before.cores,
                       shortened(before.cpu), cores, cpu);
  return "";
}

struct Compared {
  Verdict verdict;
  std::string line;  // empty where alike
};

Compared compare(const CellResult& cell, const Baseline::Line& before, int64_t comparisons,
                 uint64_t seed) {
  std::vector<double> now;
  for (const SweepRun& run : cell.runs) now.push_back(run.numbers.step_ms);
  const double confidence = 1 - (1 - kConfidence) / static_cast<double>(comparisons);
  const Estimate ratio = bootstrap_ratio(now, before.steps_ms, confidence, seed);
  const auto fewest = static_cast<int64_t>(std::min(now.size(), before.steps_ms.size()));
  const std::string numbers = fmt::format(
      "{}: {:.1f} ms, {:+.1f} % (95 % interval {:+.1f} .. {:+.1f})", label_of(cell.cell),
      cell.step_ms.value, (ratio.value - 1) * 100, (ratio.low - 1) * 100, (ratio.high - 1) * 100);
  if (fewest < kLeastBaselineRounds)
    return {Verdict::inconclusive, fmt::format("{}: {} rounds are too few to tell, {} would do",
                                               numbers, fewest, kLeastBaselineRounds)};
  if (ratio.low > 1 + kTolerance) return {Verdict::fail, numbers + ": slower"};
  if (ratio.high < 1 - kTolerance) return {Verdict::pass, numbers + ": faster"};
  return {Verdict::pass, ""};
}

}  // namespace

Expected<Baseline> load_baseline(const std::string& path) {
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return refused_baseline(path, text.errors().front().message);
  const auto document = parse_foreign_json(text.value(), path, "");
  if (!document) return refused_baseline(path, "is not the result of a sweep");
  try {
    return baseline_of(document.value());
  } catch (const nlohmann::json::exception&) {
    return refused_baseline(path, "is not the result of a sweep");
  }
}

Judgement judge(const Baseline& before, const std::string& scenario, const std::string& cpu,
                int64_t cores, const std::vector<CellResult>& cells, uint64_t seed) {
  if (const std::string why = other_machine(before, scenario, cpu, cores); !why.empty())
    return {Verdict::inconclusive, {why}};
  std::vector<std::pair<const CellResult*, const Baseline::Line*>> both;
  for (const CellResult& cell : cells)
    for (const Baseline::Line& line : before.lines)
      if (line.label == label_of(cell.cell) && !line.steps_ms.empty())
        both.emplace_back(&cell, &line);
  if (both.empty()) return {Verdict::inconclusive, {"it has none of these combinations"}};
  Judgement judgement{Verdict::pass, {}};
  for (size_t i = 0; i < both.size(); ++i) {
    const Compared one = compare(*both[i].first, *both[i].second, static_cast<int64_t>(both.size()),
                                 substream_seed(seed, "baseline", i));
    judgement.verdict = worse_verdict(judgement.verdict, one.verdict);
    if (!one.line.empty()) judgement.lines.push_back(one.line);
  }
  return judgement;
}

namespace {

InputError refused_reference(const std::string& path, const std::string& message) {
  return option_error(fmt::format("--reference {}: {}", printable(path), message),
                      "a published sweep as golden/data/pytorch_gloo_sweep.json");
}

Reference reference_of(const Json& document) {
  Reference reference;
  reference.source = document.at("source").get<std::string>();
  reference.what = document.at("what").get<std::string>();
  reference.metric = document.at("metric").get<std::string>();
  for (const Json& one : document.at("series")) {
    Reference::Series& series = reference.series.emplace_back();
    series.of = one.at("of").get<std::string>();
    series.reducers = one.at("reducers").get<std::vector<std::string>>();
    series.world_size = whole_number(one.at("world_size"));
    for (const Json& row : one.at("rows"))
      series.rows.emplace_back(row.at(0).get<double>(), row.at(1).get<double>());
  }
  return reference;
}

struct Lines {
  std::vector<double> ours, published, tails_mb;
};

CurveAgreement agreement_of(const std::string& group, const Lines& lines) {
  CurveAgreement made;
  made.group = group;
  made.lines = static_cast<int64_t>(lines.ours.size());
  std::vector<double> errors;
  for (size_t i = 0; i < lines.ours.size(); ++i)
    errors.push_back(std::fabs(lines.ours[i] / lines.published[i] - 1));
  made.mean_error = mean_of(errors);
  made.largest_error = *std::max_element(errors.begin(), errors.end());
  made.correlation = correlation(lines.ours, lines.published);
  made.tail_ours = correlation(lines.ours, lines.tails_mb);
  made.tail_published = correlation(lines.published, lines.tails_mb);
  return made;
}

}  // namespace

Expected<Reference> load_reference(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return refused_reference(path, text.errors().front().message);
  const auto document = parse_foreign_json(text.value(), path, "");
  if (!document) return refused_reference(path, document.errors().front().message);
  try {
    Reference reference = reference_of(document.value());
    const auto& names = metric_names();
    if (std::find(names.begin(), names.end(), reference.metric) == names.end())
      return refused_reference(path, "unknown metric \"" + shortened(reference.metric) + "\"");
    return reference;
  } catch (const nlohmann::json::exception& error) {
    return refused_reference(path, printable(error.what()));
  }
}

std::optional<double> published_for(const Reference& reference, const CellResult& cell) {
  for (const Reference::Series& series : reference.series) {
    const auto& reducers = series.reducers;
    if (series.world_size != cell.cell.world_size || !cell.cell.cap_mb ||
        std::find(reducers.begin(), reducers.end(), cell.cell.reducer) == reducers.end())
      continue;
    std::vector<double> caps = {*cell.cell.cap_mb};
    caps.insert(caps.end(), cell.cell.same_caps_mb.begin(), cell.cell.same_caps_mb.end());
    for (const double cap : caps)
      for (const auto& [published_cap, value] : series.rows)
        if (published_cap == cap && value > 0) return value;
  }
  return std::nullopt;
}

std::vector<CurveAgreement> agreements(const Reference& reference,
                                       const std::vector<CellResult>& cells) {
  std::map<std::string, Lines> groups;
  for (const CellResult& cell : cells) {
    const auto published = published_for(reference, cell);
    const auto ours = metric_of(cell, reference.metric);
    if (!published || !ours) continue;
    Lines& lines = groups[group_of(cell.cell)];
    lines.ours.push_back(ours->value);
    lines.published.push_back(*published);
    lines.tails_mb.push_back(cell.tail_mb);
  }
  std::vector<CurveAgreement> found;
  for (const auto& [group, lines] : groups)
    if (lines.ours.size() > 1) found.push_back(agreement_of(group, lines));
  return found;
}

}  // namespace lockstep
