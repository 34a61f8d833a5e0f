#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

TEST(Pointer, TokensAreUnescapedAndJoinedBack) {
  EXPECT_EQ(pointer_tokens(""), std::vector<std::string>{});
  EXPECT_EQ(pointer_tokens("/a~1b/~0/0"), (std::vector<std::string>{"a/b", "~", "0"}));
  EXPECT_EQ(pointer_tokens("a"), std::nullopt);
  EXPECT_EQ(pointer_tokens("/a~2"), std::nullopt);
  EXPECT_EQ(pointer_tokens("/a~"), std::nullopt);
  EXPECT_EQ(pointer_join("/x", "a/b~"), "/x/a~1b~0");
}

TEST(Pointer, LeadsNoDeeperThanADocument) {
  std::string pointer;
  for (int i = 0; i < kDeepestNesting; ++i) pointer += "/x";
  EXPECT_EQ(pointer_tokens(pointer)->size(), kDeepestNesting);
  EXPECT_EQ(pointer_tokens(pointer + "/x"), std::nullopt);
  Json document = Json::object();
  std::string stuck;
  EXPECT_FALSE(pointer_set(&document, pointer + "/x", 1, &stuck));
  EXPECT_TRUE(document.empty());
}

TEST(Pointer, WithinMeansWholeTokens) {
  EXPECT_TRUE(pointer_within("/a/b", "/a"));
  EXPECT_TRUE(pointer_within("/a", "/a"));
  EXPECT_FALSE(pointer_within("/ab", "/a"));
  EXPECT_TRUE(pointer_within("/a", ""));
}

TEST(Pointer, FindsOnlyWhatIsThere) {
  const Json document = Json::parse(R"({"a": [1, {"b": 2}], "c": 3})");
  EXPECT_EQ(*pointer_find(document, "/a/1/b"), 2);
  for (const char* absent : {"/a/2", "/a/-", "/a/x", "/c/d", "/d", "a", "/a/01x"})
    EXPECT_EQ(pointer_find(document, absent), nullptr) << absent;
}

TEST(Pointer, SetMakesWhatLeadsThere) {
  Json document = Json::parse(R"({"a": [1], "c": 3})");
  std::string stuck;
  EXPECT_TRUE(pointer_set(&document, "/x/y", 1, &stuck));
  EXPECT_TRUE(pointer_set(&document, "/a/-", 2, &stuck));
  EXPECT_TRUE(pointer_set(&document, "/m/0/kind", "k", &stuck));
  EXPECT_EQ(document, Json::parse(R"({"a": [1, 2], "c": 3, "x": {"y": 1}, "m": [{"kind": "k"}]})"));
  EXPECT_FALSE(pointer_set(&document, "/c/d/e", 1, &stuck));
  EXPECT_EQ(stuck, "/c");
  EXPECT_FALSE(pointer_set(&document, "/a/7", 1, &stuck));
  EXPECT_EQ(stuck, "/a");
}

}  // namespace

}  // namespace lockstep
