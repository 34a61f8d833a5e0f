#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scenarios/base/error.h"
#include "scenarios/profiler/kineto_trace.h"
#include "sim/tools/explain/chakra_trace.h"
#include "sim/tools/explain/dump.h"
#include "sim/tools/explain/log_event.h"

namespace lockstep {

// What a job left behind: flight recorder dumps, traces of torch.profiler and of Chakra, text logs
// and torchelastic's error files, told apart by content.
struct JobEvidence {
  std::vector<FlightDump> dumps;     // by rank
  std::vector<KinetoTrace> traces;   // by rank
  std::vector<LogEvent> events;      // of a file in the order of its lines
  std::set<int64_t> logged;          // ranks whose log is there, whatever it holds
  int64_t logs = 0;                  // files of text
  std::vector<std::string> earlier;  // Slurm's output of jobs before the last one
  std::vector<std::string> ignored;  // files of folders that are neither
  std::vector<std::string> damaged;  // dumps of folders that could not be read, and why
  std::vector<ChakraTrace> chakra;   // in the order of their names
};

// Files, the files of folders, and those of archives that are named (together at most 1 GiB, in
// memory), and files that gzip packed; of torchelastic's attempts and of a rank's traces
// the last. Bad input: none, a
// named file that is neither dump, trace nor text (in a folder or archive it is ignored), a named
// dump, trace or archive that is damaged, and no dump beside damaged ones in a folder or archive,
// two dumps of one rank that differ, a trace that does not say whose it is of several, traces of
// jobs of different sizes, more than 100,000 files.
Expected<JobEvidence> read_job(const std::vector<std::string>& paths);

// Is there a dump, a trace, an error file or a log with a line that says something? Of a folder the
// first 1,000 files are looked at; one with a plan or a recording of lockstep is not meant.
bool is_job_evidence(const std::string& path);

}  // namespace lockstep
