#include "sim/report/document.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/judge/rank_view.h"
#include "sim/report/kill_matrix.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

ordered_json summary_json(const Summary& summary) {
  return {{"runs", summary.runs},
          {"pass", summary.pass},
          {"fail", summary.fail},
          {"inconclusive", summary.inconclusive},
          {"met", summary.met},
          {"unmet", summary.unmet},
          {"undecided", summary.undecided},
          {"known", summary.known},
          {"tensors_compared", summary.tensors_compared},
          {"worst_distance", or_null(summary.worst_distance)},
          {"worst_statistic", or_null(summary.worst_statistic)}};
}

ordered_json error_json(const InputError& error) {
  return {{"file", or_null(error.file)},
          {"line", error.line > 0 ? ordered_json(error.line) : ordered_json(nullptr)},
          {"column", error.column > 0 ? ordered_json(error.column) : ordered_json(nullptr)},
          {"pointer", or_null(error.pointer)},
          {"message", error.message},
          {"allowed", or_null(error.allowed)}};
}

bool compares_bytes(const std::string& lane) {
  return lane == "replica" || lane == "replay" || lane == "exact";
}

void add_passed(const RunResult& run, Summary* summary) {
  for (const LaneResult& lane : run.lanes) {
    if (compares_bytes(lane.lane)) summary->tensors_compared += lane.compared;
    if (lane.distance) keep_worst(*lane.distance, &summary->worst_distance);
    if (lane.statistic && lane.lane == "rounding")
      keep_worst(*lane.statistic, &summary->worst_statistic);
  }
}

}  // namespace

Summary summary_of(const std::vector<RunResult>& runs) {
  Summary summary;
  for (const RunResult& run : runs) {
    ++summary.runs;
    ++(run.verdict == "pass"   ? summary.pass
       : run.verdict == "fail" ? summary.fail
                               : summary.inconclusive);
    ++(run.baseline == "known" ? summary.known
       : !run.met              ? summary.undecided
       : *run.met              ? summary.met
                               : summary.unmet);
    if (run.verdict == "pass") add_passed(run, &summary);
  }
  return summary;
}

ordered_json as_json(const Machine& machine) {
  return {{"cpu", or_null(machine.cpu)},
          {"cores", machine.cores},
          {"load", machine.load},
          {"memory_mb", machine.memory_mb},
          {"kernel", or_null(machine.kernel)},
          {"environment", machine.environment}};
}

ordered_json as_json(const Libraries& libraries) {
  ordered_json json = {{"torch", or_null(libraries.torch)},
                       {"gloo", or_null(libraries.gloo)},
                       {"blas", or_null(libraries.blas)},
                       {"torch_cpu_capability", or_null(libraries.torch_cpu_capability)},
                       {"blas_cpu_capability", or_null(libraries.blas_cpu_capability)}};
  if (!libraries.cuda.empty()) json["cuda"] = libraries.cuda;
  return json;
}

ordered_json as_json(const ResultDocument& document) {
  ordered_json runs = ordered_json::array(), errors = ordered_json::array();
  ordered_json not_run = ordered_json::array();
  for (const RunResult& run : document.runs) runs.push_back(as_json(run));
  for (const NotRun& run : document.not_run)
    not_run.push_back(
        {{"name", run.name}, {"file", run.file}, {"label", run.label}, {"why", run.why}});
  for (const InputError& error : document.errors) errors.push_back(error_json(error));
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"seed", document.seed},
          {"machine", as_json(document.machine)},
          {"libraries", as_json(document.libraries)},
          {"verdict", or_null(document.verdict)},
          {"exit_code", document.exit_code},
          {"duration_ms", document.duration_ms},
          {"summary", summary_json(summary_of(document.runs))},
          {"kills", as_json(count_kills(document.runs))},
          {"runs", std::move(runs)},
          {"not_run", std::move(not_run)},
          {"errors", std::move(errors)}};
}

std::string to_text(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string to_text(const ResultDocument& document) { return to_text(as_json(document)); }

}  // namespace lockstep
