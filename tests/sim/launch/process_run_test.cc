#include <gmock/gmock.h>

#include <csignal>

#include "sim/launch/process_run.h"
#include "sim/launch/protocol.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMs = 1'000'000;

ProcessEnd noticed(int64_t rank, int64_t time_ns) {
  return {.who = "rank", .rank = rank, .order = 0, .time_ns = time_ns, .exit_code = kExitCommError};
}

ProcessEnd crashed(int64_t rank, int64_t time_ns) {
  ProcessEnd end{.who = "rank", .rank = rank, .order = 0, .time_ns = time_ns};
  end.signal = SIGSEGV;
  return end;
}

std::vector<int64_t> ranks_in_order(const std::vector<ProcessEnd>& ends) {
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < ends.size(); ++i) {
    EXPECT_EQ(ends[i].order, static_cast<int64_t>(i));
    ranks.push_back(ends[i].rank);
  }
  return ranks;
}

TEST(InsertEnd, AnOwnCauseGoesBeforeThoseThatNoticedIt) {
  std::vector<ProcessEnd> ends;
  insert_end(&ends, noticed(0, 100 * kMs));
  insert_end(&ends, noticed(1, 150 * kMs));
  insert_end(&ends, crashed(2, 200 * kMs));
  EXPECT_THAT(ranks_in_order(ends), ElementsAre(2, 0, 1));
  insert_end(&ends, crashed(3, 210 * kMs));  // a second cause stays behind the first
  EXPECT_THAT(ranks_in_order(ends), ElementsAre(2, 3, 0, 1));
}

TEST(InsertEnd, ButNotBeforeWhatWasLongBefore) {
  std::vector<ProcessEnd> ends;
  insert_end(&ends, noticed(0, 100 * kMs));
  insert_end(&ends, crashed(1, 400 * kMs));
  EXPECT_THAT(ranks_in_order(ends), ElementsAre(0, 1));
}

TEST(InsertEnd, WhomTheLauncherEndedHasNoCauseOfItsOwn) {
  std::vector<ProcessEnd> ends;
  insert_end(&ends, noticed(0, 100 * kMs));
  ProcessEnd ended = crashed(1, 110 * kMs);
  ended.by_launcher = true;
  insert_end(&ends, ended);
  ProcessEnd golden = crashed(-1, 120 * kMs);
  insert_end(&ends, golden);
  EXPECT_THAT(ranks_in_order(ends), ElementsAre(0, 1, -1));
}

}  // namespace

}  // namespace lockstep
