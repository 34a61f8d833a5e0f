"""Parameters of which a rank holds a part. Those of fully_shard are DTensors: each rank records its own shard, and
lockstep adds up what they recorded. No collective of the agent comes between those of the program, whichever ranks
update. Where groups of ranks hold a copy of the whole each, it is added up copy by copy. Shards over several dimensions of
a mesh are gathered. Those of the older FullyShardedDataParallel are parts of flat tensors, which nothing here puts together
again."""
import functools
import inspect
import os
import sys

from .imports import after_import, replace


def is_shard(tensor):
    return hasattr(tensor, "full_tensor")


def is_own_shard(recorder, tensor):
    """Does it lie on all ranks, on each of a copy another part?"""
    if not is_shard(tensor) or tensor.device_mesh.size() != recorder.world or tensor.is_complex():
        return False
    kinds = [type(placement).__name__ for placement in tensor.placements]
    return kinds == ["Shard"] or kinds == ["Replicate", "Shard"]


def own_part(tensor):
    """Its values, and where they begin along which dimension: torch.chunk's."""
    dim, along = tensor.placements[-1].dim, tensor.device_mesh.ndim - 1
    rows, ranks = tensor.shape[dim], tensor.device_mesh.size(along)
    return tensor.to_local(), dim, min(rows, -(-rows // ranks) * tensor.device_mesh.get_local_rank(along))


def copy_of(tensor):
    """Which of the copies of the whole its ranks hold."""
    return 0 if tensor is None or tensor.device_mesh.ndim == 1 else tensor.device_mesh.get_local_rank(0)


def is_gathered(recorder, param):
    return is_shard(param) and not is_own_shard(recorder, param)


def whole(recorder, tensor):
    """Gathers a DTensor: a collective, so all ranks must come here. The tap does not count it."""
    if not is_shard(tensor):
        return tensor
    recorder.quiet = True
    try:
        return tensor.full_tensor()
    finally:
        recorder.quiet = False


class Gathering:
    """While it is entered, a file says so: a rank that comes to no update keeps the others waiting in a collective that no
    script called."""

    def __init__(self, recorder, params):
        wanted = recorder.world > 1 and recorder.scale == 1 and any(is_gathered(recorder, param) for param in params)
        self.path = f"{recorder.folder}/rank-{os.environ.get('RANK', recorder.rank)}.gathers" if wanted else None
        self.step = recorder.steps + 1

    def __enter__(self):
        if self.path:
            with open(self.path, "w", encoding="utf-8") as file:
                file.write(str(self.step))

    def __exit__(self, kind, *_):
        if self.path and kind is None:
            os.remove(self.path)


def watch_sync(recorder, module):
    """One device sums each gradient at once, whatever the script says: it would leave the same ones out of a step as ranks do."""
    set_sync = module.FSDPModule.set_requires_gradient_sync

    @functools.wraps(set_sync)
    def noted(self, requires_gradient_sync, *args, **kwargs):
        recorder.shards_unsynced = not requires_gradient_sync
        return set_sync(self, requires_gradient_sync or recorder.scale > 1, *args, **kwargs)
    module.FSDPModule.set_requires_gradient_sync = noted


def watch_meshes(recorder, module):
    """One device fills no mesh of several, which scripts make of a number in them: there it has one along each dimension."""
    make = getattr(module, "init_device_mesh", None)
    if make is None or recorder.world > 1:
        return

    @functools.wraps(make)
    def of_one(device_type, mesh_shape, *args, **kwargs):
        return make(device_type, (1,) * len(mesh_shape), *args, **kwargs)
    replace("init_device_mesh", make, of_one)


def watch_parts(recorder, api):
    """Tensor parallel: ranks that hold a model together are one of data parallel training, with one batch."""
    parallelize = api.parallelize_module
    if "device_mesh" not in inspect.signature(parallelize).parameters:
        return

    @functools.wraps(parallelize)
    def noted(module, device_mesh=None, *args, **kwargs):
        mesh = device_mesh or api._mesh_resources.get_current_mesh()
        if mesh.ndim == 1:
            recorder.end["part_of_model"] = [mesh.get_local_rank(), mesh.size()]
        return parallelize(module, device_mesh, *args, **kwargs)
    replace("parallelize_module", parallelize, noted)


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
    after_import("torch.distributed.device_mesh", lambda module: watch_meshes(recorder, module))
    after_import("torch.distributed.tensor.parallel", lambda _: watch_parts(recorder, sys.modules["torch.distributed.tensor.parallel.api"]))
    after_import("torch.distributed.fsdp._fully_shard._fully_shard", lambda module: watch_sync(recorder, module))
