// Forwards that draw random numbers: what a rank draws a golden run draws again, and where that
// cannot be, the rank says so.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "scenarios/parse/suite.h"
#include "scenarios/workloads/dropout.h"
#include "scenarios/workloads/registry.h"
#include "sim/launch/protocol.h"
#include "sim/worker/thread_host.h"
#include "tests/scenarios/parse/temporary_file.h"
#include "tests/sim/worker/prepared.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two layers, and between them whatever `Between` does.
template <class Between>
class Sandwich : public torch::nn::Module {
 public:
  explicit Sandwich(const Options&) : between_(*this) {}
  at::Tensor forward(const at::Tensor& input) {
    return last_->forward(between_(at::tanh(first_->forward(input))));
  }

 private:
  torch::nn::Linear first_ = register_module("first", torch::nn::Linear(8, 12));
  torch::nn::Linear last_ = register_module("last", torch::nn::Linear(12, 4));
  Between between_;
};

struct OwnDropout {
  explicit OwnDropout(torch::nn::Module& owner)
      : layer(owner.register_module("drop", Dropout(0.4))) {}
  at::Tensor operator()(const at::Tensor& x) { return layer->forward(layer->forward(x)); }
  Dropout layer;
};

struct TorchDropout {
  explicit TorchDropout(torch::nn::Module& owner)
      : layer(owner.register_module("drop", torch::nn::Dropout(0.4))) {}
  at::Tensor operator()(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Dropout layer;
};

struct Noise {
  explicit Noise(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) { return x + at::randn_like(x) * 0.1; }
};

// Draws from step 3 on.
struct LateNoise {
  explicit LateNoise(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) {
    return ++forwards > 2 ? x + at::randn_like(x) * 0.1 : x;
  }
  int forwards = 0;
};

// From generators that LibTorch's default one knows nothing of.
struct OwnGenerator {
  explicit OwnGenerator(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) {
    return x + at::randn(x.sizes(), generator, x.options()) * 0.1;
  }
  at::Generator generator = at::detail::createCPUGenerator(42);
};

struct OwnEngine {
  explicit OwnEngine(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) {
    return x * (1 + std::uniform_real_distribution<double>(0, 0.1)(engine));
  }
  std::mt19937 engine{42};
};

struct LibraryRand {
  explicit LibraryRand(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) {
    return x * (1 + 0.1 * std::rand() / RAND_MAX);  // NOLINT(concurrency-mt-unsafe)
  }
};

// The same mask in every forward, whichever the rank: a function of the place in the shard.
struct OneMask {
  explicit OneMask(torch::nn::Module&) {}
  at::Tensor operator()(const at::Tensor& x) {
    const at::Tensor places = at::arange(x.numel(), x.options()).view(x.sizes());
    return x * places.mul(0.37).frac().ge(0.4);
  }
};

LOCKSTEP_REGISTER_MODEL("own_dropout", Sandwich<OwnDropout>);
LOCKSTEP_REGISTER_MODEL("torch_dropout", Sandwich<TorchDropout>);
LOCKSTEP_REGISTER_MODEL("noise", Sandwich<Noise>);
LOCKSTEP_REGISTER_MODEL("late_noise", Sandwich<LateNoise>);
LOCKSTEP_REGISTER_MODEL("one_mask", Sandwich<OneMask>);
LOCKSTEP_REGISTER_MODEL("own_generator", Sandwich<OwnGenerator>);
LOCKSTEP_REGISTER_MODEL("own_engine", Sandwich<OwnEngine>);
LOCKSTEP_REGISTER_MODEL("library_rand", Sandwich<LibraryRand>);

constexpr const char* kText = R"({
  "name": "random", "what": "a test", "world_size": 3, "steps": 4, "batch_size": 12,
  "model": {"kind": "mlp", "in_features": 8, "hidden": [12], "out_features": 4, "dropout": 0.4},
  "data": {"kind": "randn", "samples": 24, "features": 8, "targets": 4},
  "loss": {"kind": "mse"}, "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
  "communicator": {"kind": "local"},
  "lanes": ["replica", "replay", "float64"]})";

class RandomForward : public testing::Test {
 protected:
  static void SetUpTestSuite() { prepare_once(); }

  // Evidence of each rank.
  const std::vector<Evidence>& run(const std::vector<std::string>& sets) {
    const auto loaded =
        load_scenario_file(folder_.write("s.json", kText), {.sets = sets, .seed = {}});
    EXPECT_TRUE(loaded) << (loaded ? "" : to_text(loaded.errors().front()));
    const auto plan = make_plan(loaded.value().combinations.front().scenario);
    EXPECT_TRUE(plan) << (plan ? "" : to_text(plan.errors().front()));
    recorders_.clear();
    const auto ranks = static_cast<int32_t>(plan.value().scenario.world_size);
    for (int32_t rank = 0; rank < ranks; ++rank)
      recorders_.push_back(Recorder::create(records_path(folder_.path(), rank), rank, ranks,
                                            static_cast<uint64_t>(plan.value().record_capacity)));
    return evidence_ = run_in_threads(plan.value(), recorders_, cache_, folder_.path());
  }

