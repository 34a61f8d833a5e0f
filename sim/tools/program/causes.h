#pragma once

namespace lockstep {

enum class ProgramCause {
  none,
  unknown,
  summed_loss,
  divided_twice,
  not_divided,
  lr_scaled,
  same_samples,
  epoch_never_set,
  local_batch_norm,
  module_past_ddp,
  outside_ddp,
  no_sync_at_step,
  update_on_one_rank,
  parameter_replaced,
  unused_parameter,
  not_reduced,
  not_waited,
  different_start,
  state_on_one_rank,
  loader_state_lost,
  uneven_batches,
  padded_samples,
  accumulation_divided,
  clipped_before_sum,
  mean_of_means,
  gradients_kept,
  unfrozen_after_ddp,
  optimizer_made_anew,
  other_options,
  changed_between_steps,
  gathered_as_constants,
  frozen_after_ddp,
  own_constants,
  no_sum,
  reduced_again,
  scaled_apart,
  other_mode,
  option_scaled,
  function_of_mean,
  other_parameters,
  clipped_by_shard,
  hook_beyond_bound,
  hook_results_differ,
  changed_before_sum,
  penalty_scaled,
  own_buffers,
  other_replicas,
  own_frozen_model,
  some_ranks_summed,
  other_shuffles,
  summed_early,
  past_hooks,
  summed_in_other_order,
  changed_after_sum,
  own_statistics,
  misplaced_gradients,
  other_splits,
  loss_scaled_apart,
  scaled_by_ranks,
  own_batch,
  state_changed,
  used_unsynced_alone,
  other_branches,
  own_numbers,
  other_update,
  other_items,
  second_backward,
  written_in_flight,
  drawn_in_update,
  unmasked_padding,
  other_numbers,
  own_weights,
  other_frozen_model,
  indices_without_offset,
};
inline constexpr ProgramCause kLastProgramCause = ProgramCause::indices_without_offset;

// Why a training on several ranks is not that of one device. One row each; docs/programs.md lists
// them.
struct ProgramCauseRow {
  ProgramCause cause;
  const char* name;
  const char* meaning;
  const char* advice;  // what to do; empty where nothing is known
};
const ProgramCauseRow& row_of(ProgramCause cause);

}  // namespace lockstep
