#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <ctime>

#include "scenarios/image_files.h"
#include "scenarios/parse/suite.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// All messages of a file, without its folder; empty if it is good.
std::string errors_of(std::string_view text, const std::vector<std::string>& sets = {}) {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(folder.write("f.json", text), {sets, {}});
  std::string all;
  if (file) return all;
  for (const InputError& error : file.errors()) all += (all.empty() ? "" : "\n") + to_text(error);
  for (size_t at; (at = all.find(folder.path() + "/")) != std::string::npos;)
    all.erase(at, folder.path().size() + 1);
  return all;
}

std::vector<Combination> runs_of(std::string_view text, const std::vector<std::string>& sets = {},
                                 std::optional<uint64_t> seed = {}) {
  const TemporaryFolder folder;
  auto file = load_scenario_file(folder.write("f.json", text), {sets, seed});
  EXPECT_TRUE(file) << (file ? "" : to_text(file.errors()[0]));
  return file ? file.value().combinations : std::vector<Combination>{};
}

TEST(Suite, ACheckpointOfNoKindHasNoOtherKeys) {
  for (const char* part : {R"({"after_step": [[2]]})", R"({"kind": "none", "after_step": [[2]]})"})
    EXPECT_TRUE(
        errors_of(changed("\"steps\": 3", R"("steps": 3, "checkpoint": )" + std::string(part)))
            .find("unknown key \"after_step\" in /checkpoint") != std::string::npos);
}

TEST(Suite, EveryBadKeyAndValueHasItsPlaceAndWhatIsAllowed) {
  EXPECT_EQ(errors_of(kScenario), "");
  EXPECT_EQ(errors_of(changed("\"world_size\"", "\"wrld_size\"")),
            "f.json:4:3: error: unknown key \"wrld_size\"; did you mean \"world_size\"?");
  EXPECT_EQ(errors_of(changed("4", "\"four\"")),
            "f.json:4:17: error: /world_size is \"four\"; expected an integer >= 1 and <= 1000000");
  EXPECT_EQ(errors_of(changed("\"steps\": 3", "\"steps\": 3, \"steps\": 4")),
            "f.json:5:15: error: duplicate key \"steps\"; the first is at 5:3");
  EXPECT_EQ(errors_of(changed("\"lr\"", "\"momentm\": 1, \"lr\"")),
            "f.json:9:32: error: unknown key \"momentm\" in /optimizer of kind \"sgd\"; did you "
            "mean \"momentum\"?");
  EXPECT_EQ(errors_of(changed("0.1", "\"fast\"")),
            "f.json:9:38: error: /optimizer/lr is \"fast\"; expected a number >= 0 and <= 1000");
  EXPECT_NE(
      errors_of(changed("\"steps\"",
                        R"("loss_scaling": {"kind": "dynamic", "initial_scale": 0}, "steps")"))
          .find("/loss_scaling/initial_scale is 0; expected a number > 0 and <= 1e+30"),
      std::string::npos);
  EXPECT_EQ(errors_of(changed("\"sgd\"", "\"sdg\"")),
            "f.json:9:25: error: /optimizer/kind is \"sdg\"; expected one of \"sgd\", \"adam\", "
            "\"adamw\", \"adagrad\" or \"rmsprop\" (did you mean \"sgd\"?)");
  const std::string no_kind = errors_of(changed("\"kind\": \"linear\", ", ""));
  EXPECT_TRUE(no_kind.starts_with(
      "f.json:6:12: error: missing key \"kind\" in /model; expected one of \"linear\", \"mlp\", "))
      << no_kind;
  EXPECT_EQ(errors_of(changed("  \"steps\": 3,\n", "")),
            "f.json:1:1: error: missing key \"steps\"");
  EXPECT_EQ(errors_of(changed("\"replay\"]", "\"replica\"]")),
            "f.json:10:24: error: \"replica\" is in /lanes twice; expected every value once");
  EXPECT_EQ(errors_of("[1]"), "f.json:1:1: error: the scenario is [1]; expected an object");
}

