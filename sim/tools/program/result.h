#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/report/ci/test_report.h"
#include "sim/tools/program/drill.h"
#include "sim/tools/program/judge.h"
#include "sim/tools/program/replay.h"
#include "sim/tools/program/run_result.h"

namespace lockstep {

// What `lockstep verify -- COMMAND` found: the source of its text, of --json (`lockstep schema
// --program`) and of --junit.

enum class ProgramLaneKind { replica, replay, float64, hook };
const char* name_of(ProgramLaneKind lane);

struct ProgramLane {
  ProgramLaneKind kind = ProgramLaneKind::replica;
  ProgramFinding finding;
  bool control_failed = false;  // as it must; else a pass is void
  std::string why_void = "its control did not fail";
};

// One world size: the program on so many ranks, and on one device.
struct ProgramWorld {
  int64_t world_size = 0;
  std::vector<ProgramLane> lanes;     // that could be judged
  std::string not_run;                // why there are no more of them; empty: all were judged
  std::vector<std::string> log_tail;  // of the process that is the reason, if one is
  std::optional<ProgramRunResult> failed = {};  // the ranks' run, certainly: a verdict
  bool dropout_off = false, buffers_differ = false;
  int64_t batches = 0;            // of a step; fewer than ranks where some hold one model together
  bool handed = false;            // one device, the data of the ranks
  bool compared = false;          // and what it computed of their batches with what they did
  bool scaled_options = false;    // one device, a batch size as large as all ranks' by an option
  bool local_batch_norm = false;  // one device normalized each rank's batch by itself, as asked,
  bool no_batch_norm = false;     // or would have
  bool all_gpus = false;          // one device was told of those of all ranks
  std::string comm_hook;          // of the script, where float64 failed and no lane judged it
  std::vector<std::string> never_updated;    // parameters with gradients that no optimizer has
  bool on_cpu = false, compile_off = false;  // what was asked of CUDA, of torch.compile
  ProgramReplay replay;                      // what the tap on collectives saw
  std::optional<DrillFinding> drill = {};    // of lane float64, where it was drilled
  double duration_s = 0;
};

struct ProgramResult {
  std::vector<std::string> command;
  std::vector<ProgramWorld> worlds;
  int signal = 0;         // that ended it before all world sizes were judged
  bool forked = false;    // all ranks were, of a Python that had imported torch
  std::string why_fresh;  // although they might have been forked
};

LaneVerdict lane_verdict(const ProgramLane& lane);
// A failure outweighs what could not be judged, and that a pass.
Verdict verdict_of(const ProgramWorld& world);
Verdict verdict_of(const ProgramResult& result);
int exit_code_of(const ProgramResult& result);

// One of --junit: of a command at a world size, passed until told otherwise.
TestCase case_of_world(const std::vector<std::string>& command, int64_t world_size);

// What is said of all world sizes, without the last line.
std::string program_body(const ProgramResult& result);
std::string program_text(const ProgramResult& result, bool quiet);
nlohmann::ordered_json as_json(const ProgramResult& result);
TestReport test_report(const ProgramResult& result);  // one case a world size

}  // namespace lockstep
