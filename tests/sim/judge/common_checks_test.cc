#include "sim/judge/common_checks.h"

#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "golden/state.h"
#include "tests/sim/judge/outcomes.h"

namespace lockstep {
namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

// Three steps of four ranks, whose losses are 1 to 4 and those of one device 2.5.
class CommonChecksTest : public ::testing::Test {
 protected:
  CommonChecksTest() {
    Scenario& s = outcome_.run.plan.scenario;
    s.common_checks = true;
    s.batch_size = 8;
    s.data.options.set("samples", int64_t{24});
    s.split.kind = "contiguous";
    s.loss.options.set("reduction", std::string("mean"));
    for (int64_t step = 3; step >= 1; --step) {
      for (size_t rank = 0; rank < 4; ++rank)
        front(rank, EventKind::loss, step, 1.0 + static_cast<double>(rank));
      front(0, EventKind::golden_loss, step, 2.5);
      front(0, EventKind::norm_ratio, step, 1.01);
    }
    outcome_.run.ranks[0].events.insert(outcome_.run.ranks[0].events.begin(),
                                        Outcome::event(EventKind::close, 3, -1, 1));
  }

  // Before the double run.
  void front(size_t rank, EventKind kind, int64_t step, double value) {
    auto& events = outcome_.run.ranks[rank].events;
    events.insert(events.begin(), Outcome::event(kind, step, -1, std::bit_cast<uint64_t>(value)));
  }
  void replace(EventKind kind, int64_t step, double value) {
    outcome_.change(0, kind, -1, [&](Event& event) {
      if (event.step == step) event.value = std::bit_cast<uint64_t>(value);
    });
  }
  // Of loss, hash, closeness and norm.
  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const auto& [name, word] : outcome_.judge().common_checks) words.push_back(word);
    return words;
  }

  Outcome outcome_;
};

using Words = std::vector<std::string>;

TEST_F(CommonChecksTest, FindNothingInACleanRun) {
  EXPECT_EQ(words(), (Words{"missed", "missed", "missed", "missed"}));
  EXPECT_EQ(outcome_.judge().verdict, "pass");
  outcome_.run.plan.scenario.common_checks = false;
  EXPECT_EQ(words(), Words());
}

TEST_F(CommonChecksTest, EachHasItsTolerance) {
  replace(EventKind::golden_loss, 2, 2.5 / 1.04);
  replace(EventKind::norm_ratio, 2, 0.93);
  EXPECT_EQ(words(), (Words{"missed", "missed", "missed", "missed"}));
  replace(EventKind::golden_loss, 2, 2.5 / 1.06);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "missed"}));
  replace(EventKind::norm_ratio, 2, 0.91);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "found"}));
  outcome_.change(0, EventKind::close, -1, [](Event& event) { event.value = 0; });
  EXPECT_EQ(words(), (Words{"found", "missed", "found", "found"}));
  EXPECT_EQ(outcome_.judge().verdict, "pass");  // they have no weight in it
}

TEST_F(CommonChecksTest, WhatIsNotANumberIsOff) {
  replace(EventKind::golden_loss, 3, kNotANumber);
  replace(EventKind::norm_ratio, 1, kNotANumber);
  EXPECT_EQ(words(), (Words{"found", "missed", "missed", "found"}));
}

TEST_F(CommonChecksTest, WeightsThatPartAreSeenByTheirHash) {
  outcome_.part(2, static_cast<int32_t>(StateKind::gradient), 2);
  EXPECT_EQ(words()[1], "missed");  // of gradients it knows nothing
  outcome_.part(2, static_cast<int32_t>(StateKind::parameter), 3);
  EXPECT_EQ(words()[1], "found");
}

TEST_F(CommonChecksTest, WhatWasNotRecordedIsNotRun) {
  for (const EventKind kind : {EventKind::golden_loss, EventKind::norm_ratio, EventKind::close})
    outcome_.remove_kind(0, kind, -1);
  EXPECT_EQ(words(), (Words{"not_run", "missed", "not_run", "not_run"}));
}

}  // namespace
}  // namespace lockstep
