#include "sim/calibrate/row_explanation.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "sim/calibrate/alternatives.h"

namespace lockstep {
namespace {

void slow_messages(double factor, MachineModel* machine) {
  delay_messages(factor, &machine->cost.link);
  delay_messages(factor, &machine->cost.across);
}

// ", links are 2 times slower".
std::string changed(const char* what, double slower) {
  if (slower == 1) return "";
  return fmt::format(", {} are {:.3g} times {}", what, slower > 1 ? slower : 1 / slower,
                     slower > 1 ? "slower" : "faster");
}

}  // namespace

void slow_links(double factor, bool across, MachineModel* machine) {
  slow_link(factor, &machine->cost.link);
  if (across) slow_link(factor, &machine->cost.across);
  slow_cores(factor, &machine->cost);
}

void apply(const RowExplanation& explanation, Guess* guess) {
  guess->machine.bucket_ns = std::llround(explanation.bucket_us * 1e3);
  guess->machine.rank_spread = explanation.spread;
  slow_messages(explanation.messages, &guess->machine);
  if (explanation.links != 1) slow_links(explanation.links, explanation.across, &guess->machine);
  if (explanation.overlap > 0) guess->machine.overlap_slowdown = explanation.overlap;
  switch (explanation.excess) {
    case Excess::reducer:
      guess->machine.parameter_ns += std::llround(explanation.value * 1e3);
      return;
    case Excess::every_step:
      guess->machine.sync_ns += std::llround(explanation.value * 1e6);
      return;
    case Excess::link:
      slow_links(explanation.value, explanation.across, &guess->machine);
      return;
    case Excess::latency:
      slow_messages(explanation.value, &guess->machine);
      return;
    case Excess::contention:
      guess->machine.overlap_slowdown = explanation.value;
      return;
    case Excess::compute:
      guess->compute *= explanation.value;
      guess->machine.sync_ns += std::llround(explanation.beside_ms * 1e6);
      return;
  }
}

std::string to_text(const RowExplanation& explanation) {
  std::string beside =
      changed("links", explanation.links) + changed("messages", explanation.messages);
  if (explanation.overlap > 0) beside += ", backward hides no collective";
  if (explanation.beside_ms > 0)
    beside += fmt::format(", a step of several ranks takes {:.2f} ms more", explanation.beside_ms);
  beside += fmt::format(", a bucket {:.0f} us", explanation.bucket_us);
  if (explanation.spread > 0)
    beside += fmt::format(", ranks are spread by {:.1f} %", explanation.spread * 100);
  switch (explanation.excess) {
    case Excess::reducer:
      return fmt::format("the reducer takes {:.1f} us a parameter", explanation.value) + beside;
    case Excess::every_step:
      return fmt::format("a step of several ranks takes {:.2f} ms more", explanation.value) +
             beside;
    case Excess::link:
      return fmt::format("links are {:.2f} times slower", explanation.value) + beside;
    case Excess::latency:
      return fmt::format("messages are {:.2f} times slower", explanation.value) + beside;
    case Excess::contention:
      return fmt::format("compute takes {:.3g} times as long while a collective is under way",
                         1 + explanation.value) +
             beside;
    case Excess::compute:
      return fmt::format("compute takes {:.4g} times as long as the scenario says",
                         explanation.value) +
             beside;
  }
  return "";
}

}  // namespace lockstep
