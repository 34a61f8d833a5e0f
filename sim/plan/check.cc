#include <fmt/format.h>

#include <algorithm>

#include "scenarios/base/part.h"
#include "sim/plan/agreement.h"
#include "sim/plan/lanes.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

constexpr int64_t kMostThreads = 64;
constexpr int64_t kMostProcesses = 256;

class ScenarioCheck : PartCheck {
 public:
  ScenarioCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (world_size()) check_invariant(s_, errors_);
    if (errors_->empty()) check_join(s_, errors_);
    if (errors_->empty()) check_split(s_, errors_);
    can_split_ = errors_->empty();
    check_files(s_, errors_);
    communicator();
    check_shapes(s_, errors_);
    model();
    reducer();
    check_registered(s_, errors_);
    check_sharing(s_, errors_);
    check_training(s_, errors_);
    check_parameters(s_, errors_);
    check_wrapping(s_, errors_);
    check_devices(s_, errors_);
    powers_of_two();
    comparisons();
    check_checkpoint(s_, errors_);
    check_local_steps(s_, errors_);
    if (asks_for(s_, Lane::exact)) exact();
    for (size_t i = 0; i < s_.mutants.size(); ++i) mutant(i, s_.mutants[i]);
    check_mutants(s_, errors_);
    if (s_.compute.kind == "emulated") check_emulated(s_, errors_);
    need(s_.compute.kind == "emulated" || !is_only_described(s_.model.kind), "/model/kind",
         fmt::format("model {} is known by its parameters alone: nothing computes it",
                     s_.model.kind),
         "/compute/kind \"emulated\"");
  }

 private:
  bool world_size() {
    const bool threads = s_.communicator.kind == "local";
    const int64_t most = threads ? kMostThreads : kMostProcesses;
    if (s_.world_size >= 1 && s_.world_size <= most) return true;
    fail("/world_size", fmt::format("/world_size is {}", s_.world_size),
         fmt::format("an integer >= 1 and <= {} ({} of one machine)", most,
                     threads ? "threads" : "processes"));
    return false;
  }

  void communicator() {
    const std::string& kind = s_.communicator.kind;
    const std::string& algorithm = s_.communicator.options.text("algorithm");
    const std::vector<std::string> tcp = {"ring", "bcube", "halving_doubling", "ring_chunked"};
    const bool common = std::find(tcp.begin(), tcp.end(), algorithm) != tcp.end();
    const bool good =
        kind == "c10d" ? algorithm == "ring" : common || kind == "local" || kind == "shm";
    if (kind != "hierarchical" && s_.communicator.options.has("ranks_per_host"))
      fail("/communicator/ranks_per_host",
           fmt::format("communicator \"{}\" has no ranks_per_host", kind),
           "communicator \"hierarchical\"");
    if (good) return;
    fail("/communicator/algorithm",
         fmt::format("communicator \"{}\" has no algorithm \"{}\"", kind, algorithm),
         kind == "c10d" ? "\"ring\"" : "ring, bcube, halving_doubling or ring_chunked");
  }

  void model() {
    const Options& options = s_.model.options;
    if (s_.model.kind == "two_heads" && options.text("in_loss") == "both" &&
        options.text("returned") == "left")
      fail("/model/in_loss", "the loss takes both outputs, but only the left one is returned",
           "\"left\", or /model/returned \"both\"");
    if (s_.model.kind != "gpt" || options.integer("width") % options.integer("heads") == 0) return;
    fail("/model/heads",
         fmt::format("/model/width, {}, cannot be split into {} heads", options.integer("width"),
                     options.integer("heads")),
         fmt::format("a divisor of {}", options.integer("width")));
  }

  void reducer() {
    const std::string& kind = s_.reducer.kind;
    const Options& options = s_.reducer.options;
    if (options.text("write_back") == "per_bucket") write_back(kind, options);
    for (const char* bound : {"error", "owed"})
      need(!s_.comm_hook.options.has(bound) || asks_for(s_, Lane::communication),
           std::string("/comm_hook/") + bound,
           "only lane communication judges what a comm hook loses",
           "lane \"communication\" among /lanes");
    if (s_.comm_hook.kind == "none" || kind == "bucketed" || kind == "c10d") return;
    fail("/comm_hook/kind", fmt::format("reducer \"{}\" has no comm hooks", kind),
         "reducer bucketed or c10d");
  }

  void write_back(const std::string& kind, const Options& options) {
    need(kind == "bucketed", "/reducer/write_back",
         fmt::format("reducer \"{}\" writes back when it does", kind),
         "\"at_end\", or reducer bucketed");
    need(!options.flag("find_unused_parameters") && !options.flag("static_graph"),
         "/reducer/write_back",
         "which parameters no rank has used is known at the end, after all buckets", "\"at_end\"");
  }

  void comparisons() {
    if (s_.compare_every <= 1) return;
    const std::string why = why_every_step(s_);
    need(why.empty(), "/compare_every", why, "1, or 0");
  }

  void powers_of_two() {
    if (s_.requantize != 0) power_of_two("/requantize", static_cast<double>(s_.requantize));
    if (s_.data.kind != "dyadic") return;
    const Options& options = s_.data.options;
    power_of_two("/data/denominator", options.number("denominator"));
    if (options.number("low") >= options.number("high"))
      fail("/data/high",
           fmt::format("/data/high is {}, but /data/low is {}", options.number("high"),
                       options.number("low")),
           "more than low");
  }
  void power_of_two(const std::string& pointer, double value) {
    if (!is_power_of_two(value))
      fail(pointer, fmt::format("{} is {}", pointer, value), "a power of two");
  }

  // Lane exact holds only where nothing rounds (docs/numerics.md). Random data passes here: it is
  // the control that must fail.
  void exact() {
    const auto need = [&](bool good, const char* pointer, const std::string& allowed) {
      if (!good)
        fail(pointer, fmt::format("{} does not suit lane exact, which must not round", pointer),
             allowed);
    };
    const Options& loss = s_.loss.options;
    need(s_.dtype == "float64", "/dtype", "\"float64\"");
    need(s_.requantize > 0, "/requantize", "a power of two such as 64");
    need(loss.text("reduction") == "sum", "/loss/reduction", "\"sum\"");
    need(is_power_of_two(loss.number("scale")), "/loss/scale", "a power of two");
    need(loss.flag("times_world_size") || is_power_of_two(static_cast<double>(shards_of(s_))),
         "/loss/times_world_size", "true, or a world size that is a power of two");
    need(s_.loss.kind == "mse", "/loss/kind", "\"mse\"");
    need(s_.model.kind == "linear" || s_.model.kind == "mlp", "/model/kind",
         "\"linear\" or \"mlp\"");
    need(s_.model.kind != "mlp" || s_.model.options.text("activation") == "relu",
         "/model/activation", "\"relu\"");
  }

  void mutant(size_t index, const MutantSpec& mutant) {
    const std::string at = fmt::format("/mutants/{}", index);
    const int64_t ranks = is_of_shards(mutant) ? shards_of(s_) : s_.world_size;
    if (mutant.rank && *mutant.rank >= ranks)
      fail(at + "/rank", fmt::format("there is no rank {}", *mutant.rank),
           fmt::format("a rank from 0 to {}", ranks - 1));
    if (mutant.step && *mutant.step > s_.steps)
      fail(at + "/step", fmt::format("there is no step {}", *mutant.step),
           fmt::format("a step from 1 to {}", s_.steps));
    if (mutant.kind == "duplicate_shard" && shards_of(s_) < 2)
      fail(at + "/kind", "duplicate_shard needs another rank", "a world size of at least 2");
    if (can_split_) check_sample_mutant(s_, mutant, at + "/kind", errors_);
    if (can_split_) check_data_mutant(s_, mutant, at, errors_);
  }

  bool can_split_ = false;
};

}  // namespace

