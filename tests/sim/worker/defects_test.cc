// Defects in sums of gradients, and the causes that are named from what workers measure of them.
#include <gmock/gmock.h>

#include <bit>
#include <limits>

#include "tests/sim/worker/made_step.h"

namespace lockstep {
namespace {

using made_step::norm;
using made_step::Step;
using made_step::Values;
using made_step::World;

struct Defect {
  const char* name;
  const char* cause;
  std::function<void(Step&)> change;
};

const std::vector<Defect>& defects() {
  static const std::vector<Defect> all = {
      {"a part of a bucket never summed, on all ranks", "missing_bucket",
       [](Step& s) {
         s.all([&](size_t rank, size_t i) {
           return i >= 20 && i < 42 ? s.rounded(s.own[rank][i] / double(s.world_size))
                                    : s.averaged[rank][i];
         });
       }},
      {"the last element of a bucket never summed, on one rank", "missing_bucket",
       [](Step& s) { s.averaged[1][65] = s.own[1][65]; }},
      {"nothing summed", "missing_bucket",
       [](Step& s) { s.all([&](size_t rank, size_t i) { return s.own[rank][i]; }); }},
      {"one rank divides its own by one more", "wrong_divisor",
       [](Step& s) {
         const double n = double(s.world_size);
         s.weigh([=](size_t rank) { return rank == 1 ? n / (n + 1) : 1.0; });
       }},
      {"one rank divides the sum by one more", "wrong_divisor",
       [](Step& s) {
         const double n = double(s.world_size);
         for (double& v : s.averaged[1]) v = s.rounded(v * (n / (n + 1)));
       }},
      {"all divide twice", "wrong_divisor",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           return s.rounded(s.averaged[r][i] / double(s.world_size));
         });
       }},
      {"nobody divides", "wrong_divisor",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           return s.rounded(s.averaged[r][i] * double(s.world_size));
         });
       }},
      {"a factor that is no number of ranks", "wrong_scale",
       [](Step& s) {
         s.all([&](size_t r, size_t i) { return s.rounded(s.averaged[r][i] * 0.37); });
       }},
      {"a loss scale left in", "wrong_scale",
       [](Step& s) { s.all([&](size_t r, size_t i) { return s.averaged[r][i] * 1024; }); }},
      {"the wrong sign of a bucket", "wrong_scale",
       [](Step& s) {
         s.all([&](size_t r, size_t i) { return i < 42 ? -s.averaged[r][i] : s.averaged[r][i]; });
       }},
      {"one rank's part has a factor", "wrong_scale",
       [](Step& s) { s.weigh([](size_t rank) { return rank == 0 ? 0.37 : 1.0; }); }},
      {"two buckets exchanged, on all ranks", "misplaced_gradient",
       [](Step& s) {
         for (Values& v : s.averaged) std::swap_ranges(&v[42], &v[66], &v[66]);
       }},
      {"two buckets exchanged, on one rank", "misplaced_gradient",
       [](Step& s) {
         std::swap_ranges(&s.averaged[1][42], &s.averaged[1][66], &s.averaged[1][66]);
       }},
      {"one rank's part of two buckets exchanged", "misplaced_gradient",
       [](Step& s) {
         const Values right = s.own[1];
         std::swap_ranges(&s.own[1][42], &s.own[1][66], &s.own[1][66]);
         s.weigh([](size_t) { return 1.0; });
         s.own[1] = right;
       }},
      {"one element late", "misplaced_gradient",
       [](Step& s) {
         for (Values& v : s.averaged) std::rotate(&v[42], &v[43], &v[66]);
       }},
      {"one rank left out", "missing_gradient",
       [](Step& s) { s.weigh([&](size_t rank) { return rank + 1 == s.own.size() ? 0.0 : 1.0; }); }},
      {"one rank left out, the rest averaged", "missing_gradient",
       [](Step& s) {
         const double n = double(s.world_size);
         s.weigh([=](size_t rank) { return rank == 0 ? 0.0 : n / (n - 1); });
       }},
      {"zeros", "missing_gradient",
       [](Step& s) {
         s.all([&](size_t r, size_t i) { return i >= 50 && i < 60 ? 0.0 : s.averaged[r][i]; });
       }},
      {"one rank counts twice", "doubled_gradient",
       [](Step& s) { s.weigh([](size_t rank) { return rank == 1 ? 2.0 : 1.0; }); }},
      {"each rank's own on top", "doubled_gradient",
       [](Step& s) {
         s.all([&](size_t r, size_t i) { return s.rounded(s.averaged[r][i] + s.own[r][i]); });
       }},
      {"the step before", "stale_gradient",
       [](Step& s) {
         s.all([&](size_t r, size_t i) { return i < 42 ? s.before[i] : s.averaged[r][i]; });
       }},
      {"each clips its own before the sum", "clipping",
       [](Step& s) {
         const double bound = 0.9 * norm(s.own[0]);
         s.weigh([&](size_t rank) { return std::min(1.0, bound / norm(s.own[rank])); });
       }},
      {"each clips the average by its own norm", "clipping",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           return s.rounded(s.averaged[r][i] * (2 / (norm(s.own[r]) + 1e-6)));
         });
       }},
      {"rounded to bfloat16", "precision",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           const auto bits = std::bit_cast<uint32_t>(static_cast<float>(s.averaged[r][i]));
           return double(std::bit_cast<float>(bits & 0xffff0000U));
         });
       }},
      {"infinite", "overflow",
       [](Step& s) {
         for (Values& v : s.averaged) v[47] = std::numeric_limits<double>::infinity();
       }},
      {"not a number on one rank", "overflow",
       [](Step& s) { s.averaged[1][3] = std::numeric_limits<double>::quiet_NaN(); }},
  };
  return all;
}

