#include "sim/sweep/threshold.h"

#include <fmt/format.h>

#include <algorithm>

#include "scenarios/base/text.h"

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
  Judgement judgement{cells.empty() ? "inconclusive" : "pass", {}};
  for (const CellResult& cell : cells) {
    const auto value = metric_of(cell, threshold.metric);
    const int64_t kept =
        value ? int64_t{keeps(threshold, value->low)} + int64_t{keeps(threshold, value->high)} : 1;
    if (kept == 2) continue;
    const std::string verdict = kept == 0 ? "fail" : "inconclusive";
    judgement.verdict = worse_verdict(judgement.verdict, verdict);
    judgement.lines.push_back(
        value ? fmt::format("{}: {} is {:.4g} ({:.4g} .. {:.4g}): {}", label_of(cell.cell),
                            threshold.metric, value->value, value->low, value->high, verdict)
              : fmt::format("{}: has no {}", label_of(cell.cell), threshold.metric));
  }
  return judgement;
}

std::string worse_verdict(const std::string& a, const std::string& b) {
  for (const char* word : {"fail", "inconclusive"})
    if (a == word || b == word) return word;
  return "pass";
}

}  // namespace lockstep
