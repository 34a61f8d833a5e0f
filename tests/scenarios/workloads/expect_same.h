#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "scenarios/base/named_tensor.h"

namespace lockstep {

// Both lists name the same tensors, bit for bit; undefined ones at the same places.
inline void expect_same(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    ASSERT_EQ(a[i].tensor.defined(), b[i].tensor.defined()) << a[i].name;
    if (!a[i].tensor.defined()) continue;
    EXPECT_TRUE(a[i].tensor.equal(b[i].tensor)) << a[i].name;
  }
}

}  // namespace lockstep
