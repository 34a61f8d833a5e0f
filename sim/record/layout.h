#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "sim/record/recorder.h"

namespace lockstep {

// Where things stand in a record file.
inline constexpr size_t kRecordHeaderBytes = 4096;

// What the launcher asks a live record file, many times a second: two short reads.
struct RecordPulse {
  uint64_t appended = 0;
  Phase newest_phase{};   // of the newest event; 0 where there is none yet
  int64_t newest_ns = 0;  // its time
  EventKind newest_kind = EventKind::none;
};
// Nothing while the file is absent or unfinished.
std::optional<RecordPulse> read_pulse(const std::string& path);

// Makes an idle writer's file count as empty, so that nothing of an earlier run can be read as the
// next one's. Nothing happens where there is no such file.
void mark_empty(const std::string& path);

}  // namespace lockstep
