#include <ATen/ATen.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "scenarios/workloads/layers.h"
#include "scenarios/workloads/models.h"
#include "scenarios/workloads/workload.h"

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

// Two ranks that meet.
class TwoRanks {
 public:
  class Rank : public BatchGroup {
   public:
    Rank(TwoRanks& all, size_t rank) : all_(all), rank_(rank) {}
    at::Tensor all_gather(const at::Tensor& row) override { return all_.gather(rank_, row); }

   private:
    TwoRanks& all_;
    const size_t rank_;
  };

 private:
  at::Tensor gather(size_t rank, const at::Tensor& row) {
    std::unique_lock lock(mutex_);
    rows_[rank] = row;
    const int now = meeting_;
    if (++here_ == 2) {
      here_ = 0;
      ++meeting_;
      all_ = at::stack({rows_[0], rows_[1]});
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return meeting_ > now; });
    return all_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  at::Tensor rows_[2], all_;
  int here_ = 0, meeting_ = 0;
};

struct Result {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient, mean, variance;
};

// Weights that are no ones and zeros, and a loss in which every output counts otherwise.
Result run(const at::Tensor& given, const at::Tensor& factors, BatchGroup* group, bool weighted) {
  SyncBatchNorm layer(given.size(1), weighted);
  layer->to(at::kDouble);
  {
    const c10::NoGradGuard no_grad;
    layer->weight.copy_(at::arange(1, given.size(1) + 1, at::kDouble) / 3);
    layer->bias.copy_(at::arange(0, given.size(1), at::kDouble));
  }
  layer->use(group);
  const at::Tensor input = given.clone().requires_grad_(true);
  const at::Tensor output = layer->forward(input);
  (output.square() * factors).sum().backward();
  EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), 1);
  return {output.detach(),    input.grad(),        layer->weight.grad(),
          layer->bias.grad(), layer->running_mean, layer->running_var};
}

// The largest difference between the whole batch and its two shards.
double difference(at::IntArrayRef shape, int64_t first, bool weighted) {
  const RandomSection random(7);
  const at::Tensor input = at::randn(shape, at::kDouble) * 2 + 1;
  const at::Tensor factors = at::randn(shape, at::kDouble);
  const Result whole = run(input, factors, nullptr, weighted);
  TwoRanks ranks;
  Result parts[2];
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      TwoRanks::Rank group(ranks, r);
      const int64_t begin = r == 0 ? 0 : first, end = r == 0 ? first : shape[0];
      parts[r] = run(input.slice(0, begin, end), factors.slice(0, begin, end), &group, weighted);
    });
  for (std::thread& thread : threads) thread.join();
  double worst = 0;
  const auto compare = [&](const at::Tensor& a, const at::Tensor& b) {
    worst = std::max(worst, (a - b).abs().max().item<double>());
  };
  compare(at::cat({parts[0].output, parts[1].output}), whole.output);
  compare(at::cat({parts[0].input_gradient, parts[1].input_gradient}), whole.input_gradient);
  compare(parts[0].weight_gradient + parts[1].weight_gradient, whole.weight_gradient);
  compare(parts[0].bias_gradient + parts[1].bias_gradient, whole.bias_gradient);
  for (const Result& part : parts) {
    compare(part.mean, whole.mean);
    compare(part.variance, whole.variance);
  }
  return worst;
}

TEST(SyncBatchNorm, OverShardsIsBatchNormOfTheWholeBatch) {
  EXPECT_LT(difference({10, 3}, 5, true), 1e-12);
  EXPECT_LT(difference({10, 3}, 3, true), 1e-12);
  EXPECT_LT(difference({6, 2, 3, 4}, 1, true), 1e-12);
}

TEST(SyncBatchNorm, WithoutWeightsOnlyShardsOfOneSizeAreRight) {
  EXPECT_LT(difference({10, 3}, 5, false), 1e-12);
  EXPECT_GT(difference({10, 3}, 3, false), 1e-3);
}

}  // namespace

}  // namespace lockstep
