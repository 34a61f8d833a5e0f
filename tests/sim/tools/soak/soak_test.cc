#include "sim/tools/soak/soak.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// In lockstep's place a script that writes what a campaign of correct runs would.
class Soaking : public testing::Test {
 protected:
  Soaking() {
    fs::create_directories(folder_);
    options_.works = {SoakWork::clean};
    options_.folder = folder_;
    options_.program = folder_ + "/fake";
  }
  ~Soaking() override { fs::remove_all(folder_); }

  // The script knows $seed, $out and $json of its command line.
  void fake(const std::string& body) {
    std::ofstream script(options_.program);
    script << "#!/bin/sh\n"
              "while [ $# -gt 0 ]; do case $1 in\n"
              "  --seed) seed=$2;; --out) out=$2;; --json) json=$2;; esac; shift; done\n"
           << body;
    script.close();
    ::chmod(options_.program.c_str(), 0700);
  }
  SoakEnd run() {
    return soak(options_, {}, [](const SoakSlice&, const std::vector<SoakSlice>&) {});
  }
  const std::string folder_ = testing::TempDir() + "lockstep_soaking_" + std::to_string(getpid());
  SoakOptions options_;
};

constexpr const char* kPasses =
    "echo '{\"runs\": 500, \"not_passed\": [], \"libraries\": {\"torch\": \"2.15.0\"}}' >$json\n";

TEST_F(Soaking, GoesOnFromSeedToSeedAndLeavesALedger) {
  fake(kPasses);
  options_.slices = 3;
  const SoakEnd end = run();
  ASSERT_EQ(end.slices.size(), 3u);
  EXPECT_EQ(end.slices[2].seed, 1001u);
  EXPECT_EQ(end.slices[0].libtorch, "2.15.0");
  const auto ledger = read_ledger(folder_);
  ASSERT_TRUE(ledger);
  EXPECT_EQ(ledger.value().size(), 3u);
  EXPECT_FALSE(fs::exists(folder_ + "/slice"));
  EXPECT_FALSE(fs::exists(folder_ + "/failures"));
}

TEST_F(Soaking, KeepsTheScenarioOfAFailure) {
  fake(
      "mkdir -p $out/batch-$seed/campaign_cases && echo '{}' "
      ">$out/batch-$seed/campaign_cases/clean-7.json\n"
      "echo '{\"runs\": 500, \"not_passed\": [{\"name\": \"clean-7\", \"verdict\": \"fail\", "
      "\"again\": \"it\"}]}' >$json\nexit 1\n");
  options_.slices = 1;
  const SoakEnd end = run();
  ASSERT_EQ(end.slices.at(0).counts.failures.size(), 1u);
  EXPECT_TRUE(fs::exists(folder_ + "/failures/clean-7.json"));
}

TEST_F(Soaking, StopsWhereNothingCanBeRun) {
  fake("echo no memory; exit 2\n");
  const SoakEnd end = run();
  EXPECT_EQ(end.slices.size(), 3u);
  EXPECT_THAT(end.stopped, HasSubstr("3 slices in a row"));
  EXPECT_EQ(end.slices[0].broken, "ended with exit code 2");
  std::string log;
  std::getline(std::ifstream(folder_ + "/failures/clean-1.log"), log);
  EXPECT_EQ(log, "no memory");
}

TEST_F(Soaking, ASliceWithoutAResultHasNoCounts) {
  fake("echo '{' >$json\n");
  options_.slices = 1;
  EXPECT_EQ(run().slices.at(0).broken, "left a result that cannot be read");
  fake("echo '{}' >$json\n");
  EXPECT_EQ(run().slices.at(0).broken, "left a result that is none of this lockstep's");
  fake("exit 0\n");
  EXPECT_EQ(run().slices.at(0).broken, "left no result");
}

TEST_F(Soaking, ASliceThatHangsIsBrokenOff) {
  fake("exec sleep 600\n");
  options_.slices = 1;
  options_.slice_limit_s = 0.2;
  EXPECT_THAT(run().slices.at(0).broken, HasSubstr("had not ended"));
}

TEST_F(Soaking, AnInterruptedSliceIsNotCounted) {
  fake(std::string("kill -INT $PPID\nsleep 600 & wait\n") + kPasses);
  const SoakEnd end = run();
  EXPECT_EQ(end.signal, SIGINT);
  EXPECT_TRUE(end.slices.empty());
  EXPECT_FALSE(fs::exists(ledger_path(folder_)));
}

}  // namespace
}  // namespace lockstep
