#include "sim/tools/program/scenario.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "scenarios/scenario_schema.h"
#include "sim/tools/program/scenario_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

const std::string kShippedProgramSchema =
    LOCKSTEP_SOURCE_DIR "/scenarios/program_scenario_schema.json";

TEST(ProgramScenarioSchema, StandsInTheTreeAsItIsMade) {
  if (std::getenv("LOCKSTEP_WRITE_DOCS") != nullptr) {
    std::ofstream(kShippedProgramSchema) << program_scenario_schema_text();
    return;
  }
  std::ostringstream text;
  text << std::ifstream(kShippedProgramSchema).rdbuf();
  EXPECT_TRUE(text.str() == program_scenario_schema_text())
      << "LOCKSTEP_WRITE_DOCS=1 build/test/bin/test_tool_program "
         "--gtest_filter=ProgramScenarioSchema.* writes it anew";
}

// A folder with a script, and a scenario beside it.
class ProgramScenarios : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("program_scenarios_" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "below");
    std::ofstream(folder_ / "train.py") << "print()\n";
  }
  void TearDown() override { fs::remove_all(folder_); }

  Expected<ProgramScenarioFile> load(const std::string& text, const SuiteOptions& options = {}) {
    const std::string path = (folder_ / "x.json").string();
    std::ofstream(path) << text;
    return load_program_scenario(path, options);
  }
  // With these keys beside name and program; `program`: beside its command.
  Expected<ProgramScenarioFile> load_with(const std::string& keys, const std::string& program = "",
                                          const SuiteOptions& options = {}) {
    return load(R"({"name": "x", "program": {"command": ["/bin/sh", "train.py"])" + program + "}" +
                    keys + "}",
                options);
  }
  static std::string errors_of(const Expected<ProgramScenarioFile>& file) {
    std::string text;
    if (!file)
      for (const InputError& error : file.errors())
        text += to_text(error) + "; " + error.pointer + "\n";
    return text;
  }
  ProgramScenario one(const std::string& keys, const std::string& program = "") {
    auto file = load_with(keys, program);
    EXPECT_TRUE(file) << errors_of(file);
    EXPECT_EQ(file.value().runs.size(), 1U);
    return file.value().runs.at(0);
  }

  fs::path folder_;
};

TEST_F(ProgramScenarios, AreWhatACommandLineAsksFor) {
  const ProgramScenario plain = one("");
  EXPECT_FALSE(plain.is_run);
  EXPECT_EQ(plain.world_size, 2);
  EXPECT_EQ(plain.expect.verdict, Verdict::pass);
  EXPECT_EQ(plain.program.start.directory, folder_.string());
  const ProgramVerification bare = verification_of(plain);
  EXPECT_EQ(bare.start.command, (std::vector<std::string>{"/bin/sh", "train.py"}));
  EXPECT_EQ(bare.limit_s, 120);
  EXPECT_FALSE(bare.seed || bare.drills || bare.never_drills || bare.start.spawns ||
               bare.hook.error);

  const ProgramVerification full = verification_of(
      one(R"(, "seed": 7)",
          R"(, "spawns": true, "fresh_processes": true, "pretend_gpus": true, "limit_s": 9.5,
         "drill": "never", "local_batch_norm": true, "hook_error": 0.1, "hook_owed": 0.2, "directory": "below/..")"));
  EXPECT_TRUE(full.start.spawns && full.fresh_processes && full.start.pretends_gpus &&
              full.never_drills);
  EXPECT_TRUE(full.local_batch_norm);
  EXPECT_EQ(full.seed, 7);
  EXPECT_EQ(full.limit_s, 9.5);
  EXPECT_EQ(full.hook.error, 0.1);
  EXPECT_EQ(full.hook.owed, 0.2);
  EXPECT_EQ(full.start.directory, folder_.string());
  EXPECT_TRUE(verification_of(one("", R"(, "drill": "always")")).drills);
}

TEST_F(ProgramScenarios, WithFaultsAreRuns) {
  const ProgramScenario empty = one(R"(, "faults": [])");
  EXPECT_TRUE(empty.is_run);
  EXPECT_EQ(run_of(empty).watch.limit_s, 600);
  EXPECT_EQ(run_of(empty).timeout_scale, 1);

  const ProgramScenario killed = one(
      R"(, "world_size": 3, "faults": [{"kind": "kill", "rank": 2, "step": 3},
           "stop rank=0 collective=7 duration_ms=5"])",
      R"(, "timeout_scale": 0.01, "hang_after_s": 4, "limit_s": 50, "spawns": true)");
  const ProgramRunAsked asked = run_of(killed);
  EXPECT_EQ(asked.world, 3);
  ASSERT_EQ(asked.faults.size(), 2U);
  EXPECT_EQ(asked.faults[0].text, "kill rank=2 step=3");
  EXPECT_EQ(asked.faults[1].sequence, 7);
  EXPECT_EQ(asked.timeout_scale, 0.01);
  EXPECT_EQ(asked.watch.hang_after_s, 4);
  EXPECT_EQ(asked.watch.limit_s, 50);
  EXPECT_TRUE(asked.start.spawns);
}

