#include "scenarios/base/verdict.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <initializer_list>
#include <utility>

namespace lockstep {
namespace {

template <class V>
void expect_words(std::initializer_list<std::pair<V, const char*>> words) {
  for (const auto& [value, word] : words) {
    EXPECT_STREQ(to_word(value), word);
    EXPECT_EQ(from_word<V>(word), value);
    EXPECT_EQ(nlohmann::json(value), word);
  }
  EXPECT_EQ(from_word<V>(""), std::nullopt);
  EXPECT_EQ(from_word<V>("perhaps"), std::nullopt);
}

// Files, schemas and other people's scripts hold these words.
TEST(Verdict, WordsStayAsTheyAre) {
  expect_words<Verdict>(
      {{Verdict::pass, "pass"}, {Verdict::fail, "fail"}, {Verdict::inconclusive, "inconclusive"}});
  expect_words<LaneVerdict>({{LaneVerdict::pass, "pass"},
                             {LaneVerdict::fail, "fail"},
                             {LaneVerdict::inconclusive, "inconclusive"},
                             {LaneVerdict::voided, "void"},
                             {LaneVerdict::not_applicable, "not_applicable"}});
  expect_words<CheckVerdict>({{CheckVerdict::pass, "pass"},
                              {CheckVerdict::fail, "fail"},
                              {CheckVerdict::inconclusive, "inconclusive"},
                              {CheckVerdict::not_run, "not_run"}});
  expect_words<ControlVerdict>({{ControlVerdict::detected, "detected"},
                                {ControlVerdict::missed, "missed"},
                                {ControlVerdict::not_run, "not_run"}});
  expect_words<CommonVerdict>({{CommonVerdict::found, "found"},
                               {CommonVerdict::missed, "missed"},
                               {CommonVerdict::not_run, "not_run"}});
  expect_words<RunEnding>({{RunEnding::completed, "completed"}, {RunEnding::failed, "failed"}});
}

TEST(Verdict, OtherWordsInJsonAreRefused) {
  EXPECT_EQ(nlohmann::json("void").get<LaneVerdict>(), LaneVerdict::voided);
  EXPECT_THROW(nlohmann::json("void").get<Verdict>(), nlohmann::json::exception);
  EXPECT_THROW(nlohmann::json("").get<CheckVerdict>(), nlohmann::json::exception);
  EXPECT_THROW(nlohmann::json(1).get<RunEnding>(), nlohmann::json::exception);
}

TEST(Verdict, DecidesTheExitCode) {
  EXPECT_EQ(exit_code_of(Verdict::pass), 0);
  EXPECT_EQ(exit_code_of(Verdict::fail), 1);
  EXPECT_EQ(exit_code_of(Verdict::inconclusive), 3);
}

TEST(Verdict, TheWorseOfTwo) {
  EXPECT_EQ(worse_verdict(Verdict::pass, Verdict::pass), Verdict::pass);
  EXPECT_EQ(worse_verdict(Verdict::pass, Verdict::inconclusive), Verdict::inconclusive);
  EXPECT_EQ(worse_verdict(Verdict::inconclusive, Verdict::fail), Verdict::fail);
  EXPECT_EQ(worse_verdict(Verdict::fail, Verdict::pass), Verdict::fail);
}

}  // namespace
}  // namespace lockstep
