"""BatchNorm of each rank's own batch, on one device that is handed the batches of all ranks as one (LOCKSTEP_PROGRAM_LOCAL_BATCH_NORM):
their rows are normalized rank by rank, and running statistics are those of rank 0, whose buffers DistributedDataParallel broadcasts.
SyncBatchNorm normalizes all rows together, as ever (sync_batch_norm.py)."""
import functools
import os


def watch(recorder):
    if not os.environ.get("LOCKSTEP_PROGRAM_LOCAL_BATCH_NORM"):
        return
    import torch
    functional = torch.nn.functional.batch_norm

    @functools.wraps(functional)
    def by_rank(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):  # as in torch
        rows = rows_of_ranks(recorder.hands, len(input)) if training else None
        if rows is None:
            return functional(input, running_mean, running_var, weight, bias, training, momentum, eps)
        return torch.cat([whole(part, of_rank(rank, running_mean), of_rank(rank, running_var), weight, bias, training, momentum, eps)
                          for rank, part in enumerate(input.split(rows))])
    by_rank.whole = whole
    torch.nn.functional.batch_norm = by_rank


def whole(batch, running_mean, running_var, weight, bias, training, momentum, eps):
    """What torch's own function ends in; under a mode that sees torch's calls that one looks itself up by its name."""
    import torch
    return torch.batch_norm(batch, weight, bias, running_mean, running_var, training, momentum, eps, torch.backends.cudnn.enabled)


def rows_of_ranks(hands, count):
    """How many of `count` rows each rank has; nothing where they are not handed on, as the verdict then says."""
    if hands is None or hands.why or not hands.rows:
        return None
    if count % sum(hands.rows):
        hands.why = "BatchNorm normalizes a number of rows that is not one for each sample"
        return None
    return [rows * (count // sum(hands.rows)) for rows in hands.rows]


def of_rank(rank, statistics):
    """Rank 0's are the buffer itself; what the others would make of theirs is lost."""
    return statistics if rank == 0 or statistics is None else statistics.clone()
