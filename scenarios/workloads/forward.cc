#include "scenarios/workloads/forward.h"

#include <ATen/Context.h>
#include <ATen/ops/equal.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <vector>

#include "scenarios/workloads/draws.h"

namespace lockstep {
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
  const at::NoGradGuard no_grad;
  training.model->normalize_over(nullptr);
  training.model->run_by(nullptr);
  std::vector<at::Tensor> before;
  for (const NamedTensor& buffer : training.buffers) before.push_back(buffer.tensor.clone());
  at::Tensor first;
  bool same = true;
  for (int time = 0; time < kTimes; ++time) {
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

}  // namespace lockstep