  static std::string model(const std::string& name) {
    return R"(/model={"kind": "registered", "name": ")" + name + R"("})";
  }

  // Lanes with a difference, of any rank.
  std::set<std::string> differing() const {
    std::set<std::string> lanes;
    for (const Evidence& rank : evidence_) {
      EXPECT_EQ(rank.error.text, "");
      for (const MismatchEvidence& one : rank.mismatches) lanes.insert(to_word(one.lane));
    }
    return lanes;
  }

  TemporaryFolder folder_;
  GoldenCache cache_;
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<Evidence> evidence_;
};

TEST_F(RandomForward, GoldenRunsDrawEachSamplesNumbers) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"/world_size=4"},
      {"/dtype=float64"},
      {"/accumulate_steps=2"},
      {"/split/kind=distributed", "/split/shuffle=true", "/world_size=6"},
      {"/split/kind=manual"},
      {"/reducer/kind=sharded", "/optimizer={\"kind\": \"adam\", \"lr\": 0.01}"},
      {"/reducer/kind=data_parallel", "/communicator/algorithm=rank_order"},
      {R"(/checkpoint={"kind": "save_and_resume", "after_step": 2})"},
      {model("own_dropout")},
  };
  for (const auto& sets : cases) {
    for (const Evidence& rank : run(sets)) EXPECT_FALSE(rank.undeclared_draws);
    EXPECT_THAT(differing(), IsEmpty()) << testing::PrintToString(sets);
  }
}

// As where all ranks have one seed.
TEST_F(RandomForward, OneMaskOnAllRanksIsSeen) {
  for (const auto& sets : {std::vector<std::string>{}, {"/world_size=6"}, {model("own_dropout")}}) {
    std::vector<std::string> wrong = sets;
    wrong.push_back(R"(/mutants=[{"kind": "same_masks"}])");
    run(wrong);
    EXPECT_THAT(differing(), ElementsAre("float64", "replay")) << testing::PrintToString(sets);
  }
  // Without a generator nothing is drawn, and the replay shares it; one device does not.
  for (const Evidence& rank : run({model("one_mask")})) EXPECT_FALSE(rank.undeclared_draws);
  EXPECT_THAT(differing(), ElementsAre("float64"));
}

TEST_F(RandomForward, DefectsAreFoundBesideDropout) {
  for (const char* mutant :
       {R"({"kind": "wrong_divisor", "step": 2})", R"({"kind": "drop_bucket", "step": 2})",
        R"({"kind": "stale_gradient", "rank": 1, "step": 3})",
        R"({"kind": "swap_shards", "rank": 0, "other": 1, "step": 2})"}) {
    run({std::string("/mutants=[") + mutant + "]"});
    EXPECT_THAT(differing(), testing::Contains("replay")) << mutant;
  }
}

TEST_F(RandomForward, DrawsFromTheDefaultGeneratorAreToldWithTheModule) {
  for (const char* name : {"torch_dropout", "noise", "late_noise"}) {
    bool any = false;
    for (const Evidence& rank : run({model(name)})) {
      any = any || rank.undeclared_draws;
      if (!rank.undeclared_draws) continue;
      if (name == std::string("torch_dropout"))
        EXPECT_THAT(rank.random_layers, ElementsAre("drop"));
      else
        EXPECT_THAT(rank.random_layers, IsEmpty());
    }
    EXPECT_TRUE(any) << name;
  }
}

TEST_F(RandomForward, DrawsFromOtherGeneratorsAreTold) {
  for (const char* name : {"own_generator", "own_engine", "library_rand"}) {
    bool any = false;
    for (const Evidence& rank : run({model(name)})) any = any || rank.unrepeatable_forward;
    EXPECT_FALSE(differing().empty()) << name;
    EXPECT_TRUE(any) << name;
  }
}

TEST_F(RandomForward, AWrongRunOfARegisteredModelIsNoDraw) {
  for (const char* name : {"own_dropout", "one_mask"}) {
    const auto& evidence = run({model(name), R"(/mutants=[{"kind": "wrong_divisor", "step": 2}])"});
    for (const Evidence& rank : evidence) EXPECT_FALSE(rank.unrepeatable_forward) << name;
    EXPECT_THAT(differing(), testing::Contains("replay")) << name;
  }
}

}  // namespace
}  // namespace lockstep
