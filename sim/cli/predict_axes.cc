#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "reducer/bucket.h"
#include "scenarios/base/text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/simulate.h"
#include "sim/plan/layout.h"

namespace lockstep {
namespace {

// At most so many rows for a range of caps: the ones that are furthest apart.
constexpr size_t kMostCaps = 60;

InputError refused_axis(const std::string& words, const std::string& why) {
  return option_error(
      fmt::format("--predict {}: {}", words, why),
      fmt::format("caps=A..B or caps=A;B;C in MiB, worlds=A..B or worlds=A;B;C up to {}, with a "
                  "comma between",
                  kMostRanks));
}

// Every part, the empty ones too: nothing that was written is left unread.
std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char c : text)
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

struct Axis {
  std::vector<double> values;
  bool range = false;  // of two values
};

std::optional<Axis> axis_of(const std::string& text) {
  Axis axis;
  const size_t dots = text.find("..");
  std::vector<std::string> words;
  if (dots != std::string::npos) {
    axis.range = true;
    words = {text.substr(0, dots), text.substr(dots + 2)};
  } else {
    words = parts_of(text, ';');
  }
  for (const std::string& word : words) {
    const auto value = number_in<double>(word);
    if (!value) return std::nullopt;
    axis.values.push_back(*value);
  }
  if (axis.range && axis.values[0] > axis.values[1]) return std::nullopt;
  return axis;
}

std::vector<double> caps_in(const Axis& axis, const RunPlan& plan) {
  if (!axis.range) return axis.values;
  std::vector<double> caps;
  for (const double cap : caps_of_distinct_layouts(plan))
    if (cap >= axis.values[0] && cap <= axis.values[1]) caps.push_back(cap);
  if (caps.size() <= kMostCaps) return caps;
  std::vector<double> thinned;
  for (size_t i = 0; i < kMostCaps; ++i)
    thinned.push_back(caps[i * (caps.size() - 1) / (kMostCaps - 1)]);
  if (std::find(thinned.begin(), thinned.end(), kDefaultCapMib) == thinned.end())
    thinned.push_back(kDefaultCapMib);
  std::sort(thinned.begin(), thinned.end());
  return thinned;
}

std::vector<int64_t> worlds_in(const Axis& axis) {
  std::vector<int64_t> worlds;
  if (!axis.range) {
    for (const double value : axis.values) worlds.push_back(static_cast<int64_t>(value));
    return worlds;
  }
  for (auto world = static_cast<int64_t>(axis.values[0]);
       world <= static_cast<int64_t>(axis.values[1]); world *= 2)
    worlds.push_back(world);
  return worlds;
}

bool are_worlds(const Axis& axis) {
  return std::all_of(axis.values.begin(), axis.values.end(), [](double value) {
    return value >= 1 && value <= static_cast<double>(kMostRanks) && value == std::floor(value);
  });
}

bool are_caps(const Axis& axis) {
  return std::all_of(axis.values.begin(), axis.values.end(), [](double value) {
    return value > 0 && value <= 1e6 && bytes_of_mib(value) > 0;
  });
}

bool has_twice(const Axis& axis) {
  const std::set<double> values(axis.values.begin(), axis.values.end());
  return !axis.range && values.size() < axis.values.size();
}

// A whole number of at least 1.
std::optional<int64_t> count_of(const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || *value < 1 || *value > static_cast<double>(kMostSteps) ||
      *value != std::floor(*value))
    return std::nullopt;
  return static_cast<int64_t>(*value);
}

}  // namespace

Expected<std::vector<Averaging>> averaging_of(const std::string& words) {
  std::vector<Averaging> levels;
  for (const std::string& part : parts_of(words, ',')) {
    const size_t colon = part.find(':');
    const auto ranks = count_of(part.substr(0, colon));
    const auto period =
        colon == std::string::npos ? std::nullopt : count_of(part.substr(colon + 1));
    const bool in_order = levels.empty() || (ranks && *ranks > levels.back().ranks);
    if (!ranks || !period || !in_order) {
      return option_error(fmt::format("--average {}: \"{}\" is no level", words, part),
                          "RANKS:PERIOD of each level, smaller groups first, with commas between");
    }
    levels.push_back({*ranks, *period, 0});
  }
  return levels;
}

Expected<PredictAxes> predict_axes(const std::string& words, const RunPlan& plan) {
  PredictAxes axes;
  std::set<std::string> names;
  for (const std::string& part : parts_of(words, ',')) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    const auto axis = equals == std::string::npos ? std::nullopt : axis_of(part.substr(equals + 1));
    if (!axis) return refused_axis(words, fmt::format("\"{}\" is no axis", part));
    if (!names.insert(name).second)
      return refused_axis(words, fmt::format("{} stands there twice", name));
    if (has_twice(*axis)) return refused_axis(words, fmt::format("\"{}\" has a value twice", part));
    if (name == "caps") {
      if (!are_caps(*axis)) return refused_axis(words, "caps out of range");
      if (!has_cap(plan)) return refused_axis(words, "the scenario's reducer has no cap");
      axes.caps_mb = caps_in(*axis, plan);
      if (axes.caps_mb.empty()) return refused_axis(words, "no layout lies in these caps");
    } else if (name == "worlds") {
      if (!are_worlds(*axis)) return refused_axis(words, "worlds out of range");
      axes.worlds = worlds_in(*axis);
    } else {
      return refused_axis(words, fmt::format("\"{}\" is no axis", name));
    }
  }
  return axes;
}

}  // namespace lockstep
