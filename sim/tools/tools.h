#pragma once

#include "sim/cli/tool.h"

namespace lockstep {

// sim/tools/NAME/verb.cc
Tool calibrate_tool();
Tool campaign_tool();
Tool collective_tool();
Tool compare_tool();
Tool explain_tool();
Tool explore_tool();
Tool program_tool();
Tool program_analyze_tool();
Tool program_run_tool();
Tool program_sweep_tool();
Tool soak_tool();
Tool whatif_tool();

}  // namespace lockstep
