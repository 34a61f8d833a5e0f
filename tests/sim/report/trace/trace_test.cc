#include "sim/report/trace/trace.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/sim/analysis/made_run.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class Traces : public testing::Test {
 protected:
  Traces() : folder_(testing::TempDir() + "lockstep_traces_" + std::to_string(getpid())) {
    fs::create_directory(folder_);
    run_.world_size = 3;
    run_.steps = 2;
  }
  ~Traces() override { fs::remove_all(folder_); }
  std::set<std::string> files(const std::string& below) const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ + "/" + below))
      names.insert(entry.path().filename());
    return names;
  }
  std::string folder_;
  MadeRun run_;
};

TEST_F(Traces, AFolderGetsAFileOfEachRank) {
  EXPECT_TRUE(is_trace_folder(folder_));
  EXPECT_TRUE(is_trace_folder(folder_ + "/new/"));
  EXPECT_FALSE(is_trace_folder(folder_ + "/new"));
  const std::map<std::string, std::string> first = {{"kineto", "rank-0.json"},
                                                    {"hta", "rank-0.json"},
                                                    {"flight_recorder", "_dump_0"},
                                                    {"chakra", "trace.0.et"}};
  for (const std::string& kind : trace_kinds()) {
    write_trace({folder_ + "/" + kind + "/", kind}, run_.make());
    const auto names = files(kind);
    EXPECT_EQ(names.size(), 3u) << kind;
    EXPECT_TRUE(names.contains(first.at(kind))) << kind;
  }
}

TEST_F(Traces, OfSeveralRunsEachHasAFolder) {
  write_trace({folder_ + "/all/", "flight_recorder"}, run_.make(), 6, 7);
  EXPECT_THAT(files("all"), testing::ElementsAre("0007"));
  EXPECT_THAT(files("all/0007"), testing::ElementsAre("_dump_0", "_dump_1", "_dump_2"));
}

TEST_F(Traces, PathsThatCannotBeAreRefused) {
  const auto why = [&](const std::string& path, const std::string& kind, size_t runs) {
    const auto error = trace_error({path, kind}, runs);
    return error ? to_text(*error) : "";
  };
  EXPECT_EQ(why("", "flight_recorder", 3), "");
  EXPECT_EQ(why(folder_ + "/x", "kineto", 1), "");
  EXPECT_THAT(why(folder_ + "/x", "kineto", 2), testing::HasSubstr("a file holds one run, not 2"));
  EXPECT_THAT(why(folder_ + "/x", "flight_recorder", 1),
              testing::HasSubstr("flight_recorder has a file of each rank"));
  EXPECT_EQ(why(folder_ + "/new/", "flight_recorder", 2), "");
  EXPECT_TRUE(fs::is_directory(folder_ + "/new"));
  std::ofstream(folder_ + "/new/_dump_9") << "of another run";
  EXPECT_THAT(why(folder_ + "/new", "flight_recorder", 1), testing::HasSubstr("is not empty"));
  EXPECT_EQ(why(folder_ + "/new", "kineto", 1), "");
  EXPECT_THAT(why("/proc/none/", "hta", 1), testing::HasSubstr("cannot be written to"));
}

TEST_F(Traces, SaysWhenItCannotBeWritten) {
  EXPECT_THROW(write_trace({"/proc/nope/trace.json"}, run_.make()), std::system_error);
  EXPECT_THROW(write_trace({"/dev/full"}, run_.make()), std::system_error);
}

TEST_F(Traces, ARankThatLeftNothingHasNoDump) {
  RunOutcome outcome = run_.make();
  outcome.ranks[1].events.clear();
  write_trace({folder_ + "/two/", "flight_recorder"}, outcome);
  EXPECT_THAT(files("two"), testing::ElementsAre("_dump_0", "_dump_2"));
  EXPECT_FALSE(trace_error({folder_ + "/other/", "flight_recorder"}, outcome));
  for (RankRecords& rank : outcome.ranks)
    std::erase_if(rank.events, [](const Event& event) {
      return static_cast<EventKind>(event.kind) == EventKind::arrival;
    });
  const TraceOptions none{folder_ + "/none/", "flight_recorder"};
  EXPECT_THAT(to_text(trace_error(none, outcome).value()),
              testing::HasSubstr("no rank came to a collective, of which flight_recorder is made"));
  EXPECT_FALSE(fs::exists(none.path));
  EXPECT_FALSE(trace_error({none.path, "kineto"}, outcome));
  write_trace(none, outcome);
  EXPECT_THAT(files("none"), testing::ElementsAre("_dump_0", "_dump_2"));
}

}  // namespace
}  // namespace lockstep
