#include "sim/tools/program/judge_names.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

ProgramRank rank_of(std::vector<std::string> names) {
  ProgramRank rank;
  rank.steps.emplace_back().names = std::move(names);
  return rank;
}

TEST(JudgeNames, OneBeginningIsTakenOffOrPutOn) {
  const ProgramRank inner = rank_of({"0.weight", "0.bias"});
  const ProgramRank outer = rank_of({"task.0.weight", "task.0.bias"});
  EXPECT_EQ(with_names_of({inner}, outer)->steps[0].names, inner.steps[0].names);
  EXPECT_EQ(with_names_of({outer}, inner)->steps[0].names, outer.steps[0].names);
  EXPECT_FALSE(with_names_of({inner}, inner)) << "nothing to do";
  EXPECT_FALSE(with_names_of({inner}, rank_of({"task.0.weight", "other.0.bias"})));
  EXPECT_FALSE(with_names_of({inner}, rank_of({"task.0.weight"}))) << "it has fewer";
  EXPECT_FALSE(with_names_of({inner}, rank_of({"t0.weight", "t0.bias"}))) << "no module";
}

TEST(JudgeNames, OperatorsFollow) {
  DrillRank one;
  for (const char* module : {"task.0", "task", ""}) one.calls.emplace_back().module = module;
  one.parameters.push_back({"task.0.weight", {}, {}});
  const ProgramStep inner = rank_of({"0.weight"}).steps[0],
                    outer = rank_of({"task.0.weight"}).steps[0];
  take_names_of(inner, outer, &one);
  EXPECT_EQ(one.calls[0].module, "0");
  EXPECT_EQ(one.calls[1].module, "");
  EXPECT_EQ(one.parameters[0].name, "0.weight");
  take_names_of(outer, inner, &one);
  EXPECT_EQ(one.calls[0].module, "task.0");
  EXPECT_EQ(one.calls[1].module, "task");
  EXPECT_EQ(one.parameters[0].name, "task.0.weight");
}

}  // namespace
}  // namespace lockstep
