#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>

#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(std::string_view text) {
  Json document;
  InputErrors errors;
  if (read_json(text, "f.json", &document, nullptr, &errors)) return "";
  std::string all;
  for (const InputError& error : errors) all += (all.empty() ? "" : "\n") + to_text(error);
  return all;
}

TEST(JsonText, ReadsCommentsAndEveryKindOfValue) {
  Json document;
  InputErrors errors;
  const char* text =
      "// first\n{\"a\": [1, -2.5, 1e3, true, false, null], /* in\n between */ \"b\""
      ": \"x\\n\\u00e9\\ud83d\\ude00\\/\", \"c\": {}} // last";
  ASSERT_TRUE(read_json(text, "f.json", &document, nullptr, &errors));
  EXPECT_EQ(document, Json::parse(text, nullptr, true, true));
  EXPECT_TRUE(document["a"][0].is_number_integer());
  EXPECT_TRUE(document["a"][2].is_number_float());
}

TEST(JsonText, NamesPlaceAndWhatWouldBeRight) {
  EXPECT_EQ(error_of(""), "f.json:1:1: error: the file is empty; expected an object");
  EXPECT_EQ(error_of("// nothing\n"), "f.json:2:1: error: there is no value; expected an object");
  EXPECT_EQ(error_of("{ \"name\": \"x\", "),
            "f.json:1:16: error: the file ends here; expected a key in quotes");
  EXPECT_EQ(error_of("{\"a\": 1\n \"b\": 2}"), "f.json:2:2: error: unexpected \"; expected , or }");
  EXPECT_EQ(error_of("{\"a\" 1}"), "f.json:1:6: error: unexpected 1; expected :");
  EXPECT_EQ(error_of("[1, 2,]"), "f.json:1:6: error: unexpected comma before ]");
  EXPECT_EQ(error_of("[1] x"), "f.json:1:5: error: unexpected x after the end; expected nothing");
  EXPECT_EQ(error_of("/* a"), "f.json:1:1: error: this comment does not end; expected */");
  EXPECT_EQ(error_of("[\"a\nb\"]"), "f.json:1:2: error: this string does not end; expected \"");
  EXPECT_EQ(error_of("[nul]"), "f.json:1:2: error: unexpected n; expected a value");
  EXPECT_EQ(error_of("[1e999]"),
            "f.json:1:2: error: the number 1e999 cannot be represented; expected a number that a "
            "double can hold");
}

TEST(JsonText, ColumnsCountCharactersNotBytes) {
  EXPECT_EQ(error_of("[\"\xc3\xa9\xe2\x82\xac\", x]"),
            "f.json:1:8: error: unexpected x; expected a value");
}

TEST(JsonText, ADuplicateKeyIsAnErrorAtTheSecondAndReadingGoesOn) {
  EXPECT_EQ(error_of("{\"a\": 1,\n \"b\": {\"c\": 1, \"c\": 2},\n \"a\": 3}"),
            "f.json:2:16: error: duplicate key \"c\"; the first is at 2:8\n"
            "f.json:3:2: error: duplicate key \"a\"; the first is at 1:2");
}

