#include <gmock/gmock.h>

#include "sim/tools/collective/spec.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> labels(const std::string& text) {
  std::vector<std::string> all;
  const auto groups = parse_groups(text);
  for (const CollectiveGroup& group : groups.value()) all.push_back(group.label());
  return all;
}

std::string why_not(const std::string& text) {
  const auto groups = parse_groups(text);
  return groups ? "" : to_text(groups.errors().front());
}

TEST(CollectiveSpec, CommunicatorsAreKindsWithAnAlgorithm) {
  EXPECT_THAT(labels("gloo,gloo:bcube,c10d,shm"),
              ElementsAre("gloo:ring", "gloo:bcube", "c10d", "shm:ring"));
  EXPECT_THAT(labels("shm:rank_order"), ElementsAre("shm:rank_order"));
  EXPECT_THAT(labels("hierarchical:bcube:2,hierarchical:bcube:3"),
              ElementsAre("hierarchical:bcube:2", "hierarchical:bcube:3"));
  EXPECT_EQ(parse_groups("hierarchical:bcube:3").value()[0].order(), "bcube/3");
  EXPECT_EQ(parse_groups("shm:bcube").value()[0].order(), "bcube");
}

TEST(CollectiveSpec, OtherCommunicatorsAreBadInput) {
  EXPECT_THAT(why_not("glo"), HasSubstr("did you mean \"gloo\"?"));
  EXPECT_THAT(why_not(""), HasSubstr("--communicators: \"\""));
  EXPECT_THAT(why_not("local"), HasSubstr("--communicators: \"local\""));
  EXPECT_THAT(why_not("gloo:rank_order"), HasSubstr("gloo with \"ring\""));
  EXPECT_THAT(why_not("c10d:bcube"), HasSubstr("c10d with \"ring\""));
  EXPECT_THAT(why_not("shm,shm:ring"), HasSubstr("each once"));
  for (const char* bad : {"hierarchical", "hierarchical:ring", "hierarchical:ring:0",
                          "hierarchical:ring:2x", "hierarchical:rank_order:2", "shm:ring:2"})
    EXPECT_THAT(why_not(bad), HasSubstr(bad));
}

TEST(CollectiveSpec, BytesHaveTheLettersOfNcclTests) {
  EXPECT_EQ(parse_bytes("--x", "8").value(), 8);
  EXPECT_EQ(parse_bytes("--x", "64K").value(), 65536);
  EXPECT_EQ(parse_bytes("--x", "128M").value(), 134217728);
  EXPECT_EQ(parse_bytes("--x", "1G").value(), 1073741824);
  for (const char* bad : {"", "0", "-8", "8k", "2G", "K", "8 K", "99999999999999999999"})
    EXPECT_FALSE(parse_bytes("--x", bad)) << bad;
}

TEST(CollectiveSpec, SizesAreWholeElementsAndEqualParts) {
  CollectiveSpec spec;
  spec.world_size = 3;
  EXPECT_THAT(sizes_of(spec, 8, 70, 2), ElementsAre(2, 4, 8, 16));
  EXPECT_THAT(sizes_of(spec, 1, 16, 3), ElementsAre(2));  // 3 bytes hold none
  spec.operation = "reduce_scatter";
  EXPECT_THAT(sizes_of(spec, 8, 70, 2), ElementsAre(3, 6, 15));
  EXPECT_THAT(sizes_of(spec, 4, 8, 2), ElementsAre());
}

TEST(CollectiveSpec, BusFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 2), 1);
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(bus_factor("reduce_scatter", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(bus_factor("broadcast", 4), 1);
}

TEST(CollectiveSpec, ItsTextCanBeReadBack) {
  CollectiveSpec spec;
  spec.operation = "all_gather";
  spec.groups = parse_groups("gloo:bcube,c10d,hierarchical:ring:2").value();
  spec.world_size = 7;
  spec.elements = {7, 14};
  spec.dtype = "bfloat16";
  spec.iterations = 3;
  spec.warmup = 0;
  spec.timeout_ms = 5;
  spec.seed = 9;
  EXPECT_EQ(to_text(collective_spec_from(to_text(spec))), to_text(spec));
}

}  // namespace

}  // namespace lockstep
