#include "scenarios/workloads/workload.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/flatten.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/mul.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/base/hash.h"
#include "scenarios/scenario.h"
#include "scenarios/workloads/devices.h"
#include "scenarios/workloads/draws.h"
#include "scenarios/workloads/emulated.h"
#include "scenarios/workloads/update.h"

namespace lockstep {

c10::ScalarType scalar_type(const std::string& dtype) {
  if (dtype == "float64") return c10::ScalarType::Double;
  if (dtype == "bfloat16") return c10::ScalarType::BFloat16;
  LOCKSTEP_CHECK(dtype == "float32", "no dtype " + dtype);
  return c10::ScalarType::Float;
}

const char* to_word(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float:
      return "float32";
    case c10::ScalarType::Double:
      return "float64";
    case c10::ScalarType::Half:
      return "float16";
    case c10::ScalarType::BFloat16:
      return "bfloat16";
    case c10::ScalarType::Int:
      return "int32";
    case c10::ScalarType::Long:
      return "int64";
    case c10::ScalarType::Byte:
      return "uint8";
    case c10::ScalarType::Bool:
      return "bool";
    default:
      LOCKSTEP_CHECK(false, "no word for a dtype");
  }
}

namespace {

std::mutex& section_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::atomic<uint64_t>& sections() {
  static std::atomic<uint64_t> count{0};
  return count;
}

}  // namespace

uint64_t random_sections() { return sections().load(); }

