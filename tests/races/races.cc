// Trains with ranks that are threads, all at once, for ThreadSanitizer (scripts/races).
// usage: races REDUCER COMMUNICATOR MUTANT|none [STEPS]
// REDUCER invariant_turns: a rank's virtual shards take turns, as with SyncBatchNorm; its MUTANT
// no_turns has none wait for its own.
// Exit: 0 the ranks agree, 1 they do not or one failed, 2 bad input; 66 by ThreadSanitizer itself.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "reducer/probe.h"
#include "reducer/shard_tree.h"
#include "sim/fault/mutants.h"
#include "sim/worker/shards_together.h"
#include "tests/reducer/kinds/small_model.h"

namespace lockstep {
namespace {

constexpr int64_t kRanks = 3;
constexpr int64_t kVirtualShards = 8;

// Read by our own code, since LibTorch's is not watched.
double sum_of(const at::Tensor& tensor) {
  const float* values = tensor.data_ptr<float>();
  double sum = 0;
  for (int64_t i = 0; i < tensor.numel(); ++i) sum += values[i];
  return sum;
}

double checksum_of(const SmallModel& model) {
  double sum = 0;
  for (const NamedTensor& parameter : model.parameters)
    if (parameter.tensor.grad().defined()) sum = 3 * sum + sum_of(parameter.tensor.grad());
  return sum;
}

struct Run {
  ReducerOptions reducer;
  Backend backend;
  std::vector<MutantSpec> mutants;
  int64_t steps = 20;
  bool no_turns = false;
};

class RowsOfRanks : public BatchGroup {
 public:
  explicit RowsOfRanks(Communicator& communicator) : communicator_(communicator) {}

  at::Tensor all_gather(const at::Tensor& row) override {
    at::Tensor rows = at::empty({communicator_.world_size(), row.numel()}, row.options());
    communicator_.all_gather(rows, row, deadline_after(std::chrono::seconds(60)))->wait();
    return rows;
  }

 private:
  Communicator& communicator_;
};

// What is trained by one rank.
struct Rank {
  const Run& run;
  const SmallModel& model;
  Reducer& reducer;
  Communicator& communicator;
  ShardRange own;

  // `seen`: makes another loss of one, as a layer between would.
  void compute(int64_t shard, int64_t step,
               const std::function<at::Tensor(const at::Tensor&)>& seen) const {
    const bool last = shard + 1 == own.end;
    reducer.before_forward(last);
    const at::Tensor loss = seen(shard_loss(model, shard, step));
    if (last) {
      reducer.before_backward({loss});
      communicator.begin_backward();
    }
    loss.backward();
  }
};

void one_after_the_other(const Rank& rank, int64_t step) {
  for (int64_t shard = rank.own.begin; shard < rank.own.end; ++shard)
    rank.compute(shard, step, [](const at::Tensor& loss) { return loss; });
}

// A layer's two meetings: in forward, and, by the hook, in backward.
void in_turns(const Rank& rank, int64_t step) {
  RowsOfRanks rows(rank.communicator);
  ShardsTogether together(rows, rank.communicator.rank(), kRanks, rank.run.reducer.virtual_shards);
  const auto mean_of_all = [&](const at::Tensor& number) {
    return sum_of(together.all_gather(number.detach().view({1}))) / kVirtualShards;
  };
  const auto layer = [&](const at::Tensor& loss) {
    const at::Tensor normalized = loss * (1 + mean_of_all(loss));
    normalized.register_hook(
        [&](const at::Tensor& gradient) { return gradient * mean_of_all(gradient); });
    return normalized;
  };
  together.run({}, rank.reducer, [&](size_t i) {
    rank.compute(rank.own.begin + static_cast<int64_t>(i), step, layer);
  });
}

void all_at_once(const Rank& rank, int64_t step) {
  std::vector<std::thread> shards;
  std::vector<std::exception_ptr> errors(static_cast<size_t>(rank.own.size()));
  for (size_t i = 0; i < errors.size(); ++i)
    shards.emplace_back([&, i] {
      try {
        rank.reducer.enter_shard(static_cast<int64_t>(i));
        rank.compute(rank.own.begin + static_cast<int64_t>(i), step,
                     [](const at::Tensor& loss) { return loss; });
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  for (std::thread& shard : shards) shard.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

// Checksums of the averaged gradients of all steps.
std::vector<double> train(const Run& run, int64_t rank, Communicator& inner) {
  std::minstd_rand random(static_cast<unsigned>(rank) + 1);
  int64_t step = 1;
  const auto communicator = make_race_mutants(
      inner, run.mutants, [&] { return step; },
      [&](size_t alternatives) { return random() % alternatives; });
  const auto train_shards = !run.reducer.shards_together ? one_after_the_other
                            : run.no_turns               ? all_at_once
                                                         : in_turns;
  const SmallModel model(0);
  NoProbe probe;
  const auto reducer =
      make_reducer(run.reducer, model.parameters, model.buffers, *communicator, probe);
  const ShardRange own = run.reducer.virtual_shards == 0
                             ? ShardRange{rank, rank + 1}
                             : shards_of_rank(run.reducer.virtual_shards, kRanks, rank);
  std::vector<double> checksums;
  for (; step <= run.steps; ++step) {
    model.clear_gradients(true);
    train_shards({run, model, *reducer, *communicator, own}, step);
    reducer->after_backward();
    communicator->end_backward();
    checksums.push_back(checksum_of(model));
    model.descend(0.05);
  }
  return checksums;
}

int run_all(const Run& run) {
  std::vector<std::vector<double>> checksums(kRanks);
  std::vector<std::exception_ptr> errors;
  run_ranks(
      run.backend, kRanks,
      [&](int64_t rank, Communicator& communicator) {
        checksums[static_cast<size_t>(rank)] = train(run, rank, communicator);
      },
      &errors);
  int code = 0;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank]) std::fprintf(stderr, "rank %zu: %s\n", rank, text_of(errors[rank]).c_str());
    // Of a sharded gradient each rank has another part.
    const bool agree = checksums[rank] == checksums[0] || run.reducer.kind == "sharded";
    if (errors[rank] || !agree) code = 1;
  }
  return code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc < 4) {
    std::fprintf(stderr, "usage: races REDUCER COMMUNICATOR MUTANT|none [STEPS]\n");
    return 2;
  }
  at::set_num_threads(1);
  Run run;
  run.reducer.kind = argv[1];
  run.reducer.shards_together = run.reducer.kind == "invariant_turns";
  if (run.reducer.shards_together) run.reducer.kind = "invariant";
  if (run.reducer.kind == "invariant") run.reducer.virtual_shards = kVirtualShards;
  run.reducer.first_bucket_bytes = 100;
  run.reducer.bucket_cap_bytes = 300;
  // Gradients are the buckets: what nobody waited for is then read by our own code.
  run.reducer.gradient_as_bucket_view = run.reducer.kind == "bucketed";
  run.backend = {argv[2], "ring"};
  run.no_turns = std::string(argv[3]) == "no_turns";
  if (!run.no_turns && std::string(argv[3]) != "none") {
    MutantSpec mutant;
    mutant.kind = argv[3];
    run.mutants.push_back(mutant);
  }
  if (argc > 4) run.steps = std::atoll(argv[4]);
  return run_all(run);
}
