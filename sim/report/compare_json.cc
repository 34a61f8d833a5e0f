#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "golden/compare.h"
#include "scenarios/json/json_text.h"
#include "sim/record/evidence.h"
#include "sim/report/compare_document.h"
#include "sim/report/document.h"
#include "sim/report/recorded_comparison.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json ulp_json(uint64_t ulp) { return ulp == kNoUlp ? Json(nullptr) : Json(ulp); }

Json side_json(const std::optional<CheckpointTensor>& tensor) {
  if (!tensor) return nullptr;
  return {{"name", tensor->name}, {"dtype", to_word(tensor->dtype)}, {"shape", tensor->shape}};
}

Json difference_json(const TensorComparison& tensor) {
  if (!tensor.difference) return nullptr;
  const TensorDifference& d = *tensor.difference;
  const int64_t width = bytes_of(tensor.a->dtype) / (is_complex(tensor.a->dtype) ? 2 : 1);
  Json json = {{"differing", d.differing},
               {"beyond_tolerance", d.disagreeing},
               {"numel", tensor.a->numel()},
               {"max_ulp", ulp_json(d.max_ulp)},
               {"largest_error", number_json(d.largest_error)},
               {"relative_error", number_json(d.relative_error())},
               {"first", nullptr}};
  if (d.disagreeing > 0)
    json["first"] = {{"element", element_index(d.element, tensor.a->shape)},
                     {"a_value", number_json(d.a_value)},
                     {"b_value", number_json(d.b_value)},
                     {"a_bits", bits_text(d.a_bits, width)},
                     {"b_bits", bits_text(d.b_bits, width)},
                     {"ulp", ulp_json(d.ulp)}};
  return json;
}

Json skipped_json(const CheckpointComparison& comparison) {
  Json json = Json::array();
  for (const auto& [side, values] :
       {std::pair{"A", &comparison.skipped_in_a}, {"B", &comparison.skipped_in_b}})
    for (const SkippedValue& value : *values)
      json.push_back({{"side", side}, {"name", value.name}, {"type", value.type}});
  return json;
}

Json file_json(const CompareDocument::File& file) {
  const CheckpointComparison& comparison = file.comparison;
  Json tensors = Json::array();
  int64_t equal = 0;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (tensor.outcome == TensorComparison::Outcome::equal) {
      ++equal;
      continue;
    }
    tensors.push_back({{"name", tensor.name},
                       {"outcome", to_word(tensor.outcome)},
                       {"a", side_json(tensor.a)},
                       {"b", side_json(tensor.b)},
                       {"difference", difference_json(tensor)}});
  }
  return {{"name", file.pair.name},
          {"a", or_null(file.pair.a)},
          {"b", or_null(file.pair.b)},
          {"a_format", or_null(file.a_format)},
          {"b_format", or_null(file.b_format)},
          {"verdict", file.agrees() ? "pass" : "fail"},
          {"equal", equal},
          {"elements", comparison.elements},
          {"not_compared", skipped_json(comparison)},
          {"module_prefix_in_a", comparison.module_in_a},
          {"module_prefix_in_b", comparison.module_in_b},
          {"tensors", std::move(tensors)}};
}

}  // namespace

const char* to_word(TensorComparison::Outcome outcome) {
  switch (outcome) {
    case TensorComparison::Outcome::equal:
      return "equal";
    case TensorComparison::Outcome::close:
      return "close";
    case TensorComparison::Outcome::different:
      return "different";
    case TensorComparison::Outcome::other_shape:
      return "other_shape";
    case TensorComparison::Outcome::other_dtype:
      return "other_dtype";
    case TensorComparison::Outcome::only_a:
      return "only_a";
    default:
      return "only_b";
  }
}

void conclude(CompareDocument* document) {
  const auto& files = document->files;
  const bool any = std::any_of(files.begin(), files.end(), [](const CompareDocument::File& file) {
    return !file.comparison.tensors.empty() || file.pair.a.empty() || file.pair.b.empty();
  });
  const bool agree = std::all_of(files.begin(), files.end(),
                                 [](const CompareDocument::File& file) { return file.agrees(); });
  RecordedVerdict verdict = !any    ? RecordedVerdict::nothing
                            : agree ? RecordedVerdict::pass
                                    : RecordedVerdict::fail;
  if (const auto& recordings = document->recordings) {
    if (recordings->ranks_of_a.found() || recordings->ranks_of_b.found())
      verdict = RecordedVerdict::fail;
    else if (agree && !recordings->gaps.empty())
      verdict = RecordedVerdict::inconclusive;
  }
  document->verdict = to_word(verdict);
  document->exit_code = exit_code_of(verdict);
}

Json as_json(const CompareDocument& document) {
  Json files = Json::array();
  for (const CompareDocument::File& file : document.files) files.push_back(file_json(file));
  Json json = {{"schema_version", 1},
               {"lockstep_version", lockstep_version()},
               {"commit", lockstep_commit()},
               {"verdict", or_null(document.verdict)},
               {"exit_code", document.exit_code},
               {"a", document.a},
               {"b", document.b},
               {"a_key", document.a_key},
               {"b_key", document.b_key},
               {"rtol", document.tolerance.rtol},
               {"atol", document.tolerance.atol},
               {"files", std::move(files)}};
  if (const auto& recordings = document.recordings)
    json["recordings"] = {{"compared", "tensors"},
                          {"last_step", recordings->last_step},
                          {"ranks_of_a", ranks_json(recordings->ranks_of_a)},
                          {"ranks_of_b", ranks_json(recordings->ranks_of_b)},
                          {"buffers_of_a", ranks_json(recordings->buffers_of_a)},
                          {"buffers_of_b", ranks_json(recordings->buffers_of_b)},
                          {"gaps", gaps_json(recordings->gaps)}};
  return json;
}

}  // namespace lockstep
