#include <nlohmann/json.hpp>

#include "scenarios/json/json_text.h"
#include "sim/report/collective_document.h"
#include "sim/report/version.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json row_json(const CollectiveRow& row) {
  return {{"bytes", row.bytes},
          {"count", row.count},
          {"time_ns",
           {{"median", row.time_ns.value}, {"low", row.time_ns.low}, {"high", row.time_ns.high}}},
          {"algbw_gb_s", row.algbw_gb_s},
          {"busbw_gb_s", row.busbw_gb_s},
          {"wrong", row.wrong},
          {"results", row.results},
          {"times_ns", row.times_ns}};
}

Json interval_or_null(int64_t ranks_per_host) {
  return ranks_per_host > 0 ? Json(ranks_per_host) : Json(nullptr);
}

Json communicators_json(const CollectiveDocument& document) {
  Json all = Json::array();
  for (size_t i = 0; i < document.spec.groups.size(); ++i) {
    const CollectiveGroup& group = document.spec.groups[i];
    Json sizes = Json::array();
    for (const CollectiveRow& row : document.result.rows)
      if (row.group == i) sizes.push_back(row_json(row));
    all.push_back({{"label", group.label()},
                   {"kind", group.kind},
                   {"algorithm", group.algorithm},
                   {"ranks_per_host", interval_or_null(group.ranks_per_host)},
                   {"average_busbw_gb_s", average_busbw(document.result, i)},
                   {"sizes", std::move(sizes)}});
  }
  return all;
}

Json collective_json(const CollectiveDocument& document) {
  const CollectiveSpec& spec = document.spec;
  return {{"operation", spec.operation},
          {"world_size", spec.world_size},
          {"dtype", spec.dtype},
          {"iterations", spec.iterations},
          {"warmup", spec.warmup},
          {"timeout_ms", spec.timeout_ms},
          {"control", document.result.control},
          {"wrong", document.result.wrong},
          {"results", document.result.results},
          {"communicators", communicators_json(document)},
          {"broken", or_null(document.broken)}};
}

}  // namespace

Json as_json(const CollectiveDocument& document) {
  const Machine& machine = document.machine;
  const Libraries& libraries = document.libraries;
  return {{"schema_version", 1},
          {"lockstep_version", lockstep_version()},
          {"commit", lockstep_commit()},
          {"seed", document.spec.seed},
          {"verdict", document.verdict},
          {"exit_code", document.exit_code},
          {"duration_ms", document.duration_ms},
          {"machine",
           {{"cpu", machine.cpu},
            {"cores", machine.cores},
            {"load", machine.load},
            {"memory_mb", machine.memory_mb},
            {"kernel", machine.kernel},
            {"environment", machine.environment}}},
          {"libraries",
           {{"torch", libraries.torch}, {"gloo", libraries.gloo}, {"blas", libraries.blas}}},
          {"collective", collective_json(document)}};
}

}  // namespace lockstep
