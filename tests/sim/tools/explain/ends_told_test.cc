#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/tools/explain/report.h"
#include "tests/sim/tools/explain/public_logs.h"

namespace lockstep {
namespace {

// Ends by signals, in all the words there are for them, and those that more launchers and
// schedulers tell of.

FlightFinding end_told(const std::string& text) { return attribute_job(evidence_of(text)); }

TEST(EndsTold, ASignalHasManyNames) {
  const std::vector<std::pair<std::string, int64_t>> lines = {
      {"[rank3]:Fatal Python error: Illegal instruction", 4},
      {"[1,3]<stderr>:Fatal Python error: Floating-point exception", 8},
      {"[1,3]<stderr>:bash: line 1: 80675 Segmentation fault      (core dumped) python train.py",
       11},
      {"[1,3]<stderr>:[n1:17086] Signal: Floating point exception (8)", 8},
      {"[1,3]<stderr>:[n1:17086:0:17086] Caught signal 7 (Bus error: nonexistent address)", 7},
      {"[1,3]<stderr>:*** SIGSEGV (@0x8) received by PID 4711 (TID 0x7f1b) from PID 8; stack", 11},
      {"[1,3]<stderr>:*** SIGILL received at time=1762000000 on cpu 3 ***", 4},
      {"[1,3]<stderr>:*** Signal 11 (SIGSEGV) (0x8bb) received by PID 790013 (code: -6), stack",
       11},
      {"[1,3]<stderr>:SIGBUS(7), PID: 2450054, Thread 2450054:", 7},
      {"srun: error: n1: task 3: Floating point exception (core dumped)", 8},
      {"srun: error: n1: task 3: Illegal instruction", 4},
      {"x1921c0s1b0n0.hsn.cluster: rank 3 died from signal 11 and dumped core", 11},
      {"ERROR:  One or more process (first noticed rank 3) terminated with signal 9", 9},
  };
  for (const auto& [line, signal] : lines) {
    const FlightFinding found = end_told(line + "\n");
    EXPECT_EQ(found.guilty, RankSet{3}) << line;
    EXPECT_EQ(found.signal, signal) << line;
  }
}

TEST(EndsTold, WhoAbortsOrIsToldToEndHasNotFallen) {
  for (const char* line :
       {"[1,3]<stderr>:Fatal Python error: Aborted", "[1,3]<stderr>:*** SIGABRT (@0x1) received",
        "[1,3]<stderr>:[n1:7] Signal: Aborted (6)", "[1,3]<stderr>:*** SIGTERM (@0x1) received",
        "[1,3]<stderr>:SIGABRT(6), PID: 4711, Thread 4711:", "n1: rank 3 died from signal 15",
        "n1: rank 3 died from signal 9", "n1: rank 3 exited with code 1",
        "[1,3]<stderr>:HW Exception by GPU node-9 (Agent handle: 0x6) reason :GPU Hang",
        "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3"}) {
    const FlightFinding found = end_told(std::string(line) + "\n");
    EXPECT_FALSE(found.decided) << line;
    EXPECT_TRUE(found.guilty.empty()) << line;
  }
}

TEST(EndsTold, WhomAShellSawKilledIsACandidate) {
  const FlightFinding found =
      end_told("[1,3]<stderr>:bash: line 1: 80675 Killed                  python train.py\n");
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, RankSet{3});
  EXPECT_TRUE(end_told("[1,3]<stderr>:steps Killed   by hand, line 3\n").candidates.empty());
}

TEST(EndsTold, WhatPalsEndsAfterTheFirstBlamesNobody) {
  EXPECT_EQ(end_told("n1: rank 256 died from signal 11\nn2: rank 0 died from signal 15\n").guilty,
            RankSet{256});
  EXPECT_EQ(end_told("n1: rank 2 exited with code 1\nn2: rank 0 died from signal 15\n").candidates,
            RankSet{2});
  EXPECT_TRUE(end_told("the job of rank 3 exited with code 1\n").candidates.empty());
}

TEST(EndsTold, WhomRaySawFailIsACandidate) {
  EXPECT_EQ(end_told("(TorchTrainer pid=89392) Worker 2 has failed.\n").candidates, RankSet{2});
  EXPECT_TRUE(end_told("Worker 2 has failed. Trying again\n").candidates.empty());
  const FlightFinding found = end_told(
      "(raylet) A worker died or was killed while executing a task by an unexpected system "
      "error.\n");
  ASSERT_EQ(found.missing.size(), 1U);
  EXPECT_NE(found.missing[0].find("which rank ended"), std::string::npos);
}

TEST(EndsTold, WhatARankRaisesAfterItsSchedulerEndedTheJobIsNotItsOwnEnd) {
  const std::string raised =
      "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"train.py\", line 20\n"
      "[rank0]: RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly\n";
  EXPECT_EQ(end_told(raised).guilty, RankSet{0});
  const FlightFinding found =
      end_told("=>> PBS: job killed: walltime 602 exceeded limit 600\n" + raised);
  EXPECT_FALSE(found.decided);
  EXPECT_TRUE(found.guilty.empty());
  // LSF tells so last of all.
  const std::string limit = "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n";
  EXPECT_EQ(end_told(raised + limit).candidates, RankSet{0});
  EXPECT_FALSE(end_told(raised + limit).decided);
}

TEST(EndsTold, WhatABarLeftInALineIsNotToldAsEvidence) {
  const FlightFinding found = end_told(
      " 41%|##   | 366/903 [5:15:39<6:53:09, 46.16s/it][rank3]: Traceback (most recent call "
      "last):\n"
      "[rank3]:   File \"train.py\", line 8\n 42%|#| 367/903 [5:16:39<6:53:09, 46.16s/it][rank3]: "
      "ValueError: x\n");
  EXPECT_EQ(found.guilty, RankSet{3});
  ASSERT_FALSE(
      evidence_of("  2%| | 1/9 [1<6, 4.6s/it]HW Exception by GPU node-9\n").events.empty());
  EXPECT_EQ(evidence_of("  2%| | 1/9 [1<6, 4.6s/it]HW Exception by GPU node-9\n").events[0].text,
            "HW Exception by GPU node-9");
}

TEST(EndsTold, WhatOneLineTellsOfSeveralRanksIsToldOnce) {
  const FlightFinding found = end_told("srun: error: n0: tasks 2-4: Exited with exit code 1\n");
  ASSERT_EQ(found.evidence.size(), 1U);
  EXPECT_TRUE(found.evidence[0].starts_with("ranks 2, 3, 4 ended ("));
  ASSERT_EQ(found.missing.size(), 1U);
  EXPECT_NE(found.missing[0].find("their own or a peer's"), std::string::npos);
}

TEST(EndsTold, TheAnswerSpeaksOfOthersOnlyWhereThereAreAny) {
  const std::string raised =
      "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"train.py\", line 20\n"
      "[rank3]: ValueError: bad sample\n";
  EXPECT_NE(explain_text(end_told(raised), {}).find("rank 3 failed on its own; fix this first; "),
            std::string::npos);
  const std::string lost = "[rank1]: ConnectionResetError: [Errno 104] Connection reset by peer\n";
  EXPECT_NE(explain_text(end_told(raised + lost), {}).find("all that the victims report is"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
