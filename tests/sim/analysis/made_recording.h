#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "sim/record/recorder.h"

namespace lockstep {

// A recording that never was, as lockstep_record.py would have left it. Two of the same members
// hold the same hashes.
struct MadeRecording {
  int64_t world_size = 2, steps = 6, hash_every = 1;
  uint64_t seed = 1;
  // How many steps a rank lives to see; it is killed then.
  std::vector<std::pair<int64_t, int64_t>> killed = {};
  int hash = 2;
  bool tensors = false;

  void write(const std::string& folder) const {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/recording.json")
        << fmt::format(R"({{"format": "lockstep_recording", "version": 1, "world_size": {},
  "name": "Made", "hash_every": {}, "hash": {}, "tensors": {}}})",
                       world_size, hash_every, hash, tensors)
        << "\n";
    for (int64_t rank = 0; rank < world_size; ++rank) write_rank(folder, rank);
  }

 private:
  static uint64_t mixed(uint64_t value) {
    value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ULL;
    return value ^ (value >> 29);
  }
  // Of all ranks alike, but for buffers.
  std::string tensors_of(const char* kind, int64_t step, int64_t rank) const {
    std::string text;
    for (uint64_t tensor = 0; tensor < 3; ++tensor) {
      const uint64_t of = std::string(kind) == "buffer" ? static_cast<uint64_t>(rank) : 0;
      const uint64_t bits = mixed(mixed(seed * 1000 + static_cast<uint64_t>(step)) + 10 * tensor +
                                  100 * of + static_cast<uint64_t>(kind[0]));
      text +=
          fmt::format("{}\"layer{}.weight\": \"{:016x}\"", tensor == 0 ? "" : ", ", tensor, bits);
    }
    return fmt::format("\"{}\": {{{}}}", kind, text);
  }
  std::string line(int64_t step, int64_t rank, bool at_end) const {
    std::string text = fmt::format("{{\"step\": {}", step);
    if (at_end) text += ", \"end\": true";
    for (const char* kind : {"gradient", "buffer", "parameter", "optimizer_state"})
      if (!at_end || std::string(kind) != "gradient") text += ", " + tensors_of(kind, step, rank);
    return text + "}\n";
  }

  void write_rank(const std::string& folder, int64_t rank) const {
    int64_t lived = steps;
    bool dies = false;
    for (const auto& [who, after] : killed)
      if (who == rank) {
        lived = after;
        dies = true;
      }
    RankRecords records{static_cast<int32_t>(rank), static_cast<int32_t>(world_size), 0, 0, 0, {}};
    std::ofstream hashes(fmt::format("{}/rank-{}.hashes", folder, rank));
    int64_t now = 1'000'000;
    const auto event = [&](EventKind kind, int64_t step, int32_t subject, uint64_t value) {
      records.events.push_back({now += 1000, 0, static_cast<uint16_t>(kind), 4,
                                static_cast<int32_t>(step), subject, value});
    };
    for (int64_t step = 1; step <= lived; ++step) {
      event(EventKind::phase_begin, step, -1, 0);
      event(EventKind::step_end, step, -1, 0);
      if (step % hash_every != 0) continue;
      for (int32_t kind = 0; kind < 4; ++kind)
        event(EventKind::state_hash, step, kind,
              mixed(seed + static_cast<uint64_t>(step * 7 + kind)));
      hashes << line(step, rank, false);
    }
    if (!dies) {
      event(EventKind::finished, lived, -1, 0);
      hashes << line(lived, rank, true);
    }
    write_records(fmt::format("{}/rank-{}.records", folder, rank), records);
  }
};

}  // namespace lockstep
