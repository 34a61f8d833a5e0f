#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_lines.h"

namespace lockstep {
namespace {

// What was made up to make `explain` accuse an innocent rank.

FlightDump dump_of(int64_t rank, int64_t ranks) {
  auto all = std::make_shared<std::vector<int64_t>>();
  for (int64_t member = 0; member < ranks; ++member) all->push_back(member);
  FlightDump dump;
  dump.rank = rank;
  dump.groups["0"] = {"default_pg", std::move(all)};
  return dump;
}

void call(FlightDump* dump, bool done, bool point_to_point = false) {
  FlightEntry entry;
  entry.record = static_cast<int64_t>(dump->entries.size());
  entry.group = "0";
  entry.operation = point_to_point ? "recv 1<-2" : "all_reduce";
  entry.sizes = "[[4]]";
  entry.dtypes = "[\"Float\"]";
  entry.done = entry.started = done;
  entry.point_to_point = point_to_point;
  FlightStatus& status = dump->status["0"];
  if (!point_to_point) status.enqueued = std::max<int64_t>(0, status.enqueued) + 1;
  entry.sequence = status.enqueued;
  if (done) status.completed = entry.sequence;
  dump->entries.push_back(std::move(entry));
}

// Each rank completed three collectives.
std::vector<FlightDump> healthy(int64_t ranks) {
  std::vector<FlightDump> job;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    job.push_back(dump_of(rank, ranks));
    for (int count = 0; count < 3; ++count) call(&job.back(), true);
  }
  return job;
}

TEST(Incidents, ADumpThatWasTakenLaterDoesNotMakeTheOthersGuilty) {
  auto job = healthy(6);
  for (size_t rank : {0, 1, 2, 4, 5}) call(&job[rank], false);
  call(&job[3], true);
  call(&job[3], false);
  const FlightFinding finding = attribute(job);
  EXPECT_FALSE(finding.decided);
  EXPECT_TRUE(finding.guilty.empty());
  EXPECT_TRUE(finding.candidates.contains(3));
}

TEST(Incidents, OfTwoRanksTheOneThatHoldsIsNamed) {
  auto job = healthy(2);
  call(&job[0], false);
  call(&job[1], true);
  EXPECT_EQ(attribute(job).guilty, RankSet{0});
}

TEST(Incidents, RanksThatWaitInReceivesAreNotNothing) {
  auto job = healthy(4);
  for (size_t rank : {0, 1, 2}) call(&job[rank], false, true);
  const FlightFinding finding = attribute(job);
  EXPECT_FALSE(finding.decided);
  EXPECT_EQ(finding.victims, (RankSet{0, 1, 2}));
  // One that is followed by what completed was only never marked.
  auto older = healthy(4);
  call(&older[0], false, true);
  for (FlightDump& dump : older) call(&dump, true);
  EXPECT_TRUE(attribute(older).decided);
}

// Over Gloo, whose dumps do not list who is in a group.
std::vector<FlightDump> over_gloo(int64_t ranks) {
  std::vector<FlightDump> job;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    job.push_back(dump_of(rank, ranks));
    job.back().groups["0"].ranks = nullptr;
  }
  return job;
}

void call_gloo(FlightDump* dump, const std::string& group) {
  FlightEntry entry;
  entry.record = static_cast<int64_t>(dump->entries.size());
  entry.group = group;
  entry.operation = "all_reduce";
  entry.gloo = entry.done = true;
  for (const FlightEntry& before : dump->entries) entry.sequence += before.group == group ? 1 : 0;
  ++entry.sequence;
  dump->groups.try_emplace(group);
  dump->entries.push_back(std::move(entry));
}

TEST(Incidents, WhoCalledNothingOfTheDefaultGroupIsInItOverGlooToo) {
  auto job = over_gloo(3);
  for (size_t rank : {1, 2}) call_gloo(&job[rank], "1");
  for (size_t rank : {0, 1}) call_gloo(&job[rank], "0");
  EXPECT_EQ(attribute(job).guilty, RankSet{2});
  job[2].entries.front().record = 7;  // it may have called it before its ring begins
  EXPECT_TRUE(attribute(job).guilty.empty());
  job[2].entries.clear();
  const FlightFinding finding = attribute(job);
  EXPECT_FALSE(finding.decided);
  EXPECT_TRUE(finding.candidates.contains(2));
}

std::string part(int64_t rank, const std::string& code, int64_t process) {
  return "  time      : 2026-11-27_19:17:49\n  rank      : " + std::to_string(rank) +
         " (local_rank: " + std::to_string(rank) + ")\n  exitcode  : " + code +
         " (pid: " + std::to_string(process) + ")\n";
}

FlightFinding told_by(const std::string& before) {
  const std::string text =
      "[rank0]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms "
      "for recv operation to complete\n" +
      before + part(1, "-9", 78) + part(2, "-15", 79) + "Root Cause (first observed failure):\n" +
      part(0, "1", 77);
  JobEvidence job;
  LogReader reader("job.log", -1);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line); reader.next_line()) reader.take(line);
  job.events = reader.finish();
  job.logs = 1;
  return attribute_job(job);
}

const std::string kElastic =
    "W1127 19:17:49.074000 1872 torch/distributed/elastic/multiprocessing/"
    "api.py:1028] ";

TEST(Incidents, WhomTorchrunKilledAfterAnotherFailedIsNotNamed) {
  EXPECT_FALSE(told_by("").decided);  // the table alone does not tell
  const FlightFinding said =
      told_by(kElastic + "Sending process 78 closing signal SIGTERM\n" + kElastic +
              "Unable to shutdown process 78 via SIGTERM, forcefully exiting via SIGKILL\n");
  EXPECT_FALSE(said.decided);
  EXPECT_FALSE(said.candidates.contains(1));
}

TEST(Incidents, WhoWasKilledBeforeTorchrunEndedTheOthersIsNamed) {
  EXPECT_EQ(told_by(kElastic + "Sending process 79 closing signal SIGTERM\n").guilty, RankSet{1});
}

}  // namespace
}  // namespace lockstep