TEST(Suite, AllErrorsOfAFileAtOnceInItsOrder) {
  std::string text = changed("\"steps\": 3", "\"steps\": 0");
  text.replace(text.find("\"mse\""), 5, "\"mze\"");
  text.replace(text.find("0.1"), 3, "true");
  const std::string wanted =
      "f.json:5:12: error: /steps is 0; expected an integer >= 1 and <= 10000000\n"
      "f.json:8:20: error: /loss/kind is \"mze\"; expected one of \"mse\" or \"cross_entropy\" "
      "(did you mean \"mse\"?)\n"
      "f.json:9:38: error: /optimizer/lr is true; expected a number >= 0 and <= 1000\n"
      "--set /no/such=1: error: unknown key \"no\"; expected \"$schema\", \"seed\", ";
  const std::string errors = errors_of(text, {"/no/such=1"});
  EXPECT_EQ(errors.substr(0, wanted.size()), wanted);
  EXPECT_TRUE(errors.ends_with("\"matrix\" or \"exclude\"")) << errors;
}

TEST(Suite, UnsafeAlgorithmsAreRefusedWithTheReason) {
  EXPECT_EQ(errors_of(kScenario, {"/communicator/algorithm=old_ring"}),
            "--set /communicator/algorithm=old_ring: error: /communicator/algorithm is "
            "\"old_ring\", which is refused: every rank adds in an order of its own, so replicas "
            "differ from 3 ranks on; expected one of \"ring\", \"bcube\", \"halving_doubling\", "
            "\"ring_chunked\" or \"rank_order\"");
  EXPECT_EQ(errors_of(kScenario, {"/communicator={\"kind\":\"c10d\",\"algorithm\":\"bcube\"}"}),
            "--set /communicator={\"kind\":\"c10d\",\"algorithm\":\"bcube\"}: error: "
            "/communicator/algorithm is \"bcube\"; expected \"ring\"");
}

TEST(Suite, FilesThatCannotBeRead) {
  const TemporaryFolder folder;
  const auto message = [](const std::string& path) {
    return load_scenario_file(path, {}).errors().at(0).message;
  };
  EXPECT_EQ(message(folder.path() + "/none.json"), "cannot be opened: No such file or directory");
  EXPECT_EQ(message(folder.path()), "this is a directory");
  EXPECT_EQ(message(folder.write("large.json", std::string((16 << 20) + 1, ' '))),
            "the file is too large");
}

TEST(Suite, NamesOfFilesInMessagesAreValidText) {
  const TemporaryFolder folder;
  const auto bad = load_scenario_file(folder.write("\xff.json", "{"), {});
  EXPECT_NO_THROW(Json(to_text(bad.errors()[0])).dump());
}

TEST(Set, ValuesAreJsonOrElseText) {
  const auto runs = runs_of(
      kScenario,
      {"/name=two words", "/world_size=2", "/data/samples=8", "/optimizer={\"kind\":\"adam\"}",
       "/mutants/0/kind=flip_bit", "/mutants/0/rank=1", "/lanes/-=float64", "/steps=5", "/steps=6"},
      99);
  ASSERT_EQ(runs.size(), 1U);
  const Scenario& s = runs[0].scenario;
  EXPECT_EQ(s.name, "two words");
  EXPECT_EQ(s.world_size, 2);
  EXPECT_EQ(s.batch_size, 8);
  EXPECT_EQ(s.optimizer.options.number("beta1"), 0.9);
  EXPECT_EQ(s.mutants.at(0).rank, 1);
  EXPECT_EQ(s.lanes, (std::vector<Lane>{Lane::replica, Lane::replay, Lane::float64}));
  EXPECT_EQ(s.steps, 6);
  EXPECT_EQ(s.seed, 99U);
}

TEST(Set, ErrorsNameTheOption) {
  EXPECT_EQ(errors_of(kScenario, {"/world_size"}),
            "--set /world_size: error: this --set has no value; expected /pointer=value");
  EXPECT_EQ(errors_of(kScenario, {"world_size=3"}),
            "--set world_size=3: error: \"world_size\" is not a JSON pointer; expected "
            "/world_size=...");
  EXPECT_EQ(errors_of(kScenario, {"/wrld_size=3"}),
            "--set /wrld_size=3: error: unknown key \"wrld_size\"; did you mean \"world_size\"?");
  EXPECT_EQ(errors_of(kScenario, {"/steps=-3"}),
            "--set /steps=-3: error: /steps is -3; expected an integer >= 1 and <= 10000000");
  EXPECT_EQ(errors_of(kScenario, {"/name/x=1"}),
            "--set /name/x=1: error: /name/x cannot be set: /name is \"small\"; expected an object "
            "or a list");
  EXPECT_EQ(errors_of(kScenario, {"/lanes/9=\"exact\""}),
            "--set /lanes/9=\"exact\": error: /lanes/9 cannot be set: /lanes is "
            "[\"replica\",\"replay\"]; expected an index from 0 to 2");
}

