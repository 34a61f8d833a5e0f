#include "sim/cli/sweep_runs.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/execution.h"
#include "sim/cli/worker_program.h"
#include "sim/launch/event_loop.h"
#include "sim/launch/executor.h"
#include "sim/plan/agreement.h"
#include "sim/plan/bucket_layout.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using Varied = std::vector<std::pair<std::string, std::string>>;

// An object of the scenario's file as it stands; an empty one where there is none or the file
// cannot be read, which is said elsewhere.
Json object_of_file(const std::string& path, const char* key) {
  InputErrors ignored;
  const auto bytes = read_foreign_file(path);
  Json document;
  if (!bytes || !read_json(bytes.value(), path, &document, nullptr, &ignored))
    return Json::object();
  if (!document.is_object() || !document.contains(key) || !document[key].is_object())
    return Json::object();
  return document[key];
}

template <class T>
void take(const Json& key, const char* name, T* value) {
  if (!key.contains(name)) return;
  try {
    *value = key[name].get<typename std::remove_reference_t<decltype(*value)>>();
  } catch (const nlohmann::json::exception&) {  // the schema says it with its place
  }
}

void read_file_key(const std::string& path, SweepSpec* spec) {
  const Json key = object_of_file(path, "sweep");
  if (key.contains("caps") && key["caps"].is_array()) {
    std::vector<double> caps;
    take(key, "caps", &caps);
    spec->caps = std::move(caps);
  }
  take(key, "worlds", &spec->worlds);
  take(key, "reducers", &spec->reducers);
  take(key, "steps", &spec->steps);
  take(key, "warmup", &spec->warmup);
  if (key.contains("rounds")) take(key, "rounds", &spec->rounds.emplace());
  if (key.contains("vary") && key["vary"].is_object())
    for (const auto& [pointer, values] : key["vary"].items()) {
      spec->vary.emplace_back(pointer, std::vector<std::string>());
      for (const Json& value : values) spec->vary.back().second.push_back(value.dump());
    }
  take(key, "reference", &spec->reference);
  if (!spec->reference.empty())
    spec->reference = (std::filesystem::path(path).parent_path() / spec->reference).string();
}

template <class T, class Parse>
void parse_list(const std::string& text, Parse parse, T* value, InputErrors* errors) {
  if (text.empty()) return;
  auto parsed = parse(text);
  if (parsed)
    *value = std::move(parsed.value());
  else
    errors->insert(errors->end(), parsed.errors().begin(), parsed.errors().end());
}

void parse_vary(const std::string& text, SweepSpec* spec, InputErrors* errors) {
  const size_t equals = text.find('=');
  Json values;
  InputErrors ignored;
  if (!text.starts_with('/') || equals == std::string::npos ||
      !read_json(text.substr(equals + 1), "", &values, nullptr, &ignored) || !values.is_array() ||
      values.empty()) {
    errors->push_back(
        option_error(fmt::format("--vary: \"{}\"", printable(text)), "/pointer=[value, ...]"));
    return;
  }
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(value.dump());
  const std::string pointer = text.substr(0, equals);
  if (std::set<std::string>(texts.begin(), texts.end()).size() < texts.size())
    errors->push_back(option_error(fmt::format("--vary {}: a value stands there twice", pointer),
                                   "each value once"));
  std::erase_if(spec->vary, [&](const auto& one) { return one.first == pointer; });
  spec->vary.emplace_back(pointer, std::move(texts));
}

std::string pointer_in(const std::string& text) { return text.substr(0, text.find('=')); }

// By what else a sweep says the key, whatever --set or --vary put there; empty: by nothing else.
std::string owner_of(const std::string& pointer, const SweepSpec& spec) {
  if (pointer == "/steps" || pointer == "/epochs") return "--steps";
  if (pointer == "/reducer/bucket_cap_mb") return "--caps";
  if (pointer == "/lanes" || pointer == "/expect") return "nothing: a sweep compares replicas";
  if (pointer == "/world_size" && !spec.worlds.empty()) return "--worlds";
  if (pointer == "/reducer/kind" && !spec.reducers.empty()) return "--reducers";
  return "";
}

