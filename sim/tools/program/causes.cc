#include "sim/tools/program/causes.h"

#include <array>

namespace lockstep {
namespace {

using C = ProgramCause;

constexpr std::array kRows = {
    ProgramCauseRow{C::none, "none", "", ""},
    ProgramCauseRow{C::unknown, "unknown", "the recorded facts match no known mistake", ""},
    ProgramCauseRow{C::summed_loss, "summed_loss",
                    "the loss is a sum over samples, but gradients are averaged over ranks",
                    "use the mean in the loss, or multiply it by the number of ranks"},
    ProgramCauseRow{
        C::divided_twice, "divided_twice", "gradients are divided by the number of ranks twice",
        "leave the division to DistributedDataParallel, or do it once after all_reduce"},
    ProgramCauseRow{C::not_divided, "not_divided",
                    "gradients are summed over ranks but never divided",
                    "divide each gradient by the number of ranks after all_reduce"},
    ProgramCauseRow{C::lr_scaled, "lr_scaled", "the learning rate depends on the number of ranks",
                    "gradients are already averaged: use the rate for one device with this global "
                    "batch, or derive it from the loader's batch_size times the number of ranks "
                    "(one device has a larger batch but the same batch-size option)"},
    ProgramCauseRow{C::same_samples, "same_samples", "ranks train on the same samples",
                    "give the loader a DistributedSampler, or slice by rank"},
    ProgramCauseRow{C::epoch_never_set, "epoch_never_set", "every epoch has the same sample order",
                    "call sampler.set_epoch(epoch) at the start of each epoch"},
    ProgramCauseRow{
        C::local_batch_norm, "local_batch_norm", "BatchNorm normalizes by one rank's samples only",
        "use convert_sync_batchnorm() on GPUs, or a normalization without batch statistics; if it "
        "is local on purpose, --local-batch-norm compares everything else"},
    ProgramCauseRow{
        C::module_past_ddp, "module_past_ddp",
        "a forward bypasses DistributedDataParallel, so its backward is not synchronized",
        "call the wrapped model, never model.module, in a training forward"},
    ProgramCauseRow{C::outside_ddp, "outside_ddp",
                    "the optimizer has parameters outside every DistributedDataParallel module",
                    "wrap one module that contains all of them"},
    ProgramCauseRow{C::no_sync_at_step, "no_sync_at_step",
                    "the last backward before a step ran under no_sync()",
                    "leave no_sync() for the last micro-batch of each step"},
    ProgramCauseRow{C::update_on_one_rank, "update_on_one_rank", "only some ranks update",
                    "call optimizer.step() on all ranks"},
    ProgramCauseRow{
        C::parameter_replaced, "parameter_replaced",
        "a parameter was replaced after the module was wrapped in DistributedDataParallel",
        "change the module first and wrap it last; afterwards change values in place"},
    ProgramCauseRow{C::unused_parameter, "unused_parameter",
                    "a parameter was not used in the loss, and find_unused_parameters is off",
                    "set find_unused_parameters=True, or remove the parameter from the module"},
    ProgramCauseRow{C::not_reduced, "not_reduced",
                    "a gradient, or a part of it, was not all-reduced before the step",
                    "all_reduce every gradient between backward and step"},
    ProgramCauseRow{C::not_waited, "not_waited",
                    "the step was made before an asynchronous collective had been waited for",
                    "call wait() on the handle that async_op=True returns before using the result"},
    ProgramCauseRow{C::different_start, "different_start",
                    "ranks start from different weights, and nothing broadcasts them",
                    "broadcast the parameters from rank 0 once, or seed all ranks alike before "
                    "building the model"},
    ProgramCauseRow{C::state_on_one_rank, "state_on_one_rank",
                    "a state was loaded on some ranks only",
                    "load model and optimizer on every rank, or broadcast both"},
    ProgramCauseRow{C::loader_state_lost, "loader_state_lost",
                    "after a resume the epoch started over: samples were trained twice",
                    "save the position in the epoch and skip trained samples, or save only at the "
                    "end of an epoch"},
    ProgramCauseRow{C::uneven_batches, "uneven_batches",
                    "ranks average over different numbers of samples but count equally",
                    "weight each rank's loss by its number of samples, or drop the remainder"},
    ProgramCauseRow{C::padded_samples, "padded_samples",
                    "the sampler repeats samples to give every rank the same number",
                    "use DistributedSampler(drop_last=True), or a data set whose size is a "
                    "multiple of the number of ranks"},
    ProgramCauseRow{C::accumulation_divided, "accumulation_divided",
                    "the sum of micro-batches is divided differently than on one device",
                    "divide each loss by the number of micro-batches in its step, whatever the "
                    "number of ranks"},
    ProgramCauseRow{C::clipped_before_sum, "clipped_before_sum",
                    "gradients were clipped before they were complete",
                    "clip after all_reduce and after the last backward of the step"},
    ProgramCauseRow{C::mean_of_means, "mean_of_means",
                    "means over different numbers of targets (ignore_index, class weights) are "
                    "averaged as if the numbers were equal",
                    "sum the losses, divide by the number of targets of all ranks and "
                    "micro-batches, and multiply by the number of ranks"},
    ProgramCauseRow{
        C::gradients_kept, "gradients_kept",
        "some ranks start the step with the gradients of the previous one, others with none",
        "call optimizer.zero_grad() on every rank, or on none"},
    ProgramCauseRow{
        C::unfrozen_after_ddp, "unfrozen_after_ddp",
        "a parameter is trained that was frozen when the module was wrapped, so its gradient is "
        "not reduced",
        "set requires_grad first and wrap afterwards; wrap again if a layer is unfrozen later"},
    ProgramCauseRow{
        C::optimizer_made_anew, "optimizer_made_anew",
        "ranks update with different optimizers: some recreated theirs, which loses its state",
        "create and load the optimizer at the same point on every rank"},
    ProgramCauseRow{
        C::other_options, "other_options",
        "ranks update with different optimizer options, such as learning rate or weight decay",
        "use a value that all ranks share: all_reduce or broadcast the input of the schedule"},
    ProgramCauseRow{
        C::changed_between_steps, "changed_between_steps",
        "some ranks changed their parameters outside "
        "optimizer.step()",
        "change parameters in the same way on every rank, or broadcast them afterwards"},
    ProgramCauseRow{C::gathered_as_constants, "gathered_as_constants",
                    "tensors gathered from other ranks, or summed over them, enter the loss as "
                    "constants: no gradient flows back to those ranks",
                    "gather with torch.distributed.nn.functional.all_gather, or scale the loss's "
                    "gradient as your derivation requires"},
    ProgramCauseRow{C::frozen_after_ddp, "frozen_after_ddp",
                    "a parameter was frozen after the module was wrapped; DistributedDataParallel "
                    "still waits for its gradient",
                    "set requires_grad first and wrap afterwards; if a layer is frozen later, wrap "
                    "again on every rank"},
    ProgramCauseRow{C::own_constants, "own_constants",
                    "each rank computes with its own value of a tensor that is neither a parameter "
                    "nor a buffer, so nothing broadcasts it",
                    "call register_buffer() before wrapping the model, draw it with the same seed "
                    "on all ranks, or gather values kept from each rank's batch"},
    ProgramCauseRow{C::no_sum, "no_sum", "a gradient was reduced by an operation other than a sum",
                    "use ReduceOp.SUM divided by the number of ranks, or ReduceOp.AVG"},
    ProgramCauseRow{C::reduced_again, "reduced_again",
                    "a gradient was all-reduced more than once in a step, so contributions of "
                    "other ranks were added again",
                    "all_reduce once, after the last backward of the step"},
    ProgramCauseRow{C::scaled_apart, "scaled_apart",
                    "the ranks' gradients are multiples of each other: some ranks scaled or "
                    "clipped theirs differently",
                    "scale by a number that all ranks share, or before the gradients are reduced"},
    ProgramCauseRow{C::other_mode, "other_mode", "some ranks train with dropout, others without",
                    "call model.train() on every rank after an evaluation"},
    ProgramCauseRow{
        C::option_scaled, "option_scaled",
        "an option of the optimizer depends on the number of ranks",
        "gradients are already averaged: use the value for one device with this global batch"},
    ProgramCauseRow{C::function_of_mean, "function_of_mean",
                    "the loss is a function (logarithm, root, quotient) of a mean or sum over each "
                    "rank's own samples",
                    "apply the function to each sample, or to the ranks' sums after "
                    "torch.distributed.nn.functional.all_reduce"},
    ProgramCauseRow{C::other_parameters, "other_parameters",
                    "the ranks' optimizers hold different parameters of one model, so some are "
                    "updated on some ranks only",
                    "give every rank's optimizer the same parameters; freeze layers on all ranks "
                    "alike"},
    ProgramCauseRow{C::clipped_by_shard, "clipped_by_shard",
                    "each rank clipped its shards, or its share, of the gradients by their own "
                    "norm",
                    "clip by the global norm: torch.nn.utils.clip_grad_norm_ on sharded "
                    "parameters, or all_reduce the squared norms"},
    ProgramCauseRow{C::hook_beyond_bound, "hook_beyond_bound",
                    "the communication hook loses more of the gradients than its bound allows",
                    "check what it divides by, and what it leaves out without making up for it; or "
                    "state another bound"},
    ProgramCauseRow{C::hook_results_differ, "hook_results_differ",
                    "the communication hook gives ranks different results",
                    "return only what all ranks have summed, and decompress the same parts in the "
                    "same order on each rank"},
    ProgramCauseRow{C::changed_before_sum, "changed_before_sum",
                    "gradients were changed before ranks summed them, and not just by a factor "
                    "(sign, noise or a penalty)",
                    "sum first, then change the result in the same way on all ranks"},
    ProgramCauseRow{C::penalty_scaled, "penalty_scaled",
                    "a penalty on the parameters (L2, weight decay added to gradients) counts more "
                    "or less than on one device",
                    "add it once: to averaged gradients, or to a loss that is averaged"},
    ProgramCauseRow{
        C::own_buffers, "own_buffers",
        "each rank computes with a buffer that it fills on its own (a queue, a running mean, "
        "random features)",
        "gather or all_reduce the values that go into the buffer, or draw it with the same seed"},
    ProgramCauseRow{
        C::other_replicas, "other_replicas",
        "the sampler deals to more replicas than there are ranks: some samples are "
        "never trained on",
        "let DistributedSampler choose num_replicas and rank, or pass those of the process group"},
    ProgramCauseRow{C::own_frozen_model, "own_frozen_model",
                    "ranks compute with a model that is not trained (a teacher, a target network, "
                    "a moving average) and whose weights differ between ranks",
                    "copy or broadcast it after wrapping the trained model, and update it in the "
                    "same way on every rank"},
    ProgramCauseRow{C::some_ranks_summed, "some_ranks_summed",
                    "a gradient was summed over a group that does not contain all ranks",
                    "drop the group argument, or also sum over the groups of the other dimension"},
    ProgramCauseRow{C::other_shuffles, "other_shuffles",
                    "the ranks' samplers shuffle with different seeds or epochs: some samples go "
                    "to several ranks, some to none",
                    "give DistributedSampler the same seed and set_epoch() the same epoch on every "
                    "rank; draw your own order from a generator that nothing else uses"},
    ProgramCauseRow{C::summed_early, "summed_early",
                    "ranks summed a gradient before the last backward, which then added to it on "
                    "each rank separately",
                    "all_reduce after the last backward of the step"},
    ProgramCauseRow{C::past_hooks, "past_hooks",
                    "gradients are computed by torch.autograd.grad(), which does not call the "
                    "hooks of DistributedDataParallel",
                    "call backward(), or all_reduce the results of grad() and divide them by the "
                    "number of ranks"},
    ProgramCauseRow{C::summed_in_other_order, "summed_in_other_order",
                    "ranks pass their gradients to all_reduce in different orders, so gradients of "
                    "different parameters are added",
                    "all_reduce in the order of model.parameters(), never in the order of a set"},
    ProgramCauseRow{
        C::changed_after_sum, "changed_after_sum",
        "ranks changed a gradient differently after summing it (noise, a mask)",
        "change it before the sum, or draw the same on all ranks: a torch.Generator with one seed"},
    ProgramCauseRow{C::own_statistics, "own_statistics",
                    "the model's input is normalized by each rank's own batch",
                    "normalize by statistics of the data set, or all_reduce those of the batch"},
    ProgramCauseRow{C::misplaced_gradients, "misplaced_gradients",
                    "gradients are copied back to other parameters than they came from",
                    "split a flat tensor in the order in which it was concatenated"},
    ProgramCauseRow{C::other_splits, "other_splits",
                    "ranks split the data set differently, and each trains on a part of its own "
                    "split: some samples are trained on by several ranks, some by none, and some "
                    "that one rank holds out by another",
                    "split with a torch.Generator that has the same seed on every rank, or split "
                    "once and broadcast the indices"},
    ProgramCauseRow{C::loss_scaled_apart, "loss_scaled_apart",
                    "ranks multiply their losses, or their gradients before the sum, by different "
                    "numbers",
                    "weight by a number that all ranks share, or divide the weights by their mean"},
    ProgramCauseRow{C::scaled_by_ranks, "scaled_by_ranks",
                    "the loss or the gradients are scaled by a factor that depends on the number "
                    "of ranks and is not the one that an average needs",
                    "divide the sum of gradients by the number of ranks, and scale nothing else by "
                    "it"},
    ProgramCauseRow{C::own_batch, "own_batch",
                    "something is computed from a whole batch (pairs of samples, a maximum, a "
                    "ranking, a variance), and each rank computes it from its own batch only",
                    "compute it sample by sample, or from all ranks with "
                    "torch.distributed.nn.functional's all_gather or all_reduce"},
    ProgramCauseRow{C::state_changed, "state_changed",
                    "some ranks changed the state of their optimizer between two steps",
                    "change it in the same way on every rank"},
    ProgramCauseRow{C::used_unsynced_alone, "used_unsynced_alone",
                    "a parameter was used only under no_sync(); DistributedDataParallel before "
                    "PyTorch 2.4 then leaves its gradient out of the sum",
                    "use the parameter in the last micro-batch of each step too, drop no_sync(), "
                    "or upgrade to PyTorch 2.4"},
    ProgramCauseRow{C::other_branches, "other_branches",
                    "ranks, or one device, run different parts of the model in the same step, "
                    "because each decides by its own batch or rank",
                    "decide for all ranks together: with a generator that has one seed, or by "
                    "broadcasting the decision; if it depends on samples, decide sample by sample"},
    ProgramCauseRow{C::own_numbers, "own_numbers",
                    "an operator is given a Python number that each rank computes from its own "
                    "batch (with item() or NumPy) or from its rank",
                    "all_reduce its inputs, or compute it sample by sample"},
    ProgramCauseRow{
        C::other_update, "other_update",
        "from the same gradients, state and options the optimizer computes a different update than "
        "on one device, for example from a shard instead of the whole tensor",
        "compute the update from the whole tensor (gather it, or let one rank own it), whatever "
        "the number of ranks"},
    ProgramCauseRow{C::other_items, "other_items",
                    "the data set returns different samples for the same index on different ranks, "
                    "while DistributedSampler deals it as one data set",
                    "build it from data that all ranks share: fit scalers and vocabularies to all "
                    "samples, and seed any random part, or give --seed"},
    ProgramCauseRow{C::second_backward, "second_backward",
                    "several backward calls follow one or more forwards: DistributedDataParallel "
                    "averages gradients in the first only, so later ones add each rank's own",
                    "add up the losses and call backward() once, or call backward() after each "
                    "forward"},
    ProgramCauseRow{C::written_in_flight, "written_in_flight",
                    "a tensor was written to while an asynchronous all_reduce of it was in flight: "
                    "a bucket was refilled too soon, or reduced before it was full",
                    "start a bucket's all_reduce when its last gradient is there, and call wait() "
                    "before refilling it"},
    ProgramCauseRow{
        C::drawn_in_update, "drawn_in_update",
        "the optimizer's step draws random numbers, and each rank draws different ones (noise, "
        "stochastic rounding)",
        "draw the same on all ranks: give the optimizer its own torch.Generator with one seed"},
    ProgramCauseRow{C::unmasked_padding, "unmasked_padding",
                    "the collate function pads each batch to its longest sample, and the padding "
                    "changes the result",
                    "mask the padding (in attention, pooling, normalization and loss), or pad all "
                    "batches to one length"},
    ProgramCauseRow{C::other_numbers, "other_numbers",
                    "an operator is given a number that all ranks share but one device does not "
                    "have, for example because each rank counts only the samples it has seen",
                    "count over all ranks, and divide what is summed over them by their number"},
    ProgramCauseRow{
        C::own_weights, "own_weights",
        "a later forward of the step uses weights that each rank has changed on its own, for "
        "example by its own gradient (sharpness-aware minimization under no_sync())",
        "change them by something that all ranks share, such as a gradient averaged outside "
        "no_sync(); if local changes are intended, the training depends on the number of ranks"},
    ProgramCauseRow{
        C::other_frozen_model, "other_frozen_model",
        "all ranks compute with the same model that is not trained (a teacher, a target network, a "
        "moving average), but one device has another one: its decay or schedule depends on the "
        "number of ranks, or on how many samples each rank has seen",
        "use the decay of one device for this global batch, and count steps, or the samples of all "
        "ranks"},
    ProgramCauseRow{
        C::indices_without_offset, "indices_without_offset",
        "indices of rows (labels of a contrastive loss) count each rank's own rows from 0, but "
        "those rows stand further down among the rows gathered from all ranks",
        "add rank * batch_size to the indices"},
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
