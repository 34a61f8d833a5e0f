#include "reducer/reducer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct TrainedRun {
  std::vector<std::vector<at::Tensor>> gradients;  // by step, of rank 0
  std::vector<at::Tensor> weights;                 // of rank 0 at the end
  std::vector<BucketLayout> layouts;               // by step
};

struct Settings {
  Backend backend{"local", "ring"};
  int64_t ranks = 3;
  int64_t steps = 3;
  bool zero = true;
};

// Trains a small model on all ranks and checks that they agree.
TrainedRun train(const ReducerOptions& options, const Settings& settings) {
  TrainedRun run;
  std::vector<std::vector<at::Tensor>> finals(static_cast<size_t>(settings.ranks));
  run_ranks(settings.backend, settings.ranks, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(static_cast<uint64_t>(rank) * 77);  // rank 0's weights must win
    TestProbe probe;
    const auto reducer =
        make_reducer(options, model.parameters, model.buffers, communicator, probe);
    for (int64_t step = 1; step <= settings.steps; ++step) {
      model.clear_gradients(settings.zero);
      reducer->before_forward(true);
      const at::Tensor loss = shard_loss(model, rank, step);
      reducer->before_backward({loss});
      loss.backward();
      reducer->after_backward();
      if (rank == 0) run.gradients.push_back(model.gradients());
      if (rank == 0) run.layouts.push_back(reducer->layout());
      if (options.kind != "manual") {
        EXPECT_EQ(probe.layout, reducer->layout());
      }
      model.descend(0.05);
    }
    auto& final = finals[static_cast<size_t>(rank)];
    for (const NamedTensor& parameter : model.parameters)
      final.push_back(parameter.tensor.detach());
    final.push_back(model.buffers[0].tensor);
  });
  for (const auto& final : finals) {
    for (size_t i = 0; i < final.size(); ++i) EXPECT_TRUE(final[i].equal(finals[0][i])) << i;
  }
  run.weights = finals[0];
  return run;
}

void expect_same_bits(const TrainedRun& a, const TrainedRun& b) {
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (size_t step = 0; step < a.gradients.size(); ++step) {
    for (size_t i = 0; i < a.gradients[step].size(); ++i) {
      EXPECT_TRUE(a.gradients[step][i].equal(b.gradients[step][i]))
          << "step " << step + 1 << ", parameter " << i;
    }
  }
  for (size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(a.weights[i].equal(b.weights[i])) << i;
}

ReducerOptions options_of(const std::string& kind) {
  ReducerOptions options;
  options.kind = kind;
  options.first_bucket_bytes = 100;
  options.bucket_cap_bytes = 300;
  return options;
}

// The average over ranks, made in double on one thread.
std::vector<at::Tensor> averages(int64_t ranks) {
  std::vector<at::Tensor> sums;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const SmallModel model(0);
    shard_loss(model, rank, 1).backward();
    const auto gradients = model.gradients();
    for (size_t i = 0; i < gradients.size(); ++i) {
      const at::Tensor part = gradients[i].to(at::kDouble) / static_cast<double>(ranks);
      if (rank == 0) sums.push_back(at::zeros_like(part));
      sums[i].add_(part);
    }
  }
  return sums;
}

class EveryReducer : public testing::TestWithParam<std::string> {};

TEST_P(EveryReducer, LeavesTheAverageInEveryGradient) {
  for (int64_t ranks : {1, 2, 3, 6}) {
    const TrainedRun run = train(options_of(GetParam()), {.ranks = ranks});
    const auto expected = averages(ranks);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(run.gradients[0][i].to(at::kDouble), expected[i], 1e-5, 1e-7)) << i;
    }
  }
}

TEST_P(EveryReducer, WorksOverGlooAndC10d) {
  const TrainedRun local = train(options_of(GetParam()), {.ranks = 3});
  for (const std::string kind : {"gloo", "c10d"}) {
    expect_same_bits(local, train(options_of(GetParam()), {.backend = {kind, "ring"}}));
  }
}

