#include "golden/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// A state of a few small tensors, filled with the value 1.
class State {
 public:
  explicit State(const std::string& dtype = "float32") {
    const int64_t size = dtype == "float64" ? 8 : 4;
    int64_t offset = 0;
    const auto add = [&](StateKind kind, const char* name, int64_t parameter, int64_t numel) {
      layout.entries.push_back({kind, name, parameter, dtype, numel, numel * size, offset});
      offset += (numel * size + 63) / 64 * 64;
    };
    add(StateKind::gradient, "fc1.weight", 0, 100);
    add(StateKind::gradient, "fc1.bias", 1, 10);
    add(StateKind::parameter, "fc1.weight", 0, 100);
    add(StateKind::parameter, "fc1.bias", 1, 10);
    layout.presence_offset = offset;
    layout.bytes = offset + 64;
    bytes.resize(static_cast<size_t>(layout.bytes));
    for (size_t e = 0; e < layout.entries.size(); ++e) {
      for (int64_t i = 0; i < layout.entries[e].numel; ++i) set(e, i, 1);
      set_present(e, true);
    }
  }

  template <class T>
  void put(size_t entry, int64_t element, T value) {
    std::memcpy(
        bytes.data() + layout.entries[entry].offset + element * static_cast<int64_t>(sizeof value),
        &value, sizeof value);
  }
  void set(size_t entry, int64_t element, double value) {
    if (layout.entries[entry].dtype == "float64")
      put(entry, element, value);
    else
      put(entry, element, static_cast<float>(value));
  }
  void fill(size_t entry, double value) {
    for (int64_t i = 0; i < layout.entries[entry].numel; ++i) set(entry, i, value);
  }
  void set_present(size_t entry, bool present) {
    bytes[static_cast<size_t>(layout.presence_offset) + entry] = std::byte{present};
  }
  const std::byte* data() const { return bytes.data(); }

  StateLayout layout;
  std::vector<std::byte> bytes;
};

TEST(Compare, EqualStatesDoNotDiffer) {
  const State run;
  EXPECT_FALSE(first_bit_difference(run.layout, run.data(), State().data()));
  EXPECT_EQ(count_differing(run.layout, StateKind::parameter, run.data(), run.data()).total, 110);
}

TEST(Compare, FindsTheFirstEntryAndElement) {
  const State golden;
  State run;
  run.set(3, 4, 2);
  run.put(2, 7, std::nextafter(1.0F, 2.0F));
  run.set(2, 9, 1.5);
  const auto found = first_bit_difference(run.layout, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry, 2);
  EXPECT_EQ(found->element, 7);
  EXPECT_EQ(found->ulp, 1u);
  EXPECT_EQ(found->max_ulp, 1u << 22);
  EXPECT_EQ(found->differing, 2);
  EXPECT_EQ(found->numel, 100);
  EXPECT_EQ(found->run_bits, 0x3f800001u);
  EXPECT_EQ(found->golden_bits, 0x3f800000u);
  EXPECT_EQ(found->golden_value, 1);
  EXPECT_FALSE(bit_difference(run.layout, 0, run.data(), golden.data()));
  const auto count = count_differing(run.layout, StateKind::parameter, run.data(), golden.data());
  EXPECT_EQ(count.differing, 3);
  EXPECT_EQ(count.total, 110);
}

TEST(Compare, OneNanIsAsGoodAsAnother) {
  State run, golden;
  run.put(1, 4, uint32_t{0xffc00000});
  golden.put(1, 4, uint32_t{0x7fffffff});
  EXPECT_FALSE(first_bit_difference(run.layout, run.data(), golden.data()));
  run.set(1, 7, 2);
  const auto found = first_bit_difference(run.layout, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->element, 7);
  EXPECT_EQ(found->differing, 1);
  golden.set(1, 4, 1);
  EXPECT_EQ(first_bit_difference(run.layout, run.data(), golden.data())->differing, 2);
}

TEST(Compare, WhatControlsDamageIsDifferentEvenWhereItWasNan) {
  for (const double value : {1.0, kNan, kInf}) {
    State run;
    run.set(0, 0, value);
    State damaged = run;
    damage_first_element(damaged.layout.entries[0], damaged.bytes.data());
    EXPECT_TRUE(first_bit_difference(run.layout, damaged.data(), run.data())) << value;
  }
}

TEST(Compare, EveryBitOfEveryElementCounts) {
  for (const char* dtype : {"float32", "float64"}) {
    const State golden(dtype);
    State run(dtype);
    for (size_t e = 0; e < run.layout.entries.size(); ++e)
      for (int64_t bit = 0; bit < 8 * run.layout.entries[e].bytes; bit += 13) {
        std::byte& byte = run.bytes[static_cast<size_t>(run.layout.entries[e].offset + bit / 8)];
        byte ^= std::byte(1 << bit % 8);
        const auto found = first_bit_difference(run.layout, run.data(), golden.data());
        ASSERT_TRUE(found) << e << " " << bit;
        EXPECT_EQ(found->entry, static_cast<int64_t>(e));
        EXPECT_EQ(std::popcount(found->run_bits ^ found->golden_bits), 1);
        byte ^= std::byte(1 << bit % 8);
      }
  }
}