// What would be said and then not be so.
void check_keys(const SweepOptions& options, const SweepSpec& spec, InputErrors* errors) {
  std::set<std::string> varied;
  const auto check = [&](const char* option, const std::string& pointer) {
    if (const std::string owner = owner_of(pointer, spec); !owner.empty())
      errors->push_back(option_error(
          fmt::format("{} {}: a sweep sets it itself", option, printable(pointer)), owner));
  };
  for (const std::string& text : options.vary) {
    check("--vary", pointer_in(text));
    if (!varied.insert(pointer_in(text)).second)
      errors->push_back(option_error(
          fmt::format("--vary {} is given twice", printable(pointer_in(text))), "each key once"));
  }
  for (const std::string& text : options.selection.sets) {
    const std::string pointer = pointer_in(text);
    check("--set", pointer);
    if (std::any_of(spec.vary.begin(), spec.vary.end(),
                    [&](const auto& one) { return one.first == pointer; }))
      errors->push_back(option_error(
          fmt::format("--set {}: the sweep varies it", printable(pointer)), "--vary, or --set"));
  }
}

constexpr const char* kShards = "/reducer/virtual_shards";
constexpr const char* kWithShards = "invariant";

// Every choice of one value for each pointer; of virtual shards for the reducer that has any.
std::vector<Varied> variations_of(const SweepSpec& spec, const std::string& reducer) {
  std::vector<Varied> all = {{}};
  for (const auto& [pointer, values] : spec.vary) {
    const bool none = pointer == kShards && !reducer.empty() && reducer != kWithShards;
    std::vector<Varied> longer;
    for (const Varied& begun : all)
      for (const std::string& value : none ? std::vector<std::string>{"null"} : values) {
        longer.push_back(begun);
        longer.back().emplace_back(pointer, value);
      }
    all = std::move(longer);
  }
  return all;
}

// A run measures and compares replicas, nothing else: golden runs beside it would use its cores.
struct RunKind {
  int64_t steps;
  const char* lane;
};

// Does the file's matrix vary anything of the reducer that a sweep does not set itself?
bool varies_reducer(const std::string& path) {
  const Json matrix = object_of_file(path, "matrix");
  return std::any_of(matrix.items().begin(), matrix.items().end(), [](const auto& axis) {
    const std::string& pointer = axis.key();
    return pointer.starts_with("/reducer") && pointer != "/reducer/kind" && pointer != kShards &&
           pointer != "/reducer/bucket_cap_mb";
  });
}

// Reducers without virtual shards are measured as if the file and --set said nothing of them.
std::vector<std::string> sets_without_shards(const SweepOptions& options) {
  std::vector<std::string> sets;
  const auto& paths = options.selection.paths;
  Json reducer = paths.size() == 1 ? object_of_file(paths[0], "reducer") : Json::object();
  if (reducer.erase("virtual_shards") > 0 && !varies_reducer(paths[0]))
    sets.push_back("/reducer=" + reducer.dump());
  for (const std::string& set : options.selection.sets)
    if (pointer_in(set) != kShards) sets.push_back(set);
  return sets;
}

std::vector<std::string> sets_of(const SweepOptions& options, const RunKind& kind,
                                 const Cell& cell) {
  const bool without_shards = !cell.reducer.empty() && cell.reducer != kWithShards;
  std::vector<std::string> sets =
      without_shards ? sets_without_shards(options) : options.selection.sets;
  sets.push_back(fmt::format("/steps={}", kind.steps));
  sets.push_back(fmt::format(R"(/lanes=["{}"])", kind.lane));
  sets.emplace_back(R"(/expect={"verdict": "pass"})");
  if (cell.world_size > 0) sets.push_back(fmt::format("/world_size={}", cell.world_size));
  if (!cell.reducer.empty()) sets.push_back(fmt::format("/reducer/kind=\"{}\"", cell.reducer));
  if (cell.reducer == "data_parallel")
    sets.emplace_back(R"(/communicator={"kind": "local", "algorithm": "rank_order"})");
  if (cell.cap_mb) sets.push_back(fmt::format("/reducer/bucket_cap_mb={}", *cell.cap_mb));
  for (const auto& [pointer, value] : cell.varied)
    if (!without_shards || pointer != kShards) sets.push_back(pointer + "=" + value);
  return sets;
}

InputError not_pinned(const std::string& path, const std::vector<RunPlan>& plans) {
  std::vector<std::string> axes;
  for (const auto& [axis, value] : plans.front().set)
    for (const RunPlan& plan : plans)
      for (const auto& [other, other_value] : plan.set)
        if (other == axis && other_value != value &&
            std::find(axes.begin(), axes.end(), axis) == axes.end())
          axes.push_back(axis);
  return file_error(
      printable(path), fmt::format("the matrix leaves {} runs for each combination", plans.size()),
      fmt::format("a value for each axis, by --set or --vary: {}", quoted_list(axes)));
}

// Ranks come out of hashing and comparing apart, and would wait for each other in the next step.
void compare_at_the_ends(RunPlan* plan) {
  if (!why_every_step(plan->scenario).empty()) return;
  plan->compare_every = plan->scenario.steps;
  plan->hash_between = false;
}