std::string with_matrix(std::string_view matrix) {
  return changed("\"steps\": 3,", "\"steps\": 3, \"matrix\": " + std::string(matrix) + ",");
}

TEST(Set, OnAnAxisPinsItAndBelowAnAxisChangesItsValues) {
  const std::string text = with_matrix(
      R"({"/world_size": [1, 2, 3], "/optimizer": [{"kind": "sgd", "lr": 1}, {"kind": "adam"}]})");
  EXPECT_EQ(runs_of(text).size(), 6U);
  const auto pinned = runs_of(text, {"/world_size=4"});
  ASSERT_EQ(pinned.size(), 2U);
  EXPECT_EQ(pinned[1].scenario.world_size, 4);
  EXPECT_EQ(
      pinned[1].set,
      (std::vector<std::pair<std::string, std::string>>{{"/optimizer", R"({"kind":"adam"})"}}));
  for (const Combination& run : runs_of(text, {"/optimizer/lr=0.5"}))
    EXPECT_EQ(run.scenario.optimizer.options.number("lr"), 0.5);
  EXPECT_EQ(runs_of(text, {"/world_size=4", "/optimizer={\"kind\":\"adam\"}"}).size(), 1U);
  // What is equal now is run once.
  const std::string kinds = with_matrix(R"({"/reducer": [{"kind": "flat"}, {"kind": "manual"}]})");
  EXPECT_EQ(runs_of(kinds, {"/reducer/kind=c10d"}).size(), 1U);
}

TEST(Suite, WrongValuesOfAnAxisAreReportedOnceWhereTheyStand) {
  const std::string text =
      with_matrix(R"({"/world_size": [1, 2, "x"], "/seed": [1, 2, 3], "/stps": [1]})");
  EXPECT_EQ(errors_of(text).substr(0, 200),
            "f.json:5:48: error: /world_size is \"x\"; expected an integer >= 1 and <= 1000000\n"
            "f.json:5:74: error: unknown key \"stps\"; did you mean \"steps\"?");
}

TEST(Suite, AnImpossibleCombinationIsBadInputAndNamed) {
  const std::string matrix =
      R"({"/communicator/kind": ["gloo", "c10d"], "/communicator/algorithm": ["ring", "bcube"]})";
  EXPECT_EQ(errors_of(with_matrix(matrix)),
            "f.json:5:102: error: /communicator/algorithm is \"bcube\" (with "
            "/communicator/kind=\"c10d\" /communicator/algorithm=\"bcube\"); expected \"ring\"");
  EXPECT_EQ(runs_of(with_matrix(matrix + R"(, "exclude": [{"/communicator/kind": "c10d",
                                "/communicator/algorithm": "bcube"}])"))
                .size(),
            3U);
}

TEST(Suite, ErrorsInTheMatrixDoNotHideOthers) {
  std::string text = with_matrix(R"({"/seed": 3})");
  text.replace(text.find("0.1"), 3, "true");
  EXPECT_EQ(errors_of(text),
            "f.json:5:35: error: /matrix/~1seed is 3; expected a list of 1 to 10000 values\n"
            "f.json:9:38: error: /optimizer/lr is true; expected a number >= 0 and <= 1000");
  EXPECT_EQ(errors_of(with_matrix(R"({"/seed": [1]}, "exclude": [{"/seed": 1}])")),
            "f.json:5:15: error: every combination of the matrix is excluded");
}

