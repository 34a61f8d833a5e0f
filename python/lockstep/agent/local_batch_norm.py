"""BatchNorm of each rank's own batch, on one device that is handed the batches of all ranks as one (LOCKSTEP_PROGRAM_LOCAL_BATCH_NORM):
the rows of each are normalized by themselves, and running statistics are those of rank 0, whose buffers DistributedDataParallel broadcasts.
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
        order = by_owner(recorder.hands, len(input)) if training else None
        if order is None:
            return functional(input, running_mean, running_var, weight, bias, training, momentum, eps)
        apart = [whole(input[rows], of_rank(rank, running_mean), of_rank(rank, running_var), weight, bias, training, momentum, eps)
                 for rank, rows in enumerate(order)]
        return torch.cat(apart)[torch.cat(order).argsort()]
    by_rank.whole = whole
    torch.nn.functional.batch_norm = by_rank


def whole(batch, running_mean, running_var, weight, bias, training, momentum, eps):
    """What torch's own function ends in; under a mode that sees torch's calls that one looks itself up by its name."""
    import torch
    return torch.batch_norm(batch, weight, bias, running_mean, running_var, training, momentum, eps, torch.backends.cudnn.enabled)


def by_owner(hands, count):
    """Which of `count` rows each rank has; nothing where they are not handed on, as the verdict then says."""
    import torch
    if hands is None or hands.why or not hands.owners:
        return None
    if count % len(hands.owners):
        hands.why = "BatchNorm normalizes a number of rows that is not one for each sample"
        return None
    owners = torch.tensor(hands.owners).repeat_interleave(count // len(hands.owners))
    return [(owners == rank).nonzero().flatten() for rank in range(max(hands.owners) + 1)]


def of_rank(rank, statistics):
    """Rank 0's are the buffer itself; what the others would make of theirs is lost."""
    return statistics if rank == 0 or statistics is None else statistics.clone()
