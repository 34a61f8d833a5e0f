#include "sim/tools/collective/report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "scenarios/json/json_text.h"
#include "sim/analysis/step_model.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

const RankRow* find_row(const RankFile& rank, int64_t row) {
  const auto found = std::find_if(rank.rows.begin(), rank.rows.end(),
                                  [&](const RankRow& one) { return one.row == row; });
  return found == rank.rows.end() ? nullptr : &*found;
}

int64_t transfer_ns(const std::vector<const RankRow*>& ranks, size_t iteration) {
  int64_t last_begin = 0, last_end = 0;
  for (const RankRow* rank : ranks) {
    last_begin = std::max(last_begin, rank->begin_ns[iteration]);
    last_end = std::max(last_end, rank->end_ns[iteration]);
  }
  return std::max<int64_t>(1, last_end - last_begin);
}

CollectiveRow merged(const CollectiveSpec& spec, size_t group, size_t size,
                     const std::vector<const RankRow*>& ranks) {
  CollectiveRow row;
  row.group = group;
  row.bytes = spec.elements[size] * element_bytes(spec.dtype);
  row.count = spec.elements[size] / (spec.has_parts() ? spec.world_size : 1);
  for (const RankRow* rank : ranks) {
    row.wrong += rank->wrong;
    row.results += rank->results;
  }
  for (size_t i = 0; i < ranks.front()->begin_ns.size(); ++i)
    row.times_ns.push_back(transfer_ns(ranks, i));
  row.time_ns =
      bootstrap_median({row.times_ns.begin(), row.times_ns.end()}, kConfidence, spec.seed);
  row.algbw_gb_s = static_cast<double>(row.bytes) / row.time_ns.value;
  row.busbw_gb_s = row.algbw_gb_s * bus_factor(spec.operation, spec.world_size);
  return row;
}

ControlVerdict control_of(const std::vector<RankFile>& ranks) {
  int64_t wrong = 0;
  for (const RankFile& rank : ranks) {
    if (!rank.control_wrong) return ControlVerdict::not_run;
    wrong += *rank.control_wrong;
  }
  if (ranks.empty()) return ControlVerdict::not_run;
  return wrong > 0 ? ControlVerdict::detected : ControlVerdict::missed;
}

}  // namespace

CollectiveResult collective_result(const CollectiveSpec& spec, const std::vector<RankFile>& ranks) {
  CollectiveResult result;
  result.control = control_of(ranks);
  for (size_t group = 0; group < spec.groups.size(); ++group)
    for (size_t size = 0; size < spec.elements.size(); ++size) {
      std::vector<const RankRow*> rows;
      for (const RankFile& rank : ranks)
        rows.push_back(find_row(rank, static_cast<int64_t>(size * spec.groups.size() + group)));
      if (rows.empty() || std::count(rows.begin(), rows.end(), nullptr) > 0) continue;
      result.rows.push_back(merged(spec, group, size, rows));
      result.wrong += result.rows.back().wrong;
      result.results += result.rows.back().results;
    }
  return result;
}

double average_busbw(const CollectiveResult& result, size_t group) {
  std::vector<double> all;
  for (const CollectiveRow& row : result.rows)
    if (row.group == group) all.push_back(row.busbw_gb_s);
  return all.empty() ? 0 : mean_of(all);
}

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
  return with_head(
      {{"seed", document.spec.seed},
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
       {"collective", collective_json(document)}});
}

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
  if (result.control != ControlVerdict::detected)
    document->verdict = Verdict::inconclusive;
  else if (result.wrong > 0)
    document->verdict = Verdict::fail;
  else
    document->verdict = whole ? Verdict::pass : Verdict::inconclusive;
  document->exit_code =
      document->signal != 0 ? 128 + document->signal : exit_code_of(document->verdict);
}

std::string collective_answer(const CollectiveDocument& document) {
  const CollectiveResult& result = document.result;
  std::string text =
      fmt::format("{}: {} {}, {} results compared bit for bit, wrong: {}, controls: {} of 1",
                  to_word(document.verdict), result.rows.size(),
                  plural(static_cast<int64_t>(result.rows.size()), "line"), grouped(result.results),
                  grouped(result.wrong), result.control == ControlVerdict::detected ? 1 : 0);
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
  if (document.result.control == ControlVerdict::missed)
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

TestReport test_report(const CollectiveDocument& document) {
  TestReport report;
  report.name = "lockstep collective";
  report.properties = properties_of(document.machine, document.libraries, document.spec.seed);
  report.time_s = static_cast<double>(document.duration_ms) * 1e-3;
  for (const CollectiveRow& row : document.result.rows) {
    const CollectiveGroup& group = document.spec.groups[row.group];
    TestCase one;
    one.group = document.spec.operation;
    one.name = fmt::format("{} {} bytes", group.label(), row.bytes);
    for (const int64_t time_ns : row.times_ns) one.time_s += static_cast<double>(time_ns) * 1e-9;
    one.properties = {{"seed", std::to_string(document.spec.seed)},
                      {"world_size", std::to_string(document.spec.world_size)},
                      {"communicator", group.label()},
                      {"busbw_gb_s", fmt::format("{:.3f}", row.busbw_gb_s)}};
    if (row.wrong > 0) {
      one.result = TestCase::Result::failed;
      one.kind = "wrong";
      one.message = one.text =
          fmt::format("{} elements have other bits than they must have", row.wrong);
    }
    report.cases.push_back(std::move(one));
  }
  report.answer = without_end(collective_answer(document));
  say_inconclusive(document.verdict, &report);
  return report;
}

}  // namespace lockstep
