#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>

#include "sim/launch/protocol.h"
#include "sim/launch/run_files.h"
#include "tests/scenarios/parse/temporary_file.h"

namespace lockstep {
namespace {

// A stranger's folder may hold anything where a run leaves a file.
TEST(Files, OnlyRegularFilesOfThisWorldAreRead) {
  const TemporaryFolder folder;
  EXPECT_EQ(read_file(folder.write("plain", "text\n")), "text\n");
  EXPECT_EQ(read_file(folder.path() + "/nowhere"), "");
  EXPECT_EQ(read_file(folder.path()), "");
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(read_file(pipe), "");  // nobody will ever write
  EXPECT_EQ(log_tail(pipe, 3), "");
  EXPECT_EQ(read_file("/dev/zero"), "");
  const std::string sparse = folder.write("sparse", "x");
  std::filesystem::resize_file(sparse, kRunFileBytesMost + 1);
  EXPECT_EQ(read_file(sparse), "");
  EXPECT_NE(read_file("/proc/self/status"), "");  // says that it has no bytes
}

TEST(Files, ALogEndsWithItsLastLines) {
  const TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 10'000; ++line) text += "line " + std::to_string(line) + "\n";
  EXPECT_EQ(log_tail(folder.write("long", text), 2), "line 9998\nline 9999");
  EXPECT_EQ(log_tail(folder.write("short", "one\n"), 2), "one");
  EXPECT_EQ(log_tail(folder.write("empty", ""), 2), "");
}

using Json = nlohmann::ordered_json;

RunPlan a_plan() {
  const TemporaryFolder folder;
  const auto file = load_scenario_file(
      folder.write("a.json", changed("\"world_size\": 4", "\"world_size\": 2")), {});
  auto plans = make_plans(file.value());
  return plans.value().front();
}

class StoredRunTest : public testing::Test {
 protected:
  StoredRunTest() {
    char name[] = "/tmp/lockstep-stored-XXXXXX";
    dir_ = ::mkdtemp(name);
    outcome_.plan = a_plan();
    outcome_.run_dir = dir_;
    outcome_.ends = {{"rank-1", 1, 0, 77, -1, 9, false, false},
                     {"rank-0", 0, 1, 99, 10, 0, true, true}};
    outcome_.log_tails = {"", "two\nlines \xff"};
    outcome_.golden_problem = "a golden run broke";
    outcome_.duration_ms = 1234;
    outcome_.began_ns = 11;
    outcome_.failed_ns = 88;
    outcome_.ends[0].lost = true;
    outcome_.ends[1].state = {'S', "futex", "futex_wait", "group/1", 0, {"pause+0x10", "main"}};
    auto recorder = Recorder::create(records_path(dir_, 1), 1, 2, 8);
    recorder->enter(Phase::forward);
    write_file(evidence_path(dir_, 0), "{}");
  }
  ~StoredRunTest() override { std::filesystem::remove_all(dir_); }

  void leave() { leave(to_text(outcome_.plan)); }
  void leave(const std::string& plan) {
    write_file(plan_path(dir_), plan);
    write_ends(outcome_, dir_, plan);
  }
  std::string refusal() {
    std::string why;
    EXPECT_FALSE(read_stored_run(dir_, &why));
    return why;
  }

