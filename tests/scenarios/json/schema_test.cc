#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

#include "scenarios/json/pointer.h"
#include "scenarios/json/schema.h"
#include "scenarios/parse/suite.h"
#include "scenarios/scenario_schema.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Every key of `schema`, also of kinds, with its pointer in the schema.
void for_keys(const Json& schema, const std::string& at,
              const std::function<void(const std::string&, const Json&)>& use) {
  if (!schema.is_structured()) return;
  for (const auto& [key, value] : schema.items()) {
    const std::string below = pointer_join(at, key);
    if (key == "properties" && at.find("/if") == std::string::npos)
      for (const auto& [name, property] : value.items()) use(pointer_join(below, name), property);
    for_keys(value, below, use);
  }
}

TEST(Schema, EveryKeyIsDescribed) {
  const Json& schema = scenario_schema().document();
  int keys = 0;
  for_keys(schema, "", [&](const std::string& pointer, const Json& property) {
    const bool repeated = property.contains("enum") && !property.contains("type");
    if (property.contains("const") || repeated || pointer.ends_with("then/properties/algorithm"))
      return;
    const Json& target = property.contains("$ref")
                             ? *pointer_find(schema, property["$ref"].get<std::string>().substr(1))
                             : property;
    EXPECT_TRUE(target.contains("description")) << pointer;
    ++keys;
  });
  EXPECT_GT(keys, 80);
}

// Our own check and valijson's agree on whether a document is valid, whatever is changed in it.
TEST(Schema, AgreesWithValijsonOnDamagedScenarios) {
  const Json good = Json::parse(kScenario);
  ASSERT_EQ(validator_complaint(good), std::nullopt);
  const std::vector<std::string> pointers = {"/name",
                                             "/world_size",
                                             "/steps",
                                             "/seed",
                                             "/dtype",
                                             "/model",
                                             "/model/kind",
                                             "/model/bias",
                                             "/model/in_features",
                                             "/model/hidden",
                                             "/data/kind",
                                             "/data/low",
                                             "/split",
                                             "/split/kind",
                                             "/optimizer/kind",
                                             "/optimizer/lr",
                                             "/optimizer/beta1",
                                             "/communicator",
                                             "/communicator/kind",
                                             "/communicator/algorithm",
                                             "/reducer/bucket_cap_mb",
                                             "/lanes",
                                             "/lanes/0",
                                             "/lanes/1",
                                             "/mutants/0",
                                             "/mutants/0/kind",
                                             "/expect",
                                             "/expect/verdict",
                                             "/expect/lanes/replay",
                                             "/timeouts/run_ms",
                                             "/wrld_size",
                                             "/loss/scale"};
  const std::vector<const char*> values = {"0",
                                           "1",
                                           "-1",
                                           "2.5",
                                           "1e30",
                                           "9007199254740993",
                                           "true",
                                           "null",
                                           "\"\"",
                                           "\"replay\"",
                                           "\"mlp\"",
                                           "\"adam\"",
                                           "\"dyadic\"",
                                           "\"c10d\"",
                                           "\"local\"",
                                           "\"rank_order\"",
                                           "\"ring\"",
                                           "\"pass\"",
                                           "\"flip_bit\"",
                                           "[]",
                                           "[1, 2]",
                                           "[\"replay\"]",
                                           "{}",
                                           "{\"kind\": \"manual\"}",
                                           "[{\"verdict\": \"fail\"}]",
                                           "{\"kind\": \"adam\"}"};
  std::mt19937 random(11);
  int valid = 0, invalid = 0;
  for (int i = 0; i < 3'000; ++i) {
    Json document = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      std::string stuck;
      pointer_set(&document, pointers[random() % pointers.size()],
                  Json::parse(values[random() % values.size()]), &stuck);
    }
    const auto problems = check_schema(scenario_schema().root(), document);
    const auto complaint = validator_complaint(document);
    ASSERT_EQ(problems.empty(), !complaint)
        << document << "\n"
        << (problems.empty() ? *complaint : problems[0].message);
    ++(problems.empty() ? valid : invalid);
  }
  EXPECT_GT(valid, 50);
  EXPECT_GT(invalid, 500);
}

TEST(Schema, DefaultsAlsoOfTheKindChosen) {
  Json document = Json::parse(kScenario);
  document["optimizer"] = {{"kind", "adam"}};
  fill_defaults(scenario_schema().root(), &document);
  EXPECT_EQ(document["optimizer"]["beta2"], 0.999);
  EXPECT_FALSE(document["optimizer"].contains("momentum"));
  EXPECT_EQ(document["communicator"], (Json{{"kind", "gloo"}, {"algorithm", "ring"}}));
  EXPECT_EQ(document["reducer"]["bucket_cap_mb"], 25);
  EXPECT_EQ(document["model"]["bias"], true);
  EXPECT_EQ(document["seed"], 123);
  EXPECT_EQ(document["expect"], (Json{{"verdict", "pass"}}));
  EXPECT_EQ(validator_complaint(document), std::nullopt);
}

}  // namespace

}  // namespace lockstep