// Only the double run, or only bits, can show these.
const std::vector<Defect>& defects_in_double() {
  static const std::vector<Defect> all = {
      {"sums in float32", "precision",
       [](Step& s) {
         s.all([&](size_t, size_t i) {
           float sum = 0;
           for (const Values& own : s.own) sum += static_cast<float>(own[i]);
           return double(sum) / double(s.world_size);
         });
       }},
      {"averages cast to float32", "precision",
       [](Step& s) { s.all([&](size_t r, size_t i) { return double(float(s.averaged[r][i])); }); }},
      {"shares cast to float32", "precision",
       [](Step& s) {
         s.all([&](size_t, size_t i) {
           double sum = 0;
           for (const Values& own : s.own) sum += double(float(own[i] / double(s.world_size)));
           return sum;
         });
       }},
      {"one rank's own are twice what they should be, and averaged so", "doubled_gradient",
       [](Step& s) {
         for (double& v : s.own[1]) v *= 2;
         s.weigh([](size_t) { return 1.0; });
       }},
      {"one rank's own are half of what they should be, and averaged so", "wrong_divisor",
       [](Step& s) {
         for (double& v : s.own[1]) v /= 2;
         s.weigh([](size_t) { return 1.0; });
       }},
      // Another function than the whole batch's would have shown in step 1.
      {"one rank's own are in other places, and averaged so", "unknown",
       [](Step& s) {
         std::rotate(&s.own[1][0], &s.own[1][7], &s.own[1][90]);
         s.weigh([](size_t) { return 1.0; });
       }},
      {"multiplied by a reciprocal in float32", "precision",
       [](Step& s) {
         const double wrong = double(1.0F / 3.0F) * 3;
         s.all([&](size_t r, size_t i) { return s.averaged[r][i] * wrong; });
       }},
  };
  return all;
}

