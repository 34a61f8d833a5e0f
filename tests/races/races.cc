// Trains with ranks that are threads, all at once, for ThreadSanitizer (scripts/races).
// usage: races REDUCER COMMUNICATOR MUTANT|none [STEPS]
// Exit: 0 the ranks agree, 1 they do not or one failed, 2 bad input; 66 by ThreadSanitizer itself.
#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>

#include "reducer/probe.h"
#include "reducer/shard_tree.h"
#include "sim/fault/mutants.h"
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
};

// Checksums of the averaged gradients of all steps.
std::vector<double> train(const Run& run, int64_t rank, Communicator& inner) {
  std::minstd_rand random(static_cast<unsigned>(rank) + 1);
  int64_t step = 1;
  const auto communicator = make_race_mutants(
      inner, run.mutants, [&] { return step; },
      [&](size_t alternatives) { return random() % alternatives; });
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
    for (int64_t shard = own.begin; shard < own.end; ++shard) {
      const bool last = shard + 1 == own.end;
      reducer->before_forward(last);
      const at::Tensor loss = shard_loss(model, shard, step);
      if (last) {
        reducer->before_backward({loss});
        communicator->begin_backward();
      }
      loss.backward();
    }
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
  if (run.reducer.kind == "invariant") run.reducer.virtual_shards = kVirtualShards;
  run.reducer.first_bucket_bytes = 100;
  run.reducer.bucket_cap_bytes = 300;
  // Gradients are the buckets: what nobody waited for is then read by our own code.
  run.reducer.gradient_as_bucket_view = run.reducer.kind == "bucketed";
  run.backend = {argv[2], "ring"};
  if (std::string(argv[3]) != "none") {
    MutantSpec mutant;
    mutant.kind = argv[3];
    run.mutants.push_back(mutant);
  }
  if (argc > 4) run.steps = std::atoll(argv[4]);
  return run_all(run);
}
