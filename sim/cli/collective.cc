#include "sim/cli/collective.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/collective/execute.h"
#include "sim/launch/files.h"
#include "sim/report/collective_document.h"
#include "sim/report/document.h"

namespace lockstep {
namespace {

template <class T>
T value_or_errors(const Expected<T>& given, T otherwise, InputErrors* errors) {
  if (given) return given.value();
  errors->insert(errors->end(), given.errors().begin(), given.errors().end());
  return otherwise;
}

int64_t free_memory_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, rest; file >> key; std::getline(file, rest)) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && file >> kib) return kib << 10;
  }
  return INT64_MAX;
}

// Four fifths of what is free: a machine out of memory would end a rank, or another program.
void check_memory(const CollectiveSpec& spec, InputErrors* errors) {
  const int64_t needed = memory_bytes(spec), free = free_memory_bytes() / 5 * 4;
  if (needed <= free) return;
  errors->push_back(
      option_error(fmt::format("{} bytes on {} ranks need {} MB of memory for {} communicators",
                               spec.elements.back() * element_bytes(spec.dtype), spec.world_size,
                               needed / 1'000'000, spec.groups.size())));
  errors->back().allowed = fmt::format("{} MB here: a smaller --max-bytes", free / 1'000'000);
}

Expected<CollectiveSpec> spec_of(const CollectiveOptions& options) {
  InputErrors errors;
  CollectiveSpec spec;
  spec.operation = options.operation;
  spec.world_size = options.world_size;
  spec.dtype = options.dtype;
  spec.iterations = options.iterations;
  spec.warmup = options.warmup;
  spec.timeout_ms = options.timeout_ms;
  spec.seed = options.seed;
  errors = ci_errors(options.ci);
  for (const auto& [name, path] : {std::pair("--json", &options.json), {"--csv", &options.csv}})
    check_output(name, *path, &errors);
  spec.groups = value_or_errors(parse_groups(options.communicators), {}, &errors);
  const int64_t bytes_min =
      value_or_errors(parse_bytes("--min-bytes", options.min_bytes), int64_t{1}, &errors);
  const int64_t bytes_max =
      value_or_errors(parse_bytes("--max-bytes", options.max_bytes), bytes_min, &errors);
  if (!errors.empty()) return errors;
  spec.elements = sizes_of(spec, bytes_min, bytes_max, options.factor);
  if (spec.elements.empty()) {
    errors.push_back(option_error(
        fmt::format("--min-bytes {} to --max-bytes {} hold no size", options.min_bytes,
                    options.max_bytes),
        fmt::format("a range with one of at least {} bytes: {}",
                    element_bytes(spec.dtype) * (spec.has_parts() ? spec.world_size : 1),
                    spec.has_parts() ? "an element for each rank" : "an element")));
    return errors;
  }
  check_memory(spec, &errors);
  if (!errors.empty()) return errors;
  return spec;
}

// One line that moves on a terminal; elsewhere nothing.
class RowProgress {
 public:
  RowProgress(int64_t rows, bool quiet) : rows_(rows), on_(!quiet && isatty(STDERR_FILENO) == 1) {}
  ~RowProgress() {
    if (on_) print_error("\r\x1b[K");
  }
  RowProgress(const RowProgress&) = delete;
  RowProgress& operator=(const RowProgress&) = delete;
  void show(int64_t done) const {
    if (!on_) return;
    print_error(fmt::format("\r\x1b[Kcollective {}/{}  {} %", done, rows_, 100 * done / rows_));
  }

 private:
  const int64_t rows_;
  const bool on_;
};

void measure_collectives(const CollectiveOptions& options, const std::string& worker,
                         const std::string& out_dir, CollectiveDocument* document) {
  const std::string run_dir = run_dir_of(out_dir, 0);
  bool made = false;
  try {
    make_dir(run_dir);
    made = true;
    const RowProgress progress(document->spec.rows(), options.quiet);
    const CollectiveEnd end = execute_collective(document->spec, run_dir, worker,
                                                 [&](int64_t rows) { progress.show(rows); });
    document->broken = end.problem;
    document->signal = end.signal;
  } catch (const std::exception& error) {
    document->broken = error.what();
  }
  std::vector<RankFile> ranks;
  for (int64_t rank = 0; made && rank < document->spec.world_size; ++rank)
    ranks.push_back(read_rank_file(rank_file_path(run_dir, rank)));
  document->result = collective_result(document->spec, ranks);
  document->libraries = read_libraries(out_dir + "/libraries.json");
}

int report_collectives(const CollectiveOptions& options, const CollectiveDocument& document) {
  int code = document.exit_code;
  code = write_output("--json", options.json, code, [&] { return to_text(as_json(document)); });
  code = write_output("--csv", options.csv, code, [&] { return collective_csv(document); });
  code = leave_ci_reports(options.ci, test_report(document), code);
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(
      options.quiet ? collective_answer(document) : collective_text(document, style), code);
}

}  // namespace

int collective(const CollectiveOptions& options) {
  auto spec = spec_of(options);
  if (!spec) return bad_input(spec.errors(), options.json, options.ci);
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json, options.ci);
  auto directory = options.out.empty() ? RunDirectory::numbered() : RunDirectory::at(options.out);
  if (!directory) return bad_input(directory.errors(), options.json, options.ci);
  CollectiveDocument document;
  document.spec = std::move(spec.value());
  document.machine = this_machine();
  const int64_t start_ns = now_ns();
  measure_collectives(options, worker.value(), directory.value().path(), &document);
  document.duration_ms = (now_ns() - start_ns) / 1'000'000;
  conclude(&document);
  directory.value().note_verdict(document.verdict);
  return report_collectives(options, document);
}

}  // namespace lockstep