void check_scenario(const Scenario& scenario, const SimulatedSize& simulated, InputErrors* errors) {
  ScenarioCheck(scenario, errors).run();
  check_faults(scenario, simulated, errors);
  check_fsdp(scenario, simulated, errors);
}

namespace {

class RegisteredCheck : PartCheck {
 public:
  RegisteredCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (s_.reducer.kind == "registered")
      need(s_.reducer.options.has("name"), "/reducer/name",
           "missing key \"name\" in /reducer of kind \"registered\"",
           "the name under which the reducer is registered");
    else
      shipped_reducer();
    need(s_.data.kind != "registered" || s_.split.kind != "manual" || s_.world_size == 1,
         "/split/kind",
         "rank 0 alone would draw the data, and what a sample of a registered set looks like is "
         "not known to the others",
         "\"distributed\" or another split by which every rank takes its own");
  }

 private:
  void shipped_reducer() {
    const Options& options = s_.reducer.options;
    const auto only = [&](bool good, const char* key) {
      need(good, std::string("/reducer/") + key,
           fmt::format("reducer \"{}\" has no {}", s_.reducer.kind, key), "kind \"registered\"");
    };
    only(!options.has("name"), "name");
    only(options.text("same_bits_as") == "none", "same_bits_as");
    only(own_options(options).all().empty(), "options");
  }
};

}  // namespace

void check_registered(const Scenario& scenario, InputErrors* errors) {
  RegisteredCheck(scenario, errors).run();
}

}  // namespace lockstep