TEST(Compare, AbsentIsNotZero) {
  State golden;
  State run;
  golden.fill(1, 0);
  run.fill(1, 0);
  run.set_present(1, false);
  const auto found = first_bit_difference(run.layout, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry, 1);
  EXPECT_TRUE(found->run_absent);
  EXPECT_FALSE(found->golden_absent);
  EXPECT_EQ(found->differing, 10);
}

TEST(Compare, UlpDistance) {
  EXPECT_EQ(ulp_distance(1.0F, 1.0F), 0u);
  EXPECT_EQ(ulp_distance(1.0F, std::nextafter(1.0F, 0.0F)), 1u);
  EXPECT_EQ(ulp_distance(0.0F, -0.0F), 0u);
  const float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ulp_distance(tiny, -tiny), 2u);
  EXPECT_EQ(ulp_distance(1.0, std::nextafter(std::nextafter(1.0, 2.0), 2.0)), 2u);
  const double largest = std::numeric_limits<double>::max();
  EXPECT_EQ(ulp_distance(largest, -largest), 2 * std::bit_cast<uint64_t>(largest));
  EXPECT_EQ(ulp_distance(kInf, 1.0), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(ulp_distance(kNan, kNan), 0u);
  EXPECT_EQ(ulp_distance(kNan, 1.0), std::numeric_limits<uint64_t>::max());
}

TEST(Compare, ElementIndex) {
  EXPECT_EQ(element_index(1034, {65, 16}), (std::vector<int64_t>{64, 10}));
  EXPECT_EQ(element_index(23, {2, 3, 4}), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(element_index(0, {}), std::vector<int64_t>{});
}

TEST(Distance, IsRelativeToTheWorstTensor) {
  const State golden("float64");
  State run("float64");
  EXPECT_EQ(worst_distance(run.layout, run.data(), golden.data()).worst, 0);
  run.fill(0, 1 + 1e-10);
  run.fill(3, 1 + 1e-9);
  const Distance found = worst_distance(run.layout, run.data(), golden.data());
  EXPECT_EQ(found.entry, 3);
  EXPECT_NEAR(found.worst, 1e-9, 1e-15);
}

// Without the floor a gradient that is mathematically zero would show a distance of 1.
TEST(Distance, SmallTensorsAreMeasuredAgainstTheLargestOfTheirKind) {
  State golden("float64");
  State run("float64");
  golden.fill(1, 1e-17);
  run.fill(1, -1e-17);
  const double expected = 2e-17 * std::sqrt(10.0) / (1e-3 * 10);
  EXPECT_NEAR(worst_distance(run.layout, run.data(), golden.data()).worst, expected, 1e-20);
}

TEST(Distance, IsAbsoluteWhereAKindIsZero) {
  State golden("float64");
  State run("float64");
  for (State* state : {&golden, &run}) {
    state->fill(0, 0);
    state->fill(1, 0);
  }
  EXPECT_EQ(worst_distance(run.layout, run.data(), golden.data()).worst, 0);
  run.set(1, 3, 1e-5);
  const Distance found = worst_distance(run.layout, run.data(), golden.data());
  EXPECT_EQ(found.worst, 1e-5);
  EXPECT_EQ(found.entry, 1);
}

TEST(Distance, NeitherNanNorInfinityIsEverNear) {
  for (double value : {kNan, kInf, -kInf}) {
    const State clean("float64");
    State damaged("float64");
    damaged.set(2, 5, value);
    const std::pair<const State*, const State*> pairs[] = {
        {&clean, &damaged}, {&damaged, &clean}, {&damaged, &damaged}};
    for (auto [run, golden] : pairs) {
      const Distance found = worst_distance(clean.layout, run->data(), golden->data());
      EXPECT_EQ(found.worst, kInf) << value;
      EXPECT_EQ(found.entry, 2);
    }
  }
}

TEST(Distance, DoesNotOverflowOrVanish) {
  for (double scale : {1e200, 1e-200}) {
    State golden("float64");
    State run("float64");
    for (size_t e = 0; e < 4; ++e) {
      golden.fill(e, scale);
      run.fill(e, scale * (1 + 1e-8));
    }
    EXPECT_NEAR(worst_distance(run.layout, run.data(), golden.data()).worst, 1e-8, 1e-12);
  }
}

TEST(Distance, AbsentOnOneSideIsInfinite) {
  const State golden("float64");
  State run("float64");
  run.set_present(1, false);
  EXPECT_EQ(worst_distance(run.layout, run.data(), golden.data()).worst, kInf);
}

TEST(Distance, TheFirstEntryBeyondItsBoundIsNotTheWorst) {
  const State golden("float64");
  State run("float64");
  run.fill(0, 1 + 1e-15);  // rounding
  run.set(1, 7, 1 + 1e-9);
  run.fill(3, 3);
  const Distance found = worst_distance(run.layout, run.data(), golden.data());
  EXPECT_EQ(found.entry, 3);
  EXPECT_EQ(found.first_beyond, 1);
  run.set(1, 7, 1);
  run.fill(3, 1);
  EXPECT_EQ(worst_distance(run.layout, run.data(), golden.data()).first_beyond, -1);
}

TEST(Distance, TheFarthestElementIsNamedNotTheFirstThatDiffersInABit) {
  const State golden("float64");
  State run("float64");
  run.fill(1, 1 + 1e-15);
  EXPECT_FALSE(farthest_difference(run.layout, 1, run.data(), golden.data()));
  run.set(1, 4, 1 + 1e-8);
  run.set(1, 7, 1.5);
  auto found = farthest_difference(run.layout, 1, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry, 1);
  EXPECT_EQ(found->element, 7);
  EXPECT_EQ(found->run_value, 1.5);
  EXPECT_EQ(found->golden_value, 1);
  EXPECT_EQ(found->differing, 2);
  EXPECT_EQ(found->numel, 10);
  EXPECT_EQ(found->max_ulp, found->ulp);
  for (const double value : {kNan, kInf}) {
    run.set(1, 2, value);
    run.set(1, 8, value);
    found = farthest_difference(run.layout, 1, run.data(), golden.data());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->element, 2);
    EXPECT_EQ(found->differing, 4);
  }
}

