#include "scenarios/base/part.h"

#include <gtest/gtest.h>

#include "scenarios/parse/suite.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

TEST(OwnOptions, ARegisteredPartTakesSimpleValuesByAnyName) {
  const TemporaryFolder folder;
  const auto loaded = [&](const std::string& options) {
    return load_scenario_file(
        folder.write("f.json", kScenario),
        {{R"(/model={"kind": "registered", "name": "mine", "options": )" + options + "}"}, {}});
  };
  const auto good = loaded(R"({"hidden": 16, "rate": 0.5, "name": "x"})");
  ASSERT_TRUE(good) << to_text(good.errors()[0]);
  const Options& options = good.value().combinations[0].scenario.model.options;
  EXPECT_EQ(options.text("name"), "mine");
  const Options own = own_options(options);
  EXPECT_EQ(own.integer("hidden"), 16);
  EXPECT_EQ(own.number("rate"), 0.5);
  EXPECT_EQ(own.text("name"), "x");
  EXPECT_EQ(without_own_options(options).all().size(), 1u);
  const auto nested = loaded(R"({"hidden": {"deep": 1}})");
  ASSERT_FALSE(nested);
  EXPECT_EQ(nested.errors()[0].pointer, "/model/options/hidden");
  EXPECT_EQ(nested.errors()[0].allowed, "a value of type boolean, number, string");
  EXPECT_FALSE(loaded(R"({"hidden": null})"));
}

}  // namespace
}  // namespace lockstep