TEST_P(EveryReducer, NamesAManifestThatDiffers) {
  std::vector<std::exception_ptr> errors;
  run_ranks(
      {"local", "ring"}, 3,
      [](int64_t rank, Communicator& communicator) {
        SmallModel model(0);
        if (rank == 2) std::swap(model.parameters[1], model.parameters[3]);
        TestProbe probe;
        make_reducer(options_of(GetParam()), model.parameters, model.buffers, communicator, probe);
      },
      &errors);
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    const std::string text = text_of(errors[rank]);
    EXPECT_THAT(text, testing::StartsWith(rank == 2 ? "rejected" : "peer_lost"));
    EXPECT_THAT(text, HasSubstr("manifest: rank 2 has parameter fc2.bias"));
    EXPECT_THAT(text, HasSubstr("rank 0 has parameter fc1.bias Float [9]"));
  }
}

TEST_P(EveryReducer, AFailedCollectiveIsACommErrorAndNoCrash) {
  std::vector<std::exception_ptr> errors;
  ReducerOptions options = options_of(GetParam());
  options.collective_timeout = std::chrono::milliseconds(200);
  run_ranks(
      {"local", "ring"}, 3,
      [&](int64_t rank, Communicator& communicator) {
        const SmallModel model(0);
        TestProbe probe;
        const auto reducer = make_reducer(options, model.parameters, {}, communicator, probe);
        for (int64_t step = 1; step <= 3; ++step) {
          reducer->before_forward(true);
          const at::Tensor loss = shard_loss(model, rank, step);
          reducer->before_backward({loss});
          if (rank == 1 && step == 2) throw std::runtime_error("rank 1 fails");
          loss.backward();
          reducer->after_backward();
        }
      },
      &errors);
  EXPECT_EQ(text_of(errors[1]), "exception: rank 1 fails");
  for (size_t rank : {0, 2}) {
    EXPECT_THAT(text_of(errors[rank]), testing::StartsWith("peer_lost: all_reduce of "));
  }
}

TEST_P(EveryReducer, BroadcastsBuffersBeforeEveryForward) {
  for (bool broadcast : {true, false}) {
    ReducerOptions options = options_of(GetParam());
    options.broadcast_buffers = broadcast;
    run_ranks({"local", "ring"}, 2, [&](int64_t rank, Communicator& communicator) {
      const SmallModel model(0);
      TestProbe probe;
      const auto reducer =
          make_reducer(options, model.parameters, model.buffers, communicator, probe);
      at::Tensor buffer = model.buffers[0].tensor;
      buffer.fill_(static_cast<double>(rank + 5));
      reducer->before_forward(true);
      EXPECT_EQ(buffer[1].item<float>(), broadcast ? 5.0F : static_cast<float>(rank + 5));
    });
  }
}

TEST_P(EveryReducer, LeavesNoHookBehind) {
  run_ranks({"local", "ring"}, 1, [&](int64_t rank, Communicator& communicator) {
    const SmallModel model(0);
    TestProbe probe;
    {
      const auto reducer =
          make_reducer(options_of(GetParam()), model.parameters, {}, communicator, probe);
      reducer->before_forward(true);
      reducer->before_backward({});
      shard_loss(model, rank, 1).backward();
      reducer->after_backward();
      EXPECT_EQ(probe.parameters.size(), 6U);
    }
    shard_loss(model, rank, 1).backward();
    EXPECT_EQ(probe.parameters.size(), 6U);
  });
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryReducer,
                         testing::Values("bucketed", "c10d", "flat", "per_parameter", "manual"),
                         [](const auto& test) { return test.param; });

TEST(Bucketed, GivesTheBitsOfC10d) {
  for (int64_t ranks : {2, 3, 6, 7}) {
    for (int64_t cap : {1, 200, 1000, 1 << 20}) {
      for (bool view : {false, true}) {
        for (bool zero : {true, false}) {
          SCOPED_TRACE(testing::Message()
                       << ranks << " ranks, cap " << cap << ", view " << view << ", zero " << zero);
          ReducerOptions ours = options_of("bucketed");
          ours.first_bucket_bytes = std::min<int64_t>(cap, 100);
          ours.bucket_cap_bytes = cap;
          ours.gradient_as_bucket_view = view;
          ReducerOptions theirs = ours;
          theirs.kind = "c10d";
          const Settings settings{.ranks = ranks, .steps = 4, .zero = zero};
          const TrainedRun a = train(ours, settings);
          const TrainedRun b = train(theirs, settings);
          expect_same_bits(a, b);
          EXPECT_EQ(a.layouts, b.layouts);
        }
      }
    }
  }
}