// However small the tensor and whatever its norm: an entry beyond its bound has an element beyond.
TEST(Distance, AnEntryBeyondItsBoundHasAnElementBeyond) {
  for (size_t entry = 0; entry < 4; ++entry)
    for (double off = 1e-14; off < 1e-10; off *= 1.1)
      for (double size : {1.0, 1e-9, 0.0}) {
        State golden("float64"), run("float64");
        golden.fill(entry, size);
        run.fill(entry, size + off);
        const Distance found = worst_distance(run.layout, run.data(), golden.data());
        if (found.first_beyond < 0) continue;
        EXPECT_TRUE(farthest_difference(run.layout, found.first_beyond, run.data(), golden.data()));
      }
}

TEST(Distance, WhatIsAbsentOrNoDoubleIsComparedInBits) {
  const State golden("float64");
  State run("float64");
  run.set_present(1, false);
  auto found = farthest_difference(run.layout, 1, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->run_absent);
  run.layout.entries[0].dtype = "int64";
  run.put(0, 3, int64_t{5});
  found = farthest_difference(run.layout, 0, run.data(), golden.data());
  ASSERT_TRUE(found);
  EXPECT_EQ(found->element, 3);
}

TEST(NormOfKind, IsOverAllTensorsThatAreThere) {
  State state;
  EXPECT_DOUBLE_EQ(norm_of_kind(state.layout, StateKind::gradient, state.data()), std::sqrt(110));
  state.set(1, 3, 4);
  EXPECT_DOUBLE_EQ(norm_of_kind(state.layout, StateKind::gradient, state.data()), std::sqrt(125));
  state.set_present(0, false);
  EXPECT_DOUBLE_EQ(norm_of_kind(state.layout, StateKind::gradient, state.data()), 5);
  EXPECT_EQ(norm_of_kind(state.layout, StateKind::buffer, state.data()), 0);
}

// torch.testing.assert_close's defaults: 1e-5 + 1.3e-6 x 1 for float32, 1e-7 + 1e-7 x 1 in double.
TEST(AllClose, HasTheTolerancesOfTheDtype) {
  for (const auto& [dtype, within, beyond] :
       {std::tuple("float32", 1.1e-5, 1.2e-5), std::tuple("float64", 1.9e-7, 2.1e-7)}) {
    const State golden(dtype);
    State run(dtype);
    run.set(3, 9, 1 + within);
    EXPECT_TRUE(all_close(run.layout, StateKind::parameter, run.data(), golden.data())) << dtype;
    run.set(3, 9, 1 + beyond);
    EXPECT_FALSE(all_close(run.layout, StateKind::parameter, run.data(), golden.data())) << dtype;
    EXPECT_TRUE(all_close(run.layout, StateKind::gradient, run.data(), golden.data()));
  }
}

TEST(AllClose, IsFalseBesideWhatIsNotFinite) {
  const State golden;
  for (const double value : {kNan, kInf}) {
    State run;
    run.set(2, 0, value);
    EXPECT_FALSE(all_close(run.layout, StateKind::parameter, run.data(), golden.data()));
    EXPECT_FALSE(all_close(run.layout, StateKind::parameter, golden.data(), run.data()));
  }
}

}  // namespace
}  // namespace lockstep