TEST_F(ProgramScenarios, HaveAxesAndWhatTheyExpectOfEach) {
  const auto file = load_with(
      R"(, "matrix": {"/world_size": [2, 3], "/program/command/1": ["train.py", "./train.py"]},
         "exclude": [{"/world_size": 3, "/program/command/1": "./train.py"}],
         "expect": [{"when": {"/world_size": 3}, "verdict": "fail", "cause": "summed_loss"},
                    {"verdict": "inconclusive"}])");
  ASSERT_TRUE(file) << errors_of(file);
  const auto& runs = file.value().runs;
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].expect.verdict, Verdict::inconclusive);
  EXPECT_EQ(runs[2].world_size, 3);
  EXPECT_EQ(runs[2].expect.cause, "summed_loss");
  const auto pinned =
      load_with(R"(, "matrix": {"/world_size": [2, 3]}, "full": {"/program/limit_s": 500})", "",
                {.sets = {"/world_size=5"}, .full = true});
  ASSERT_TRUE(pinned) << errors_of(pinned);
  ASSERT_EQ(pinned.value().runs.size(), 1U);
  EXPECT_EQ(pinned.value().runs[0].world_size, 5);
  EXPECT_EQ(pinned.value().runs[0].program.limit_s, 500);
}

TEST_F(ProgramScenarios, AreToldApartFromOthers) {
  const std::string path = (folder_ / "below/x.json").string();
  EXPECT_FALSE(is_program_scenario(folder_.string()));
  for (const auto& [text, is] : {std::pair(R"({"program": {}})", true),
                                 {R"({"what": "a \"program\""})", false},
                                 {R"({"program": )", false},
                                 {R"(["program"])", false}}) {
    std::ofstream(path) << text;
    EXPECT_EQ(is_program_scenario(path), is) << text;
    EXPECT_EQ(is_program_scenario(folder_.string()), is) << text;
  }
  std::ofstream(path) << R"({"name": "x", "program": {"command": ["a"]}, "model": {}})";
  const auto as_other = load_scenario_file(path, {});
  ASSERT_FALSE(as_other);
  EXPECT_EQ(as_other.errors().size(), 1U);
  EXPECT_EQ(as_other.errors()[0].pointer, "/program");
  EXPECT_EQ(as_other.errors()[0].line, 1);
}