TEST(JsonText, DeepNestingIsRefusedNotFollowed) {
  EXPECT_EQ(error_of(std::string(200'000, '[')),
            "f.json:1:101: error: nested deeper than 100 levels");
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "{\"a\":";
  EXPECT_EQ(error_of(deep), "f.json:1:501: error: nested deeper than 100 levels");
  EXPECT_EQ(error_of(std::string(100, '[') + std::string(100, ']')), "");
}

// CPU time of this thread, which another program does not take.
double seconds_of(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

std::string with_keys(size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += fmt::format("{}\"k{}\": 1", i == 0 ? "" : ",", i);
  return text + "}";
}

TEST(JsonText, TimeGrowsWithTheNumberOfKeysNotWithItsSquare) {
  Places places("f.json");
  Json document;
  InputErrors errors;
  const std::string text = with_keys(200'000);
  const double seconds =
      seconds_of([&] { read_json(text, "f.json", &document, &places, &errors); });
  EXPECT_EQ(document.size(), 200'000u);
  EXPECT_LT(seconds, 10);  // by operator[] it took minutes
}

TEST(JsonText, ManyErrorsAreNotAllReported) {
  std::string text = "{";
  for (size_t i = 0; i < 100'000; ++i) text += "\"a\": 1,";
  Json document;
  InputErrors errors;
  EXPECT_FALSE(read_json(text + "\"b\": 1}", "f.json", &document, nullptr, &errors));
  ASSERT_EQ(errors.size(), kMostErrors + 1);
  EXPECT_EQ(errors.back().message, "too many errors: the rest is not read");
}

TEST(JsonText, MoreValuesOrLongerPointersThanAllowedAreRefused) {
  Json document;
  InputErrors errors;
  EXPECT_FALSE(read_json("[1,2,3]", "f.json", &document, nullptr, &errors, {3, 1000, false}));
  EXPECT_EQ(to_text(errors.back()),
            "f.json:1:6: error: there are too many values; expected at most 3");
  Places places("f.json");
  const std::string text = "{\"" + std::string(100, 'x') + "\": [1,2,3,4,5,6,7,8,9,10]}";
  EXPECT_FALSE(read_json(text, "f.json", &document, &places, &errors, {100, 1000, false}));
  EXPECT_EQ(errors.back().message, "keys are too long for so many values below them");
  errors.clear();
  EXPECT_TRUE(read_json(text, "f.json", &document, nullptr, &errors, {100, 1000, false}));
}

TEST(JsonText, WhereTheyMayBeIntegersOf64BitsStayIntegers) {
  const auto large = parse_foreign_json("18446744073709551615", "f.json", "");
  EXPECT_EQ(large.value(), UINT64_MAX);
  Json document;
  InputErrors errors;
  EXPECT_TRUE(read_json("18446744073709551615", "f.json", &document, nullptr, &errors));
  EXPECT_TRUE(document.is_number_float());
}

TEST(JsonText, WhatIsNotUsedIsDiscarded) {
  EXPECT_TRUE(json_or_discarded("{\"a\": ").is_discarded());
  EXPECT_TRUE(json_or_discarded(std::string(80'000, '[')).is_discarded());
  EXPECT_EQ(json_or_discarded("[1]"), Json({1}));
}

TEST(JsonText, BytesThatAreNoTextAreNamedByNumber) {
  EXPECT_EQ(error_of(std::string_view("\0\xff\x7f"
                                      "ELF",
                                      6)),
            "f.json:1:1: error: unexpected byte 0x00; expected a value");
  EXPECT_EQ(error_of("[\"\xff\"]"),
            "f.json:1:3: error: unexpected byte 0xff; expected text in UTF-8");
  EXPECT_EQ(error_of("[\"\xed\xa0\x80\"]"),
            "f.json:1:3: error: unexpected byte 0xed; expected text in UTF-8");
}

TEST(JsonText, PlacesOfKeysAndValues) {
  Json document;
  Places places("f.json");
  InputErrors errors;
  ASSERT_TRUE(
      read_json("{\n  \"a\": {\"b/c\": [1,\n 22]}}", "f.json", &document, &places, &errors));
  const auto at = [&](const char* pointer, bool key) {
    InputError error;
    places.locate(pointer, key, &error);
    return std::pair(error.line, error.column);
  };
  EXPECT_EQ(at("/a", true), std::pair(int64_t{2}, int64_t{3}));
  EXPECT_EQ(at("/a", false), std::pair(int64_t{2}, int64_t{8}));
  EXPECT_EQ(at("/a/b~1c/1", false), std::pair(int64_t{3}, int64_t{2}));
  EXPECT_EQ(at("/a/missing", true), std::pair(int64_t{2}, int64_t{8}));
  EXPECT_EQ(at("/a/missing/x", false), std::pair(int64_t{2}, int64_t{8}));
}

// Damaged texts: we accept exactly what an independent parser accepts (duplicate keys, numbers that
// overflow and nesting aside), and every message is valid UTF-8.
TEST(JsonText, AWholeNumberIsNothingElse) {
  EXPECT_EQ(whole_number(Json(-3)), -3);
  EXPECT_EQ(whole_number(Json(uint64_t{INT64_MAX})), INT64_MAX);
  for (const Json& none : {Json(1e19), Json(0.5), Json(2.0), Json(uint64_t{1} << 63), Json("1"),
                           Json(nullptr), Json(true)})
    EXPECT_THROW(whole_number(none), Json::exception) << none;
}

TEST(JsonText, WhatIsTakenExactlyIsWithinTheRangeOfItsType) {
  EXPECT_EQ(get_exact<int>(Json(-7)), -7);
  EXPECT_EQ(get_exact<uint64_t>(Json(UINT64_MAX)), UINT64_MAX);
  EXPECT_EQ(get_exact<std::vector<int64_t>>(Json{1, 2}), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(get_exact<bool>(Json(true)));
  for (const Json& none : {Json(1e308), Json(int64_t{1} << 31), Json(0.5), Json(true), Json("1")})
    EXPECT_THROW(get_exact<int>(none), Json::exception) << none;
  EXPECT_THROW(get_exact<uint64_t>(Json(-1)), Json::exception);
  EXPECT_THROW(get_exact<bool>(Json(1)), Json::exception);
  for (const Json& none : {Json{1, 1e308}, Json{true}, Json(3), Json{{"0", 1}}})
    EXPECT_THROW(get_exact<std::vector<int64_t>>(none), Json::exception) << none;
}

TEST(JsonText, AgreesWithAnotherParserOnDamagedTexts) {
  const std::string seed =
      R"({"a": [1, -2.5e-3, true, null], /* c */ "b\u00e9": {"c": "x\\y"}, "d": "äö€"})";
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text = seed;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      if (random() % 3 == 0)
        text.erase(at, 1 + random() % 3);
      else if (random() % 2 == 0)
        text.insert(at, 1, "{}[],:\"\\/*x0-.e \n"[random() % 17]);
      else
        text[at] = static_cast<char>(random() % 256);
    }
    const auto is_control = [](unsigned char c) {
      return c < 0x20 && c != '\t' && c != '\r' && c != '\n';
    };
    if (std::any_of(text.begin(), text.end(), is_control)) continue;  // we refuse them in comments
    Json ours;
    InputErrors errors;
    const bool good = read_json(text, "f.json", &ours, nullptr, &errors);
    const Json other = Json::parse(text, nullptr, false, true);
    if (errors.size() > 0 && errors[0].message.starts_with("duplicate key")) continue;
    ASSERT_EQ(good, !other.is_discarded()) << text;
    if (good) {
      EXPECT_EQ(ours, other) << text;
    }
    accepted += good ? 1 : 0;
    for (const InputError& error : errors) EXPECT_NO_THROW(Json(to_text(error)).dump());
  }
  EXPECT_GT(accepted, 500);
}

TEST(JsonText, AWholeNumberOfADoubleIsNoneBeyondItsType) {
  EXPECT_EQ(whole_of(-3), -3);
  EXPECT_EQ(whole_of(-0x1p62), -(int64_t{1} << 62));
  for (const double none : {0.5, 0x1p63, -0x1p63, 1e30, HUGE_VAL, std::nan("")})
    EXPECT_EQ(whole_of(none), std::nullopt) << none;
}

}  // namespace

}  // namespace lockstep