Expected<RunPlan> plan_of(const SweepOptions& options, const RunKind& kind, const Cell& cell) {
  Selection selection = options.selection;
  selection.sets = sets_of(options, kind, cell);
  auto files = select(selection);
  if (!files) return files.errors();
  if (files.value().size() != 1) {
    return option_error(fmt::format("{} scenario files are given", files.value().size()),
                        "one: a sweep measures one scenario");
  }
  std::vector<RunPlan>& plans = files.value().front().plans;
  if (plans.size() != 1) return not_pinned(files.value().front().path, plans);
  const auto worker = find_worker();  // who measures says where there is none
  if (worker)
    if (auto error = settle_device(worker.value(), options.quiet, &plans.front())) return *error;
  return std::move(plans.front());
}

std::optional<RunPlan> check_of(const SweepOptions& options, const Cell& cell) {
  constexpr int64_t kSteps = 2;
  if (cell.plan.scenario.reducer.kind != "data_parallel") return std::nullopt;
  auto plan = plan_of(options, {kSteps, "float64"}, cell);
  if (!plan || plan.value().goldens.empty()) return std::nullopt;
  return std::move(plan.value());
}

// Of one reducer: with every cap, or without where it has none.
void add_cells(const SweepOptions& options, const SweepSpec& spec, const std::vector<double>& caps,
               Cell cell, std::vector<Cell>* cells, InputErrors* errors) {
  for (size_t i = 0; i < std::max<size_t>(1, caps.size()); ++i) {
    if (!caps.empty()) cell.cap_mb = caps[i];
    auto plan = plan_of(options, {spec.warmup + spec.steps, "replica"}, cell);
    if (!plan) {
      for (const InputError& error : plan.errors())
        if (std::none_of(errors->begin(), errors->end(),
                         [&](const InputError& known) { return to_text(known) == to_text(error); }))
          errors->push_back(error);
      return;
    }
    Cell made = cell;
    made.plan = std::move(plan.value());
    compare_at_the_ends(&made.plan);
    made.world_size = made.plan.scenario.world_size;
    made.reducer = made.plan.scenario.reducer.kind;
    const bool capped = has_cap(made.plan);
    if (!capped) made.cap_mb.reset();
    made.check = check_of(options, made);
    cells->push_back(std::move(made));
    if (!capped) return;
  }
}

}  // namespace

Expected<SweepSpec> sweep_spec(const SweepOptions& options) {
  SweepSpec spec;
  InputErrors errors;
  if (options.selection.paths.size() == 1) read_file_key(options.selection.paths[0], &spec);
  if (options.caps == "auto") {
    spec.caps.reset();
  } else if (!options.caps.empty()) {
    std::vector<double> caps;
    const size_t known = errors.size();
    parse_list(options.caps, parse_caps, &caps, &errors);
    for (size_t i = known; i < errors.size(); ++i) errors[i].allowed += "; or auto";
    spec.caps = std::move(caps);
  }
  parse_list(options.worlds, parse_worlds, &spec.worlds, &errors);
  parse_list(options.reducers, parse_reducers, &spec.reducers, &errors);
  for (const std::string& text : options.vary) parse_vary(text, &spec, &errors);
  spec.steps = options.steps.value_or(spec.steps);
  spec.warmup = options.warmup.value_or(spec.warmup);
  if (options.rounds) spec.rounds = options.rounds;
  if (!options.reference.empty()) spec.reference = options.reference;
  if (spec.caps) std::sort(spec.caps->begin(), spec.caps->end());
  check_keys(options, spec, &errors);
  if (!errors.empty()) return errors;
  return spec;
}

Expected<std::vector<Cell>> sweep_cells(const SweepOptions& options, const SweepSpec& spec,
                                        const std::vector<double>& caps) {
  std::vector<Cell> cells;
  InputErrors errors;
  const auto worlds = spec.worlds.empty() ? std::vector<int64_t>{0} : spec.worlds;
  const auto reducers = spec.reducers.empty() ? std::vector<std::string>{""} : spec.reducers;
  for (const int64_t world : worlds)
    for (const std::string& reducer : reducers)
      for (const Varied& varied : variations_of(spec, reducer)) {
        Cell cell;
        cell.world_size = world;
        cell.reducer = reducer;
        cell.varied = varied;
        add_cells(options, spec, caps, std::move(cell), &cells, &errors);
      }
  if (!errors.empty()) return errors;
  return merged_by_layout(std::move(cells));
}

