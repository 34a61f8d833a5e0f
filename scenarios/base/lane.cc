#include "scenarios/base/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr std::array<LaneRow, 7> kLanes = {{
    {Lane::replica, "replica", LaneMethod::replicas, 4, "all ranks with each other, bit for bit"},
    {Lane::replay, "replay", LaneMethod::bits, 1,
     "with one process that adds the shards in the same order, bit for bit"},
    {Lane::float64, "float64", LaneMethod::distance, 3,
     "in double with a full batch, within 1e-12"},
    {Lane::rounding, "rounding", LaneMethod::statistic, 6,
     "float32 gradients with a float64 oracle, by a statistic"},
    {Lane::exact, "exact", LaneMethod::bits, 2,
     "with the full batch on data that does not round, bit for bit"},
    {Lane::invariant, "invariant", LaneMethod::bits, 8,
     "with one device that computes the virtual shards of reducer invariant one after the other "
     "and adds them in the same tree, bit for bit"},
    {Lane::communication, "communication", LaneMethod::statistic, 5,
     "the sum over the ranks stays within the error that any order of additions allows, from the "
     "run's own weights; for communicators with an unknown order"},
}};
constexpr LaneRow kOneDevice = {Lane::one_device, "one_device", LaneMethod::bits, 7,
                                "with one device"};

const LaneRow* find_row(Lane lane) {
  if (lane == Lane::one_device) return &kOneDevice;
  const auto row = std::find_if(kLanes.begin(), kLanes.end(),
                                [&](const LaneRow& known) { return known.lane == lane; });
  return row == kLanes.end() ? nullptr : row;
}

}  // namespace

std::span<const LaneRow> lanes() { return kLanes; }

const LaneRow& row_of(Lane lane) {
  const LaneRow* row = find_row(lane);
  LOCKSTEP_CHECK(row != nullptr,
                 "no lane has the number " + std::to_string(static_cast<int32_t>(lane)));
  return *row;
}

const std::string& lane_words() {
  static const std::string words = [] {
    std::string text;
    for (const LaneRow& row : kLanes) text += (text.empty() ? "" : " ") + std::string(row.word);
    return text;
  }();
  return words;
}

const std::string& lane_descriptions() {
  static const std::string descriptions = [] {
    std::string text = "The ways in which the run is compared.";
    for (const LaneRow& row : kLanes) text += fmt::format(" {}: {}.", row.word, row.description);
    return text;
  }();
  return descriptions;
}

const char* to_word(Lane lane) {
  const LaneRow* row = find_row(lane);
  return row == nullptr ? "none" : row->word;  // a number of a later version
}

std::optional<Lane> lane_from(std::string_view word) {
  for (const LaneRow& row : kLanes)
    if (word == row.word) return row.lane;
  return std::nullopt;
}

}  // namespace lockstep