TEST(Bucketed, GivesTheBitsOfC10dOverGlooToo) {
  for (bool view : {false, true}) {
    ReducerOptions ours = options_of("bucketed");
    ours.gradient_as_bucket_view = view;
    ReducerOptions theirs = ours;
    theirs.kind = "c10d";
    expect_same_bits(train(ours, {.backend = {"gloo", "ring"}, .ranks = 3}),
                     train(theirs, {.backend = {"c10d", "ring"}, .ranks = 3}));
  }
}

TEST(Bucketed, WritesBackEarlyTheSameBits) {
  for (const std::string hook : {"none", "allreduce", "fp16"})
    for (bool view : {false, true})
      for (bool zero : {true, false}) {
        ReducerOptions late = options_of("bucketed");
        late.comm_hook.kind = hook;
        late.gradient_as_bucket_view = view;
        ReducerOptions early = late;
        early.write_back = "per_bucket";
        const Settings settings{.backend = {"shm", "ring"}, .ranks = 3, .zero = zero};
        expect_same_bits(train(late, settings), train(early, settings));
      }
}

TEST(Bucketed, RebuildsInTheOrderInWhichGradientsBecameReady) {
  for (const std::string kind : {"bucketed", "c10d"}) {
    const TrainedRun run = train(options_of(kind), {.ranks = 2, .steps = 3});
    EXPECT_THAT(run.layouts[0], ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
    EXPECT_EQ(run.layouts[1], run.layouts[2]);
    EXPECT_GT(run.layouts[1].size(), 1U);
    EXPECT_THAT(run.layouts[1][0], testing::Contains(5));
  }
}

TEST(Bucketed, DividesBeforeTheSumInViewsFromStepTwo) {
  ReducerOptions plain = options_of("bucketed");
  ReducerOptions view = plain;
  view.gradient_as_bucket_view = true;
  const Settings three{.ranks = 3, .steps = 1};
  expect_same_bits(train(plain, three), train(view, three));
  const TrainedRun a = train(plain, {.ranks = 3, .steps = 2});
  const TrainedRun b = train(view, {.ranks = 3, .steps = 2});
  bool same = true;
  for (size_t i = 0; i < 6; ++i) same = same && a.gradients[1][i].equal(b.gradients[1][i]);
  EXPECT_FALSE(same);
}

TEST(Bucketed, GradientsAreViewsIntoTheirBuckets) {
  run_ranks({"local", "ring"}, 2, [](int64_t rank, Communicator& communicator) {
    for (bool view : {true, false}) {
      ReducerOptions options = options_of("bucketed");
      options.gradient_as_bucket_view = view;
      const SmallModel model(0);
      TestProbe probe;
      const auto reducer =
          make_reducer(options, model.parameters, model.buffers, communicator, probe);
      for (int64_t step = 1; step <= 3; ++step) {
        model.clear_gradients(true);
        reducer->before_forward(true);
        const at::Tensor loss = shard_loss(model, rank, step);
        reducer->before_backward({});
        loss.backward();
        reducer->after_backward();
        for (const auto& bucket : reducer->layout()) {
          const at::Tensor& first = model.p(static_cast<size_t>(bucket.front())).grad();
          for (int64_t p : bucket) {
            const at::Tensor& gradient = model.p(static_cast<size_t>(p)).grad();
            if (p == bucket.front()) continue;
            EXPECT_EQ(gradient.is_alias_of(first), view) << p;
          }
        }
      }
    }
  });
}

// One step in which only some ranks use the middle layer; returns rank 0's gradients.
std::vector<at::Tensor> step_with_unused(const std::string& kind, bool view,
                                         const std::vector<bool>& uses,
                                         const std::string& write_back = "at_end") {
  std::vector<at::Tensor> gradients;
  run_ranks({"local", "ring"}, static_cast<int64_t>(uses.size()),
            [&](int64_t rank, Communicator& communicator) {
              ReducerOptions options = options_of(kind);
              options.find_unused_parameters = true;
              options.gradient_as_bucket_view = view;
              options.write_back = write_back;
              const SmallModel model(0);
              TestProbe probe;
              const auto reducer = make_reducer(options, model.parameters, {}, communicator, probe);
              for (int64_t step = 1; step <= 3; ++step) {
                model.clear_gradients(false);
                reducer->before_forward(true);
                const bool middle = uses[static_cast<size_t>(rank)];
                const at::Tensor loss = shard_loss(model, rank, step, middle);
                reducer->before_backward({loss});
                loss.backward();
                reducer->after_backward();
              }
              EXPECT_GT(reducer->layout().size(), 1U);
              if (rank == 0) gradients = model.gradients();
            });
  return gradients;
}

TEST(Bucketed, FindsUnusedParametersAsC10dDoes) {
  for (bool view : {false, true}) {
    for (const std::vector<bool>& uses :
         {std::vector<bool>{false, true, false}, std::vector<bool>{false, false, false}}) {
      const auto ours = step_with_unused("bucketed", view, uses);
      const auto theirs = step_with_unused("c10d", view, uses);
      EXPECT_EQ(ours[2].defined(), uses[1]);
      for (size_t i = 0; i < ours.size(); ++i) {
        ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << i;
        if (!ours[i].defined()) continue;
        EXPECT_TRUE(ours[i].equal(theirs[i])) << i;
      }
    }
  }
}

// What others have used is known at the end, after all buckets.
TEST(Bucketed, WritesBackAtTheEndWhereItSearchesForUnused) {
  for (const bool view : {false, true})
    for (int round = 0; round < 5; ++round) {
      const auto gradients = step_with_unused("bucketed", view, {false, true, false}, "per_bucket");
      EXPECT_TRUE(gradients[2].defined());
    }
}

TEST(Bucketed, NamesParametersWithoutAGradient) {
  for (const std::string kind : {"bucketed", "flat", "per_parameter", "manual"}) {
    std::vector<std::exception_ptr> errors;
    run_ranks(
        {"local", "ring"}, 2,
        [&](int64_t rank, Communicator& communicator) {
          const SmallModel model(0);
          TestProbe probe;
          const auto reducer =
              make_reducer(options_of(kind), model.parameters, {}, communicator, probe);
          reducer->before_forward(true);
          const at::Tensor loss = shard_loss(model, rank, 1, false);
          reducer->before_backward({loss});
          loss.backward();
          reducer->after_backward();
        },
        &errors);
    for (const auto& error : errors) {
      EXPECT_THAT(text_of(error), HasSubstr("no gradient in this step for fc2.weight fc2.bias ("))
          << kind;
    }
  }
}

TEST(Trained, LeavesOutFrozenAndRepeatedParameters) {
  for (const std::string kind : {"bucketed", "c10d", "flat", "per_parameter"}) {
    run_ranks({"local", "ring"}, 2, [&](int64_t rank, Communicator& communicator) {
      SmallModel model(0);
      model.p(0).requires_grad_(false);
      model.parameters.push_back({"tied", model.p(4)});
      TestProbe probe;
      ReducerOptions options = options_of(kind);
      const auto reducer = make_reducer(options, model.parameters, {}, communicator, probe);
      reducer->before_forward(true);
      const at::Tensor loss = shard_loss(model, rank, 1);
      reducer->before_backward({});
      loss.backward();
      reducer->after_backward();
      std::vector<int64_t> all;
      for (const auto& bucket : reducer->layout())
        all.insert(all.end(), bucket.begin(), bucket.end());
      EXPECT_THAT(all, testing::UnorderedElementsAre(1, 2, 3, 4, 5));
      EXPECT_THAT(probe.parameters, testing::UnorderedElementsAre(1, 2, 3, 4, 5));
      EXPECT_EQ(probe.buckets.size(), reducer->layout().size());
      EXPECT_FALSE(model.p(0).grad().defined());
    });
  }
}

}  // namespace
}  // namespace lockstep
