#include "sim/tools/program/run_asked.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "sim/launch/run_files.h"
#include "sim/report/html/timeline.h"
#include "sim/tools/program/places.h"

namespace lockstep {

RanProgram run_with_faults(const ProgramRunAsked& asked, const std::string& folder,
                           Signals* signals) {
  const std::string path = folder + "/faults.json";
  write_file(path, agent_json(asked.faults).dump());
  ProgramLaunch launch{.start = asked.start,
                       .folder = folder,
                       .agent = program_agent_folder(),
                       .world = asked.world,
                       .variables = asked.variables};
  launch.variables.push_back("LOCKSTEP_PROGRAM_FAULTS=" + path);
  launch.variables.push_back(fmt::format("LOCKSTEP_PROGRAM_TIMEOUT_SCALE={}", asked.timeout_scale));
  RanProgram ran;
  ran.run = watch_program(launch, asked.watch, asked.faults.size(), signals);
  ran.result = judge_run(ran.run, asked.faults, launch, asked.watch);
  ran.result.timeout_scale = asked.timeout_scale;
  return ran;
}

std::optional<std::string> timeline_page(const RanProgram& ran) {
  if (!ran.run.why.empty()) return std::nullopt;
  std::vector<std::string> faults;
  for (const ProgramFault& fault : ran.result.faults) faults.push_back(fault.text);
  return html_timeline(ran.run.outcome,
                       {fmt::format("{}", fmt::join(ran.result.command, " ")),
                        focus_of(ran.result.failure, {}, ran.result.straggler), std::move(faults)});
}

}  // namespace lockstep
