#include "golden/make_stored.h"

#include <cstring>

#include "golden/golden_run.h"
#include "scenarios/base/check.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

// The state after the last step: the slot that a stream of one more slot than needed ends with.
std::vector<std::byte> last_state(const Scenario& scenario, int64_t bytes) {
  const auto stream =
      StateStream::in_memory({.slot_bytes = bytes, .slots = scenario.steps + 1, .consumers = 1});
  run_golden(scenario, GoldenKind::one_device, {}, false, *stream, kNoDeadline);
  for (int64_t item = 0; item < scenario.steps; ++item) {
    stream->begin_read(0, item, kNoDeadline);
    stream->end_read(0);
  }
  const std::byte* state = stream->begin_read(0, scenario.steps, kNoDeadline);
  LOCKSTEP_CHECK(state != nullptr, "a golden run without its last step");
  return {state, state + bytes};
}

}  // namespace

StoredGolden make_stored_golden(const Scenario& scenario) {
  const GoldenItem item = golden_item(scenario, GoldenKind::one_device, false);
  const std::vector<std::byte> state = last_state(scenario, item.bytes);
  const NamedTensors parameters = set_up(scenario, scenario.dtype, 0).training.parameters;
  StoredGolden golden;
  golden.settings = golden_settings(scenario);
  for (const StateEntry& entry : item.layout.entries) {
    if (entry.kind != StateKind::parameter) continue;
    LOCKSTEP_CHECK(entry.dtype == "float32", "stored goldens hold float32");
    StoredTensor tensor;
    tensor.name = entry.name;
    tensor.shape = parameters[static_cast<size_t>(entry.parameter)].tensor.sizes().vec();
    tensor.bits.resize(static_cast<size_t>(entry.numel));
    std::memcpy(tensor.bits.data(), state.data() + entry.offset, static_cast<size_t>(entry.bytes));
    golden.parameters.push_back(std::move(tensor));
  }
  return golden;
}

}  // namespace lockstep
