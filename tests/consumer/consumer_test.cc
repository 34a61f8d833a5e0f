#include "sim/main/matchers.h"

#include <gtest/gtest-spi.h>

#include <fstream>
#include <sstream>

namespace {

using ::lockstep::DivergesBecauseOf;
using ::lockstep::IsEquivalentToOneDevice;
using ::testing::HasSubstr;
using ::testing::Not;

std::string own_scenario(const std::string& times) {
  std::ifstream file(SOURCE_DIR "/own.json");
  std::stringstream text;
  text << file.rdbuf();
  std::string scenario = text.str();
  const std::string key = "\"times\": 1";
  return scenario.replace(scenario.find(key), key.size(), "\"times\": " + times);
}

TEST(Consumer, ItsReducerIsEquivalentToOneDevice) {
  EXPECT_THAT(SOURCE_DIR "/own.json", IsEquivalentToOneDevice());
}

TEST(Consumer, AWrongDivisorIsNamed) {
  EXPECT_THAT(own_scenario("2"), Not(IsEquivalentToOneDevice()));
  EXPECT_THAT(own_scenario("2"), DivergesBecauseOf("wrong_divisor"));
  ::testing::StringMatchResultListener listener;
  ::testing::ExplainMatchResult(IsEquivalentToOneDevice(), own_scenario("2"), &listener);
  EXPECT_THAT(listener.str(), HasSubstr("step 1, gradient first.weight"));
  EXPECT_THAT(listener.str(), HasSubstr("cause wrong_divisor"));
  EXPECT_THAT(listener.str(), HasSubstr("where one device has"));
}

TEST(Consumer, WhatIsNoScenarioIsSaid) {
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT(std::string("{\"name\": 3}"), Not(IsEquivalentToOneDevice())),
                          "/name is 3");
}

TEST(Consumer, AMissingScenarioIsNoDifference) {
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT("missing.json", Not(IsEquivalentToOneDevice())),
                          "no such file");
  EXPECT_NONFATAL_FAILURE(EXPECT_THAT("missing.json", Not(DivergesBecauseOf("wrong_divisor"))),
                          "missing.json is inconclusive");
}

}  // namespace

int main(int argc, char** argv) { return lockstep::run_tests(argc, argv); }
