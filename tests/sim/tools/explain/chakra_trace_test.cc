#include "sim/tools/explain/chakra_trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "sim/report/trace/protobuf.h"
#include "sim/tools/explain/job_attribution.h"
#include "sim/tools/explain/source_kind.h"

namespace lockstep {
namespace {

// Made up, in the forms of Chakra's feeder and of PyTorch's ExecutionTraceObserver.
std::string seed(const std::string& name) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/fuzz/corpus/chakra/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ChakraTrace, OfKernelsTimesAreAddedUp) {
  const auto trace = chakra_trace_of(seed("feeder.json"), "chakra.0.json");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace.value().nodes, 5);
  EXPECT_EQ(trace.value().collectives, 1);
  EXPECT_TRUE(trace.value().timed);
  EXPECT_DOUBLE_EQ(trace.value().compute_ms, 1.5);
  EXPECT_DOUBLE_EQ(trace.value().communication_ms, 3.0005);  // what is sent and received, too
}

TEST(ChakraTrace, WithoutKernelsAllNodesCount) {
  const auto trace = chakra_trace_of(
      R"({"workload_graph": [{"Name": "a", "NodeType": 4, "runtime": 10, "is_cpu_op": true},
          {"name": "b", "type": "COMM_COLL_NODE", "durationMicros": 20}, {"Name": "c", "runtime": -1}]})",
      "chakra.0.json");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace.value().nodes, 3);
  EXPECT_EQ(trace.value().collectives, 1);
  EXPECT_DOUBLE_EQ(trace.value().compute_ms, 0.01);
  EXPECT_DOUBLE_EQ(trace.value().communication_ms, 0.02);
}

TEST(ChakraTrace, OfAnObserversTraceTheBackendsCallsCountAndNoTimes) {
  const auto trace = chakra_trace_of(seed("observer.json"), "et.json");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace.value().nodes, 3);
  EXPECT_EQ(trace.value().collectives, 1);
  EXPECT_FALSE(trace.value().timed);
}

TEST(ChakraTrace, MessagesAreReadAsJsonIs) {
  const std::string messages = seed("messages.et");
  EXPECT_EQ(kind_of("trace.0.et", messages.substr(0, 64)), SourceKind::chakra);
  const auto trace = chakra_trace_of(messages, "trace.0.et");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace.value().nodes, 4);
  EXPECT_EQ(trace.value().collectives, 1);
  EXPECT_DOUBLE_EQ(trace.value().compute_ms, 1.5);  // of kernels
  EXPECT_DOUBLE_EQ(trace.value().communication_ms, 3);
}

// As ours are written; a node that was cut short is bad input, with the byte at which it begins.
TEST(ChakraTrace, MessagesThatAreCutShortAreBadInput) {
  ProtobufMessage head, node;
  head.text(1, "1.0.2-chakra.0.0.4");
  node.text(2, "backward of step 3");
  node.number(7, 20);
  const std::string bytes = head.delimited() + node.delimited();
  ASSERT_TRUE(chakra_trace_of(bytes, "a.et"));
  EXPECT_EQ(chakra_trace_of(bytes, "a.et").value().nodes, 1);
  EXPECT_TRUE(chakra_trace_of(head.delimited(), "a.et"));
  for (size_t kept = head.delimited().size() + 1; kept < bytes.size(); ++kept) {
    const auto cut = chakra_trace_of(bytes.substr(0, kept), "a.et");
    ASSERT_FALSE(cut) << kept;
    EXPECT_NE(cut.errors()[0].message.find("no node at byte 21"), std::string::npos);
  }
}

// As Chakra's own test trace begins.
TEST(ChakraTrace, MetadataMayHaveNoVersion) {
  ProtobufMessage schema, head;
  schema.text(1, "schema");
  schema.text(29, "1.0.1");
  head.message(2, schema);
  EXPECT_EQ(kind_of("chakra.0.et", head.delimited()), SourceKind::chakra);
  ASSERT_TRUE(chakra_trace_of(head.delimited(), "chakra.0.et"));
}

// By the bytes, "{" and a line's end are a length and a field as well.
TEST(ChakraTrace, JsonIsNotTakenForMessages) {
  const std::string text =
      "{\n    \"schema\": \"1.0.2-chakra.0.0.4\", \"nodes\": []\n}" + std::string(200, ' ');
  EXPECT_TRUE(chakra_trace_of(text, "et.json"));
}

TEST(ChakraTrace, TextIsNoMessages) {
  for (const char* text : {"A\n(12345678901234567890", "5\n5.", "",
                           "\x05\n\x03"
                           "a.b"})
    EXPECT_NE(kind_of("a.log", text), SourceKind::chakra) << text;
}

TEST(ChakraTrace, IsKnownByItsContent) {
  EXPECT_EQ(kind_of("a.json", seed("feeder.json")), SourceKind::chakra);
  EXPECT_EQ(kind_of("a.json", seed("observer.json")), SourceKind::chakra);
  EXPECT_EQ(kind_of("a.json", R"({"schema": "other", "nodes": []})"), SourceKind::other);
  for (const char* bad : {"{\"workload_graph\": [", "{\"nodes\": 3}", "{}", "[]", ""})
    EXPECT_FALSE(chakra_trace_of(bad, "a.json")) << bad;
}

TEST(ChakraTrace, AloneItNamesNobodyAndSaysWhatItLacks) {
  JobEvidence job;
  for (int rank = 0; rank < 20; ++rank)
    job.chakra.push_back(chakra_trace_of(seed("feeder.json"), "chakra.0.json").value());
  const FlightFinding finding = attribute_job(job);
  EXPECT_FALSE(finding.decided);
  EXPECT_TRUE(finding.candidates.empty());
  ASSERT_EQ(finding.missing.size(), 1U);
  EXPECT_EQ(finding.evidence.size(), 17U);
  EXPECT_NE(finding.evidence[0].find("1.5 ms of compute, 3.0 ms of communication"),
            std::string::npos);
  job.logs = 1;  // what logs say is not doubted for it
  JobEvidence log;
  log.logs = 1;
  EXPECT_EQ(attribute_job(job).missing, attribute_job(log).missing);
}

}  // namespace
}  // namespace lockstep
