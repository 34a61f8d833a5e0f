#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/log_event.h"
#include "sim/tools/explain/log_json.h"
#include "sim/tools/explain/log_prefix.h"
#include "sim/tools/explain/log_source.h"
#include "sim/tools/explain/source_kind.h"

namespace lockstep {
namespace {

// Forms in which the same lines stand in files: records in JSON, colors, frames, headings, ends of
// lines of Windows.

JobEvidence job_of(const std::string& text) {
  LogOf log = log_of(text, "job.log", -1);
  JobEvidence job;
  job.logs = 1;
  job.events = std::move(log.events);
  job.logged = std::move(log.ranks);
  return job;
}

RankSet named_by(const std::string& text) { return attribute_job(job_of(text)).guilty; }

std::string docker(const std::string& line) {
  return R"({"log":")" + line + R"(\n","stream":"stderr","time":"2026-05-01T10:00:00.1Z"})" + "\n";
}

TEST(LogForms, WhatDockerWrapsIsReadAsTheLineItWas) {
  const std::string text = docker("[rank3]: Traceback (most recent call last):") +
                           docker(R"([rank3]:   File \"train.py\", line 8, in step)") +
                           docker("[rank3]: ValueError: bad sample");
  const JobEvidence job = job_of(text);
  ASSERT_EQ(job.events.size(), 1U);
  EXPECT_EQ(job.events[0].text, "ValueError: bad sample");
  EXPECT_EQ(named_by(text), RankSet{3});
}

// Who logs an exception may have caught it: a candidate, unless somebody saw the process end.
TEST(LogForms, ALoggersRecordSaysWhoseItIsAndWhatWasRaised) {
  const std::string record =
      R"({"level": "ERROR", "message": "step failed", "rank": 2, "exc_info": "Traceback (most )"
      R"(recent call last):\n  File \"train.py\", line 8, in step\nValueError: bad sample"})";
  const std::string lines = R"({"message": "step 5", "rank": 1})"
                            "\n" +
                            record + "\n";
  const FlightFinding found = attribute_job(job_of(lines));
  EXPECT_FALSE(found.decided);
  EXPECT_EQ(found.candidates, RankSet{2});
  EXPECT_EQ(job_of(lines).logged, (std::set<int64_t>{1, 2}));
  EXPECT_EQ(named_by("2026-05-01T10:00:00.123456789Z stderr F " + record +
                     "\nsrun: error: n1: task 2: Exited with exit code 1\n"),
            RankSet{2});
}

TEST(LogForms, ARecordWithinARecordIsReadAsWell) {
  const auto inner = json_record(
      R"({"log": "{\"msg\": \"step 5\", \"extra\": {\"rank\": \"4\"}}\n", "stream": "stdout"})");
  ASSERT_TRUE(inner);
  EXPECT_EQ(inner->rank, 4);
  EXPECT_EQ(inner->text, "step 5");
  for (const char* none : {"{'loss': 0.5}", R"({"loss": 0.5})", R"({"message": 5})",
                           "{\"log\": \"x", R"({"local_rank": 3})", "[1, 2]"})
    EXPECT_FALSE(json_record(none)) << none;
  EXPECT_EQ(json_record(R"({"message": "x", "rank": -1})")->rank, -1);
}

TEST(LogForms, RecordsInAFileNamedJsonAreALog) {
  EXPECT_EQ(kind_of("worker.json", "{\"message\": \"step 5\"}\n{\"message\": \"x\"}\n"),
            SourceKind::log);
  EXPECT_EQ(kind_of("config.json", "{\"depth\": 5}\n"), SourceKind::other);
}

TEST(LogForms, ColorsWithinALineAreNoneOfItsWords) {
  EXPECT_EQ(without_escapes("\x1b[1;35mValueError\x1b[0m: \x1b[35mx\x1b[0m"), "ValueError: x");
  EXPECT_EQ(without_escapes("a\x1b["), "a");
  EXPECT_EQ(named_by("[rank3]: \x1b[1mTraceback (most recent call last):\x1b[0m\n[rank3]:   File "
                     "\x1b[35m\"train.py\"\x1b[0m, line \x1b[35m8\x1b[0m\n[rank3]: "
                     "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad sample\x1b[0m\n"),
            RankSet{3});
}

