#include <ATen/ATen.h>

#include <bit>
#include <cstring>

#include "scenarios/base/hash.h"
#include "sim/worker/observer.h"
#include "sim/worker/stored_comparison.h"

namespace lockstep {

// No lane: a correct run differs from one device in its last bits.
void Observer::compare_with_one_device(int64_t step, const std::byte* golden) {
  const Scenario& scenario = context_.plan.scenario;
  const bool last = step == scenario.steps;
  if (last && scenario.golden) last_one_device_.assign(golden, golden + layout_.bytes);
  if (!scenario.common_checks || context_.rank != 0 || step == 0) return;
  Recorder& recorder = context_.recorder;
  double loss = 0;
  std::memcpy(&loss, golden + layout_.bytes, sizeof loss);
  recorder.append(EventKind::golden_loss, -1, std::bit_cast<uint64_t>(loss));
  const double ratio = norm_of_kind(layout_, StateKind::gradient, state_) /
                       norm_of_kind(layout_, StateKind::gradient, golden);
  recorder.append(EventKind::norm_ratio, -1, std::bit_cast<uint64_t>(ratio));
  if (last)
    recorder.append(EventKind::close, -1,
                    all_close(layout_, StateKind::parameter, state_, golden) ? 1 : 0);
}

void Observer::compare_with_stored_golden() {
  if (last_one_device_.empty()) return;
  const auto count =
      count_differing(layout_, StateKind::parameter, state_, last_one_device_.data());
  context_.recorder.append(
      EventKind::differing, static_cast<int32_t>(Lane::one_device),
      (static_cast<uint64_t>(count.differing) << 32) | static_cast<uint64_t>(count.total));
  evidence_->golden =
      compare_with_stored(context_.plan.scenario, layout_, state_, last_one_device_.data());
}

void Observer::record_result() {
  Hash128 hash;
  for (const NamedTensors* group : {&training_.parameters, &training_.buffers})
    for (const NamedTensor& named : *group) {
      const at::Tensor tensor = named.tensor.detach().cpu().contiguous();
      hash.update(named.name);
      hash.update(c10::toString(tensor.scalar_type()));
      for (int64_t size : tensor.sizes()) hash.update(&size, sizeof size);
      hash.update(tensor.data_ptr(), static_cast<size_t>(tensor.nbytes()));
    }
  const auto digest = hash.digest();
  context_.recorder.append(EventKind::final_hash_low, -1, digest[0]);
  context_.recorder.append(EventKind::final_hash_high, -1, digest[1]);
  evidence_->final_hash = hex(digest);
  compare_with_stored_golden();
}

}  // namespace lockstep
