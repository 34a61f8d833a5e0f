#include "sim/tools/program/sweep_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Of model sized_layers (scenarios/scenario_parts_schema.json).
constexpr size_t kMostParameters = 4096;
constexpr int64_t kMostElements = int64_t{1} << 30;

// "2 models"
std::string counted(int64_t count, const char* one) {
  return fmt::format("{} {}", count, plural(count, one));
}

std::vector<int64_t> numbers_at(const Json& json, const char* key) {
  std::vector<int64_t> numbers;
  for (const Json& one : list_at(json, key)) numbers.push_back(whole_number(one));
  return numbers;
}

TracedBucket bucket_of(const Json& json) {
  return {whole_number(json.at(0)), whole_number(json.at(1)), whole_number(json.at(2))};
}

TracedStep step_of(const Json& json) {
  TracedStep step;
  step.forward_ns = whole_number(json.at("forward_ns"));
  step.backward_ns = whole_number(json.at("backward_ns"));
  step.end_ns = whole_number(json.at("end_ns"));
  step.backwards = whole_number(json.at("backwards"));
  step.ready_ns = numbers_at(json, "ready_ns");
  for (const Json& bucket : list_at(json, "buckets")) step.buckets.push_back(bucket_of(bucket));
  return step;
}

bool is_permutation_of_all(std::vector<int64_t> order, size_t count) {
  std::vector<int64_t> all(count);
  std::iota(all.begin(), all.end(), int64_t{0});
  std::sort(order.begin(), order.end());
  return order == all;
}

bool in_order(const TracedStep& step) {
  if (step.forward_ns <= 0 || step.backward_ns < step.forward_ns) return false;
  const auto within = [&](int64_t ns) { return ns >= step.backward_ns && ns <= step.end_ns; };
  return std::all_of(step.ready_ns.begin(), step.ready_ns.end(), within) &&
         std::all_of(step.buckets.begin(), step.buckets.end(), [&](const TracedBucket& bucket) {
           return bucket.bytes > 0 && within(bucket.begin_ns) && within(bucket.end_ns) &&
                  bucket.begin_ns <= bucket.end_ns;
         });
}

std::string why_not_step(const TracedStep& step, size_t parameters) {
  if (step.backwards != 1)
    return fmt::format("a step of the program has {} of its model, and one is simulated",
                       counted(step.backwards, "backward"));
  if (step.ready_ns.size() != parameters ||
      std::find(step.ready_ns.begin(), step.ready_ns.end(), 0) != step.ready_ns.end())
    return "a parameter had no gradient in one of the steps";
  if (step.buckets.empty()) return "no bucket was summed in one of the steps";
  if (!in_order(step)) return "the times of a step are none in order";
  return "";
}

std::string why_not_model(const ProgramTrace& trace) {
  if (trace.models != 1)
    return fmt::format("the program has {} in DistributedDataParallel, and one is simulated",
                       counted(trace.models, "model"));
  if (!trace.rebuilds)
    return "with find_unused_parameters buckets are never laid out anew, which is not simulated";
  if (trace.elements.empty() || trace.elements.size() > kMostParameters)
    return fmt::format("it has {}; 1 to {} are simulated",
                       counted(static_cast<int64_t>(trace.elements.size()), "parameter"),
                       kMostParameters);
  for (const int64_t elements : trace.elements)
    if (elements < 1 || elements > kMostElements)
      return fmt::format("a parameter has {} elements; 1 to {} are simulated", elements,
                         kMostElements);
  if (trace.dtypes.size() != trace.elements.size() ||
      std::any_of(trace.dtypes.begin(), trace.dtypes.end(),
                  [&](const std::string& dtype) { return dtype != trace.dtypes.front(); }))
    return "its parameters are of several dtypes, which never share a bucket";
  if (simulated_dtype(trace.dtypes.front()).empty())
    return fmt::format("its parameters are of dtype {}", printable(trace.dtypes.front()));
  if (!is_permutation_of_all(trace.order, trace.elements.size()))
    return "its first backward did not come to each parameter once";
  return "";
}

}  // namespace

std::vector<Json> list_at(const Json& json, const char* key) {
  return json.at(key).get<std::vector<Json>>();
}

std::string simulated_dtype(const std::string& dtype) {
  if (dtype == "float16" || dtype == "bfloat16") return "bfloat16";
  return dtype == "float32" || dtype == "float64" ? dtype : "";
}

ProgramTrace program_trace_of(const Json& json) {
  ProgramTrace trace;
  trace.models = whole_number(json.at("models"));
  if (trace.models == 0) return trace;
  trace.elements = numbers_at(json, "elements");
  for (const Json& dtype : list_at(json, "dtypes"))
    trace.dtypes.push_back(dtype.get<std::string>());
  trace.order = numbers_at(json, "order");
  trace.rebuilds = json.at("rebuilds").get<bool>();
  trace.first_bucket_bytes = whole_number(json.at("first_bucket_bytes"));
  trace.first_follows_cap = json.at("first_follows_cap").get<bool>();
  for (const Json& step : list_at(json, "steps")) trace.steps.push_back(step_of(step));
  return trace;
}

std::string why_unfit(const std::vector<const ProgramTrace*>& ranks) {
  for (const ProgramTrace* trace : ranks) {
    if (trace == nullptr) return "a rank left no times of its gradients";
    if (std::string why = why_not_model(*trace); !why.empty()) return why;
    if (trace->steps.empty()) return "no step was traced";
    if (trace->elements != ranks[0]->elements || trace->steps.size() != ranks[0]->steps.size())
      return "ranks have other parameters or steps than one another";
    for (size_t i = 0; i < trace->steps.size(); ++i) {
      const TracedStep& step = trace->steps[i];
      if (std::string why = why_not_step(step, trace->elements.size()); !why.empty()) return why;
      if (step.buckets.size() != ranks[0]->steps[i].buckets.size())
        return "ranks have other buckets than one another";
    }
  }
  return "";
}

}  // namespace lockstep
