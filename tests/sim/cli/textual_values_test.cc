#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "sim/program/command_line.h"
#include "tests/sim/cli/invoke.h"

namespace lockstep {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kScenarios = LOCKSTEP_SOURCE_DIR "/scenarios/";

// Numbers within the words of an option, which no range of the option library sees.
struct Textual {
  Words invocation;
  std::string option;
  Words refused;
};

// With one number of each list made wrong in each way.
Words wrong_in(const std::string& before, const std::string& after = "",
               const char* negative = "-1") {
  Words all;
  for (const std::string& word :
       {std::string(""), std::string("0"), std::string(negative), std::string("nan"),
        std::string("inf"), std::string("x"), std::string("1x"), std::string("0x10"),
        std::string(" 1"), std::string("1 "), std::string("+1"), std::string("1e400"),
        std::string("99999999999999999999")})
    all.push_back(before + word + after);
  return all;
}

Words with(Words some, const Words& others) {
  some.insert(some.end(), others.begin(), others.end());
  return some;
}

std::vector<Textual> textual_options() {
  const std::string toy = kScenarios + "equivalence/toy_model.json";
  const std::string sweep = kScenarios + "sweeps/mlp.json";
  const Words simulate = {"simulate",      toy,     "--set",
                          "/world_size=2", "--set", "/reducer/kind=bucketed"};
  return {
      {simulate, "--predict",
       with(with(wrong_in("caps="), wrong_in("caps=1;")),
            with(wrong_in("worlds=2;"),
                 {"caps", "caps=1;1", "caps=1;", "caps=;1", "caps=2..1", "caps=1..", "caps=..2",
                  "caps=1..2..3", "caps=1,caps=2", "caps=1,", ",caps=1", "caps=1e-9", "worlds=2.5",
                  "worlds=1000001", "worlds=2;2", "layers=2", "1..2"}))},
      {simulate, "--average",
       with(with(wrong_in("", ":2"), wrong_in("2:")), {"8", "8:2:3", "8:2,", ",8:2", "8:2,8:2"})},
      {simulate, "--noise",
       with({"normal", "normal:", "normal:-1", "normal:nan", "normal:x", "normal:0.1x",
             "normal: 0.1", "normal:1e400", "normal:1000", "normal:0.1,",
             "normal:0.1,bucket,bucket", "none,bucket", "none:0.1", "gauss:0.1"},
            {})},
      {simulate, "--engine", {"L5", "l0", "0", "L0,L1", "L0 "}},
      {simulate, "--algorithm", {"rings", "ring,ring", " ring"}},
      {{"sweep", sweep},
       "--caps",
       with(with(wrong_in(""), wrong_in("1,")), {"1,1", "1,", "auto,1", "65537"})},
      {{"sweep", sweep},
       "--worlds",
       with(with(wrong_in(""), wrong_in("2,")), {"2,2", "2,", "2.5", "4097"})},
      {{"sweep", sweep},
       "--reducers",
       {"bucketed,bucketed", "bucketed,", ",", "nope", "bucketed;c10d"}},
      {{"sweep", sweep},
       "--threshold",
       {"step_ms", "step_ms<=", "step_ms<=x", "step_ms<=nan", "step_ms<=inf", "step_ms<=5x",
        "step_ms<=-5", "step_ms<=1e400", "step_ms==5", "nope<=5", "<=5"}},
      {{"sweep", sweep, "--threshold", "step_ms<=5"},
       "--threshold",
       {"step_ms<=5", "step_ms <= 5.0"}},
      {{"sweep", sweep},
       "--vary",
       {"/seed", "/seed=", "/seed=1", "/seed=[]", "/seed=[1,1]", "/seed=[1]x", "seed=[1]",
        "/steps=[1,2]", "/lanes=[[]]", "/reducer/bucket_cap_mb=[1,2]"}},
      {{"sweep", sweep, "--vary", "/seed=[1,2]"}, "--vary", {"/seed=[3,4]"}},
      {{"sweep", sweep, "--vary", "/seed=[1,2]"}, "--set", {"/seed=3"}},
      {{"sweep", sweep, "--worlds", "2"}, "--set", {"/world_size=3"}},
      {{"sweep", sweep, "--reducers", "c10d"}, "--set", {"/reducer/kind=bucketed"}},
      {{"sweep", sweep}, "--set", {"/steps=3", "/expect={}", "/reducer/bucket_cap_mb=3"}},
      {{"collective", "all_reduce"},
       "--communicators",
       with(wrong_in("hierarchical:ring:"),
            {"gloo,gloo", "gloo,", "gloo:", "gloo:ring:2", "hierarchical:ring",
             "hierarchical:ring:65", "hierarchical:ring:2:3", "nope"})},
      {{"collective", "all_reduce"},
       "--min-bytes",
       with(wrong_in(""), {"8x", "2G", "8K8", "1.5K", "8k"})},
      {{"collective", "all_reduce"},
       "--max-bytes",
       with(wrong_in(""), {"8x", "2G", "8K8", "1.5K", "1"})},
      {{"verify", toy},
       "--shard",
       with(with(wrong_in("", "/2"), wrong_in("1/")), {"3/2", "1", "1/2/3", "1/4097"})},
      {{"verify", toy}, "--jobs", with(wrong_in(""), {"auto2", "1025", "1.5"})},
      {{"verify", toy}, "--hosts", {"a,,b", ",a", "a,", ",", "a b", "-a"}},
      {{"verify", toy},
       "--set",
       {"/steps", "/steps=", "/steps=0", "/steps=-1", "/steps=nan", "/steps=x", "/steps=1x",
        "/steps=1e400", "/steps=99999999999999999999", "steps=1", "/steps=1.5", "/steps=[1]", "/=1",
        "/no=1"}},
  };
}

TEST(TextualValues, WrongNumbersAreRefusedWithPlaceAndRange) {
  size_t tried = 0;
  for (const Textual& one : textual_options()) {
    if (one.invocation.front() == "collective" && tools().empty()) continue;
    for (const std::string& value : one.refused) {
      Words words = one.invocation;
      words.push_back(one.option + "=" + value);
      const Answer answer = invoke(words);
      const std::string shown = testing::PrintToString(words);
      EXPECT_EQ(answer.code, 2) << shown << answer.out << answer.err;
      EXPECT_THAT(answer.out, IsEmpty()) << shown;
      EXPECT_THAT(answer.err, AnyOf(HasSubstr(one.option), HasSubstr("/steps"), HasSubstr("/no")))
          << shown;
      EXPECT_THAT(answer.err, AnyOf(HasSubstr("; expected "), HasSubstr("an empty value"),
                                    HasSubstr("required TEXT missing")))
          << shown;
      ++tried;
    }
  }
  EXPECT_GT(tried, tools().empty() ? 200u : 250u);
}

}  // namespace
}  // namespace lockstep
