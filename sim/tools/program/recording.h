#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scenarios/base/error.h"

namespace lockstep {

// What the agent (python/lockstep/agent) left of one rank of a program: facts, no judgement.

// Of a tensor: four projections on fixed signs, and its norm. Absent: there is no gradient, or it
// is not finite.
using Sketch = std::optional<std::vector<double>>;
Sketch sketch_of(const nlohmann::ordered_json& list);  // five numbers; absent: anything else

// Of a parameter, by a hook of the script, before its gradient was complete. Factor absent: what
// remained was no multiple, and nowhere larger.
struct HookedGradient {
  std::string name;
  std::optional<double> factor;
};

// What comm hooks made of a step's buckets, where this was measured; infinite: not finite, or
// beside a mean of 0 (python/lockstep/agent/comm_hooks.py). Of all buckets the worst.
struct HookedBuckets {
  int64_t buckets = 0;
  double error = 0, owed = 0, control_error = 0, control_owed = 0;
  std::string hash;  // of the results
};

struct ProgramStep {
  int64_t optimizer = 0, ddp_forwards = 0, forwards = 0;
  int64_t backwards = 0;                         // of this step
  int64_t model_loads = 0, optimizer_loads = 0;  // load_state_dict() since the start
  int64_t dropouts = 0;                          // that would have drawn
  int64_t exchanges = 0;    // collectives that the script called within forwards
  int64_t dealt_out = 0;    // and those of them that give each rank a part of its own
  int64_t within_step = 0;  // that it called within the optimizer's, and after what found `grads`
  int64_t elements = 0;     // of all parameters of the optimizer, in its first step; else 0
  int64_t position = 0, batches = 0;  // of the loader: batch last taken, from 1
  bool not_waited = false;  // an asynchronous collective of gradients is under way at the step
  bool written_in_flight = false;  // the script wrote to what an asynchronous sum had yet to read
  bool carried = false;   // there was a gradient before the first backward: of the step before
  bool gathered = false;  // results of a forward were gathered of all ranks before backward
  bool gathered_inside = false;  // in a Function, and nothing was summed within backward
  bool unsynced = false;         // the last forward through DDP was under no_sync()
  bool clipped_early = false;    // a backward or an all_reduce came after the clipping
  std::string line;              // of the user's script, where optimizer.step() stands
  std::vector<std::string> names, grad_hashes, param_hashes, samples;
  // Names: no longer the parameter that was wrapped; without a gradient although DDP waits for one;
  // trained now, and not when DDP took it, or the reverse; updated, although no DDP took it where
  // there is one; with a gradient that no all_reduce was given, and that no DDP holds.
  std::vector<std::string> replaced, unused, unfrozen, refrozen, unheld, unreduced;
  std::vector<std::string> own_in_part;  // names: with some elements that backward left so
  // Names: with a gradient that more than one all_reduce was given; that one was given which is no
  // sum; that a backward came after.
  std::vector<std::string> reduced_again, no_sums, summed_early;
  // Names: of which this rank holds a shard alone, so that sketches and hashes are of that.
  std::vector<std::string> shards;
  int64_t copy = 0;  // of the whole, which this rank holds a shard of
  // Of this rank's shards alone, once they were joined: of the same places in `names`.
  std::vector<Sketch> shard_grads;
  std::vector<HookedGradient> hooked;
  std::optional<HookedBuckets> comm_hook;
  // Names: with a gradient that the script changed between backward and the sum over ranks,
  // otherwise than by a factor or a clamp.
  std::vector<std::string> changed;
  // Names: with a gradient that backwards under no_sync() wrote, and no other backward.
  std::vector<std::string> unsynced_alone;
  // Names: with a gradient that a backward wrote after DistributedDataParallel had summed.
  // Those of them that are of a forward past it.
  std::vector<std::string> written_late, written_past;
  std::vector<std::string> partly;  // names: summed over a group that does not hold all ranks
  // By which factor since backward, where no sum of the script's came between.
  std::vector<HookedGradient> multiplied;
  std::string untrained;    // hash of parameters of forwards that no optimizer and no DDP holds
  Sketch untrained_sketch;  // of all of them together
  std::vector<std::string> options;  // of the optimizer's groups: "0 lr=0.1"
  std::vector<int64_t> groups;  // of each name the number of its group; empty: there is one group
  // Of all parameters before the update, the optimizer's, and those that DistributedDataParallel
  // holds; empty: not known, or none.
  std::string before_hash, models_hash;
  std::string buffer_hash, state_hash;
  std::string state_keys;    // hash of which parameters the rank has state of
  std::string state_before;  // hash of the optimizer's state as the step found it; empty: not known
  // Names: for which torch.autograd.grad() was asked. Numbers of parameters, where their gradients
  // were given to all_reduce in another order than theirs.
  std::vector<std::string> by_grad;
  std::vector<std::string> misplaced;  // on one device: that hold numbers of another's gradient
  std::vector<int64_t> sum_order;
  std::map<std::string, std::string> left_by_sums;  // hashes of gradients as sums left them
  std::vector<double> norms;                        // that clip_grad_norm_ found
  // What loaders gave, by rows; did anybody draw between that and a forward, and is all that
  // forwards were given standardized over its batch (and was not when it was loaded)?
  std::vector<std::string> loaded, drawn;  // drawn: before forwards were handed the ranks' inputs
  bool drew = false, standardized = false;
  std::vector<std::string> loaded_drawn;  // all of it, where loaders drew random numbers for it
  // Random numbers were drawn before a backward, outside forwards: a hash of how they were.
  std::string loss_draws;
  double sum_scale = 0;  // of a loss that is a sum over samples: its factor; 0: not known, or none
  bool drew_in_step = false;  // the optimizer's step drew random numbers
  // The script updates the parameters itself, without an optimizer. What it found in `grads` it may
  // have divided or multiplied before it used it; `lr` is empty where the update is no step along
  // them. `updates`: what was taken from each parameter; else there are none.
  bool by_hand = false;
  std::vector<Sketch> updates;
  std::vector<Sketch> behind_updates;  // the gradients, where a judge put `updates` into `grads`
  std::vector<double> lr;
  std::vector<double> targets;                // of each mean of losses, their weights' sum
  std::vector<Sketch> before, grads, params;  // by parameter; before: of the first step alone
  // As the step found them, where something else than steps had changed them since the last one.
  std::vector<Sketch> moved;
};

struct ProgramRank {
  int64_t rank = -1, world = 0;
  std::vector<ProgramStep> steps;
  bool ended = false, summed = false, dropout = false, draws = false;
  bool on_cpu = false;                     // CUDA was asked for, and was the CPU
  std::vector<std::string> never_updated;  // trained parameters that no optimizer has
  bool compile_off = false;                // torch.compile was called, and compiled nothing
  bool refused = false;                    // DistributedDataParallel threw in a forward
  bool flat_shards = false;  // of FullyShardedDataParallel, whose parts are not put together
  // Tensor parallel: which of how many ranks it is that hold one model, and have one batch.
  int64_t part = 0, parts = 1;
  bool handed = false;  // one device was given the data of the ranks, all of it
  // Its loaders gave the ranks' batches in each step, so that what it computed of them could be
  // compared; it was something else, of inputs or targets.
  bool compared = false, recomputed = false;
  bool scale_known = true;     // of its loss, of handed batches that are larger than its own
  std::string constants;       // hash of tensors of models that are no parameters and no buffers
  std::string why_not_handed;  // although it should have been
  std::string comm_hook;       // name of the first that the script registered
  int64_t broadcasts = 0;      // that the script called, of floating numbers
  int64_t replicas = 0;        // to which a sampler deals, and those of them that this rank was
  std::vector<int64_t> replicas_dealt;
  std::vector<std::string> shuffles;  // of samplers that deal to all ranks: "seed 0, epoch 1"
  std::map<std::pair<int64_t, int64_t>, std::string> items;  // hashes, by data set and index
  std::vector<std::string> splits;  // of a data set, that those deal of: hashes; "": of the whole
  // That scalers of the loss begin with (GradScaler), though nothing is scaled here; "": a
  // checkpoint's.
  std::vector<std::string> loss_scales;
  int64_t padded = 0;  // samples that a sampler repeated, so that each rank has as many
  int64_t batch_norms = 0, backwards = 0, stale_epochs = 0;
};

// The bytes are a stranger's: bounded, every type checked.
Expected<ProgramRank> read_program_rank(const std::string& path);

}  // namespace lockstep
