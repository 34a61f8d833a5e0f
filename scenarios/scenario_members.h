#pragma once

#include <cstdint>
#include <optional>

#include "scenarios/scenario.h"

namespace lockstep {

// The one list of members for each struct of a scenario. Reading, writing (scenario_json.cc) and
// the schema (scenario_schema.cc) walk it. A new key is a member, its row here, and its use; then
// `LOCKSTEP_WRITE_DOCS=1 build/test/bin/test_scenarios --gtest_filter=ScenarioSchema.*` writes
// scenarios/schema.json anew. What a part with a kind may hold is in
// scenarios/scenario_parts_schema.json.

struct Bounds {
  std::optional<double> least, most;
  bool excludes_least = false;
};

// A key, what it says to a user, and what it may be: bounds are those of a number or of each number
// in a list, `size` those of the characters of a text or the items of a list.
struct MemberRow {
  const char* key;
  const char* description = nullptr;
  Bounds bounds = {};
  Bounds size = {};
  const char* words = nullptr;  // with a space between: all that a text, or each in a list, may be
  const char* each = nullptr;   // the description of an item
  // Where it is not given: the value that the struct begins with, or `instead`, or nothing.
  bool has_default = true;
  std::optional<uint64_t> instead = {};
};

inline constexpr Bounds kRanks{0, 999'999}, kBuckets{0, 16'777'216}, kSteps{1, 10'000'000};
inline constexpr Bounds kSamples{1, 2'147'483'648}, kWeekInMs{1, 604'800'000};
inline constexpr Bounds kNotEmpty{1, std::nullopt};

// `use` is called with each MemberRow and what it describes, in the order of a document.
template <class S, class F>
void plain_members(S& s, F use) {
  use({.key = "name",
       .description = "Short name in tables and reports.",
       .size = {1, 80},
       .has_default = false},
      s.name);
  use({.key = "what",
       .description = "One line that says what the scenario shows; printed by `scenario list`.",
       .size = {1, 400},
       .has_default = false},
      s.what);
  use({.key = "seed",
       .description = "The one number that all randomness derives from.",
       .bounds = {0, 9'007'199'254'740'992},
       .instead = kDefaultSeed},
      s.seed);
  use({.key = "world_size",
       .description = "Number of ranks.",
       .bounds = {1, 1'000'000},
       .has_default = false},
      s.world_size);
  use({.key = "steps",
       .description = "Training steps; a step is forward, backward, synchronization and update. "
                      "Give steps or epochs.",
       .bounds = kSteps,
       .has_default = false},
      s.steps);
  use({.key = "batch_size",
       .description = "Samples of one step over all ranks: a multiple of world_size. Default: all "
                      "of data.samples. Give at most one of batch_size, batch_size_per_rank and "
                      "samples_per_rank.",
       .bounds = kSamples,
       .has_default = false},
      s.batch_size);
  use({.key = "dtype",
       .description = "Type of weights, data and gradients.",
       .words = "float32 float64 bfloat16"},
      s.dtype);
  use({.key = "device",
       .description =
           "Where the ranks compute. fake: on devices of their own whose memory is the host's and "
           "whose arithmetic is the CPU's, bit for bit; tensors on different devices cannot be "
           "mixed, as on real ones. cuda: on GPUs; of n devices of a host its rank r has number r "
           "modulo n, so that ranks may share one (DDP itself wants one process for each device). "
           "auto: cuda where this machine has it and the scenario can run there, else cpu.",
       .words = "cpu fake cuda auto"},
      s.device);
  use({.key = "golden_device",
       .description =
           "Of device cuda, where golden runs compute. same: on the GPU, deterministically. cpu: "
           "on the cpu, whose bits differ: for lanes rounding, float64 and exact.",
       .words = "same cpu"},
      s.golden_device);
  use({.key = "devices_per_rank",
       .description = "Devices over which each rank's model is spread, layer after layer: rank r "
                      "of n devices each has those from r x n on. Model mlp, device fake.",
       .bounds = {1, 8}},
      s.devices_per_rank);
  use({.key = "streams",
       .description = "Of fake devices. in_order: all is done when a call returns. late: as an "
                      "accelerator's streams at their latest: what has not been waited for, by an "
                      "event or on the host, is not there yet, and a reader gets NaN. "
                      "Collectives go over the host's memory, by a stream of their own.",
       .words = "in_order late"},
      s.streams);
  use({.key = "device_ids",
       .description = "As DDP's: the one device of the rank, from 0, on which its whole model "
                      "lives. Not for a model over several devices.",
       .bounds = {0, 7},
       .size = {std::nullopt, 8}},
      s.device_ids);
  use({.key = "threads",
       .description = "Threads per rank for LibTorch and BLAS. Another number may give other bits.",
       .bounds = {1, 64}},
      s.threads);
  use({.key = "rng",
       .description =
           "per_part: data and model are drawn from substreams of their own. global_data_first: "
           "one generator, seeded with `seed`, draws the data and then the model.",
       .words = "per_part global_data_first"},
      s.rng);
  use({.key = "rank_seeds",
       .description = "Whether ranks build their models from different or equal seeds; rank 0's "
                      "weights are broadcast at construction.",
       .words = "different equal"},
      s.rank_seeds);
  use({.key = "zero_grad",
       .description =
           "What happens to gradients before each forward: set to zero in place, or to none.",
       .words = "zero none"},
      s.zero_grad);
  use({.key = "requantize",
       .description = "Rounds every weight to a multiple of 1 / this power of two after each step "
                      "(lane exact); 0: off.",
       .bounds = {0, 1'048'576}},
      s.requantize);
  use({.key = "compare_every",
       .description =
           "States are compared after the first step, after every step that this divides, and "
           "after the last; in between, gradients of the ranks by their hashes. 0: after every "
           "step, or from 10 million parameters on after every tenth.",
       .bounds = {0, 10'000'000}},
      s.compare_every);
  use({.key = "accumulate_steps",
       .description = "Gradient accumulation: a rank's samples of a step come in this many equal "
                      "micro-batches. The loss of each is divided by their number.",
       .bounds = {1, 4'096}},
      s.accumulate_steps);
  use({.key = "accumulate_sync",
       .description = "last: only the last micro-batch of a step is synchronized, the others are "
                      "under no_sync. each: every one is (no_sync forgotten): the same gradients, "
                      "more communication.",
       .words = "last each"},
      s.accumulate_sync);
  use({.key = "frozen",
       .description = "Parameters that are not trained (requires_grad false), by name or by the "
                      "name of their layer: \"fc1\" stands for fc1.weight and fc1.bias.",
       .size = {std::nullopt, 1'000},
       .each = "A parameter, or the part before a dot in its name."},
      s.frozen);
  use({.key = "ignored",
       .description = "Parameters and buffers that the reducer ignores, as DDP does with "
                      "those of _set_params_and_buffers_to_ignore_for_model: no broadcast, no "
                      "bucket. Names as of `frozen` (bucketed and c10d only).",
       .size = {std::nullopt, 1'000},
       .each = "A parameter or buffer, or the part before a dot in its name."},
      s.ignored);
  use({.key = "wrapped_modules",
       .description =
           "Modules with a reducer each, all over one communicator, instead of one reducer for the "
           "whole model: the part before a dot in the names of all parameters, in the order in "
           "which a forward comes to them (bucketed and c10d only).",
       .size = {std::nullopt, 100},
       .each = "The part before a dot in a parameter's name."},
      s.wrapped_modules);
  use({.key = "averaging",
       .description = "mean: the gradients of all ranks have equal weight. sample_weighted: by the "
                      "rank's number of samples, for shards of different sizes.",
       .words = "mean sample_weighted"},
      s.averaging);
  use({.key = "time_scale",
       .description = "All time-outs, durations of faults and emulated compute times are "
                      "multiplied by it, so that a time-out of 30 minutes can be reproduced in "
                      "seconds. Defaults of time-outs are not.",
       .bounds = {0, 1, true}},
      s.time_scale);
  use({.key = "common_checks",
       .description = "Also record what four common checks would have found, without effect on the "
                      "verdict: losses within 5 % and gradient "
                      "norms within 8 % of a run on one device, the same weights on all ranks, and "
                      "weights that torch.testing.assert_close finds equal to those of one device. "
                      "Under emulated compute they are not run."},
      s.common_checks);
  use({.key = "lanes",
       .description = lane_descriptions().c_str(),
       .size = kNotEmpty,
       .words = lane_words().c_str(),
       .has_default = false},
      s.lanes);
}

template <class S, class F>
void part_members(S& s, F use) {
  use({.key = "model"}, s.model);
  use({.key = "data"}, s.data);
  use({.key = "split"}, s.split);
  use({.key = "loss"}, s.loss);
  use({.key = "optimizer"}, s.optimizer);
  use({.key = "optimizer_sharding"}, s.optimizer_sharding);
  use({.key = "reducer"}, s.reducer);
  use({.key = "communicator"}, s.communicator);
  use({.key = "lr_schedule"}, s.lr_schedule);
  use({.key = "clipping"}, s.clipping);
  use({.key = "loss_scaling"}, s.loss_scaling);
  use({.key = "comm_hook"}, s.comm_hook);
  use({.key = "model_averaging"}, s.model_averaging);
  use({.key = "checkpoint"}, s.checkpoint);
  use({.key = "compute"}, s.compute);
  use({.key = "timeouts"}, s.timeouts);
  use({.key = "mutants",
       .description = "Defects put in on purpose, which the lanes must find.",
       .size = {std::nullopt, 16}},
      s.mutants);
  use({.key = "faults",
       .description = "What goes wrong on purpose while the ranks train: late, stopped, dead or "
                      "confused ranks, bad links. Misconfigured ranks are wrong in every pass; all "
                      "other faults act in the primary run only.",
       .size = {std::nullopt, 64}},
      s.faults);
}

template <class S, class F>
void golden_member(S& s, F use) {
  use({.key = "golden",
       .description =
           "A stored golden result to compare with as well: its path, relative to this file.",
       .size = kNotEmpty},
      s.golden);
}

template <class T, class F>
void timeout_members(T& t, F use) {
  use({.key = "collective_ms",
       .description = "One collective. Default 30,000.",
       .bounds = kWeekInMs,
       .has_default = false},
      t.collective_ms);
  use({.key = "construction_ms",
       .description = "Construction of the reducer.",
       .bounds = kWeekInMs,
       .has_default = false},
      t.construction_ms);
  use({.key = "step_ms", .description = "One step.", .bounds = kWeekInMs, .has_default = false},
      t.step_ms);
  use({.key = "rendezvous_ms",
       .description = "Until all ranks have found each other.",
       .bounds = kWeekInMs,
       .has_default = false},
      t.rendezvous_ms);
  use({.key = "run_ms", .description = "The whole run.", .bounds = kWeekInMs, .has_default = false},
      t.run_ms);
}

template <class M, class F>
void mutant_members(M& mutant, F use) {
  use({.key = "kind"}, mutant.kind);
  use({.key = "rank", .description = "Acts on this rank only.", .bounds = kRanks}, mutant.rank);
  use({.key = "step", .description = "Acts in this step only (from 1).", .bounds = kSteps},
      mutant.step);
  use({.key = "bucket", .description = "Acts on this bucket only (from 0).", .bounds = kBuckets},
      mutant.bucket);
  use({.key = "tensor", .description = "Acts on this parameter only.", .size = kNotEmpty},
      mutant.tensor);
  use({.key = "element",
       .description = "An element of the tensor, or of the bucket, from 0, flat; one past its end: "
                      "the last. Default 0.",
       .bounds = {0, 1'099'511'627'776}},
      mutant.element);
  use({.key = "bit",
       .description = "flip_bit, flip_gradient, flip_contribution: the bit of the element, from "
                      "the lowest. Default: the highest of the mantissa.",
       .bounds = {0, 63}},
      mutant.bit);
  use({.key = "other",
       .description = "swap_shards: the rank with which `rank` swaps.",
       .bounds = kRanks},
      mutant.other);
}

template <class E, class F>
void expected_members(E& expect, F use) {
  use({.key = "verdict", .description = "Of the run.", .words = "pass fail inconclusive"},
      expect.verdict);
  use({.key = "lanes", .description = "Verdicts of single lanes."}, expect.lanes);
  use({.key = "checks"}, expect.checks);
  use({.key = "cause",
       .description = "Class of what is wrong.",
       .words = "wrong_divisor wrong_scale missing_bucket missing_gradient stale_gradient "
                "doubled_gradient misplaced_gradient wrong_shard global_batch initial_weights "
                "buffers optimizer_state stale_weights precision overflow order_only "
                "corrupted_bits collective_mismatch manifest_mismatch sample_order learning_rate "
                "clipping skipped_step checkpoint not_shard_decomposable unknown"},
      expect.cause);
  use({.key = "step",
       .description = "First step that differs (0: before the first).",
       .bounds = {0, 10'000'000}},
      expect.step);
  use({.key = "tensor", .description = "First tensor that differs.", .size = kNotEmpty},
      expect.tensor);
  use({.key = "bucket", .description = "First bucket that differs.", .bounds = kBuckets},
      expect.bucket);
  use({.key = "outcome",
       .description = "Whether the run makes all its steps.",
       .words = "completed failed"},
      expect.outcome);
  use({.key = "primary_rank",
       .description = "The rank that failed by its own cause.",
       .bounds = kRanks},
      expect.primary_rank);
  use({.key = "kind",
       .description = "Kind of failure.",
       .words = "crash exit exception lost hang timeout rejected"},
      expect.kind);
}

template <class E, class F>
void further_expected_members(E& expect, F use) {
  use({.key = "within_ms",
       .description = "The failure is known at most this long after the fault acted; without "
                      "faults, after the run began.",
       .bounds = kWeekInMs},
      expect.within_ms);
  use({.key = "issue",
       .description = "Public number of a defect of LibTorch's own.",
       .size = kNotEmpty},
      expect.issue);
}

template <class E, class F>
void named_members(E& expect, F use) {
  use({.key = "collective",
       .description = "Its number, from construction's first broadcast, which is 1.",
       .bounds = {1, 4'294'967'295}},
      expect.named_collective);
  use({.key = "bucket", .description = "Its bucket, from 0.", .bounds = kBuckets},
      expect.named_bucket);
  use({.key = "phase",
       .description = "The primary rank's phase.",
       .words = "rendezvous construction load forward backward wait optimizer checkpoint teardown"},
      expect.named_phase);
}

template <class S, class F>
void straggler_members(S& straggler, F use) {
  use({.key = "rank", .description = "That rank.", .bounds = kRanks}, straggler.rank);
  use({.key = "class",
       .description = "How it is late.",
       .words = "none compute link periodic stopped wandering",
       .has_default = false},
      straggler.late_class);
}

}  // namespace lockstep