const std::vector<Defect>& defects_in_bits() {
  static const std::vector<Defect> all = {
      {"another order on one rank", "order_only",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           if (r != 1) return s.averaged[r][i];
           float sum = 0;
           for (const Values& own : s.own) sum += float(own[i]);
           return double(sum / float(s.world_size));
         });
       }},
      {"each rank adds in an order of its own", "order_only",
       [](Step& s) {
         s.all([&](size_t r, size_t i) {
           float sum = 0;
           for (size_t k = 0; k < s.own.size(); ++k) sum += float(s.own[(r + k) % s.own.size()][i]);
           return double(sum / float(s.world_size));
         });
       }},
      {"one bit of one copy", "corrupted_bits",
       [](Step& s) {
         const auto bits = std::bit_cast<uint32_t>(float(s.averaged[1][30])) ^ 0x00400000U;
         s.averaged[1][30] = double(std::bit_cast<float>(bits));
       }},
  };
  return all;
}

void expect_causes(const std::vector<Defect>& defects, bool in_float) {
  for (const int64_t world_size : {3, 6, 7})
    for (const Defect& defect : defects) {
      World world(world_size, in_float, 11 * static_cast<uint64_t>(world_size));
      defect.change(world.step());
      const RunResult result = world.judge();
      const std::string what = std::string(defect.name) + ", " + std::to_string(world_size) +
                               " ranks, " + (in_float ? "bits" : "double");
      EXPECT_EQ(result.verdict, Verdict::fail) << what;
      ASSERT_TRUE(result.first_divergence) << what;
      EXPECT_EQ(result.first_divergence->state_kind, StateKind::gradient) << what;
      EXPECT_EQ(result.first_divergence->cause, defect.cause)
          << what << ": " << result.first_divergence->explanation;
    }
}

TEST(Defects, HaveTheirCauseInDouble) { expect_causes(defects(), false); }
TEST(Defects, HaveTheirCauseInBits) { expect_causes(defects(), true); }
TEST(Defects, OfTheDoubleRunHaveTheirCause) { expect_causes(defects_in_double(), false); }
TEST(Defects, OfBitsHaveTheirCause) { expect_causes(defects_in_bits(), true); }

TEST(Defects, NoneIsSeenInRightSums) {
  for (const int64_t world_size : {2, 3, 6, 7})
    for (const bool in_float : {false, true})
      EXPECT_EQ(World(world_size, in_float, 5).judge().verdict, Verdict::pass);
}

// What fits none of the known defects.
TEST(Defects, WhatNothingExplainsIsUnknown) {
  for (const bool in_float : {false, true})
    for (const int64_t world_size : {2, 3, 7}) {
      World world(world_size, in_float, 3);
      std::mt19937_64 random(4);
      std::normal_distribution<double> normal;
      Values noise;
      for (size_t i = 0; i < 90; ++i) noise.push_back(0.1 * normal(random));
      world.step().all([&](size_t r, size_t i) {
        return world.step().rounded(world.step().averaged[r][i] + noise[i]);
      });
      const RunResult result = world.judge();
      ASSERT_TRUE(result.first_divergence);
      EXPECT_EQ(result.first_divergence->cause, "unknown") << result.first_divergence->explanation;
    }
}

TEST(Defects, TheFirstTensorBeyondItsBoundIsNamedAndTheWorstElementThere) {
  World world(3, false, 9);
  for (Values& v : world.step().averaged) {
    v[36] += 1e-3;
    v[38] += 0.5;  // element 3 of b
    for (size_t i = 42; i < 90; ++i) v[i] *= 3;
  }
  const RunResult result = world.judge();
  ASSERT_TRUE(result.first_divergence);
  EXPECT_EQ(result.first_divergence->tensor, "b");
  EXPECT_EQ(result.first_divergence->state_kind, StateKind::gradient);
  EXPECT_EQ(result.first_divergence->element, std::vector<int64_t>{3});
  EXPECT_EQ(result.first_divergence->differing, 2);
}

}  // namespace
}  // namespace lockstep