RandomSection::RandomSection(uint64_t seed) {
  section_mutex().lock();
  ++sections();
  // As torch::manual_seed, but without a look at the accelerators, which would load them.
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

RandomSection::~RandomSection() { section_mutex().unlock(); }

at::Tensor generator_state() {
  const std::lock_guard<std::mutex> section(section_mutex());
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  const std::lock_guard<std::mutex> section(section_mutex());
  ++sections();
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

void prepare_libtorch_for_forks() { at::set_num_threads(1); }

void prepare_libtorch(int64_t threads) {
  at::set_num_threads(static_cast<int>(threads));
  at::set_num_interop_threads(static_cast<int>(threads));
  at::globalContext().setDeterministicAlgorithms(true, false);
}

namespace {

// In float32 where the output is in half precision, as under automatic mixed precision.
at::Tensor as_loss_input(const at::Tensor& values) {
  const bool half = values.scalar_type() == at::kBFloat16 || values.scalar_type() == at::kHalf;
  return half ? values.to(at::kFloat) : values;
}

at::Tensor reduced(const std::string& kind, const at::Tensor& given, const at::Tensor& given_target,
                   at::Reduction::Reduction reduction) {
  const at::Tensor output = as_loss_input(given), target = as_loss_input(given_target);
  if (kind == "mse") return at::mse_loss(output, target, reduction);
  LOCKSTEP_CHECK(kind == "cross_entropy", "no loss " + kind);
  // [samples, length, classes]: every token is an example.
  if (output.dim() == 2) return at::cross_entropy_loss(output, target, {}, reduction);
  return at::cross_entropy_loss(output.flatten(0, -2), target.flatten(), {}, reduction);
}

}  // namespace

at::Tensor loss_of(const Part& loss, const at::Tensor& output, const at::Tensor& target,
                   int64_t ranks, double share) {
  const std::string& reduction = loss.options.text("reduction");
  LOCKSTEP_CHECK(reduction == "mean" || reduction == "sum", "no reduction " + reduction);
  at::Tensor value = reduced(loss.kind, output, target.to(output.device()),
                             reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum);
  double factor = loss.options.number("scale") * share;
  if (loss.options.flag("times_world_size")) factor *= static_cast<double>(ranks);
  return factor == 1 ? value : value.mul(factor);
}

double loss_share(const Scenario& scenario, int64_t shard_samples, int64_t batch_samples) {
  if (scenario.loss.options.text("reduction") == "sum") return 1;
  double share = 1 / static_cast<double>(scenario.accumulate_steps);
  // A loss over all outputs counts every sample alike by itself.
  if (scenario.averaging == "sample_weighted" && scenario.reducer.kind != "data_parallel")
    share *= static_cast<double>(shard_samples * scenario.world_size) /
             static_cast<double>(batch_samples);
  return share;
}

namespace {

// Of the GPU that has the parameters; undefined where there is none.
at::Tensor gpu_generator_state(const Training& training) {
  const c10::Device device = training.parameters.front().tensor.device();
  if (!device.is_cuda()) return {};
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

// Whether this thread's forward has drawn. Ranks may be threads of one process: what others draw
// in their RandomSections is not this one's.
class DrawWatch {
 public:
  explicit DrawWatch(const Training& training)
      : training_(training),
        sections_(random_sections()),
        before_(generator_state()),
        gpu_before_(gpu_generator_state(training)) {}

  bool has_drawn() const {
    if (gpu_before_.defined() && !gpu_before_.equal(gpu_generator_state(training_))) return true;
    const at::Tensor after = generator_state();
    return random_sections() == sections_ && !before_.equal(after);
  }

 private:
  const Training& training_;
  const uint64_t sections_;
  const at::Tensor before_, gpu_before_;
};

}  // namespace

at::Tensor forward_of(const Training& training, int64_t step, const Batch& batch) {
  if (training.draws == nullptr) return training.model->forward(batch.input);
  training.draws->begin(step, batch.samples);
  const DrawWatch watch(training);
  at::Tensor output = training.model->forward(batch.input);
  if (watch.has_drawn()) training.draws->note_undeclared();
  return output;
}

bool repeats_itself(const Training& training, int64_t step, const Batch& batch) {
  constexpr int kTimes = 3;
  const c10::NoGradGuard no_grad;
  training.model->normalize_over(nullptr);
  training.model->run_by(nullptr);
  std::vector<at::Tensor> before;
  for (const NamedTensor& buffer : training.buffers) before.push_back(buffer.tensor.clone());
  at::Tensor first;
  bool same = true;
  for (int turn = 0; turn < kTimes; ++turn) {
    const at::Tensor output =
        forward_of(training, step, batch).to(at::kCPU, at::kDouble).contiguous();
    for (size_t i = 0; i < before.size(); ++i) training.buffers[i].tensor.copy_(before[i]);
    if (!first.defined()) first = output.clone();
    same =
        same && first.sizes() == output.sizes() &&
        std::memcmp(first.data_ptr(), output.data_ptr(), static_cast<size_t>(output.nbytes())) == 0;
  }
  return same;
}

namespace {

// One generator, data before the model, as published single-file programs do it.
Setup set_up_in_one_stream(const Scenario& scenario, const std::string& dtype, bool needs_data,
                           bool equal_seeds, const std::vector<c10::Device>& devices) {
  Setup setup;
  RandomSection random(scenario.seed);
  if (needs_data || equal_seeds) setup.data = draw_data(scenario.data, dtype);
  setup.training = build_training(scenario, dtype, devices);
  return setup;
}

}  // namespace

Training build_training(const Scenario& scenario, const std::string& dtype,
                        const std::vector<c10::Device>& devices) {
  Training training;
  training.model = scenario.compute.kind == "emulated" ? build_emulated(scenario, dtype)
                                                       : build_model(scenario.model, dtype);
  if (!devices.empty())
    training.model = devices.front().type() == c10::DeviceType::CUDA
                         ? place_on(devices.front(), std::move(training.model))
                         : spread_over(devices, scenario, *training.model);
  training.draws = std::make_shared<SampleDraws>(scenario.seed);
  training.model->draw_from(training.draws.get());
  training.parameters = training.model->parameters();
  for (NamedTensor& parameter : training.parameters) {
    if (is_frozen(scenario, parameter.name)) parameter.tensor.set_requires_grad(false);
    parameter.device = device_of(scenario, parameter.name);
  }
  training.buffers = training.model->buffers();
  note_buffers(&training);
  training.optimizer = build_optimizer(scenario.optimizer, training.parameters);
  if (scenario.loss_scaling.kind != "none") {
    training.loss_scale = std::make_shared<LossScale>(scenario.loss_scaling);
    training.optimizer =
        with_loss_scale(std::move(training.optimizer), training.loss_scale, training.parameters);
  }
  requantize(training.parameters, scenario.requantize);
  return training;
}

Setup set_up(const Scenario& scenario, const std::string& dtype, int64_t rank,
             const std::vector<c10::Device>& devices) {
  const bool needs_data = rank == 0 || scenario.split.kind != "manual";
  const bool equal_seeds = scenario.rank_seeds == "equal";
  if (scenario.rng == "global_data_first")
    return set_up_in_one_stream(scenario, dtype, needs_data, equal_seeds, devices);
  LOCKSTEP_CHECK(scenario.rng == "per_part", "no rng " + scenario.rng);
  Setup setup;
  if (needs_data) {
    RandomSection random(substream_seed(scenario.seed, "data"));
    setup.data = draw_data(scenario.data, dtype);
  }
  const auto stream = static_cast<uint64_t>(equal_seeds ? 0 : rank);
  RandomSection random(substream_seed(scenario.seed, "model", stream));
  setup.training = build_training(scenario, dtype, devices);
  return setup;
}

void note_buffers(Training* training) {
  training->noted_buffers.clear();
  for (const NamedTensor& buffer : training->buffers)
    training->noted_buffers.push_back({buffer.name, buffer.tensor.detach().clone()});
}

void clear_gradients(const NamedTensors& parameters, const std::string& zero_grad) {
  const bool undefine = zero_grad == "none";
  LOCKSTEP_CHECK(undefine || zero_grad == "zero", "no zero_grad " + zero_grad);
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    at::Tensor& gradient = parameter.tensor.mutable_grad();
    if (undefine)
      gradient = at::Tensor();
    else if (gradient.defined())
      gradient.zero_();  // not detach_(): a view into a bucket cannot be detached in place
  }
}

void requantize(const NamedTensors& parameters, int64_t denominator) {
  if (denominator == 0) return;
  c10::NoGradGuard no_grad;
  const auto grid = static_cast<double>(denominator);
  for (const NamedTensor& parameter : parameters) {
    at::Tensor weights = parameter.tensor;
    weights.mul_(grid).round_().div_(grid);
  }
}

}  // namespace lockstep
