#include "scenarios/profiler/kineto_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "sim/tools/explain/sources.h"
#include "sim/tools/explain/trace_overlap.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/tools/explain/made_traces.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

KinetoTrace trace_in(const std::string& text, const std::string& path = "trace.json") {
  const auto trace = kineto_trace_of(text, path);
  EXPECT_TRUE(trace) << (trace ? "" : trace.errors().front().message);
  return trace ? trace.value() : KinetoTrace{};
}

TEST(KinetoTrace, KernelsOfAGpu) {
  const KinetoTrace trace = trace_in(MadeTrace(3, 8)
                                         .kernel("sgemm", 0, 100)
                                         .kernel("relu", 50, 120)
                                         .kernel("Memcpy DtoH", 120, 220)
                                         .all_reduce(110, 210, 64)
                                         .text());
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 8);
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].operation, "all_reduce");
  EXPECT_EQ(trace.calls[0].group, "0");
  EXPECT_EQ(trace.calls[0].dtypes, "Float");
  EXPECT_EQ(trace.groups.at("0"), "default_pg");
  const TraceShare share = share_of(trace);
  EXPECT_TRUE(share.on_gpu);
  EXPECT_DOUBLE_EQ(share.compute_ms, 0.120);
  EXPECT_DOUBLE_EQ(share.communication_ms, 0.100);
  EXPECT_DOUBLE_EQ(share.exposed_ms, 0.090);
  EXPECT_NEAR(share.overlap_percent.value(), 10, 1e-9);
}

TEST(KinetoTrace, WhatRunsAtOnceCountsOnce) {
  const TraceShare share = share_of(trace_in(MadeTrace(0, 2)
                                                 .all_reduce(0, 100)
                                                 .all_reduce(50, 150)
                                                 .kernel("a", 40, 60)
                                                 .kernel("b", 55, 80)
                                                 .text()));
  EXPECT_DOUBLE_EQ(share.communication_ms, 0.150);
  EXPECT_NEAR(share.overlap_percent.value(), 100 * 40.0 / 150, 1e-9);
}

TEST(KinetoTrace, TimesAreThoseOfAStep) {
  MadeTrace made(0, 2);
  for (int64_t step = 0; step < 4; ++step) {
    const double begin = 1000.0 * static_cast<double>(step);
    made.step(step, begin, begin + 900)
        .kernel("a", begin, begin + 300)
        .all_reduce(begin + 300, begin + 500);
  }
  const TraceShare share = share_of(trace_in(made.text()));
  EXPECT_EQ(share.steps, 4);
  EXPECT_DOUBLE_EQ(share.step_ms.value(), 0.9);
  EXPECT_DOUBLE_EQ(share.compute_ms, 0.3);
  EXPECT_DOUBLE_EQ(share.exposed_ms, 0.2);
  EXPECT_DOUBLE_EQ(share.overlap_percent.value(), 0);
}

TEST(KinetoTrace, KernelsThatWereLaunchedBeforeAreOfNoStep) {
  const std::string text = MadeTrace(0, 2)
                               .step(1, 100, 200)
                               .step(2, 200, 300)
                               .launch(1, 110)
                               .launch(2, 350)
                               .kernel("seen", 120, 130, R"("correlation": 1)")
                               .kernel("not seen", 90, 99, R"("correlation": 9)")
                               .kernel("after the last step", 360, 370, R"("correlation": 2)")
                               .text();
  EXPECT_THAT(trace_in(text).compute, ElementsAre(::testing::Field(&TraceInterval::begin_us, 120)));
}

TEST(KinetoTrace, GlooOfACpu) {
  const KinetoTrace trace = trace_in(MadeTrace(1, 2)
                                         .operator_on(1, "aten::mm", 0, 100)
                                         .operator_on(1, "c10d::allreduce_", 100, 130)
                                         .operator_on(5, "aten::add_", 60, 90)
                                         .of_gloo(5, "all_reduce", 50, 150)
                                         .text());
  ASSERT_EQ(trace.calls.size(), 1u);
  EXPECT_EQ(trace.calls[0].operation, "all_reduce");
  EXPECT_EQ(trace.calls[0].group, "0") << "the only one that the job has";
  const TraceShare share = share_of(trace);
  EXPECT_FALSE(share.on_gpu);
  EXPECT_DOUBLE_EQ(share.compute_ms, 0.100) << "not what Gloo's own thread does";
  EXPECT_NEAR(share.overlap_percent.value(), 50, 1e-9);
}

TEST(KinetoTrace, WithoutCommunicationThereIsNoOverlap) {
  EXPECT_FALSE(share_of(trace_in(MadeTrace(0, 1).kernel("a", 0, 1).text())).overlap_percent);
}

