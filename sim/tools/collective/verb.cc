#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>

#include "scenarios/base/clock.h"
#include "scenarios/base/text.h"
#include "scenarios/json/schema.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/launch/run_files.h"
#include "sim/report/document.h"
#include "sim/report/moving_line.h"
#include "sim/tools/collective/ranks.h"
#include "sim/tools/collective/report.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

// Measures one collective alone, without a training around it.
struct CollectiveOptions {
  std::string operation;
  std::string communicators = "gloo:ring,c10d,shm:ring";  // KIND[:ALGORITHM],...
  int64_t world_size = 2;
  std::string min_bytes = "8", max_bytes = "128M";  // as given
  int64_t factor = 2;
  std::string dtype = "float32";
  int64_t iterations = 20, warmup = 5, timeout_ms = 30'000;
  uint64_t seed = 1;
  std::string json, csv, out;
  CiOptions ci;
  std::string color = "auto";
  bool quiet = false;
};

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

void measure_collectives(const CollectiveOptions& options, const std::string& worker,
                         const std::string& out_dir, CollectiveDocument* document) {
  const std::string run_dir = run_dir_of(out_dir, 0);
  bool made = false;
  try {
    make_dir(run_dir);
    made = true;
    const int64_t rows = document->spec.rows();
    MovingLine progress(!options.quiet && can_move(STDERR_FILENO));
    const CollectiveEnd end =
        execute_collective(document->spec, run_dir, worker, [&](int64_t done) {
          progress.show(fmt::format("collective {}/{}  {} %", done, rows, 100 * done / rows));
        });
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
  const Style style = style_of(options.color, STDOUT_FILENO);
  return print_result(
      options.quiet ? collective_answer(document) : collective_text(document, style), code);
}

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

void add_collective_options(CLI::App* verb, CollectiveOptions* options) {
  const char* what = "What is measured";
  const auto text = [&](const char* name, auto* value, const char* help, const char* form,
                        const char* group) {
    return verb->add_option(name, *value, help)->option_text(form)->group(group);
  };
  const auto number = [&](const char* name, int64_t* value, int64_t least, int64_t most,
                          const char* help) {
    text(name, value, help, "N", what)->check(between(least, most));
  };
  text("--communicators", &options->communicators,
       "gloo, c10d, shm, or hierarchical with N ranks a host (gloo:ring,c10d,shm:ring)",
       "KIND[:ALGORITHM[:N]],...", what);
  number("--world-size", &options->world_size, 2, 64, "Ranks, each a process of this machine (2)");
  text("--min-bytes", &options->min_bytes, "The smallest size; K, M, G are 2^10, 2^20, 2^30 (8)",
       "SIZE", what);
  text("--max-bytes", &options->max_bytes, "No size is larger (128M)", "SIZE", what);
  number("--factor", &options->factor, 2, 1024, "From a size to the next (2)");
  text("--dtype", &options->dtype, "Type of the elements (float32)",
       "float32|float64|float16|bfloat16", what)
      ->check(CLI::IsMember({"float32", "float64", "float16", "bfloat16"}));
  number("--iterations", &options->iterations, 1, 100'000, "Of each size, that count (20)");
  number("--warmup", &options->warmup, 0, 100'000, "Of each size, before them (5)");
  number("--timeout-ms", &options->timeout_ms, 1, 86'400'000, "Of each collective (30000)");
  text("--seed", &options->seed, "Number that the inputs derive from (1)", "N", what)
      ->check(between(uint64_t{0}, uint64_t{1} << 53));
  text("--json", &options->json, "Write the result as JSON (see lockstep schema --collective)",
       "FILE", "Output");
  add_ci(verb, &options->ci);
  text("--csv", &options->csv, "Write the table as CSV", "FILE", "Output");
  text("--out", &options->out, "Run directory of this invocation", "FOLDER", "Output");
  text("--color", &options->color, "When to colour verdicts", "auto|always|never", "Output")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
}

void add_collective(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<CollectiveOptions>();
  CLI::App* verb = app.add_subcommand(
      "collective", "Measure one collective alone, by size; check every result bit for bit.");
  verb->add_option("OPERATION", options->operation,
                   "all_reduce, broadcast, reduce_scatter, all_gather or all_to_all")
      ->required()
      ->option_text(fmt::format("{}", fmt::join(collective_operations(), "|")))
      ->check(CLI::IsMember(collective_operations()));
  add_collective_options(verb, options.get());
  verb->footer(R"(OPERATION is all_reduce, broadcast, reduce_scatter, all_gather or all_to_all.

Examples, from the root of the repository
  lockstep collective all_reduce --max-bytes 1M
  lockstep collective all_reduce --communicators gloo:ring,gloo:bcube,shm --world-size 3 \
    --min-bytes 1K --max-bytes 1M --factor 4 --json all_reduce.json
  lockstep collective reduce_scatter --communicators shm,hierarchical:ring:2 --world-size 4 \
    --max-bytes 64K

Exit codes
  0      measured, and every result has the bits that it must have
  1      a result has not
  2      bad input, or an output could not be written; nothing was concluded
  3      inconclusive: a rank broke down or a time-out passed, or the control was not seen
  128+n  interrupted by signal n; what was measured so far is printed)");
  verb->callback([=] { *action = [=] { return collective(*options); }; });
}

}  // namespace

Tool collective_tool() {
  return {.verb = "collective",
          .add = add_collective,
          .forms = {{"",
                     "",
                     {" --annotations --color --communicators --csv --dtype --factor --iterations "
                      " --json --junit --max-bytes --min-bytes --out --quiet --seed --timeout-ms "
                      " --warmup --world-size "}}},
          .schema = {"--collective", "Of what collective --json writes", collective_schema_text}};
}

}  // namespace lockstep
