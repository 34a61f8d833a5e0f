#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenarios/checkpoint_file.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// Parameters, buffers, optimizer state (counters included, where `optimizer_state`) and the state
// of LibTorch's default CPU generator, copied.
std::vector<SavedTensor> saved_tensors(const Training& training, bool optimizer_state);

// Where loaded optimizer state goes, of the device that it was saved on. Absent: to its
// parameter's.
using DeviceMap = std::function<c10::Device(const std::string& saved)>;

// Puts them back, optimizer state only where asked for. All names, dtypes and shapes are compared
// first: throws CheckpointError, with `path` and the first tensor that does not fit, and nothing is
// changed then. Gradients are left undefined.
void restore(const CheckpointFile& file, const std::string& path, bool optimizer_state,
             Training* training, const DeviceMap& device_map = {});

// Empty, or the first parameter or piece of optimizer state (of a checkpoint's tensors) that
// differs from `before` in a bit or in its device, is absent or new.
std::string first_not_restored(const std::vector<SavedTensor>& before,
                               const std::vector<SavedTensor>& after);

// Loss over `samples` samples that the run does not train on (substream "held_out"), without
// changing anything: the metric that decides which checkpoint is the best. The same on every rank
// that has the same weights and buffers.
double held_out_loss(const Scenario& scenario, const std::string& dtype, int64_t samples,
                     Training* training);

}  // namespace lockstep
