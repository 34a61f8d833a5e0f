#include "sim/tools/program/sweep_trace.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/sim/tools/program/made_traces.h"

namespace lockstep {
namespace {

nlohmann::ordered_json written() {
  return nlohmann::ordered_json::parse(R"({
    "models": 1, "elements": [6, 2], "dtypes": ["float32", "float32"], "rebuilds": true,
    "first_follows_cap": false, "first_bucket_bytes": 1048576, "order": [1, 0],
    "steps": [{"forward_ns": 10, "backward_ns": 20, "backwards": 1, "ready_ns": [40, 30],
               "buckets": [[31, 35, 8], [41, 50, 24]], "end_ns": 60}]})");
}

std::string why_with(const std::function<void(ProgramTrace*)>& change) {
  ProgramTrace trace = program_trace_of(written());
  const ProgramTrace other = trace;
  change(&trace);
  return why_unfit({&other, &trace});
}

TEST(ProgramTrace, IsWhatTheAgentWrote) {
  const ProgramTrace trace = program_trace_of(written());
  EXPECT_EQ(trace.elements, (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(trace.order, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(trace.steps.at(0).ready_ns, (std::vector<int64_t>{40, 30}));
  EXPECT_EQ(trace.steps.at(0).buckets.at(1).end_ns, 50);
  EXPECT_EQ(why_unfit({&trace, &trace}), "");
}

TEST(ProgramTrace, OfStrangersIsChecked) {
  for (const auto& [pointer, value] : {std::pair("/elements", "7"),
                                       {"/steps/0/buckets/0", "[1, 2]"},
                                       {"/steps", "{\"a\": 1.5}"},
                                       {"/order/0", "0.5"},
                                       {"/rebuilds", "1"},
                                       {"/dtypes/1", "3"}}) {
    auto json = written();
    json[nlohmann::ordered_json::json_pointer(pointer)] = nlohmann::ordered_json::parse(value);
    EXPECT_THROW(program_trace_of(json), nlohmann::json::exception) << pointer;
  }
}

TEST(ProgramTrace, ThatCannotBeSimulatedSaysWhy) {
  using Change = std::function<void(ProgramTrace*)>;
  const std::pair<Change, const char*> cases[] = {
      {[](ProgramTrace* t) { t->models = 2; }, "2 models in DistributedDataParallel"},
      {[](ProgramTrace* t) { t->rebuilds = false; }, "find_unused_parameters"},
      {[](ProgramTrace* t) { t->elements.clear(); }, "0 parameters"},
      {[](ProgramTrace* t) { t->elements[0] = -6; }, "-6 elements"},
      {[](ProgramTrace* t) { t->dtypes[1] = "float64"; }, "several dtypes"},
      {[](ProgramTrace* t) {
         t->dtypes = {"int8", "int8"};
       },
       "dtype int8"},
      {[](ProgramTrace* t) {
         t->order = {1, 1};
       },
       "each parameter once"},
      {[](ProgramTrace* t) { t->steps.clear(); }, "no step was traced"},
      {[](ProgramTrace* t) {
         t->elements = {6, 3};
       },
       "other parameters or steps"},
      {[](ProgramTrace* t) { t->steps[0].backwards = 4; }, "4 backwards"},
      {[](ProgramTrace* t) { t->steps[0].ready_ns[0] = 0; }, "no gradient"},
      {[](ProgramTrace* t) { t->steps[0].buckets.clear(); }, "no bucket was summed"},
      {[](ProgramTrace* t) { t->steps[0].buckets.pop_back(); }, "other buckets"},
      {[](ProgramTrace* t) { t->steps[0].buckets[0].end_ns = 0; }, "times of a step"},
      {[](ProgramTrace* t) { t->steps[0].buckets[0].bytes = -8; }, "times of a step"},
      {[](ProgramTrace* t) { t->steps[0].forward_ns = INT64_MIN; }, "times of a step"}};
  for (const auto& [change, sentence] : cases)
    EXPECT_NE(why_with(change).find(sentence), std::string::npos) << why_with(change);
  EXPECT_NE(why_unfit({nullptr}), "");
}

}  // namespace
}  // namespace lockstep