TEST(Suite, EpochsAreAsManyStepsAsTheDataSetHas) {
  const auto steps = [](std::string_view keys, const std::vector<std::string>& sets = {}) {
    return runs_of(changed("\"steps\": 3", keys), sets).at(0).scenario.steps;
  };
  EXPECT_EQ(steps("\"epochs\": 3"), 3);
  EXPECT_EQ(steps("\"epochs\": 3, \"batch_size\": 8"), 9);
  // 23 samples, padded to 24, are 6 rows a rank and 3 batches of 2 of them, 2 batches of 4.
  const std::string sampler = "\"epochs\": 3, \"split\": {\"kind\": \"distributed\"}";
  EXPECT_EQ(steps(sampler, {"/data/samples=23", "/batch_size=8"}), 9);
  EXPECT_EQ(steps(sampler, {"/data/samples=23", "/batch_size=16", "/epochs=5"}), 10);
  // Both in one file are an error; --set puts one in the place of the other.
  EXPECT_NE(errors_of(changed("\"steps\": 3", "\"steps\": 3, \"epochs\": 2"))
                .find("error: both steps and epochs are given; expected one of them"),
            std::string::npos);
  EXPECT_EQ(steps("\"steps\": 3", {"/epochs=2"}), 2);
  EXPECT_EQ(steps("\"epochs\": 3", {"/steps=7"}), 7);
  EXPECT_EQ(
      errors_of(changed("\"steps\": 3", "\"epochs\": 1000000, \"batch_size\": 1")),
      "f.json:5:13: error: 1000000 epochs of 24 steps are too many; expected at most 10000000 "
      "steps");
}

TEST(Suite, TheBatchIsWhicheverOfItsKeysSays) {
  const auto batch = [](std::string_view from, std::string_view to) {
    const Scenario s = runs_of(changed(from, to)).at(0).scenario;
    return std::pair(s.batch_size, s.data.options.integer("samples"));
  };
  const auto pair = [](int64_t a, int64_t b) { return std::pair(a, b); };
  EXPECT_EQ(batch("3,", "3,"), pair(24, 24));
  EXPECT_EQ(batch("\"steps\"", "\"batch_size\": 8, \"steps\""), pair(8, 24));
  EXPECT_EQ(batch("\"steps\"", "\"batch_size_per_rank\": 3, \"steps\""), pair(12, 24));
}

TEST(Suite, TheBatchIsGivenOnce) {
  std::string text = changed("\"samples\": 24, ", "");
  EXPECT_EQ(errors_of(text),
            "f.json:1:1: error: the size of the batch is not given; expected batch_size, "
            "batch_size_per_rank, samples_per_rank or data.samples");
  const Scenario s = runs_of(text, {"/samples_per_rank=5"}).at(0).scenario;
  EXPECT_EQ(s.batch_size, 20);
  EXPECT_EQ(s.data.options.integer("samples"), 20);
  EXPECT_EQ(errors_of(kScenario, {"/samples_per_rank=5"}),
            "f.json:7:29: error: both samples_per_rank and data.samples are given; expected one of "
            "them");
  EXPECT_EQ(errors_of(kScenario, {"/batch_size=8", "/batch_size_per_rank=2"}),
            "--set /batch_size_per_rank=2: error: both batch_size and batch_size_per_rank are "
            "given; expected one of them");
}

TEST(Suite, TheFirstExpectationThatMatchesCounts) {
  const std::string text = changed("\"steps\": 3,", R"("steps": 3, "expect": [
      {"when": {"/reducer/kind": "c10d", "/world_size": 2}, "verdict": "fail", "cause": "unknown"},
      {"when": {"/reducer/kind": "c10d"}, "verdict": "inconclusive", "lanes": {"replay": "void"}},
      {"verdict": "fail", "step": 2}],
      "matrix": {"/reducer/kind": ["bucketed", "c10d"], "/world_size": [2, 4]},)");
  const auto runs = runs_of(text);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].scenario.expect[0].step, 2);
  EXPECT_EQ(runs[2].scenario.expect[0].cause, "unknown");
  EXPECT_EQ(runs[3].scenario.expect[0].verdict, Verdict::inconclusive);
  EXPECT_EQ(runs[3].scenario.expect[0].lanes.at(0).second, LaneVerdict::voided);
  EXPECT_EQ(runs_of(kScenario)[0].scenario.expect[0].verdict, Verdict::pass);
}

TEST(Suite, AnExpectationMayDependOnLibTorch) {
  const std::string text = changed("\"steps\": 3,", R"("steps": 3, "expect": [
      {"when": {"/reducer/kind": "c10d", "/libtorch": "<2.4"}, "verdict": "fail"},
      {"when": {"/libtorch": "9"}, "verdict": "inconclusive"}],
      "matrix": {"/reducer/kind": ["bucketed", "c10d"]},)");
  const auto runs = runs_of(text);
  ASSERT_EQ(runs.size(), 2U);
  ASSERT_EQ(runs[0].scenario.expect.size(), 2U);
  EXPECT_EQ(runs[0].scenario.expect[0].libtorch, "9");
  EXPECT_EQ(runs[0].scenario.expect[1].verdict, Verdict::pass);
  ASSERT_EQ(runs[1].scenario.expect.size(), 3U);
  EXPECT_EQ(runs[1].scenario.expect[0].libtorch, "<2.4");
  EXPECT_EQ(
      errors_of(kScenario, {R"(/expect=[{"when":{"/libtorch":"new"}}])"}),
      R"(--set /expect=[{"when":{"/libtorch":"new"}}]: error: "new" is no range of versions; )"
      R"(expected bounds such as "<2.4" or ">=2.0 <2.4")");
}

