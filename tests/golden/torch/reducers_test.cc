// The replay golden against the real reducers: every byte of every rank's state after every step.
#include <gtest/gtest.h>

#include "golden/compare.h"
#include "reducer/probe.h"
#include "reducer/reducer.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"
#include "tests/golden/torch/scenarios.h"
#include "tests/reducer/test_group.h"

namespace lockstep {
namespace {

using States = std::vector<std::vector<std::byte>>;

// One rank of the run, as the worker drives it.
void train(const Scenario& scenario, const ReducerOptions& options, int64_t rank,
           Communicator& communicator, States* states) {
  Setup setup = set_up(scenario, scenario.dtype, rank);
  Training& training = setup.training;
  NoProbe probe;
  auto reducer = make_reducer(options, training.parameters, training.buffers, communicator, probe);
  const StateLayout layout = state_layout(training, scenario.optimizer.kind);
  for (int64_t step = 0; step <= scenario.steps; ++step) {
    if (step > 0) {
      const Batch shard = select(setup.data, shard_indices(scenario, step, rank));
      clear_gradients(training.parameters, scenario.zero_grad);
      reducer->before_forward(true);
      const at::Tensor output = training.model->forward(shard.input);
      const at::Tensor loss = loss_of(scenario.loss, output, shard.target, scenario.world_size);
      reducer->before_backward({output});
      loss.backward();
      reducer->after_backward();
      training.optimizer->step();
    }
    states->emplace_back(static_cast<size_t>(layout.bytes));
    copy_state(training, layout, states->back().data());
  }
}

std::vector<States> run_of(const Scenario& scenario, const ReducerOptions& options,
                           const Backend& backend) {
  std::vector<States> states(static_cast<size_t>(scenario.world_size));
  run_ranks(backend, scenario.world_size, [&](int64_t rank, Communicator& communicator) {
    train(scenario, options, rank, communicator, &states[static_cast<size_t>(rank)]);
  });
  return states;
}

ReplayRule rule_of(const Scenario& scenario, const ReducerOptions& options,
                   const std::string& algorithm) {
  ReplayRule rule;
  rule.algorithm = algorithm;
  rule.first_bucket_bytes = options.first_bucket_bytes;
  rule.bucket_cap_bytes = options.bucket_cap_bytes;
  rule.rebuild = !options.find_unused_parameters || options.static_graph;
  if (options.kind == "c10d" && options.static_graph) rule.rebuild_after_step = 2;
  const bool buckets = options.kind == "bucketed" || options.kind == "c10d";
  if (buckets && options.gradient_as_bucket_view && scenario.zero_grad == "zero")
    rule.division_later = "divide_before";
  if (options.kind == "flat") rule.layout = "one_bucket";
  if (options.kind == "per_parameter" || options.kind == "manual") {
    rule.layout = "registration";
    rule.division_first_step = rule.division_later =
        options.kind == "manual" ? "divide_after" : "divide_before";
  }
  return rule;
}

void expect_replayed(const Scenario& scenario, const ReducerOptions& options,
                     const Backend& backend) {
  const std::string what = options.kind + " over " + backend.kind + " " + backend.algorithm +
                           " W=" + std::to_string(scenario.world_size) + " " +
                           scenario.optimizer.kind + " zero_grad=" + scenario.zero_grad +
                           " view=" + std::to_string(options.gradient_as_bucket_view) +
                           " cap=" + std::to_string(options.bucket_cap_bytes);
  const ReplayRule rule = rule_of(scenario, options, backend.algorithm);
  const auto golden = items_of(scenario, GoldenKind::replay, rule);
  const StateLayout layout = golden_item(scenario, GoldenKind::replay, false).layout;
  const auto states = run_of(scenario, options, backend);
  for (size_t rank = 0; rank < states.size(); ++rank)
    for (size_t step = 0; step < golden.size(); ++step) {
      const auto found =
          first_bit_difference(layout, states[rank][step].data(), golden[step].data());
      ASSERT_FALSE(found) << what << " rank=" << rank << " step=" << step << " "
                          << to_word(layout.entries[static_cast<size_t>(found->entry)].kind) << " "
                          << layout.entries[static_cast<size_t>(found->entry)].name << "["
                          << found->element << "] " << found->run_value << " against "
                          << found->golden_value << " absent " << found->run_absent
                          << found->golden_absent;
      ASSERT_EQ(states[rank][step], golden[step]) << what << ": bytes outside of all tensors";
    }
}

Scenario scenario_with(int64_t world_size, const Part& optimizer, const std::string& zero_grad) {
  Scenario scenario = mlp_scenario(world_size, 4);
  scenario.data = randn(world_size * 7, 16, 8);
  scenario.batch_size = world_size * 7;
  scenario.optimizer = optimizer;
  scenario.zero_grad = zero_grad;
  return scenario;
}

ReducerOptions options_of(const std::string& kind, int64_t cap, bool view) {
  ReducerOptions options;
  options.kind = kind;
  options.first_bucket_bytes = cap / 4;
  options.bucket_cap_bytes = cap;
  options.gradient_as_bucket_view = view;
  return options;
}

class Replayed : public ::testing::TestWithParam<std::string> {};

TEST_P(Replayed, BitForBit) {
  const bool buckets = GetParam() == "bucketed" || GetParam() == "c10d";
  for (int64_t world_size : {1, 3, 6})
    for (const Part& optimizer : {sgd(0.1, 0.9), adam(true)})
      for (const char* zero_grad : {"zero", "none"})
        for (bool view : {false, true})
          for (int64_t cap : {int64_t{2000}, int64_t{25} << 20}) {
            if (!buckets && (view || cap > 2000)) continue;
            expect_replayed(scenario_with(world_size, optimizer, zero_grad),
                            options_of(GetParam(), cap, view), {"local", "ring"});
            if (HasFatalFailure()) return;
          }
}

TEST_P(Replayed, InEveryOrderOfAddition) {
  for (const char* algorithm : {"bcube", "halving_doubling", "ring_chunked", "rank_order"})
    for (int64_t world_size : {3, 6, 7}) {
      expect_replayed(scenario_with(world_size, sgd(0.1, 0.9), "zero"),
                      options_of(GetParam(), 2000, false), {"local", algorithm});
      if (HasFatalFailure()) return;
    }
}

// Where an element lies in its bucket decides the order of a ring: the golden run's elements must
// lie where a gradient's do.
TEST_P(Replayed, InEveryMemoryFormat) {
  for (const char* format : {"transposed", "sliced"})
    for (const char* algorithm : {"ring", "ring_chunked"})
      for (int64_t world_size : {3, 4, 6}) {
        Scenario scenario = scenario_with(world_size, adam(), "none");
        scenario.model.options.set("memory_format", std::string(format));
        expect_replayed(scenario, options_of(GetParam(), 2000, true), {"local", algorithm});
        if (HasFatalFailure()) return;
      }
}

TEST_P(Replayed, InDouble) {
  Scenario scenario = scenario_with(3, adam(), "zero");
  scenario.dtype = "float64";
  expect_replayed(scenario, options_of(GetParam(), 3000, true), {"local", "ring"});
}

TEST_P(Replayed, OverGlooItself) {
  for (const char* algorithm : {"ring", "bcube", "halving_doubling", "ring_chunked"})
    expect_replayed(scenario_with(3, sgd(0.1, 0.9), "zero"), options_of(GetParam(), 2000, true),
                    {"gloo", algorithm});
}

INSTANTIATE_TEST_SUITE_P(Kinds, Replayed,
                         ::testing::Values("bucketed", "c10d", "flat", "per_parameter", "manual"),
                         [](const auto& kind) { return kind.param; });

class ReplayedBuckets : public ::testing::TestWithParam<std::string> {};

TEST_P(ReplayedBuckets, WithUnusedParametersLookedFor) {
  for (bool static_graph : {false, true}) {
    ReducerOptions options = options_of(GetParam(), 2000, false);
    options.find_unused_parameters = true;
    options.static_graph = static_graph;
    expect_replayed(scenario_with(3, sgd(0.1, 0.9), "zero"), options, {"local", "ring"});
  }
}

// Control: with the wrong rule the same comparison fails.
TEST_P(ReplayedBuckets, AnotherRuleIsRefuted) {
  const Scenario scenario = scenario_with(3, sgd(0.1, 0.9), "zero");
  const ReducerOptions options = options_of(GetParam(), 2000, false);
  const auto states = run_of(scenario, options, {"local", "ring"});
  const ReplayRule right = rule_of(scenario, options, "ring");
  std::vector<ReplayRule> wrong(4, right);
  wrong[0].algorithm = "rank_order";
  wrong[1].division_later = "divide_before";
  wrong[2].bucket_cap_bytes = 4000;
  wrong[3].rebuild = false;
  EXPECT_EQ(states[0], items_of(scenario, GoldenKind::replay, right));
  for (size_t i = 0; i < wrong.size(); ++i)
    EXPECT_NE(states[0], items_of(scenario, GoldenKind::replay, wrong[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Kinds, ReplayedBuckets, ::testing::Values("bucketed", "c10d"),
                         [](const auto& kind) { return kind.param; });

}  // namespace
}  // namespace lockstep
