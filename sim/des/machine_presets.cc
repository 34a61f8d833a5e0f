#include <fmt/format.h>

#include <array>

#include "sim/des/machine_model.h"

namespace lockstep {
namespace {

// Latencies in us, bandwidths in MB/s of one direction. docs/simulation.md has the sources.
struct Preset {
  const char* word;
  double latency_us, bandwidth_mb_per_s;
  int64_t ranks_per_host = 1;
  double across_latency_us = 0, across_bandwidth_mb_per_s = 0;
};
constexpr std::array<Preset, 8> kPresets = {{{"loopback", 60, 1500},
                                             {"10gbe", 25, 1250},
                                             {"25gbe", 25, 3125},
                                             {"100gbe", 25, 12'500},
                                             {"ib_hdr", 2, 25'000},
                                             {"ib_ndr", 2, 50'000},
                                             {"dgx_a100", 2, 300'000, 8, 5, 25'000},
                                             {"dgx_h100", 2, 450'000, 8, 5, 50'000}}};

LinkCost preset_link(double latency_us, double mb_per_s) {
  return {static_cast<int64_t>(latency_us * 1e3), fs_per_byte_of(mb_per_s), 0};
}

}  // namespace

std::optional<MachineModel> machine_preset(const std::string& word) {
  for (const Preset& preset : kPresets) {
    if (word != preset.word) continue;
    MachineModel machine = default_machine_model();
    machine.cost.link = preset_link(preset.latency_us, preset.bandwidth_mb_per_s);
    machine.cost.ranks_per_host = preset.ranks_per_host;
    if (preset.ranks_per_host == 1) return machine;
    machine.algorithm = Algorithm::hierarchical;
    machine.cost.across = preset_link(preset.across_latency_us, preset.across_bandwidth_mb_per_s);
    return machine;
  }
  return std::nullopt;
}

std::string machine_preset_words() {
  std::string words;
  for (const Preset& preset : kPresets)
    words += fmt::format("{}{}", words.empty() ? "" : ", ", preset.word);
  return words;
}

}  // namespace lockstep