TEST(Suite, AGoldenIsRelativeToTheFile) {
  const TemporaryFolder folder;
  const auto file =
      load_scenario_file(folder.write("a/b/f.json", kScenario), {{"/golden=../golden/x.json"}, {}});
  EXPECT_EQ(file.value().combinations[0].scenario.golden, folder.path() + "/a/golden/x.json");
}

SuiteOptions with_full(const std::vector<std::string>& sets = {}) {
  SuiteOptions options;
  options.sets = sets;
  options.full = true;
  return options;
}

TEST(Suite, TheLongFormReplacesValuesAndPinsAxesBeforeAnySet) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("f.json", changed("\"lanes\"", R"("matrix": {"/world_size": [2, 3]},
      "full": {"/steps": 40, "/world_size": 4, "/data/samples": 48}, "lanes")"));
  const auto short_form = load_scenario_file(path, {});
  ASSERT_TRUE(short_form) << to_text(short_form.errors()[0]);
  EXPECT_EQ(short_form.value().combinations.size(), 2U);
  EXPECT_EQ(short_form.value().combinations[0].scenario.steps, 3);
  const auto full = load_scenario_file(path, with_full({"/steps=7"}));
  ASSERT_TRUE(full) << to_text(full.errors()[0]);
  ASSERT_EQ(full.value().combinations.size(), 1U);
  const Scenario& s = full.value().combinations[0].scenario;
  EXPECT_EQ(s.steps, 7);
  EXPECT_EQ(s.world_size, 4);
  EXPECT_EQ(s.batch_size, 48);
}

TEST(Suite, MistakesInTheLongFormHaveTheirPlace) {
  const auto with = [](const std::string& block) {
    return changed("\"lanes\"", "\"full\": " + block + ", \"lanes\"");
  };
  EXPECT_EQ(errors_of(with(R"({"steps": 4})")),
            "f.json:10:12: error: \"steps\" is not the JSON pointer of a key; expected a pointer "
            "such as \"/epochs\"");
  EXPECT_EQ(errors_of(with("{}")).substr(0, 24), "f.json:10:11: error: /fu");
  EXPECT_EQ(errors_of(with("3")).substr(0, 24), "f.json:10:11: error: /fu");
  const TemporaryFolder folder;
  const auto file =
      load_scenario_file(folder.write("f.json", with(R"({"/steps": "many"})")), with_full());
  ASSERT_FALSE(file);
  EXPECT_EQ(to_text(file.errors()[0]),
            "--full /steps: error: /steps is \"many\"; expected an integer >= 1 and <= 10000000");
}

TEST(Suite, ADataFolderServesScenariosWhoseFilesItHolds) {
  const TemporaryFolder folder;
  ASSERT_TRUE(write_images("mnist", folder.path() + "/images", 24, 0));
  const auto scenario = [&](const std::string& kind) {
    return folder.write(kind + ".json",
                        changed(R"({"kind": "randn", "samples": 24, "features": 3, "targets": 2})",
                                R"({"kind": ")" + kind + R"(", "samples": 24})"));
  };
  SuiteOptions options;
  options.data_dir = folder.path() + "/images";
  const auto mnist = load_scenario_file(scenario("mnist"), options);
  ASSERT_TRUE(mnist) << to_text(mnist.errors()[0]);
  EXPECT_TRUE(mnist.value().reads_data_dir);
  EXPECT_EQ(mnist.value().combinations[0].scenario.data.options.text("path"), options.data_dir);
  const auto cifar = load_scenario_file(scenario("cifar10"), options);
  ASSERT_TRUE(cifar) << to_text(cifar.errors()[0]);
  EXPECT_FALSE(cifar.value().reads_data_dir);
  EXPECT_FALSE(cifar.value().combinations[0].scenario.data.options.has("path"));
}

