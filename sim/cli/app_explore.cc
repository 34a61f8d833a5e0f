#include <memory>

#include "sim/cli/app_options.h"
#include "sim/cli/explore.h"
#include "sim/cli/range.h"

namespace lockstep {
namespace {

void add_schedules(CLI::App* verb, ExploreSpec* spec) {
  const char* group = "Which schedules";
  verb->add_option("--schedules", spec->schedules, "At most so many of each scenario (10000)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{1'000'000'000}))
      ->group(group);
  verb->add_option("--preemptions", spec->preemptions,
                   "Interruptions of ranks that could go on (0 to 3, drawn; exhaustive: 2)")
      ->option_text("D")
      ->check(between(int64_t{0}, int64_t{64}))
      ->group(group);
  auto* exhaustive = verb->add_flag("--exhaustive", spec->exhaustive,
                                    "Every schedule within these bounds, depth first")
                         ->group(group);
  verb->add_option("--replay", spec->replay, "Only the schedule of this seed, a hundred times")
      ->option_text("SEED")
      ->check(between(uint64_t{1}, uint64_t{1} << 53))
      ->excludes(exhaustive)
      ->group(group);
  verb->add_flag("--all", spec->all, "Go on after a finding; report the first of each kind")
      ->group(group);
}

}  // namespace

void add_explore(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ExploreOptions>();
  CLI::App* verb = app.add_subcommand(
      "explore", "Run reducers under thousands of schedules; find races, deadlocks, mismatches.");
  add_selection(verb, &options->selection, true);
  add_schedules(verb, &options->spec);
  verb->add_option("--json", options->json,
                   "Write the result as JSON (see lockstep schema --explore)")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--color", options->color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->add_option("--jobs", options->spec.jobs, "Groups of ranks side by side (as processors)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{256}))
      ->group("How");
  verb->footer(footer(R"(  lockstep explore scenarios/explore/toy.json --schedules 30000
  lockstep explore scenarios/explore/skip_wait.json --json skip_wait.json
  lockstep explore scenarios/equivalence/toy_model.json --set /world_size=2 --set /steps=1 \
    --exhaustive --preemptions 1
)"));
  verb->callback([=] { *action = [=] { return explore(*options); }; });
}

}  // namespace lockstep
