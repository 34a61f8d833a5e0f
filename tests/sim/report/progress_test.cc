#include "sim/report/progress.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

RunResult ended(const std::string& name, bool met) {
  RunResult result;
  result.name = name;
  result.met = met;
  return result;
}

TEST(Progress, CountsTheGroupAndTheCostOfAll) {
  Progress progress({{"processes", {2, 30}}, {"threads", {40, 1}}}, false, true);
  EXPECT_EQ(progress.line("processes", std::chrono::seconds(0)), "processes 0/2  0 %  0 failed");
  progress.done(ended("processes", true));
  EXPECT_EQ(progress.line("processes", std::chrono::seconds(3)),
            "processes 1/2  30 %  7 s left  0 failed");
  progress.done(ended("processes", false));
  for (int i = 0; i < 40; ++i) progress.done(ended("threads", true));
  EXPECT_EQ(progress.line("threads", std::chrono::seconds(9)),
            "threads 40/40  100 %  0 s left  1 failed");
}

TEST(Progress, ANameThatWasNotAnnouncedDoesNoHarm) {
  Progress progress({}, false, true);
  progress.done(ended("other", true));
  EXPECT_EQ(progress.line("other", std::chrono::seconds(1)), "other 1/0  100 %  0 failed");
}

}  // namespace
}  // namespace lockstep
