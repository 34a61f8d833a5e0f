#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "sim/record/recorder.h"
#include "tests/sim/analysis/made_run.h"
#include "tests/sim/cli/invoke.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As scripts/lockstep_record.py would have left that run.
void write_recording(const MadeRun& run, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/recording.json") << fmt::format(
      R"({{"format": "lockstep_recording", "version": 1, "world_size": {}, "name": "Made",
          "hash_every": 1, "hash": 2, "tensors": false}})",
      run.world_size);
  for (RankRecords records : run.make().ranks) {
    records.world_size = static_cast<int32_t>(run.world_size);
    Event finished = records.events.back();
    finished.kind = static_cast<uint16_t>(EventKind::finished);
    records.events.push_back(finished);
    write_records(fmt::format("{}/rank-{}.records", folder, records.rank), records);
    std::ofstream(fmt::format("{}/rank-{}.hashes", folder, records.rank));
  }
}

// Rank 2 is late in every backward, for want of a core or by its own work.
MadeRun late_run(bool without_core) {
  MadeRun run;
  const auto late = [](int64_t rank, Phase phase) {
    return rank == 2 && phase == Phase::backward ? 30.0 : 0.0;
  };
  if (without_core)
    run.core_wait_ms = [=](int64_t rank, int64_t, Phase phase) { return late(rank, phase); };
  else
    run.slower = [=](int64_t rank, int64_t, Phase phase) {
      return MadeRun::Slower{1, late(rank, phase)};
    };
  return run;
}

TEST(Recordings, WhatABusyMachineDecidesIsInconclusive) {
  const std::string folder = testing::TempDir() + "lockstep_recordings_" + std::to_string(getpid());
  for (const bool without_core : {false, true}) {
    const std::string recording = folder + (without_core ? "/starved" : "/slow");
    write_recording(late_run(without_core), recording);
    const std::string written = recording + ".json";
    const Answer answer = invoke({"analyze", recording, "--json", written});
    EXPECT_EQ(answer.code, without_core ? 3 : 0) << answer.out << answer.err;
    if (without_core)
      EXPECT_THAT(answer.out, HasSubstr("\ninconclusive: busy machine; exit 3\n"));
    else
      EXPECT_THAT(answer.out, Not(HasSubstr("inconclusive")));
    std::ifstream file(written);
    const auto document = nlohmann::json::parse(file);
    EXPECT_EQ(document["exit_code"], answer.code);
    EXPECT_EQ(document["straggler"]["class"], without_core ? "starved" : "compute");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

}  // namespace lockstep
