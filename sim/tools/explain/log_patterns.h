#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/tools/explain/log_event.h"

namespace lockstep {

// Whose word a line is: of a rank's process, of torchelastic's agent, of Slurm (whose tasks are
// ranks, or agents), of a node's kernel and who hands on what that did, which know no ranks, even
// where their line stands among a rank's (slurmstepd writes to its first task's file).
enum class LogWriter { process, agent, slurm, kernel };

// One recognized line: what it holds, what it tells, and who writes it since when.
struct LogPattern {
  const char* needle;
  LogEventKind kind;
  const char* source;  // file of the program that writes it
  const char* since;   // its versions
  LogWriter writer = LogWriter::process;
};
// All of them, in the order of docs/explain.md.
std::vector<LogPattern> log_patterns();

struct RecognizedLine {
  LogPattern pattern;
  LogEvent event;  // without file and line; its rank only where the words themselves name it
};
// By the first pattern that the line holds.
std::optional<RecognizedLine> recognize(std::string_view line);

}  // namespace lockstep
