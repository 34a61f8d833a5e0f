#include <gtest/gtest.h>

#include <map>
#include <set>

#include "sim/tools/campaign/cases.h"
#include "tests/sanitized.h"
#include "tests/sim/tools/campaign/documents.h"

namespace lockstep {
namespace {

constexpr uint64_t kSeeds = 2000;

TEST(CleanDraw, EveryCaseIsAScenarioAndTheSameForItsSeed) {
  for (uint64_t seed = 1; seed <= tries(kSeeds); ++seed) {
    const auto document = clean_case(seed);
    EXPECT_EQ(errors_of(document), "") << document.dump(2);
    EXPECT_EQ(clean_case(seed), document);
    EXPECT_FALSE(document.contains("mutants"));
    EXPECT_EQ(document["expect"]["verdict"], "pass");
  }
  EXPECT_NE(clean_case(1), clean_case(2));
}

TEST(CleanDraw, DrawsEveryFeature) {
  std::map<std::string, int> keys;
  std::map<std::string, std::set<std::string>> kinds;
  std::set<int64_t> worlds;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const auto document = clean_case(seed);
    worlds.insert(document["world_size"].get<int64_t>());
    for (const auto& [key, value] : document.items()) {
      ++keys[key];
      if (value.is_object() && value.contains("kind"))
        kinds[key].insert(value["kind"].get<std::string>());
    }
    for (const auto& [key, value] : document["reducer"].items())
      if (value == true) ++keys[key];
    for (const char* option : {"memory_format", "dropout"})
      if (const auto& model = document["model"]; model.contains(option)) {
        ++keys[option];
        kinds[option].insert(model[option].dump());
      }
    if (document["model"].value("out_features", 0) == 1) ++keys["single_elements"];
    if (document.contains("dtype")) kinds["dtype"].insert(document["dtype"].get<std::string>());
    for (const auto& lane : document["lanes"]) kinds["lanes"].insert(lane.get<std::string>());
  }
  for (const char* key : {"accumulate_steps",
                          "accumulate_sync",
                          "averaging",
                          "checkpoint",
                          "clipping",
                          "comm_hook",
                          "faults",
                          "frozen",
                          "ignored",
                          "join",
                          "loss_scaling",
                          "model_averaging",
                          "lr_schedule",
                          "optimizer_sharding",
                          "split",
                          "wrapped_modules",
                          "gradient_as_bucket_view",
                          "static_graph",
                          "find_unused_parameters",
                          "memory_format",
                          "dropout",
                          "single_elements"})
    EXPECT_GT(keys[key], 10) << key;
  EXPECT_EQ(worlds, (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(kinds["reducer"].size(), 8U);
  EXPECT_EQ(kinds["communicator"].size(), 5U);
  EXPECT_EQ(kinds["optimizer"].size(), 5U);
  EXPECT_EQ(kinds["dtype"].size(), 2U);
  EXPECT_EQ(kinds["memory_format"].size(), 3U);
  EXPECT_EQ(kinds["dropout"].size(), 3U);
  EXPECT_EQ(kinds["lanes"].size(), 6U);
  EXPECT_EQ(kinds["clipping"].size(), 2U);
  EXPECT_EQ(kinds["comm_hook"].size(), 5U);
  EXPECT_EQ(kinds["split"].size(), 3U);
  EXPECT_GE(kinds["model"].size(), 7U);
}

}  // namespace

}  // namespace lockstep
