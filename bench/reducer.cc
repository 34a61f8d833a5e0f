// What a reducer costs one rank without any network: hooks, the queue of ready buckets, copies into
// and out of them. Beside it the same backward without a reducer (kind none).
#include "reducer/reducer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "reducer/probe.h"

namespace lockstep {
namespace {

NamedTensors parameters_of(int64_t count, int64_t elements) {
  NamedTensors parameters;
  for (int64_t p = 0; p < count; ++p)
    parameters.push_back({"p" + std::to_string(p), at::ones({elements}).requires_grad_(true)});
  return parameters;
}

// Arguments: parameters, elements of each, 1 with views.
void step(benchmark::State& state, const char* kind) {
  at::set_num_threads(1);
  const NamedTensors parameters = parameters_of(state.range(0), state.range(1));
  const auto communicator = make_local_communicator({}, make_local_hub(1));
  NoProbe probe;
  ReducerOptions options;
  options.kind = kind;
  options.gradient_as_bucket_view = state.range(2) == 1;
  const auto reducer = make_reducer(options, parameters, {}, *communicator, probe);
  while (state.KeepRunning()) {
    for (const NamedTensor& parameter : parameters) parameter.tensor.mutable_grad().reset();
    reducer->before_forward(true);
    at::Tensor loss = at::zeros({});
    for (const NamedTensor& parameter : parameters) loss = loss + parameter.tensor.sum();
    reducer->before_backward({loss});
    loss.backward();
    reducer->after_backward();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.SetBytesProcessed(state.iterations() * state.range(0) * state.range(1) * 4);
}
// Many small parameters: hooks and queue. Few large ones: copies.
void sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t view : {0, 1}) benchmark->Args({161, 64, view})->Args({12, 1 << 20, view});
}
BENCHMARK_CAPTURE(step, none, "none")->Apply(sizes);
BENCHMARK_CAPTURE(step, bucketed, "bucketed")->Apply(sizes);
BENCHMARK_CAPTURE(step, per_parameter, "per_parameter")->Apply(sizes);
BENCHMARK_CAPTURE(step, c10d, "c10d")->Apply(sizes);

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
