#include "sim/judge/last_position.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>

#include "reducer/probe.h"
#include "scenarios/manifest.h"
#include "sim/judge/words.h"

namespace lockstep {
namespace {

// Records may be damaged: a number that is no operation must not end the judge.
const char* operation_word(uint8_t code) {
  return is_operation(code) ? to_word(static_cast<Operation>(code)) : "collective";
}

std::string size_text(int64_t bytes) {
  if (bytes < 100'000) return fmt::format("{} bytes", bytes);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

}  // namespace

Explanation::Collective collective_of(const Event& arrival) {
  const PackedCollective packed = unpack_collective(arrival.value);
  Explanation::Collective collective;
  collective.operation = operation_word(packed.operation);
  collective.sequence = arrival.sequence;
  if (arrival.subject >= 0) collective.bucket = arrival.subject;
  collective.bytes = packed.bytes;
  return collective;
}

std::string to_words(const Explanation::Collective& collective) {
  const std::string bucket =
      collective.bucket ? fmt::format("bucket {}, ", *collective.bucket) : "";
  return fmt::format("{} {} ({}{})", collective.operation, collective.sequence, bucket,
                     size_text(collective.bytes));
}

std::string collective_text(const Event& arrival) { return to_words(collective_of(arrival)); }

std::string event_text(const RankView& view) {
  if (!view.last_event) return "";
  const Event& event = *view.last_event;
  switch (static_cast<EventKind>(event.kind)) {
    case EventKind::phase_begin:
      return fmt::format("begin of {}", to_word(static_cast<Phase>(event.phase)));
    case EventKind::arrival:
      return "arrival of " + collective_text(event);
    case EventKind::end:
      for (auto it = view.arrivals.rbegin(); it != view.arrivals.rend(); ++it)
        if (it->sequence == event.sequence) return "end of " + collective_text(*it);
      return fmt::format("end of collective {}", event.sequence);
    case EventKind::parameter_ready:
      return fmt::format("gradient of parameter {} ready", event.subject);
    case EventKind::bucket_ready:
      return fmt::format("bucket {} ready", event.subject);
    default:
      return fmt::format("end of step {}", event.step);
  }
}

std::string where(const RankView* view) {
  if (view == nullptr || !view->last_phase) return "before its first record";
  const Event& event = view->last_event ? *view->last_event : *view->last_phase;
  const char* phase = to_word(static_cast<Phase>(view->last_phase->phase));
  if (event.step <= 0) return fmt::format("in {}", phase);
  return fmt::format("in {} of step {}", phase, event.step);
}

std::string layer_of(const Scenario& scenario, int64_t parameter) {
  const auto manifest = manifest_of(scenario.model, scenario.dtype);
  if (!manifest || parameter < 0 || parameter >= static_cast<int64_t>(manifest->parameters.size()))
    return "";
  return layer_name(manifest->parameters[static_cast<size_t>(parameter)].name);
}

const ProcessEnd* end_of(const RunOutcome& outcome, int64_t rank) {
  for (const ProcessEnd& end : outcome.ends)
    if (end.rank == rank) return &end;
  return nullptr;
}

std::string to_words(const ProcessState& state) {
  switch (state.state) {
    case 'T':
    case 't':
      return fmt::format("stopped (state {})", state.state);
    case 'D':
      return "in uninterruptible sleep (state D)";
    case 'R':
      return "running";
    case 'S':
      if (!state.store_key.empty())
        return fmt::format("waiting for \"{}\" of the store", state.store_key);
      return state.syscall.empty() ? "asleep" : "waiting in " + state.syscall;
    default:
      return "";
  }
}

std::string signal_text(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("signal {}", signal);
  return fmt::format("SIG{} ({})", abbreviation, signal);
}

std::string ranks_text(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}", ranks[i]);
  }
  return text;
}

std::string duration_text(int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  return fmt::format("{:.1f} s", static_cast<double>(ms) * 1e-3);
}

}  // namespace lockstep
