"""The one table of examples/: what each script with each of its planted mistakes must give."""
import collections

Row = collections.namedtuple("Row", "script bug step entry cause verdict options", defaults=("fail", ()))
SPAWNS = ("--spawns",)


def rows(script, *lines, options=()):
    return [Row(script, *line, options=options) if len(line) == 4 else Row(script, *line, options)
            for line in lines]


W0 = "gradient of 0.weight"
P0 = "parameter 0.weight"
ORDER = "sample order"
# Step 0: of the run as a whole.
ROWS = [
    *rows("toy_ddp.py",
          ("summed_loss", 1, W0, "summed_loss"),
          ("divided_twice", 1, W0, "divided_twice"),
          ("lr_scaled", 1, P0, "lr_scaled"),
          ("same_samples", 1, ORDER, "same_samples"),
          ("epoch_never_set", 0, ORDER, "epoch_never_set"),
          ("local_batch_norm", 1, W0, "local_batch_norm"),
          ("module_past_ddp", 3, P0, "module_past_ddp"),
          ("no_sync_at_step", 3, P0, "no_sync_at_step"),
          ("outside_ddp", 1, "parameter 4", "outside_ddp"),
          ("update_on_one_rank", 1, "optimizer", "update_on_one_rank"),
          ("parameter_replaced", 1, "gradient of 3.bias", "parameter_replaced"),
          ("unused_parameter", 1, "gradient of scale", "unused_parameter"),
          ("loaded_on_rank_0", 1, P0, "state_on_one_rank")),
    *rows("spawned.py",
          ("lr_scaled", 1, P0, "lr_scaled"),
          ("summed_loss", 1, W0, "summed_loss"),
          ("same_samples", 1, ORDER, "same_samples"),
          ("epoch_never_set", 0, ORDER, "epoch_never_set"), options=SPAWNS),
    *rows("model_parallel.py",
          ("summed_loss", 1, "gradient of front.0.weight", "summed_loss"),
          ("lr_scaled", 1, "parameter front.0.weight", "lr_scaled"),
          ("second_half_outside", 1, "parameter 2", "outside_ddp"),
          ("head_past_ddp", 2, "parameter front.0.weight", "module_past_ddp"),
          ("same_samples", 1, ORDER, "same_samples")),
    *rows("manual_all_reduce.py",
          ("not_divided", 1, W0, "not_divided"),
          ("divided_twice", 1, W0, "divided_twice"),
          ("bias_forgotten", 1, "parameter 0.bias", "not_reduced"),
          ("reduced_too_late", 1, P0, "not_reduced"),
          ("own_seeds", 1, P0, "different_start"),
          ("clipped_too_early", 1, W0, "clipped_before_sum"),
          ("flat_clipped_too_early", 1, W0, "clipped_before_sum"),
          ("uneven_shards", 1, W0, "uneven_batches"),
          ("same_samples", 1, ORDER, "same_samples"),
          ("summed_loss", 1, W0, "summed_loss"),
          ("loaded_on_rank_0", 1, P0, "state_on_one_rank"),
          ("update_on_one_rank", 1, "optimizer", "update_on_one_rank"),
          ("momentum_on_rank_0", 3, P0, "state_on_one_rank")),
    *rows("mnist_like.py",
          ("same_samples", 1, ORDER, "same_samples"),
          ("epoch_never_set", 0, ORDER, "epoch_never_set"),
          ("no_sync_at_step", 2, "parameter conv.weight", "no_sync_at_step"),
          ("summed_loss", 1, "gradient of conv.weight", "summed_loss"),
          ("accumulation_divided", 1, "gradient of conv.weight", "accumulation_divided"),
          ("padded_samples", 0, "samples", "padded_samples", "inconclusive"),
          ("lr_scaled", 1, "parameter conv.weight", "lr_scaled"),
          ("divided_twice", 1, "gradient of conv.weight", "divided_twice"),
          ("clipped_every_part", 1, "gradient of conv.weight", "clipped_before_sum")),
    *rows("autoencoder.py",
          ("unused_parameter", 1, "gradient of mean.weight", "unused_parameter"),
          ("decoder_outside", 1, "parameter 4", "outside_ddp"),
          ("lr_scaled", 1, "parameter encoder.0.weight", "lr_scaled"),
          ("decoder_past_ddp", 3, "parameter encoder.0.weight", "module_past_ddp"),
          ("summed_loss", 1, "gradient of encoder.0.weight", "summed_loss"),
          ("decoder_replaced", 1, "parameter decoder.weight", "parameter_replaced")),
    *rows("sync_batch_norm.py",
          ("local_batch_norm", 1, W0, "local_batch_norm"),
          ("summed_loss", 1, W0, "summed_loss"),
          ("same_samples", 1, ORDER, "same_samples")),
    *rows("zero_optimizer.py",
          ("lr_scaled", 1, P0, "lr_scaled"),
          ("summed_loss", 1, W0, "summed_loss"),
          ("same_samples", 1, ORDER, "same_samples"),
          ("divided_twice", 1, W0, "divided_twice"),
          ("local_batch_norm", 1, W0, "local_batch_norm")),
    *rows("best_model.py",
          ("loader_state_lost", 10, ORDER, "loader_state_lost"),
          ("optimizer_on_rank_0", 10, P0, "state_on_one_rank"),
          ("model_on_rank_0", 10, P0, "state_on_one_rank"),
          ("epoch_never_set", 0, ORDER, "epoch_never_set"),
          ("lr_scaled", 1, P0, "lr_scaled")),
    *rows("linear_split.py",
          ("not_divided", 1, "gradient of weight", "not_divided"),
          ("divided_twice", 1, "gradient of weight", "divided_twice"),
          ("summed_loss", 1, "gradient of weight", "summed_loss"),
          ("own_seeds", 1, "parameter weight", "different_start"),
          ("same_samples", 1, ORDER, "same_samples")),
    *rows("cifar_like.py",
          ("lr_scaled", 1, P0, "lr_scaled"),
          ("summed_loss", 1, W0, "summed_loss"),
          ("same_samples", 1, ORDER, "same_samples"),
          ("epoch_never_set", 0, ORDER, "epoch_never_set"),
          ("update_on_one_rank", 1, "optimizer", "update_on_one_rank"),
          ("forward_past_ddp", 2, P0, "module_past_ddp"),
          ("conv_replaced", 1, W0, "parameter_replaced"),
          ("local_batch_norm", 1, W0, "local_batch_norm")),
]
SCRIPTS = {row.script: row.options for row in ROWS}  # and each of them without a mistake passes
# In a change's tests: one variant of each cause, and each script; LOCKSTEP_GALLERY=all runs every one.
SAMPLE = list({row.cause: row for row in ROWS}.values())
