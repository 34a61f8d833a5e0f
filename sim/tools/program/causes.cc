#include "sim/tools/program/causes.h"

#include <array>

namespace lockstep {
namespace {

using C = ProgramCause;

constexpr std::array kRows = {
    ProgramCauseRow{C::none, "none", "", ""},
    ProgramCauseRow{C::unknown, "unknown", "the facts recorded fit no known mistake", ""},
    ProgramCauseRow{C::summed_loss, "summed_loss",
                    "the loss sums over samples, gradients are averaged over ranks",
                    "take the mean in the loss, or multiply it by the number of ranks"},
    ProgramCauseRow{
        C::divided_twice, "divided_twice", "gradients are divided by the number of ranks twice",
        "leave the division to DistributedDataParallel, or do it once after all_reduce"},
    ProgramCauseRow{C::not_divided, "not_divided",
                    "gradients are summed over ranks and never divided",
                    "divide each gradient by the number of ranks after all_reduce"},
    ProgramCauseRow{
        C::lr_scaled, "lr_scaled", "the learning rate depends on the number of ranks",
        "gradients are averaged already: leave the rate as it is for one device with this "
        "global batch, or make it of the loader's batch_size times the number of ranks (one device "
        "has a larger batch, and keeps a batch size that is an option of the script)"},
    ProgramCauseRow{C::same_samples, "same_samples", "ranks train on the same samples",
                    "give the loader a DistributedSampler, or slice by rank"},
    ProgramCauseRow{C::epoch_never_set, "epoch_never_set", "every epoch has the same order",
                    "call sampler.set_epoch(epoch) at the start of each epoch"},
    ProgramCauseRow{
        C::local_batch_norm, "local_batch_norm", "BatchNorm normalizes by one rank's samples",
        "convert_sync_batchnorm() on GPUs, or a normalization that knows no batch; where it "
        "is on purpose, --local-batch-norm compares all else"},
    ProgramCauseRow{
        C::module_past_ddp, "module_past_ddp",
        "a forward goes past DistributedDataParallel, so its backward is not synchronized",
        "call the wrapped model, never model.module, in a forward that is trained"},
    ProgramCauseRow{C::outside_ddp, "outside_ddp",
                    "the optimizer has parameters that no DistributedDataParallel holds",
                    "wrap one module that holds all of them"},
    ProgramCauseRow{C::no_sync_at_step, "no_sync_at_step",
                    "the last backward before a step ran under no_sync()",
                    "leave no_sync() for the last micro-batch of each step"},
    ProgramCauseRow{C::update_on_one_rank, "update_on_one_rank", "not every rank updates",
                    "call optimizer.step() on all ranks"},
    ProgramCauseRow{C::parameter_replaced, "parameter_replaced",
                    "a parameter was replaced after DistributedDataParallel had taken the module",
                    "change the module first and wrap it last; later change values in place"},
    ProgramCauseRow{C::unused_parameter, "unused_parameter",
                    "a parameter took no part in the loss, and find_unused_parameters is off",
                    "find_unused_parameters=True, or leave the parameter out of the module"},
    ProgramCauseRow{C::not_reduced, "not_reduced",
                    "a gradient, or a part of it, was given to no all_reduce before the step",
                    "all_reduce every gradient between backward and step"},
    ProgramCauseRow{C::not_waited, "not_waited",
                    "the step was made before an asynchronous collective was waited for",
                    "call wait() on what async_op=True returns, before the result is used"},
    ProgramCauseRow{C::different_start, "different_start",
                    "ranks start from different weights, and nothing broadcasts them",
                    "broadcast the parameters from rank 0 once, or seed all ranks alike before the "
                    "model is made"},
    ProgramCauseRow{C::state_on_one_rank, "state_on_one_rank",
                    "a state was loaded on some ranks only",
                    "load model and optimizer on every rank, or broadcast both"},
    ProgramCauseRow{
        C::loader_state_lost, "loader_state_lost",
        "after a resume the epoch began anew: samples were trained twice",
        "save the position in the epoch and skip what was trained, or save at the end of an epoch"},
    ProgramCauseRow{C::uneven_batches, "uneven_batches",
                    "ranks average over different numbers of samples, and count alike",
                    "weight each rank's loss by its number of samples, or drop the remainder"},
    ProgramCauseRow{
        C::padded_samples, "padded_samples",
        "the sampler repeats samples so that each rank has as many",
        "DistributedSampler(drop_last=True), or a data set that the number of ranks divides"},
    ProgramCauseRow{C::accumulation_divided, "accumulation_divided",
                    "the sum of micro-batches is divided otherwise than on one device",
                    "divide each loss by the number of micro-batches of its step, whatever the "
                    "number of ranks"},
    ProgramCauseRow{C::clipped_before_sum, "clipped_before_sum",
                    "gradients were clipped before they were complete",
                    "clip after all_reduce and after the last backward of the step"},
    ProgramCauseRow{
        C::mean_of_means, "mean_of_means",
        "means over different numbers of targets (ignore_index, class weights) are averaged as if "
        "they were alike",
        "sum the losses, and divide by the number of targets of all ranks and micro-batches, times "
        "the number of ranks"},
    ProgramCauseRow{
        C::gradients_kept, "gradients_kept",
        "some ranks begin the step with the gradients of the last one, others with none",
        "call optimizer.zero_grad() on every rank, or on none"},
    ProgramCauseRow{
        C::unfrozen_after_ddp, "unfrozen_after_ddp",
        "a parameter is trained that was frozen when DistributedDataParallel took the module, so "
        "that its gradient is not reduced",
        "set requires_grad first and wrap afterwards; wrap anew where a layer thaws later"},
    ProgramCauseRow{C::optimizer_made_anew, "optimizer_made_anew",
                    "ranks update by different optimizers: some made theirs anew, which loses its "
                    "state",
                    "make and load the optimizer in the same place on every rank"},
    ProgramCauseRow{C::other_options, "other_options",
                    "ranks update with other options: learning rate, weight decay or the like",
                    "decide on a value that all ranks share: all_reduce or broadcast what a "
                    "schedule depends on"},
    ProgramCauseRow{C::changed_between_steps, "changed_between_steps",
                    "some ranks changed their parameters outside "
                    "optimizer.step()",
                    "change parameters on every rank alike, or broadcast them afterwards"},
    ProgramCauseRow{C::gathered_as_constants, "gathered_as_constants",
                    "what was gathered of other ranks, or summed over them, enters the loss as a "
                    "constant: no gradient goes back to them",
                    "gather by torch.distributed.nn.functional.all_gather, or multiply the loss's "
                    "gradient as your derivation needs"},
    ProgramCauseRow{
        C::frozen_after_ddp, "frozen_after_ddp",
        "a parameter was frozen after DistributedDataParallel had taken the module, which still "
        "waits for its gradient",
        "set requires_grad first and wrap afterwards; wrap anew, on every rank, where a layer "
        "freezes later"},
    ProgramCauseRow{
        C::own_constants, "own_constants",
        "each rank computes with a tensor of its own, which is no parameter and no "
        "buffer, so that nothing broadcasts it",
        "register_buffer() before the model is wrapped, seed all ranks alike where it is "
        "drawn, or gather what is kept of each rank's batch"},
    ProgramCauseRow{C::no_sum, "no_sum", "a gradient was reduced by what is no sum",
                    "ReduceOp.SUM, divided by the number of ranks, or ReduceOp.AVG"},
    ProgramCauseRow{C::reduced_again, "reduced_again",
                    "a gradient was given to more than one all_reduce in a step: what other ranks "
                    "had added was added again",
                    "all_reduce once, after the last backward of the step"},
    ProgramCauseRow{
        C::scaled_apart, "scaled_apart",
        "gradients of ranks are multiples of each other: some scaled or clipped theirs otherwise",
        "scale by a number that all ranks share, or before the gradients are reduced"},
    ProgramCauseRow{C::other_mode, "other_mode", "some ranks train with dropout, others without",
                    "call model.train() on every rank after an evaluation"},
    ProgramCauseRow{C::option_scaled, "option_scaled",
                    "an option of the optimizer depends on the number of ranks",
                    "gradients are averaged already: leave the option as it is for one device with "
                    "this global batch"},
    ProgramCauseRow{C::function_of_mean, "function_of_mean",
                    "the loss is a function (logarithm, root, quotient) of a mean or sum that each "
                    "rank takes of its own samples",
                    "take the function of each sample, or of what "
                    "torch.distributed.nn.functional.all_reduce makes of the ranks' sums"},
    ProgramCauseRow{C::other_parameters, "other_parameters",
                    "the optimizers of ranks have different parameters of one model, and some are "
                    "updated on some ranks only",
                    "give every rank's optimizer the same parameters; freeze layers on all ranks "
                    "alike"},
    ProgramCauseRow{C::clipped_by_shard, "clipped_by_shard",
                    "each rank clipped its shards, or its share, of the gradients by their own "
                    "norm",
                    "clip by the norm of the whole: torch.nn.utils.clip_grad_norm_ of sharded "
                    "parameters, or all_reduce the squares of the norms"},
    ProgramCauseRow{C::hook_beyond_bound, "hook_beyond_bound",
                    "the communication hook loses more of the gradients than it may",
                    "look at what it divides by, leaves out and never makes up for; or state "
                    "another bound"},
    ProgramCauseRow{C::hook_results_differ, "hook_results_differ",
                    "the communication hook gives ranks different results",
                    "return what all ranks have summed, and decompress the same parts in the same "
                    "order on each"},
    ProgramCauseRow{C::changed_before_sum, "changed_before_sum",
                    "gradients were changed before ranks summed them, otherwise than by a factor "
                    "(their sign taken, noise or a penalty added)",
                    "sum first, and change what all ranks have alike"},
    ProgramCauseRow{C::penalty_scaled, "penalty_scaled",
                    "a penalty on the parameters (L2, weight decay added to gradients) counts more "
                    "or less than on one device",
                    "add it once, to gradients that have been averaged, or to a loss of which the "
                    "mean is taken"},
    ProgramCauseRow{
        C::own_buffers, "own_buffers",
        "each rank computes with a buffer that it fills by itself (a queue, a running mean, "
        "random features)",
        "gather, or all_reduce, what goes into the buffer, or draw it by one seed"},
    ProgramCauseRow{C::other_replicas, "other_replicas",
                    "the sampler deals to more replicas than there are ranks: some samples are "
                    "never trained on",
                    "leave num_replicas and rank to DistributedSampler, or give it those of the "
                    "process group"},
    ProgramCauseRow{C::own_frozen_model, "own_frozen_model",
                    "ranks compute with a model that nothing trains (a teacher, a target network, "
                    "a moving average) and whose weights differ between them",
                    "copy or broadcast it after the trained model is wrapped, and update it on "
                    "every rank alike"},
    ProgramCauseRow{C::some_ranks_summed, "some_ranks_summed",
                    "a gradient was summed over a group that does not hold all ranks",
                    "leave out the group, or sum over the groups of the other dimension as well"},
    ProgramCauseRow{C::other_shuffles, "other_shuffles",
                    "samplers of ranks shuffle by other seeds or epochs: some samples are dealt to "
                    "several ranks, and some to none",
                    "give DistributedSampler the same seed on every rank, and set_epoch() the same "
                    "epoch; draw an order of your own by a generator of its own, which nothing "
                    "else draws from"},
    ProgramCauseRow{C::summed_early, "summed_early",
                    "ranks summed a gradient before the last backward, which added to it on each "
                    "rank alone",
                    "all_reduce after the last backward of the step"},
    ProgramCauseRow{C::past_hooks, "past_hooks",
                    "gradients are made by torch.autograd.grad(), which calls no hook of "
                    "DistributedDataParallel",
                    "call backward(), or all_reduce what grad() returns and divide it by the "
                    "number of ranks"},
    ProgramCauseRow{C::summed_in_other_order, "summed_in_other_order",
                    "ranks give their gradients to all_reduce in different orders, so that those "
                    "of different parameters are added",
                    "all_reduce in the order of model.parameters(), never in that of a set"},
    ProgramCauseRow{C::changed_after_sum, "changed_after_sum",
                    "ranks changed a gradient otherwise after they had summed it (noise, a mask)",
                    "change it before the sum, or draw alike on all ranks: a torch.Generator with "
                    "one seed"},
    ProgramCauseRow{C::own_statistics, "own_statistics",
                    "what the model is given is normalized by each rank's own batch",
                    "normalize by statistics of the data set, or all_reduce those of the batch"},
    ProgramCauseRow{C::misplaced_gradients, "misplaced_gradients",
                    "gradients are put back to other parameters than they were taken from",
                    "cut a flat tensor up in the order in which it was put together"},
    ProgramCauseRow{C::other_splits, "other_splits",
                    "ranks split the data set differently, and each is dealt a part of its own "
                    "split: some samples are trained on by several ranks, some by none, and what "
                    "one rank holds out another trains on",
                    "split by a torch.Generator with the same seed on every rank, or once, and "
                    "broadcast the indices"},
    ProgramCauseRow{C::loss_scaled_apart, "loss_scaled_apart",
                    "ranks multiply their losses, or their gradients before the sum, by different "
                    "numbers",
                    "weight by a number that all ranks share, or divide the weights by their mean"},
    ProgramCauseRow{C::scaled_by_ranks, "scaled_by_ranks",
                    "loss or gradients are multiplied by a number that depends on the number of "
                    "ranks, and is not the one that an average needs",
                    "divide the sum of gradients by the number of ranks, and scale nothing else by "
                    "it"},
    ProgramCauseRow{C::own_batch, "own_batch",
                    "something is made of a batch as a whole (pairs of samples, a maximum, a "
                    "ranking, a variance), and each rank makes it of its own batch alone",
                    "make it sample by sample, or of what torch.distributed.nn.functional's "
                    "all_gather or all_reduce makes of all ranks"},
    ProgramCauseRow{C::state_changed, "state_changed",
                    "some ranks changed the state of their optimizer between two steps",
                    "change it on every rank alike"},
    ProgramCauseRow{C::used_unsynced_alone, "used_unsynced_alone",
                    "a parameter was used under no_sync() alone, and DistributedDataParallel "
                    "before PyTorch 2.4 then leaves its gradient out of the sum",
                    "use the parameter in the last micro-batch of each step as well, leave out "
                    "no_sync(), or take PyTorch 2.4"},
    ProgramCauseRow{C::other_branches, "other_branches",
                    "ranks, or one device, go through other parts of the model in the same step, "
                    "as each decides for itself, by its batch or its rank",
                    "decide for all ranks alike: by a generator with one seed, or by what is "
                    "broadcast; what depends on samples, sample by sample"},
    ProgramCauseRow{C::own_numbers, "own_numbers",
                    "an operator is given a number that each rank makes for itself, of its own "
                    "batch (by item() or NumPy) or of its rank",
                    "all_reduce what it is made of, or make it sample by sample"},
    ProgramCauseRow{
        C::other_update, "other_update",
        "from the same gradients, state and options the optimizer makes another update "
        "than on one device, as where it computes with a shard what is meant of a whole",
        "make what an update needs of the whole tensor (gather it, or let one rank own "
        "it), whatever the number of ranks"},
    ProgramCauseRow{C::other_items, "other_items",
                    "ranks have other samples at an index of the data set, which "
                    "DistributedSampler deals as one: each makes it of what it has itself",
                    "make it of what all ranks have: fit scalers and vocabularies to all samples, "
                    "and seed what is drawn for it, or give --seed"},
    ProgramCauseRow{C::second_backward, "second_backward",
                    "backwards follow each other, of one forward or of several: "
                    "DistributedDataParallel averages gradients in the first of them, and what "
                    "later ones add is each rank's own",
                    "add up the losses and call backward() once, or call backward() after each "
                    "forward"},
    ProgramCauseRow{
        C::written_in_flight, "written_in_flight",
        "a tensor was written to while an asynchronous all_reduce of it was under way: a "
        "bucket is filled again too soon, or summed before it is full",
        "begin a bucket's sum when the last gradient is in it, and wait() before it is "
        "filled again"},
    ProgramCauseRow{C::drawn_in_update, "drawn_in_update",
                    "the optimizer's step draws random numbers, and each rank draws others (noise, "
                    "stochastic rounding)",
                    "draw alike on all ranks: a torch.Generator of the optimizer's own with one "
                    "seed"},
    ProgramCauseRow{C::other_numbers, "other_numbers",
                    "an operator is given a number that all ranks share and that is not the one of "
                    "one device, as where each counts the samples that it has seen itself",
                    "count over all ranks, and divide what is summed over them by their number"},
    ProgramCauseRow{
        C::own_weights, "own_weights",
        "a later forward of the step is made with weights that each rank has changed by "
        "itself, as by its own gradient (sharpness-aware minimization under no_sync())",
        "change them by what all ranks share: a gradient that is averaged, outside no_sync(); "
        "where each rank's own is meant, the training depends on the number of ranks"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].cause != static_cast<C>(i)) return false;
  return kRows.size() == static_cast<std::size_t>(kLastProgramCause) + 1;
}
static_assert(in_order());

}  // namespace

const ProgramCauseRow& row_of(ProgramCause cause) { return kRows[static_cast<std::size_t>(cause)]; }

}  // namespace lockstep
