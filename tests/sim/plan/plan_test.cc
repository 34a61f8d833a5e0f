#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "tests/sanitized.h"
#include "tests/sim/plan/planned.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

Scenario scenario_of(const Strings& sets) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", kScenario), {sets, {}});
  EXPECT_TRUE(file) << (file ? "" : to_text(file.errors()[0]));
  return file ? file.value().combinations[0].scenario : Scenario{};
}

TEST(Plan, GoldensAndLanes) {
  RunPlan plan = planned({"/lanes=[\"replica\",\"replay\",\"float64\",\"rounding\"]"});
  EXPECT_EQ(plan.goldens, (Strings{"replay", "float64"}));
  EXPECT_TRUE(plan.rounding && plan.double_run && plan.shards);
  EXPECT_FALSE(plan.threads);
  EXPECT_TRUE(plan.not_applicable.empty());
  plan = planned({"/lanes=[\"replica\",\"rounding\",\"float64\"]", "/world_size=1",
                  "/dtype=float64", "/golden=g.json", "/communicator/kind=local"});
  EXPECT_EQ(plan.goldens, (Strings{"float64", "one_device"}));
  EXPECT_FALSE(plan.rounding || plan.double_run || plan.shards);
  EXPECT_TRUE(plan.threads);
  ASSERT_EQ(plan.not_applicable.size(), 2U);
  EXPECT_EQ(plan.not_applicable[0].first, Lane::replica);
  EXPECT_EQ(plan.not_applicable[1].first, Lane::rounding);
}

TEST(Plan, WithoutSynchronizationNoLaneApplies) {
  const RunPlan plan =
      planned({"/reducer/kind=none", R"(/lanes=["replica", "replay", "float64", "rounding"])"});
  EXPECT_EQ(plan.not_applicable.size(), 4U);
  EXPECT_TRUE(plan.goldens.empty());
  EXPECT_FALSE(plan.rounding || plan.double_run);
  EXPECT_TRUE(plan.layout_at_construction.empty());
  EXPECT_EQ(plan.agreement, "ranks agree before the first step, and never again");
  EXPECT_THAT(errors_of({"/reducer/kind=none", R"(/mutants=[{"kind": "drop_bucket"}])"}),
              testing::StartsWith("/mutants: "));
}

TEST(Plan, OnlyBucketsAreWrittenBackEarly) {
  const std::string early = "/reducer/write_back=per_bucket";
  EXPECT_EQ(errors_of({early}), "");
  for (const std::string other :
       {"/reducer/kind=c10d", "/reducer/kind=manual", "/reducer/find_unused_parameters=true"})
    EXPECT_THAT(errors_of({early, other}), testing::StartsWith("/reducer/write_back: ")) << other;
}

TEST(Plan, RanksAsThreadsHoldOnlySoManySteps) {
  const std::string error = errors_of({"/steps=10000000", "/communicator/kind=local"});
  EXPECT_NE(error.find("/steps: /steps is 10000000: ranks as threads"), std::string::npos) << error;
  EXPECT_NE(error.find("; expected at most "), std::string::npos) << error;
  EXPECT_EQ(errors_of({"/steps=10000000"}), "");
}

TEST(Plan, ReplayRuleOfEachReducer) {
  const auto rule = [](const Strings& sets) {
    const ReplayRule r = planned(sets).replay;
    return Strings{r.layout, r.rebuild ? "rebuild" : "keep", r.division_first_step,
                   r.division_later, r.algorithm};
  };
  for (const std::string kind : {"bucketed", "c10d"}) {
    const std::string set = "/reducer/kind=" + kind;
    const std::string view = "/reducer/gradient_as_bucket_view=true";
    EXPECT_EQ(rule({set}),
              (Strings{"ddp", "rebuild", "multiply_before", "multiply_before", "ring"}));
    EXPECT_EQ(rule({set, view}),
              (Strings{"ddp", "rebuild", "multiply_before", "divide_before", "ring"}));
    EXPECT_EQ(rule({set, view, "/zero_grad=none"}),
              (Strings{"ddp", "rebuild", "multiply_before", "multiply_before", "ring"}));
    EXPECT_EQ(rule({set, "/reducer/find_unused_parameters=true"})[1], "keep");
    EXPECT_EQ(rule({set, "/reducer/find_unused_parameters=true", "/reducer/static_graph=true"})[1],
              "rebuild");
  }
  const std::string bcube = "/communicator/algorithm=bcube";
  EXPECT_EQ(rule({"/reducer/kind=flat", bcube}),
            (Strings{"one_bucket", "keep", "multiply_before", "multiply_before", "bcube"}));
  EXPECT_EQ(rule({"/reducer/kind=per_parameter"}),
            (Strings{"registration", "keep", "divide_before", "divide_before", "ring"}));
  EXPECT_EQ(rule({"/reducer/kind=manual", "/communicator/kind=c10d"}),
            (Strings{"registration", "keep", "divide_after", "divide_after", "ring"}));
  const RunPlan caps = planned({"/reducer/bucket_cap_mb=0.002", "/reducer/first_bucket_mb=0.001"});
  EXPECT_EQ(caps.replay.bucket_cap_bytes, 2097);
  EXPECT_EQ(caps.replay.first_bucket_bytes, 1048);
}

