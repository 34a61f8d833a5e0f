#include "scenarios/json/words.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(Words, SuggestsTheWordThatWasMeant) {
  const std::vector<std::string> words = {"world_size", "steps", "seed", "batch_size"};
  EXPECT_EQ(closest_word("wrld_size", words), "world_size");
  EXPECT_EQ(closest_word("setps", words), "steps");
  EXPECT_EQ(closest_word("batchsize", words), "batch_size");
  EXPECT_EQ(closest_word("optimizer", words), std::nullopt);
  EXPECT_EQ(closest_word("x", words), std::nullopt);
  EXPECT_EQ(closest_word(std::string(100'000, 'a'), words), std::nullopt);
}

TEST(Words, PrintableIsValidText) {
  EXPECT_EQ(printable("a\xff\nb\xc3\xa9\xc3"), "a\xef\xbf\xbd b\xc3\xa9\xef\xbf\xbd");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Words, LongValuesAreCutBetweenCharacters) {
  std::string euros;
  for (int i = 0; i < 100; ++i) euros += "\xe2\x82\xac";
  const std::string text = value_text(euros);
  EXPECT_LT(text.size(), 70U);
  EXPECT_TRUE(text.ends_with("\xe2\x82\xac..."));
  EXPECT_EQ(value_text(nlohmann::ordered_json::parse(R"({"b": 1, "a": [2]})")),
            R"({"b":1,"a":[2]})");
}

}  // namespace
}  // namespace lockstep
