#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/launch/event_loop.h"
#include "sim/tools/program/judge_comm_hook.h"
#include "sim/tools/program/result.h"
#include "sim/tools/program/start.h"
#include "sim/tools/program/zygote.h"

namespace lockstep {

// How a program is judged: what `verify -- COMMAND` and a scenario with "program" can ask for.
struct ProgramVerification {
  ProgramStart start;
  bool fresh_processes = false;
  bool drills = false, never_drills = false;  // neither: where it is quick
  std::optional<int64_t> seed;
  HookBound hook;                 // asked for where either is there
  bool local_batch_norm = false;  // one device normalizes each rank's part of a batch by itself
  double limit_s = 120;
};

// Those of which the ranks of `asked` may be forked; null where they may not.
std::unique_ptr<ProgramZygotes> make_zygotes(const ProgramVerification& asked,
                                             const std::string& scratch);

// Runs the program on several ranks and on one device, as often as it takes. `scratch`: a folder
// for what they record, which has nothing of this world size yet; `zygotes` may be null. A signal
// that interrupted it, or 0.
int judge_world(const ProgramVerification& asked, const std::string& scratch,
                ProgramZygotes* zygotes, Signals* signals, ProgramWorld* found);

}  // namespace lockstep