  std::string dir_;
  RunOutcome outcome_;
};

TEST_F(StoredRunTest, GivesTheOutcomeBack) {
  leave();
  std::string why;
  const auto read = read_stored_run(dir_, &why);
  ASSERT_TRUE(read) << why;
  EXPECT_EQ(to_text(read->plan), to_text(outcome_.plan));
  ASSERT_EQ(read->ends.size(), 2u);
  EXPECT_EQ(read->ends[0].who, "rank-1");
  EXPECT_EQ(read->ends[0].signal, 9);
  EXPECT_EQ(read->ends[0].exit_code, -1);
  EXPECT_EQ(read->ends[0].time_ns, 77);
  EXPECT_TRUE(read->ends[1].by_launcher && read->ends[1].past_deadline);
  EXPECT_TRUE(read->ends[0].lost && !read->ends[1].lost);
  EXPECT_EQ(read->ends[1].order, 1);
  EXPECT_EQ(read->duration_ms, 1234);
  EXPECT_EQ(read->began_ns, 11);
  EXPECT_EQ(read->failed_ns, 88);
  EXPECT_FALSE(read->ends[0].state);
  ASSERT_TRUE(read->ends[1].state);
  EXPECT_EQ(read->ends[1].state->state, 'S');
  EXPECT_EQ(read->ends[1].state->syscall, "futex");
  EXPECT_EQ(read->ends[1].state->store_key, "group/1");
  EXPECT_THAT(read->ends[1].state->stack, testing::ElementsAre("pause+0x10", "main"));
  EXPECT_EQ(read->golden_problem, "a golden run broke");
  EXPECT_FALSE(read->interrupted);
  EXPECT_THAT(read->evidence, testing::ElementsAre("{}", ""));
  EXPECT_THAT(read->log_tails[1], testing::StartsWith("two\nlines"));
  EXPECT_TRUE(read->ranks[0].events.empty());
  EXPECT_EQ(read->ranks[1].events.size(), 1u);
}

// Of several hosts: the launcher's clock, as when the run ended.
TEST_F(StoredRunTest, PutsEventsOnOneClock) {
  leave();
  std::string why;
  const int64_t time_ns = read_stored_run(dir_, &why)->ranks[1].events[0].time_ns;
  std::string bytes = read_file(records_path(dir_, 1));
  const int64_t offset_ns = -4242;
  bytes.replace(offsetof(RecordHeader, clock_offset_ns), 8,
                std::string(reinterpret_cast<const char*>(&offset_ns), 8));
  write_file(records_path(dir_, 1), bytes);
  EXPECT_EQ(read_stored_run(dir_, &why)->ranks[1].events[0].time_ns, time_ns - 4242);
}

TEST_F(StoredRunTest, RefusesWhatIsNone) {
  EXPECT_EQ(refusal(), "is no run directory: it has no plan.json");
  leave();
  const std::string plan = read_file(plan_path(dir_)), ends = read_file(ends_path(dir_));
  write_file(plan_path(dir_), plan + " ");
  EXPECT_EQ(refusal(), "has another plan.json than the run had");
  leave("{}");
  EXPECT_EQ(refusal(), "was left by another version of lockstep");
  write_file(plan_path(dir_), plan);
  write_file(ends_path(dir_), ends.substr(0, ends.size() / 2));
  EXPECT_THAT(refusal(), testing::StartsWith("has no ends.json that can be read"));
  std::filesystem::remove_all(dir_);
  EXPECT_EQ(refusal(), "is no folder");
}

// A kept run is a stranger's file as well.
TEST_F(StoredRunTest, WrongTypesRangesAndIndicesOfAPlanAreDamage) {
  const auto refused = [&](const char* pointer, const Json& value) {
    Json plan = Json::parse(to_text(outcome_.plan));
    plan[Json::json_pointer(pointer)] = value;
    leave(plan.dump());
    return refusal();
  };
  for (const auto& [pointer, value] : std::vector<std::pair<const char*, Json>>{
           {"/layout_at_construction", {{-1}}},
           {"/layout_at_construction", {{99999999}}},
           {"/layout_at_construction", {{0, 0}}},
           {"/layout_at_construction", "x"},
           {"/scenario/world_size", 0},
           {"/scenario/world_size", 1'000'000},
           {"/scenario/world_size", "2"},
           {"/scenario/steps", -1},
           {"/scenario/model/kind", 3},
           {"/scenario/model/in_features", "many"},
           {"/scenario/optimizer/lr", Json::array()},
           {"/scenario/faults", 1},
           {"/replay/layout", "nonsense"},
           {"/goldens", {"nonsense"}},
           {"/set", {{"/world_size", "[" + std::string(5000, '[')}}},
           {"/layer_times",
            {{{"layer", "a"}, {"forward_ms", 1}, {"backward_ms", 1}, {"ready_ms", 1}},
             {{"layer", "b"}, {"forward_ms", 1}, {"backward_ms", 1}, {"ready_ms", 1}}}},
           {"/compare_every", 0}})
    EXPECT_THAT(refused(pointer, value), testing::StartsWith("has a damaged plan.json: "))
        << pointer << " = " << value.dump().substr(0, 100);
}

// Whatever single value of the plan is replaced by whatever: it is read or refused.
TEST_F(StoredRunTest, NoReplacedValueEndsTheProgram) {
  const Json plan = Json::parse(to_text(outcome_.plan));
  const Json values[] = {nullptr, -1, INT64_MAX, "[[", Json::array(), {{-5}}};
  int64_t read = 0, refused = 0;
  const Json flat = plan.flatten();
  for (const auto& [pointer, old] : flat.items())
    for (const Json& value : values) {
      Json damaged = plan;
      damaged[Json::json_pointer(pointer)] = value;
      leave(damaged.dump());
      std::string why;
      ++(read_stored_run(dir_, &why) ? read : refused);
    }
  EXPECT_GT(read, 20);
  EXPECT_GT(refused, 300);
}

TEST_F(StoredRunTest, TimesOfEndsAreOnesThatAClockGives) {
  outcome_.failed_ns = INT64_MAX;
  leave();
  EXPECT_EQ(refusal(), "has a damaged ends.json: it holds a time of 9223372036854775807 ns");
  outcome_.failed_ns = 88;
  outcome_.ends[1].time_ns = INT64_MIN;
  leave();
  EXPECT_EQ(refusal(), "has a damaged ends.json: it holds a time of -9223372036854775808 ns");
  outcome_.ends[1].time_ns = 99;
  outcome_.duration_ms = INT64_MAX;
  leave();
  EXPECT_EQ(refusal(), "has a damaged ends.json: it holds a duration of 9223372036854775807 ms");
}

TEST_F(StoredRunTest, EndsAreOfRanksThatThereAre) {
  outcome_.ends[0].rank = 1'000'000;
  leave();
  EXPECT_EQ(refusal(), "has a damaged ends.json: it holds an end of rank 1000000");
}

TEST_F(StoredRunTest, SpecialFilesDoNotHang) {
  leave();
  std::filesystem::remove(plan_path(dir_));
  ASSERT_EQ(::mkfifo(plan_path(dir_).c_str(), 0600), 0);
  EXPECT_EQ(refusal(), "has a plan.json that cannot be read: this is a pipe");
  std::filesystem::remove(plan_path(dir_));
  leave();
  std::filesystem::remove(records_path(dir_, 1));
  ASSERT_EQ(::mkfifo(records_path(dir_, 1).c_str(), 0600), 0);
  std::string why;
  EXPECT_TRUE(read_stored_run(dir_, &why)->ranks[1].events.empty());
}

}  // namespace

}  // namespace lockstep