TEST(Plan, LayoutAtConstruction) {
  const std::string model =
      R"(/model={"kind":"mlp","in_features":3,"hidden":[4],"out_features":2})";
  const auto layout = [&](const Strings& sets) {
    Strings all = {model};
    all.insert(all.end(), sets.begin(), sets.end());
    return planned(all).layout_at_construction;
  };
  EXPECT_EQ(layout({}), (BucketLayout{{0, 1, 2, 3}}));
  EXPECT_EQ(layout({"/reducer/bucket_cap_mb=0.00005", "/reducer/first_bucket_mb=0.00001",
                    "/reducer/find_unused_parameters=true"}),
            (BucketLayout{{1, 2, 3}, {0}}));
  EXPECT_EQ(layout({"/reducer/kind=flat"}), (BucketLayout{{0, 1, 2, 3}}));
  EXPECT_EQ(layout({"/reducer/kind=per_parameter"}), (BucketLayout{{3}, {2}, {1}, {0}}));
  EXPECT_EQ(layout({"/reducer/kind=manual"}), (BucketLayout{{0}, {1}, {2}, {3}}));
}

TEST(Plan, TimeoutsAreFilledInInOrder) {
  const auto all = [](const Strings& sets) {
    const Timeouts t = planned(sets).scenario.timeouts;
    return std::vector<int64_t>{t.collective_ms, t.construction_ms, t.step_ms, t.rendezvous_ms,
                                t.run_ms};
  };
  using List = std::vector<int64_t>;
  EXPECT_EQ(all({}), (List{30'000, 60'000, 120'000, 120'000, 600'000}));
  EXPECT_EQ(all({"/timeouts/collective_ms=200000"}),
            (List{200'000, 200'000, 200'000, 200'000, 600'000}));
  EXPECT_EQ(all({"/timeouts/run_ms=5000"}), (List{5'000, 5'000, 5'000, 5'000, 5'000}));
  EXPECT_EQ(all({"/timeouts/step_ms=1000000"}),
            (List{30'000, 60'000, 1'000'000, 1'000'000, 1'000'000}));
  EXPECT_EQ(all({"/steps=200000"})[4], 20'000'000);
  EXPECT_EQ(errors_of({"/timeouts={\"collective_ms\":500,\"step_ms\":100,\"run_ms\":50}"}),
            "/timeouts/step_ms: /timeouts/step_ms is 100, less than /timeouts/collective_ms, which "
            "is 500; expected an integer >= 500\n"
            "/timeouts/run_ms: /timeouts/run_ms is 50, less than /timeouts/step_ms, which is 100; "
            "expected an integer >= 100");
}

TEST(Plan, CapacitiesStayInTheirLimits) {
  EXPECT_EQ(planned({}).record_capacity, 4'096);
  EXPECT_EQ(planned({"/steps=200000"}).record_capacity, 1 << 20);
  EXPECT_EQ(planned({"/steps=200000"}).stream_slots, 64);
  EXPECT_EQ(planned({"/steps=1"}).stream_slots, 2);
  const RunPlan large =
      planned({R"(/model={"kind":"linear","in_features":2048,"out_features":512})",
               "/data/features=2048", "/data/targets=512", "/steps=50"});
  EXPECT_FALSE(large.shards);
  EXPECT_EQ(large.stream_slots, 2);
}

TEST(Plan, BadInputThatOnlyTheWholeScenarioShows) {
  EXPECT_EQ(errors_of({"/world_size=5"}),
            "/world_size: a batch of 24 samples cannot be split evenly over 5 ranks; expected a "
            "world size that divides the batch");
  EXPECT_EQ(errors_of({"/world_size=1000"}),
            "/world_size: /world_size is 1000; expected an integer >= 1 and <= 256 (processes of "
            "one machine)");
  EXPECT_EQ(errors_of({"/world_size=65", "/communicator/kind=local"}),
            "/world_size: /world_size is 65; expected an integer >= 1 and <= 64 (threads of one "
            "machine)");
  EXPECT_EQ(errors_of({"/batch_size=16"}),
            "/data/samples: 24 samples are not a multiple of the batch, 16; expected a multiple of "
            "16");
  EXPECT_EQ(errors_of({"/model/out_features=9"}),
            "/data/targets: /data/targets is 2, but /model/out_features is 9; expected 9");
  EXPECT_EQ(errors_of({"/optimizer/nesterov=true"}),
            "/optimizer/nesterov: nesterov needs a momentum and no dampening; expected momentum > "
            "0 and dampening 0");
  EXPECT_EQ(errors_of({"/requantize=65"}),
            "/requantize: /requantize is 65; expected a power of two");
  EXPECT_EQ(
      errors_of({"/mutants=[{\"kind\":\"flip_bit\",\"rank\":4,\"step\":4,\"tensor\":\"b\"}]"}),
      "/mutants/0/rank: there is no rank 4; expected a rank from 0 to 3\n"
      "/mutants/0/step: there is no step 4; expected a step from 1 to 3\n"
      "/mutants/0/tensor: flip_bit has no tensor; expected no tensor\n"
      "/mutants/0/tensor: the model has no parameter \"b\"; expected weight, bias");
  EXPECT_EQ(errors_of({"/world_size=1", "/mutants=[{\"kind\":\"duplicate_shard\"}]"}),
            "/mutants/0/kind: duplicate_shard needs another rank; expected a world size of at "
            "least 2");
}

TEST(Plan, APairOfCommunicatorAndAlgorithmThatCannotBe) {
  Scenario scenario = scenario_of({});
  scenario.communicator.kind = "c10d";
  scenario.communicator.options.set("algorithm", std::string("bcube"));
  EXPECT_EQ(make_plan(scenario).errors().at(0).pointer, "/communicator/algorithm");
  scenario.communicator.kind = "gloo";
  scenario.communicator.options.set("algorithm", std::string("rank_order"));
  EXPECT_FALSE(make_plan(scenario));
  for (const char* kind : {"local", "shm"}) {
    scenario.communicator.kind = kind;
    EXPECT_TRUE(make_plan(scenario));
  }
}

TEST(Plan, HostsStandInTheReductionOrderAndBelongToHierarchicalAlone) {
  Scenario scenario =
      scenario_of({"/communicator={\"kind\":\"hierarchical\",\"ranks_per_host\":2}"});
  EXPECT_EQ(make_plan(scenario).value().replay.algorithm, "ring/2");
  scenario.communicator.options.set("algorithm", std::string("rank_order"));
  EXPECT_EQ(make_plan(scenario).errors().at(0).pointer, "/communicator/algorithm");
  scenario.communicator.kind = "shm";
  EXPECT_EQ(make_plan(scenario).errors().at(0).pointer, "/communicator/ranks_per_host");
}

const Strings kExact = {"/lanes=[\"exact\"]", "/dtype=float64", "/requantize=64",
                        "/loss={\"kind\":\"mse\",\"reduction\":\"sum\",\"times_world_size\":true}",
                        "/data={\"kind\":\"dyadic\",\"samples\":24,\"features\":3,\"targets\":2}"};

TEST(Plan, LaneExactNeedsAScenarioThatIsMeantForIt) {
  EXPECT_EQ(planned(kExact).goldens, Strings{"exact"});
  for (const auto& [set, pointer] : std::vector<std::pair<std::string, std::string>>{
           {"/dtype=float32", "/dtype"},
           {"/requantize=0", "/requantize"},
           {"/loss/reduction=mean", "/loss/reduction"},
           {"/loss/scale=0.3", "/loss/scale"},
           {R"(/model={"kind":"mlp","in_features":3,"out_features":2,"activation":"tanh"})",
            "/model/activation"}}) {
    Strings sets = kExact;
    sets.push_back(set);
    const auto plan = make_plan(scenario_of(sets));
    ASSERT_FALSE(plan) << set;
    EXPECT_EQ(plan.errors()[0].pointer, pointer);
  }
}

TEST(Plan, OneControlOnRandomDataForEachFileWithLaneExact) {
  RunPlan plan = planned(kExact);
  plan.file = "a.json";
  plan.scenario.golden = "/goldens/of_other_data.json";
  RunPlan other = plan;
  other.file = "b.json";
  RunPlan mutant = plan;
  mutant.file = "c.json";
  mutant.scenario.mutants.emplace_back().kind = "flip_bit";
  const auto controls = control_plans({plan, planned({}), plan, other, mutant});
  ASSERT_EQ(controls.size(), 2U);
  EXPECT_EQ(controls[0].file, "a.json");
  EXPECT_EQ(controls[1].file, "b.json");
  EXPECT_EQ(controls[0].control, "random_data");
  EXPECT_EQ(controls[0].scenario.data.kind, "randn");
  EXPECT_FALSE(controls[0].scenario.data.options.has("denominator"));
  EXPECT_EQ(controls[0].goldens, Strings{"exact"});
  EXPECT_FALSE(controls[0].scenario.golden);
}

TEST(Plans, ErrorsHaveTheirPlaceInTheFileOnAnAxisOrInAnOption) {
  const TemporaryFolder folder;
  const auto errors = [&](std::string_view text, const Strings& sets) {
    const auto file = load_scenario_file(folder.write("f.json", text), {sets, {}});
    const auto plans = make_plans(file.value());
    std::string all;
    if (plans) return all;
    for (const InputError& error : plans.errors())
      all += (all.empty() ? "" : "\n") +
             to_text(error).substr(error.file.starts_with("--set") ? 0 : folder.path().size() + 1);
    return all;
  };
  EXPECT_EQ(errors(changed("4,", "5,"), {}),
            "f.json:4:17: error: a batch of 24 samples cannot be split evenly over 5 ranks; "
            "expected a world size that divides the batch");
  EXPECT_EQ(errors(kScenario, {"/world_size=300"}),
            "--set /world_size=300: error: /world_size is 300; expected an integer >= 1 and <= 256 "
            "(processes of one machine)");
  EXPECT_EQ(
      errors(changed("\"steps\"", R"("matrix": {"/world_size": [3, 5], "/seed": [1, 2]}, "steps")"),
             {}),
      "f.json:5:29: error: a batch of 24 samples cannot be split evenly over 5 ranks (with "
      "/world_size=5 /seed=1); expected a world size that divides the batch");
}

// Each shipped scenario is read and planned, twice to the same bytes, and comes back from them.
TEST(Shipped, EveryScenarioIsPlannedTheSameTwice) {
  const auto files = find_scenario_files(LOCKSTEP_SOURCE_DIR "/scenarios");
  ASSERT_TRUE(files);
  EXPECT_GE(files.value().size(), 10U);
  for (const std::string& path : files.value()) {
    const auto once = load_scenario_file(path, {}), again = load_scenario_file(path, {});
    ASSERT_TRUE(once) << to_text(once.errors()[0]);
    const auto plans = make_plans(once.value()), same = make_plans(again.value());
    ASSERT_TRUE(plans) << to_text(plans.errors()[0]);
    ASSERT_EQ(plans.value().size(), same.value().size());
    const size_t every = kSanitized ? 7 : 1;
    for (size_t i = 0; i < plans.value().size(); i += every) {
      const std::string text = to_text(plans.value()[i]);
      ASSERT_EQ(text, to_text(same.value()[i]));
      if (i % (50 * every) == 0) {
        EXPECT_EQ(to_text(plan_from_json(nlohmann::ordered_json::parse(text))), text);
      }
    }
    EXPECT_EQ(once.value().name, fs::path(path).stem().string());
  }
}

TEST(Shipped, TheMatricesHaveTheSizesThatWerePromised) {
  const auto runs = [](const char* name) {
    return load_scenario_file(std::string(LOCKSTEP_SOURCE_DIR "/scenarios/equivalence/") + name, {})
        .value()
        .combinations.size();
  };
  EXPECT_NEAR(static_cast<double>(runs("mlp_matrix.json")), 250, 25);
  EXPECT_GE(runs("mlp_product.json"), 2'500U);
  EXPECT_EQ(runs("exact.json"), 3U);
}

}  // namespace

}  // namespace lockstep