TEST(KinetoTrace, OddEventsAreSkipped) {
  const KinetoTrace trace = trace_in(R"({"traceEvents": [1, [], {}, {"ph": "X"}, null,
    {"ph": "X", "cat": "kernel", "name": "a", "ts": "soon", "dur": 1, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": -1, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1e308, "args": {"stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1, "args": [7]},
    {"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "dur": 1, "args": {"stream": 7, "more": {"stream": 8}}}]})");
  EXPECT_EQ(trace.compute.size(), 1u);
}

TEST(KinetoTrace, BadOnesAreRefused) {
  const std::string text = MadeTrace(0, 2).all_reduce(0, 1).text();
  for (const std::string& bad : {std::string(), text.substr(0, text.size() / 2), text + "]"}) {
    const auto trace = kineto_trace_of(bad, "trace.json");
    ASSERT_FALSE(trace);
    EXPECT_THAT(trace.errors().front().message, HasSubstr("is no JSON"));
  }
  const auto none = kineto_trace_of(R"({"schemaVersion": 1})", "trace.json");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.errors().front().message, HasSubstr("traceEvents"));
}

TEST(KinetoTrace, Heads) {
  EXPECT_TRUE(is_kineto_head(MadeTrace(0, 2).text().substr(0, 200)));
  EXPECT_TRUE(is_kineto_head("{\"traceEvents\": ["));
  EXPECT_FALSE(is_kineto_head("[{\"ph\": \"X\", \"traceEvents\": 1}]"));
  EXPECT_FALSE(is_kineto_head("{\"schema_version\": 1}"));
  EXPECT_FALSE(is_kineto_head(""));
}

// Files of a folder, as PyTorch leaves them.
class TraceFiles : public ::testing::Test {
 protected:
  std::string leave(const std::string& name, const std::string& text) const {
    return folder_.write(name, text);
  }
  void leave_packed(const std::string& name, const std::string& text) const {
    const gzFile file = gzopen((folder_.path() + "/" + name).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
  }
  Expected<JobEvidence> read_all() const { return read_job({folder_.path()}); }

  const TemporaryFolder folder_;
};

TEST_F(TraceFiles, PlainAndPackedOnes) {
  leave("a.pt.trace.json", MadeTrace(1, 2).all_reduce(0, 1).text());
  leave_packed("b.pt.trace.json.gz", MadeTrace(0, 2).all_reduce(0, 1).text());
  const auto job = read_all();
  ASSERT_TRUE(job) << job.errors().front().message;
  ASSERT_EQ(job.value().traces.size(), 2u);
  EXPECT_EQ(job.value().traces[0].rank, 0);
  EXPECT_THAT(job.value().traces[0].file, HasSubstr("b.pt.trace.json.gz"));
  EXPECT_TRUE(job.value().ignored.empty());
  EXPECT_TRUE(is_job_evidence(folder_.path()));
}

TEST_F(TraceFiles, TheLastOfARankCounts) {
  leave("0.json", MadeTrace(0, 1).kernel("a", 500, 501).text());
  leave("1.json", MadeTrace(0, 1).kernel("a", 900, 901).text());
  leave("2.json", MadeTrace(0, 1).kernel("a", 100, 101).text());
  const auto job = read_all();
  ASSERT_TRUE(job);
  ASSERT_EQ(job.value().traces.size(), 1u);
  EXPECT_EQ(job.value().traces[0].begin_us, 900);
}

TEST_F(TraceFiles, RanksOfNames) {
  leave("rank_4.json", MadeTrace().kernel("a", 0, 1).text());
  leave("rank_2.json", MadeTrace().kernel("a", 0, 1).text());
  const auto job = read_all();
  ASSERT_TRUE(job) << job.errors().front().message;
  EXPECT_EQ(job.value().traces[0].rank, 2);
  EXPECT_EQ(job.value().traces[1].rank, 4);
}

TEST_F(TraceFiles, OneWithoutARankIsAlone) {
  leave("trace.json", MadeTrace().kernel("a", 0, 1).text());
  ASSERT_TRUE(read_all());
  EXPECT_EQ(read_all().value().traces[0].rank, 0);
  leave("other.json", MadeTrace(1, 2).kernel("a", 0, 1).text());
  const auto job = read_all();
  ASSERT_FALSE(job);
  EXPECT_THAT(job.errors().front().message, HasSubstr("does not say which rank's it is"));
}

TEST_F(TraceFiles, OneOfAllRanksIsRefused) {
  leave("trace.json", R"({"distributedInfo": {"world_size": 4}, "traceEvents": []})");
  const auto job = read_all();
  ASSERT_FALSE(job);
  EXPECT_THAT(job.errors().front().allowed, HasSubstr("a file of each rank"));
}

TEST_F(TraceFiles, OfAnotherJobIsRefused) {
  leave("a.json", MadeTrace(0, 2).kernel("a", 0, 1).text());
  leave("b.json", MadeTrace(1, 8).kernel("a", 0, 1).text());
  const auto job = read_all();
  ASSERT_FALSE(job);
  EXPECT_THAT(job.errors().front().message, HasSubstr("is of a job of 8 ranks"));
}

TEST_F(TraceFiles, ADamagedOneIsToldBesideOthers) {
  leave("a.json", MadeTrace(0, 2).kernel("a", 0, 1).text());
  const std::string damaged =
      leave("b.json", MadeTrace(1, 2).kernel("a", 0, 1).text().substr(0, 150));
  const auto job = read_all();
  ASSERT_TRUE(job);
  EXPECT_THAT(job.value().damaged, ElementsAre(HasSubstr("b.json")));
  EXPECT_FALSE(read_job({damaged}));
}

}  // namespace
}  // namespace lockstep