TEST(Suite, AModuleFileIsTakenOnlyFromWhoeverTrustsIt) {
  const TemporaryFolder folder;
  const std::string module = folder.write("model.pt", "not looked at here");
  const std::string path =
      folder.write("f.json", changed(R"({"kind": "linear", "in_features": 3, "out_features": 2})",
                                     R"({"kind": "torchscript", "file": "model.pt"})"));
  const auto untrusted = load_scenario_file(path, {});
  ASSERT_FALSE(untrusted);
  EXPECT_EQ(untrusted.errors()[0].pointer, "/model/file");
  EXPECT_EQ(untrusted.errors()[0].message, module + " holds code, which loading it runs");
  SuiteOptions options;
  options.trusted_models = {folder.write("other.pt", "")};
  EXPECT_FALSE(load_scenario_file(path, options));
  options.trusted_models.push_back(folder.path() + "/./model.pt");
  EXPECT_TRUE(load_scenario_file(path, options));
  std::filesystem::remove(module);
  EXPECT_EQ(load_scenario_file(path, options).errors()[0].message,
            module + ": there is no such file");
}

TEST(Suite, DeprecatedWordsAreTakenAndNoted) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("f.json", changed("\"steps\": 3",
                                     "\"steps\": 3, \"device\": \"stand_in\",\n"
                                     "\"faults\": [{\"kind\": \"other_dtype\", \"rank\": 1}]"));
  const auto file = load_scenario_file(path, {});
  ASSERT_TRUE(file) << to_text(file.errors()[0]);
  const Scenario& scenario = file.value().combinations.at(0).scenario;
  EXPECT_EQ(scenario.device, "fake");
  EXPECT_EQ(scenario.faults.at(0).kind, FaultKind::mismatched_dtype);
  ASSERT_EQ(file.value().notes.size(), 2U);
  EXPECT_EQ(to_text(file.value().notes[0], "note"),
            path + ":5:25: note: \"stand_in\" is deprecated: write \"fake\"");
  EXPECT_EQ(file.value().notes[1].pointer, "/faults/0/kind");
}

TEST(Suite, DeprecatedWordsOfAxesAndOptionsAreNotedOnceEach) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("f.json", with_matrix(R"({"/device": ["cpu", "stand_in"], "/steps": [1, 2]})"));
  const auto file = load_scenario_file(path, {});
  ASSERT_TRUE(file) << to_text(file.errors()[0]);
  EXPECT_EQ(file.value().combinations.at(3).scenario.device, "fake");
  EXPECT_EQ(file.value().notes.size(), 1U);
  const auto set = load_scenario_file(path, {{"/device=stand_in"}, {}});
  ASSERT_TRUE(set);
  EXPECT_EQ(to_text(set.value().notes.at(0), "note"),
            "--set /device=stand_in: note: \"stand_in\" is deprecated: write \"fake\"");
}

TEST(Suite, FilesOfAFolderAreFoundInOrderWithoutSchemas) {
  const TemporaryFolder folder;
  for (const char* name : {"b.json", "a/c.json", "schema.json", "x.txt"}) folder.write(name, "{}");
  const auto files = find_scenario_files(folder.path());
  EXPECT_EQ(files.value(),
            (std::vector<std::string>{folder.path() + "/a/c.json", folder.path() + "/b.json"}));
  folder.write("empty/x.txt", "");
  EXPECT_FALSE(find_scenario_files(folder.path() + "/empty"));
  EXPECT_EQ(find_scenario_files(folder.path() + "/none").errors()[0].message,
            "no such file or directory");
}

TEST(Suite, FourThousandCombinationsTakeNoTime) {
  const std::string text = with_matrix(
      R"({"/world_size": [1, 2, 3, 4, 6, 8, 12, 24], "/seed": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
          "/reducer/kind": ["bucketed", "c10d", "flat", "per_parameter", "manual"],
          "/reducer/bucket_cap_mb": [1, 2, 3, 4, 5, 6, 7, 8, 9, 25]})");
  const std::clock_t start = std::clock();  // not the wall clock: the machine may be busy
  EXPECT_EQ(runs_of(text).size(), 4'000U);
#ifdef __SANITIZE_ADDRESS__  // not optimized either: 6 s
  constexpr std::clock_t kSeconds = 20;
#else  // about 1 s
  constexpr std::clock_t kSeconds = 3;
#endif
  EXPECT_LT(std::clock() - start, kSeconds * CLOCKS_PER_SEC);
}

}  // namespace

}  // namespace lockstep
