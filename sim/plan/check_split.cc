#include <fmt/format.h>

#include "scenarios/scenario.h"
#include "scenarios/split.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class SplitCheck : PartCheck {
 public:
  SplitCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const size_t before = errors_->size();
    has_sampler(s_.split) ? sampler() : batches();
    if (errors_->size() == before) enough_samples();
    if (errors_->size() == before) micro_batches();
  }

 private:
  bool divides() const { return s_.batch_size % s_.world_size == 0; }

  void batches() {
    const int64_t samples = s_.data.options.integer("samples");
    const Options& options = s_.split.options;
    const bool refuses = !options.has("remainder") || options.text("remainder") == "refuse";
    // Averaged plainly, ranks with fewer samples would count too much.
    if (!divides() && refuses && s_.averaging != "sample_weighted")
      fail("/world_size",
           fmt::format("a batch of {} samples cannot be split evenly over {} ranks", s_.batch_size,
                       s_.world_size),
           "a world size that divides the batch");
    if (samples % s_.batch_size != 0)
      fail("/data/samples",
           fmt::format("{} samples are not a multiple of the batch, {}", samples, s_.batch_size),
           fmt::format("a multiple of {}", s_.batch_size));
  }

  // A sampler's ranks have equally many samples, and batches of one size.
  void sampler() {
    if (!divides())
      fail("/world_size",
           fmt::format("a batch of {} samples is no batch of the same size on each of {} ranks",
                       s_.batch_size, s_.world_size),
           "a world size that divides the batch");
    if (s_.data.options.integer("samples") > kMostShuffled)
      fail("/data/samples", "no sampler of ours shuffles so many samples",
           fmt::format("at most {}", kMostShuffled));
  }

  void enough_samples() {
    const Split split(s_);
    if (split.least_shard() > 0) return;
    fail("/world_size",
         fmt::format("{} samples leave none for some of {} ranks",
                     has_sampler(s_.split) ? s_.data.options.integer("samples") : s_.batch_size,
                     s_.world_size),
         "a sample for every rank");
  }

  void micro_batches() {
    for (const int64_t shard : Split(s_).shard_sizes()) {
      if (shard % s_.accumulate_steps == 0) continue;
      return fail("/accumulate_steps",
                  fmt::format("a rank's {} samples cannot be split into {} equal micro-batches",
                              shard, s_.accumulate_steps),
                  fmt::format("a divisor of {}", shard));
    }
  }

  static constexpr int64_t kMostShuffled = 100'000'000;  // see random_permutation()
};

// On one node nothing is wrong, which is a scenario too.
void check_batch_per_node(const Scenario& s, const MutantSpec& mutant, const std::string& pointer,
                          InputErrors* errors) {
  if (mutant.kind != "batch_per_node") return;
  const int64_t ranks = ranks_per_node(s.split);
  const auto need = [&](bool good, const std::string& message, const std::string& allowed) {
    if (!good) errors->push_back({"", 0, 0, pointer, message, allowed});
    return good;
  };
  if (!need(ranks > 0 && s.world_size % ranks == 0, "batch_per_node without whole nodes",
            fmt::format("a split.ranks_per_node that divides {}", s.world_size)))
    return;
  const int64_t batch = s.batch_size / ranks * s.world_size;
  need(s.split.kind != "manual" && s.batch_size % ranks == 0, "batch_per_node cannot act here",
       "another split than manual, and a batch that ranks_per_node divides");
  need(has_sampler(s.split) || s.data.options.integer("samples") % batch == 0,
       fmt::format("ranks that take batches of {} samples need whole ones", batch),
       fmt::format("a data.samples that is a multiple of {}", batch));
}

}  // namespace

// A defect that cannot show is a mistake of the scenario's.
void check_sample_mutant(const Scenario& scenario, const MutantSpec& mutant,
                         const std::string& pointer, InputErrors* errors) {
  const auto need = [&](const char* kind, bool good, const std::string& allowed) {
    if (mutant.kind == kind && !good)
      errors->push_back({"", 0, 0, pointer, fmt::format("{} cannot act here", kind), allowed});
  };
  need("plain_average",
       scenario.averaging == "sample_weighted" && Split(scenario).shard_sizes().size() > 1,
       "averaging sample_weighted over shards of different sizes");
  need("no_set_epoch",
       shuffles_each_epoch(scenario.split) && scenario.steps > Split(scenario).steps_per_epoch(),
       "a sampler that shuffles each epoch, and two epochs");
  need("unordered_delivery",
       scenario.steps > 1 && Split(scenario).steps_per_epoch() > 1 &&
           loader_workers(scenario.data) > 1,
       "several batches, and data.workers of 2 or more");
  for (const char* kind : {"duplicate_shard", "unordered_delivery"})
    need(kind, Split(scenario).is_even(), "equally many batches on all ranks");
  need("no_shuffle", scenario.split.kind == "distributed" && scenario.split.options.flag("shuffle"),
       "a distributed split that shuffles");
  check_batch_per_node(scenario, mutant, pointer, errors);
}

void check_split(const Scenario& scenario, InputErrors* errors) {
  SplitCheck(scenario, errors).run();
}

}  // namespace lockstep
