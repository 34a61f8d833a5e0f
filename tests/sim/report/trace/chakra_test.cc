#include "sim/report/trace/chakra.h"

#include <gmock/gmock.h>

#include <map>
#include <string_view>

#include "tests/sim/analysis/made_mesh.h"

namespace lockstep {
namespace {

// A reader of protobuf's wire format: numbers and texts by field.
struct Message {
  std::map<uint64_t, std::vector<uint64_t>> numbers;
  std::map<uint64_t, std::vector<std::string_view>> texts;
};

uint64_t take_varint(std::string_view* bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes->at(0));
    bytes->remove_prefix(1);
    value |= uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view take_text(std::string_view* bytes) {
  const uint64_t size = take_varint(bytes);
  const std::string_view text = bytes->substr(0, size);
  EXPECT_EQ(text.size(), size);
  bytes->remove_prefix(text.size());
  return text;
}

Message message_of(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    const uint64_t key = take_varint(&bytes);
    if ((key & 7) == 0)
      message.numbers[key >> 3].push_back(take_varint(&bytes));
    else
      message.texts[key >> 3].push_back(take_text(&bytes));
  }
  return message;
}

struct ReadNode {
  uint64_t id = 0, type = 0, start_us = 0, duration_us = 0;
  std::string name;
  std::vector<uint64_t> after;
  std::map<std::string, uint64_t> attributes;
  std::string group;
};

ReadNode node_of(std::string_view bytes) {
  Message message = message_of(bytes);
  ReadNode node{message.numbers[1].at(0),
                message.numbers[3].at(0),
                message.numbers[6].at(0),
                message.numbers[7].at(0),
                std::string(message.texts[2].at(0)),
                message.numbers[5],
                {},
                ""};
  for (const std::string_view attribute : message.texts[10]) {
    Message said = message_of(attribute);
    for (const auto& [field, values] : said.numbers)
      node.attributes[std::string(said.texts[1].at(0))] = values.at(0);
    if (said.texts[1].at(0) == "pg_name") node.group = said.texts[29].at(0);
  }
  return node;
}

class Chakra : public testing::Test {
 protected:
  std::vector<ReadNode> nodes_of(const RunOutcome& outcome, size_t rank) {
    bytes_ = chakra_trace(read_for_traces(outcome), rank);
    std::string_view left = bytes_;
    EXPECT_EQ(message_of(take_text(&left)).texts[1].at(0), "0.0.4");
    std::vector<ReadNode> nodes;
    while (!left.empty()) nodes.push_back(node_of(take_text(&left)));
    return nodes;
  }
  std::string bytes_;
};

constexpr uint64_t kCompute = 4, kCollective = 7;

TEST_F(Chakra, ComputeIsAChainCutAtCalls) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 2;
  const auto nodes = nodes_of(run.make(), 1);
  // Of each step: load, forward, four pieces of backward, three collectives, the optimizer.
  ASSERT_EQ(nodes.size(), 2u * (2 + 4 + 3 + 1));
  std::map<std::string, uint64_t> us;
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(nodes[i].id, i);
    EXPECT_EQ(nodes[i].attributes.at("is_cpu_op"), 0u);
    for (const uint64_t id : nodes[i].after) EXPECT_LT(id, i);
    if (nodes[i].type == kCompute) us[nodes[i].name] += nodes[i].duration_us;
  }
  EXPECT_EQ(nodes[0].name, "load of step 1");
  EXPECT_NEAR(static_cast<double>(us.at("backward of step 2")), 20'000, 5);
  EXPECT_EQ(us.at("optimizer of step 1"), 1000u);
}

TEST_F(Chakra, CollectivesDependOnTheComputeBeforeThemAndTheOptimizerOnThem) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 1;
  const auto nodes = nodes_of(run.make(), 0);
  std::vector<uint64_t> collectives;
  for (const ReadNode& node : nodes) {
    if (node.type != kCollective) continue;
    collectives.push_back(node.id);
    EXPECT_THAT(node.after, testing::ElementsAre(node.id - 1));
    EXPECT_EQ(nodes[node.id - 1].name, "backward of step 1");
    EXPECT_EQ(node.attributes.at("comm_type"), 0u);
    EXPECT_EQ(node.attributes.at("comm_size"), 1'000'000u);
    EXPECT_GT(node.duration_us, 0u);
  }
  EXPECT_EQ(collectives.size(), 3u);
  const ReadNode& optimizer = nodes.back();
  EXPECT_EQ(optimizer.name, "optimizer of step 1");
  EXPECT_THAT(optimizer.after, testing::IsSupersetOf({collectives.back(), optimizer.id - 1}));
  for (const uint64_t id : collectives)
    EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [&](const ReadNode& node) {
      return std::count(node.after.begin(), node.after.end(), id) == 1;
    })) << id;
}

TEST_F(Chakra, EachCollectiveIsOfItsGroup) {
  std::map<std::string, int> groups;
  for (const ReadNode& node : nodes_of(made_mesh(), 1))
    if (node.type == kCollective) groups[node.group] += 1;
  EXPECT_THAT(groups, testing::ElementsAre(testing::Pair("0", 6), testing::Pair("1", 2),
                                           testing::Pair("4", 2)));
}

TEST_F(Chakra, WhatNeverEndedHasNoDurationAndNothingWaitsForIt) {
  MadeRun run;
  run.world_size = 2;
  run.steps = 1;
  RunOutcome outcome = run.make();
  std::erase_if(outcome.ranks[0].events, [](const Event& event) {
    return static_cast<EventKind>(event.kind) == EventKind::end && event.sequence == 3;
  });
  const auto nodes = nodes_of(outcome, 0);
  const auto last = std::find_if(nodes.begin(), nodes.end(),
                                 [](const ReadNode& node) { return node.name == "all_reduce 3"; });
  ASSERT_NE(last, nodes.end());
  EXPECT_EQ(last->duration_us, 0u);
  for (const ReadNode& node : nodes)
    EXPECT_THAT(node.after, testing::Not(testing::Contains(last->id)));
}

}  // namespace
}  // namespace lockstep