TEST_F(ProgramScenarios, BadOnesAreRefusedAtTheirPlaces) {
  const auto refuses = [&](const std::string& keys, const std::string& program,
                           const std::string& pointer) {
    const auto file = load_with(keys, program);
    ASSERT_FALSE(file) << keys << program;
    EXPECT_NE(errors_of(file).find("; " + pointer + "\n"), std::string::npos)
        << keys << program << "\n"
        << errors_of(file);
    EXPECT_NE(errors_of(file).find("x.json:1:"), std::string::npos) << errors_of(file);
  };
  refuses(R"(, "model": {"kind": "mlp"})", "", "/model");
  refuses(R"(, "lanes": ["replica"])", "", "/lanes");
  refuses(R"(, "steps": 3)", "", "/steps");
  refuses(R"(, "world_size": 1)", "", "/world_size");
  refuses(R"(, "world_size": 65)", "", "/world_size");
  refuses("", R"(, "limit_s": "a")", "/program/limit_s");
  refuses("", R"(, "spawn": true)", "/program/spawn");
  refuses("", R"(, "drill": "maybe")", "/program/drill");
  refuses("", R"(, "drill": "always", "local_batch_norm": true)", "/program/drill");
  refuses("", R"(, "directory": "nowhere")", "/program/directory");
  refuses("", R"(, "timeout_scale": 1)", "/program/timeout_scale");
  refuses("", R"(, "hang_after_s": 2)", "/program/hang_after_s");
  for (const char* key : {R"("drill": "when_quick")", R"("fresh_processes": true)",
                          R"("hook_error": 1)", R"("hook_owed": 1)", R"("local_batch_norm": true)"})
    refuses(R"(, "faults": [])", std::string(", ") + key,
            "/program/" + std::string(key + 1, std::string(key).find('"', 1) - 1));
  refuses(R"(, "faults": [], "seed": 1)", "", "/seed");
  refuses(R"(, "faults": ["kill rank=2"])", "", "/faults/0");
  refuses(R"(, "faults": ["kill rank"])", "", "/faults/0");
  refuses(R"(, "faults": [{"kind": "kill", "rank": 2}])", "", "/faults/0/rank");
  refuses(R"(, "faults": [{"kind": "nan", "rank": 1}])", "", "/faults/0/kind");
  refuses(R"(, "faults": [{"rank": 1}])", "", "/faults/0/kind");
  refuses(R"(, "faults": [{"kind": "kill", "rank": 1, "when": 3}])", "", "/faults/0/when");
  refuses(R"(, "faults": [{"kind": "kill", "rank": 1, "collective": ""}])", "",
          "/faults/0/collective");
  refuses(R"(, "faults": [3])", "", "/faults/0");
  refuses(R"(, "expect": {"outcome": "failed"})", "", "/expect/outcome");
  refuses(R"(, "expect": {"straggler": {"class": "none"}})", "", "/expect/straggler");
  refuses(R"(, "expect": {"cause": "wrong_divisor"})", "", "/expect/cause");
  refuses(R"(, "expect": {"checks": {}})", "", "/expect/checks");
  refuses(R"(, "expect": {"lanes": {"rounding": "pass"}})", "", "/expect/lanes/rounding");
  refuses(R"(, "expect": [{"when": {"/libtorch": "<2.4"}}])", "", "/expect/0/when/~1libtorch");
  refuses(R"(, "expect": [{"when": {"world_size": 2}}])", "", "/expect/0/when/world_size");
  refuses(R"(, "faults": [], "expect": {"lanes": {"replica": "pass"}})", "", "/expect/lanes");
  refuses(R"(, "faults": [], "expect": [{"tensor": "w"}])", "", "/expect/0/tensor");
  refuses(R"(, "sweep": {"steps": 2})", "", "/sweep/steps");
  refuses(R"(, "sweep": {"caps": [1, 2, 1]})", "", "/sweep/caps/2");
  refuses(R"(, "sweep": {})", "", "/sweep");
  refuses(R"(, "full": 1)", "", "/full");
  refuses(R"(, "matrix": {"/nothing": [1]})", "", "/nothing");
}

TEST_F(ProgramScenarios, BadCommandsAndDocumentsAreRefused) {
  for (const auto& [text, said] :
       {std::pair(R"({"name": "x", "program": {"command": []}})", "/program/command"),
        {R"({"name": "x", "program": {"command": ["nowhere_to_be_found"]}})", "no such program"},
        {R"({"name": "x", "program": {"command": ["./train.py"]}})", "no such program"},
        {R"({"name": "x", "program": {"command": "sh"}})", "/program/command"},
        {R"({"name": "x", "program": {"command": ["/bin/sh", 3]}})", "/program/command/1"},
        {R"({"name": "x", "program": {}})", "command"},
        {R"({"name": "x", "program": []})", "/program"},
        {R"({"program": {"command": ["/bin/sh"]}})", "name"},
        {R"({"name": "x"})", "no \"program\""},
        {R"([])", "an object"},
        {R"({"name": "x", "program": {}, "program": {}})", "program"},
        {R"({"name": )", "x.json:1:"},
        {"", "x.json:1:"}}) {
    const auto file = load(text);
    ASSERT_FALSE(file) << text;
    EXPECT_NE(errors_of(file).find(said), std::string::npos) << text << "\n" << errors_of(file);
  }
}

// A key that the schema takes and no member holds would be read and forgotten.
TEST(ProgramScenarioSchema, EveryKeyIsAMemberOrIsUsedBeforeThere) {
  std::set<std::string> known = {"$schema", "name", "what",  "program", "faults",
                                 "expect",  "full", "sweep", "matrix",  "exclude"};
  const auto note = [&](const MemberRow& row, const auto&) { known.insert(row.key); };
  const ProgramScenario scenario;
  program_scenario_members(scenario, note);
  std::set<std::string> taken;
  for (const auto& [key, node] : program_scenario_schema().root().keys) taken.insert(key);
  EXPECT_EQ(taken, known);
}

}  // namespace
}  // namespace lockstep
