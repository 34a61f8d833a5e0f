#include <fmt/format.h>

#include "scenarios/image_files.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

size_t length_of(const OptionValue& list) {
  const auto* whole = std::get_if<std::vector<int64_t>>(&list);
  return whole != nullptr ? whole->size() : std::get<std::vector<double>>(list).size();
}

void check_channels(const Part& data, InputErrors* errors) {
  const auto channels = static_cast<size_t>(image_shape(data.kind).channels);
  for (const char* key : {"mean", "std"}) {
    const size_t length = length_of(data.options.all().find(key)->second);
    if (length == 1 || length == channels) continue;
    InputError error;
    error.pointer = fmt::format("/data/{}", key);
    error.message =
        fmt::format("{} has {} numbers, but \"{}\" has images of {} channel{}", error.pointer,
                    length, data.kind, channels, channels == 1 ? "" : "s");
    error.allowed = channels == 1 ? "1 number" : fmt::format("1 or {} numbers", channels);
    errors->push_back(std::move(error));
  }
}

}  // namespace

void check_files(const Scenario& scenario, InputErrors* errors) {
  if (is_image_file_kind(scenario.data.kind)) check_channels(scenario.data, errors);
}

}  // namespace lockstep