namespace {

// By lane replica, or of a check by lane float64, the only one that is asked for.
std::string replicas_of(const RunResult& result) {
  for (const LaneResult& lane : result.lanes) {
    if (lane.verdict == LaneVerdict::pass) return "same";
    if (lane.verdict == LaneVerdict::fail) return "differ";
  }
  return "not_compared";
}

std::string why_broken(const RunResult& result) {
  if (result.failure) return result.failure->message;
  for (const std::string& reason : result.check_reasons) return reason;
  return "no step after the warm-up was recorded whole";
}

}  // namespace

class SweepRuns::Interrupts : public Signals {};

SweepRuns::SweepRuns(const Options& options)
    : options_(options),
      interrupts_(std::make_unique<Interrupts>()),
      quickest_ms_(quiet_spin_ms()),
      last_spin_ms_(quickest_ms_) {}

SweepRuns::~SweepRuns() = default;

bool SweepRuns::stopped() {
  if (signal_ == 0) signal_ = interrupts_->next();
  return signal_ != 0 || !broken_.empty();
}

// The spin after a run is the one before the next.
std::optional<SweepRuns::Measured> SweepRuns::run(const RunPlan& plan, const std::string& label) {
  std::optional<RunResult> result;
  Spins spins{last_spin_ms_, 0};
  try {
    signal_ =
        execute({plan}, {.out_dir = options_.out_dir, .worker_program = options_.worker, .jobs = 1},
                [&](size_t, const RunOutcome& outcome) {
                  spins.after_ms = last_spin_ms_ = settled_spin_ms(quickest_ms_);
                  if (!outcome.interrupted)
                    result = judge_run(outcome, {.metrics = true, .intervals = true});
                  return result && result->outcome != RunEnding::completed;
                });
  } catch (const std::exception& error) {
    broken_.push_back(fmt::format("{}: {}", label, error.what()));
  }
  quickest_ms_ = std::min(quickest_ms_, last_spin_ms_);
  if (signal_ != 0 || !result) return std::nullopt;
  return Measured{std::move(*result), spins};
}

void SweepRuns::measure_once(const std::vector<Cell>& cells, size_t cell, int64_t round,
                             Progress* progress) {
  for (int64_t attempt = 0;; ++attempt) {
    const auto measured = run(cells[cell].plan, label_of(cells[cell]));
    if (!measured) return;
    const auto numbers = numbers_of(measured->result, options_.warmup);
    if (!numbers || measured->result.outcome != RunEnding::completed) {
      broken_.push_back(fmt::format("{}: {}", label_of(cells[cell]), why_broken(measured->result)));
      return;
    }
    // Where half of all is disturbed, repeating does not help.
    const bool hope = repeated_ <= 2 + static_cast<int64_t>(runs_.size()) / 2;
    const bool again = options_.repeat && hope && attempt < kRepeats &&
                       is_contaminated(measured->spins, quickest_ms_);
    const std::string replicas =
        checked_.contains(cell) ? checked_[cell] : replicas_of(measured->result);
    if (again && replicas != "differ" && !stopped()) {
      ++repeated_;
      continue;
    }
    runs_.push_back({cell, round, measured->spins, replicas, *numbers});
    if (cell == sampled_)
      samples_.push_back(
          samples_of(cells[cell].plan, *measured->result.intervals, label_of(cells[cell])));
    progress->done(measured->result);
    return;
  }
}

void SweepRuns::check(const std::vector<Cell>& cells) {
  for (size_t cell = 0; cell < cells.size() && !stopped(); ++cell) {
    if (!cells[cell].check) continue;
    const auto checked = run(*cells[cell].check, label_of(cells[cell]));
    if (!checked) return;
    checked_[cell] = replicas_of(checked->result);
  }
}

void SweepRuns::measure(const std::vector<Cell>& cells, int64_t rounds, Progress* progress) {
  check(cells);
  for (int64_t round = 0; round < rounds; ++round)
    for (const size_t cell : order_of_round(cells.size(), round, options_.seed)) {
      if (stopped()) return;
      measure_once(cells, cell, round, progress);
    }
}

std::optional<RunResult> SweepRuns::pilot(const Cell& cell) {
  if (stopped()) return std::nullopt;
  auto measured = run(cell.plan, label_of(cell));
  if (!measured) return std::nullopt;
  return std::move(measured->result);
}

MachineVerdict SweepRuns::machine() const {
  std::vector<Spins> spins;
  for (const SweepRun& run : runs_) spins.push_back(run.spins);
  return machine_verdict(spins, quickest_ms_, repeated_);
}

}  // namespace lockstep
