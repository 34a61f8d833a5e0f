#include <fmt/format.h>

#include "sim/report/collective_document.h"
#include "sim/report/document.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"

namespace lockstep {
namespace {

constexpr double kNsPerUs = 1e3;

std::string label_of_line(const CollectiveDocument& document, const CollectiveRow& row) {
  return document.spec.groups[row.group].label();
}

const char* redop(const CollectiveSpec& spec) { return spec.adds() ? "sum" : "none"; }

std::string table_text(const CollectiveDocument& document, const Style& style) {
  Table table;
  table.column("communicator");
  for (const char* header : {"size B", "count"}) table.column(header, Table::Align::right);
  for (const char* header : {"type", "redop"}) table.column(header);
  for (const char* header : {"time us", "95 % interval", "algbw GB/s", "busbw GB/s", "#wrong"})
    table.column(header, Table::Align::right);
  for (const CollectiveRow& row : document.result.rows)
    table.row(
        {label_of_line(document, row), std::to_string(row.bytes), std::to_string(row.count),
         document.spec.dtype, redop(document.spec),
         fmt::format("{:.2f}", row.time_ns.value / kNsPerUs),
         fmt::format("{:.2f} .. {:.2f}", row.time_ns.low / kNsPerUs, row.time_ns.high / kNsPerUs),
         fmt::format("{:.3f}", row.algbw_gb_s), fmt::format("{:.3f}", row.busbw_gb_s),
         std::to_string(row.wrong)});
  return table.text(style);
}

std::string averages(const CollectiveDocument& document) {
  std::string text;
  for (size_t group = 0; group < document.spec.groups.size(); ++group)
    text += fmt::format("{}{} {:.3f}", group == 0 ? " " : ", ", document.spec.groups[group].label(),
                        average_busbw(document.result, group));
  return text;
}

}  // namespace

void conclude(CollectiveDocument* document) {
  const CollectiveResult& result = document->result;
  const bool whole = document->broken.empty() && document->signal == 0 &&
                     static_cast<int64_t>(result.rows.size()) == document->spec.rows();
  if (result.control != "detected")
    document->verdict = "inconclusive";
  else if (result.wrong > 0)
    document->verdict = "fail";
  else
    document->verdict = whole ? "pass" : "inconclusive";
  document->exit_code = document->signal != 0         ? 128 + document->signal
                        : document->verdict == "pass" ? kExitPass
                        : document->verdict == "fail" ? kExitFail
                                                      : kExitInconclusive;
}

std::string collective_answer(const CollectiveDocument& document) {
  const CollectiveResult& result = document.result;
  std::string text = fmt::format(
      "{}: {} {}, {} results compared bit for bit, wrong: {}, controls: {} of 1", document.verdict,
      result.rows.size(), plural(static_cast<int64_t>(result.rows.size()), "line"),
      grouped(result.results), grouped(result.wrong), result.control == "detected" ? 1 : 0);
  if (document.signal != 0) text += fmt::format("; interrupted by signal {}", document.signal);
  if (!document.broken.empty()) text += "; broke down";
  if (document.exit_code != 0) text += fmt::format("; exit {}", document.exit_code);
  if (!result.rows.empty()) text += "; average bus bandwidth GB/s:" + averages(document);
  return text + "\n";
}

std::string collective_text(const CollectiveDocument& document, const Style& style) {
  const CollectiveSpec& spec = document.spec;
  ResultDocument head;
  head.machine = document.machine;
  head.libraries = document.libraries;
  head.seed = spec.seed;
  std::string text = head_line(head);
  text += fmt::format(
      "{}, {} {}: medians of {} {} after {}; bandwidths as in nccl-tests doc/PERFORMANCE.md\n\n",
      spec.operation, spec.world_size, plural(spec.world_size, "rank"), spec.iterations,
      plural(spec.iterations, "iteration"), spec.warmup);
  if (!document.result.rows.empty()) text += table_text(document, style) + "\n";
  if (!document.broken.empty()) text += "broke down: " + document.broken + "\n";
  if (document.result.control == "missed")
    text += "void: an element that was damaged on purpose was not counted as wrong\n";
  return text + style.verdict(document.verdict, collective_answer(document));
}

std::string collective_csv(const CollectiveDocument& document) {
  std::string text =
      "communicator,size_bytes,count,type,redop,time_ns,time_ns_low,time_ns_high,algbw_gb_s,"
      "busbw_gb_s,wrong\n";
  for (const CollectiveRow& row : document.result.rows)
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", label_of_line(document, row), row.bytes,
                    row.count, document.spec.dtype, redop(document.spec), row.time_ns.value,
                    row.time_ns.low, row.time_ns.high, row.algbw_gb_s, row.busbw_gb_s, row.wrong);
  return text;
}

}  // namespace lockstep