TEST(LogForms, AFrameOfRichIsATraceback) {
  const auto framed = [](const std::string& file, const std::string& last) {
    return "[rank3]: ╭───── Traceback (most recent call last) ─────╮\n[rank3]: │ " + file +
           ":8 in step │\n[rank3]: │ ❱ 8     step()     │\n[rank3]: ╰─────╯\n[rank3]: " + last +
           "\n";
  };
  EXPECT_EQ(named_by(framed("/job/train.py", "ValueError: bad sample")), RankSet{3});
  EXPECT_EQ(named_by(framed("/x/torch/distributed/c10d.py", "ValueError: bad sample")), RankSet{});
}

TEST(LogForms, PathsOfWindowsAreOfTorchDistributed) {
  const auto raised_in = [](const std::string& file) {
    return named_by("[rank3]: Traceback (most recent call last):\n[rank3]:   File \"" + file +
                    "\", line 8, in step\n[rank3]: RuntimeError: no libuv\n");
  };
  EXPECT_EQ(raised_in("C:\\job\\train.py"), RankSet{3});
  EXPECT_EQ(raised_in("C:\\x\\torch\\distributed\\rendezvous.py"), RankSet{});
}

TEST(LogForms, HeadingsSayWhoseLinesFollow) {
  const std::string raised =
      "Traceback (most recent call last):\n  File \"train.py\", line 8\nValueError: bad sample\n";
  EXPECT_EQ(named_by("ERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.\n"
                     "ERROR:composer.cli.launcher:Global rank 1 (PID 7) exited with code 1\n"
                     "----------Begin global rank 1 STDERR----------\n" +
                     raised + "----------End global rank 1 STDERR----------\n"),
            RankSet{1});
  const JobEvidence shown = job_of("==> logs/rank_0.log <==\nstep 5\n\n==> logs/rank_2.log <==\n" +
                                   raised + "==> logs/node1.log <==\n" + raised);
  ASSERT_EQ(shown.events.size(), 2U);
  EXPECT_EQ(shown.events[0].rank, 2);
  EXPECT_EQ(shown.events[1].rank, -1);
  EXPECT_EQ(shown.logged, (std::set<int64_t>{0, 2}));
}

TEST(LogForms, ATimeOnALineOfItsOwnEndsNoTraceback) {
  for (const char* alone :
       {"2026-07-24 08:45:13.616", "2026-07-24 08:45:13", "2026-12-04T05:26:25Z"})
    EXPECT_TRUE(is_time_alone(alone)) << alone;
  for (const char* none : {"2026-07-24", "2026-07-24 08:45:13 step 5", "2026-07-24 08:45", ""})
    EXPECT_FALSE(is_time_alone(none)) << none;
  const std::string time = "2026-12-04T05:26:25.055Z\n";
  EXPECT_EQ(named_by(time + "[rank3]: Traceback (most recent call last):\n" + time +
                     "[rank3]:   File \"train.py\", line 8\n" + time + "[rank3]: ValueError: x\n"),
            RankSet{3});
  const LogOf log = log_of("Traceback (most recent call last):\n" + time +
                               "  File \"train.py\", line 8\n" + time + "ValueError: x\n",
                           "job.log", 1);
  ASSERT_EQ(log.events.size(), 1U);
}

TEST(LogForms, TagsOfLaunchersCountBehindWhatACollectorPutBefore) {
  const LogPrefix mpirun = log_prefix("2026-01-15 22:41:16 UTC master.0 -- [1,3]<stderr>:x");
  EXPECT_EQ(mpirun.rank, 3);
  EXPECT_EQ(mpirun.owner, LineOwner::job);
  EXPECT_EQ(mpirun.rest, "x");
  const LogPrefix wrapped =
      log_prefix("[2026-02-27T21:35:32.1Z] fa88a9df [rank=5] || ValueError: x");
  EXPECT_EQ(wrapped.rank, 5);
  EXPECT_EQ(wrapped.rest, "ValueError: x");
  EXPECT_EQ(log_prefix("a[1,3]<stderr>:x").rank, -1);
  EXPECT_EQ(log_prefix("mesh[rank=5] x").rank, -1);
}

TEST(LogForms, WindowsEndsOfLinesBreakNoLaunchersWord) {
  const std::vector<std::string> lines = {"The first process to do so was:", "",
                                          "  Process name: [[29973,1],2]", "  Exit code:    139"};
  std::string text;
  for (const std::string& line : lines) text += line + "\r\n";
  const FlightFinding found = attribute_job(job_of(text));
  EXPECT_EQ(found.guilty, RankSet{2});
  EXPECT_EQ(found.signal, 11);
  EXPECT_EQ(job_of(text).events.at(0).line, 3);
}

}  // namespace
}  // namespace lockstep
