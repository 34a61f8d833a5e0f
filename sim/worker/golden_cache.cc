#include "sim/worker/golden_cache.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

// All that a golden run depends on, as text.
std::string settings_of(const RunPlan& plan, GoldenKind kind) {
  nlohmann::ordered_json scenario = as_json(plan.scenario);
  for (const char* other : {"name", "what", "expect", "reducer", "communicator", "timeouts",
                            "mutants", "lanes", "golden", "device"})
    scenario.erase(other);
  std::string text = std::string(to_word(kind)) + scenario.dump();
  if (kind != GoldenKind::replay) return text;
  const ReplayRule& rule = plan.replay;
  text += rule.layout + rule.division_first_step + rule.division_later + rule.algorithm +
          rule.added_as + std::to_string(rule.rebuild) + std::to_string(rule.broadcast_buffers) +
          std::to_string(rule.rebuild_after_step) + std::to_string(plan.shards);
  if (rule.layout == "ddp")  // sizes are meant by no other layout
    text += std::to_string(rule.first_bucket_bytes) + "," + std::to_string(rule.bucket_cap_bytes);
  return text;
}

// The consumer is this very thread, right after the producer: nothing is ever waited for.
Deadline at_once() { return deadline_after(std::chrono::milliseconds(1)); }

}  // namespace

GoldenCache::Items GoldenCache::make(const RunPlan& plan, GoldenKind kind) const {
  const Scenario& scenario = plan.scenario;
  const bool shards = plan.shards && kind == GoldenKind::replay;
  Items items;
  items.slot_bytes = golden_item(scenario, kind, shards).bytes;
  const int64_t count = scenario.steps + 1;
  auto stream = StateStream::in_memory({.slot_bytes = items.slot_bytes, .slots = count});
  run_golden(scenario, kind, plan.replay, shards, *stream, at_once());
  items.bytes.resize(static_cast<size_t>(count * items.slot_bytes));
  for (int64_t item = 0; item < count; ++item) {
    const std::byte* bytes = stream->begin_read(0, item, at_once());
    if (bytes == nullptr) throw std::runtime_error("a golden run ended early");
    std::memcpy(items.bytes.data() + item * items.slot_bytes, bytes,
                static_cast<size_t>(items.slot_bytes));
    stream->end_read(0);
  }
  return items;
}

std::shared_ptr<StateStream> GoldenCache::stream(const RunPlan& plan, GoldenKind kind) {
  const std::string settings = settings_of(plan, kind);
  auto found = entries_.find(settings);
  if (found == entries_.end()) {
    if (order_.size() == kEntriesMax) {
      entries_.erase(order_.front());
      order_.erase(order_.begin());
    }
    found = entries_.emplace(settings, make(plan, kind)).first;
    order_.push_back(settings);
  }
  const Items& items = found->second;
  const int64_t count = plan.scenario.steps + 1;
  std::shared_ptr<StateStream> stream = StateStream::in_memory(
      {.slot_bytes = items.slot_bytes, .slots = count, .consumers = ranks_of(plan.scenario)});
  for (int64_t item = 0; item < count; ++item) {
    std::memcpy(stream->begin_write(at_once()), items.bytes.data() + item * items.slot_bytes,
                static_cast<size_t>(items.slot_bytes));
    stream->end_write();
  }
  stream->finish();
  return stream;
}

}  // namespace lockstep
