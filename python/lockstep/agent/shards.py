"""Parameters of which a rank holds a part. Those of fully_shard are DTensors, and are gathered to be compared; those
of the older FullyShardedDataParallel are parts of flat tensors, which nothing here puts together again."""
import functools

from .imports import after_import


def is_shard(tensor):
    return hasattr(tensor, "full_tensor")


def whole(recorder, tensor):
    """Gathers a DTensor: a collective, so all ranks must come here. The tap does not count it."""
    if not is_shard(tensor):
        return tensor
    recorder.quiet = True
    try:
        return tensor.full_tensor()
    finally:
        recorder.quiet = False


def watch(recorder):
    def imported(fsdp):
        flat = fsdp.FullyShardedDataParallel
        begin = flat.__init__

        @functools.wraps(begin)
        def init(self, *args, **kwargs):
            recorder.end["flat_shards"] = True
            begin(self, *args, **kwargs)
        flat.__init__ = init
    after_import("torch.distributed.fsdp", imported)
