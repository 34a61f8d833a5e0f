#include "sim/sweep/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
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
  baseline.cores = document.at("machine").at("cores").get<int64_t>();
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
    return fmt::format("it measured scenario {}, not {}", printable(before.scenario), scenario);
  if (before.cpu != cpu || before.cores != cores)
    return fmt::format("it was measured on {} cores of {}, not {} of {}", before.cores,
                       printable(before.cpu), cores, cpu);
  return "";
}

struct Compared {
  std::string verdict, line;  // line: empty where alike
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
    return {"inconclusive", fmt::format("{}: {} rounds are too few to tell, {} would do", numbers,
                                        fewest, kLeastBaselineRounds)};
  if (ratio.low > 1 + kTolerance) return {"fail", numbers + ": slower"};
  if (ratio.high < 1 - kTolerance) return {"pass", numbers + ": faster"};
  return {"pass", ""};
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
    return {"inconclusive", {why}};
  std::vector<std::pair<const CellResult*, const Baseline::Line*>> both;
  for (const CellResult& cell : cells)
    for (const Baseline::Line& line : before.lines)
      if (line.label == label_of(cell.cell) && !line.steps_ms.empty())
        both.emplace_back(&cell, &line);
  if (both.empty()) return {"inconclusive", {"it has none of these combinations"}};
  Judgement judgement{"pass", {}};
  for (size_t i = 0; i < both.size(); ++i) {
    const Compared one = compare(*both[i].first, *both[i].second, static_cast<int64_t>(both.size()),
                                 substream_seed(seed, "baseline", i));
    judgement.verdict = worse_verdict(judgement.verdict, one.verdict);
    if (!one.line.empty()) judgement.lines.push_back(one.line);
  }
  return judgement;
}

}  // namespace lockstep
