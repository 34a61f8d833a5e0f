#include "scenarios/workloads/recompute.h"

#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <gtest/gtest.h>

#include "scenarios/workloads/containers.h"

namespace lockstep {
namespace {

// input x weight, tanh; counts how often it is run.
struct Layer {
  at::Tensor weight = at::arange(6, at::kFloat).view({2, 3}).div(7).requires_grad_(true);
  int64_t runs = 0;
  Segment segment{[this](const at::Tensor& x) {
                    ++runs;
                    return at::tanh(at::linear(x, weight));
                  },
                  {weight}};
};

struct Gradients {
  at::Tensor input, weight;
};

Gradients recomputed_gradients(const std::string& how, Layer* layer) {
  at::Tensor input = at::arange(12, at::kFloat).view({4, 3}).div(5).requires_grad_(true);
  checkpointed(how, layer->segment, input).square().sum().backward();
  return {input.grad(), layer->weight.grad()};
}

TEST(Checkpointed, GivesTheBitsOfWhatIsKeptAndRunsTwice) {
  Layer kept;
  const Gradients expected = recomputed_gradients("none", &kept);
  EXPECT_EQ(kept.runs, 1);
  for (const char* how : {"reentrant", "non_reentrant"}) {
    Layer again;
    const Gradients found = recomputed_gradients(how, &again);
    EXPECT_EQ(again.runs, 2) << how;
    EXPECT_TRUE(at::equal(found.input, expected.input)) << how;
    EXPECT_TRUE(at::equal(found.weight, expected.weight)) << how;
  }
}

TEST(Checkpointed, ReentrantNeedsAnInputWithGradient) {
  Layer layer;
  const at::Tensor input = at::ones({4, 3});
  EXPECT_FALSE(checkpointed("reentrant", layer.segment, input).requires_grad());
  EXPECT_TRUE(checkpointed("non_reentrant", layer.segment, input).requires_grad());
}

TEST(TensorsIn, LooksIntoListsTuplesAndDictsAlone) {
  const at::Tensor a = at::ones({1}), b = at::ones({2}), c = at::ones({3});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("b", b);
  c10::List<c10::IValue> list(c10::AnyType::get());
  list.push_back(c10::ivalue::Tuple::create(std::vector<c10::IValue>{a, int64_t{4}}));
  list.push_back(dict);
  list.push_back(c);
  const std::vector<at::Tensor> found = tensors_in(list);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(found[0].is_same(a));
  EXPECT_TRUE(found[1].is_same(b));
  EXPECT_TRUE(found[2].is_same(c));
  EXPECT_TRUE(tensors_in({}).empty());
}

}  // namespace
}  // namespace lockstep
