#include <memory>

#include "sim/cli/app_options.h"
#include "sim/cli/collective.h"
#include "sim/cli/range.h"

namespace lockstep {
namespace {

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
  text("--out", &options->out, "Run directory of this invocation", "DIR", "Output");
  text("--color", &options->color, "When to colour verdicts", "auto|always|never", "Output")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
}

}  // namespace

void add_collective(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<CollectiveOptions>();
  CLI::App* verb = app.add_subcommand(
      "collective", "Measure one collective alone, by size; check every result bit for bit.");
  verb->add_option("OPERATION", options->operation,
                   "all_reduce, broadcast, reduce_scatter or all_gather")
      ->required()
      ->option_text("all_reduce|broadcast|reduce_scatter|all_gather")
      ->check(CLI::IsMember({"all_reduce", "broadcast", "reduce_scatter", "all_gather"}));
  add_collective_options(verb, options.get());
  verb->footer(R"(OPERATION is all_reduce, broadcast, reduce_scatter or all_gather.

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

}  // namespace lockstep
