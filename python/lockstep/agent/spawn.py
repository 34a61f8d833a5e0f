"""A script that starts its ranks itself: it spawns as many as are asked for, and is refused where nobody has said so."""
import os

MET = "LOCKSTEP_PROGRAM_MET"  # this process, or one above it, is a rank
SPAWNED = "LOCKSTEP_PROGRAM_SPAWNED"  # how many processes torch.multiprocessing.spawn has started, of which this is one
OWN_RUN = "lockstep"  # what lockstep says where torchrun would; another: a torchrun within the command


def watch(recorder):
    import torch
    import torch.distributed as dist
    if dist.is_available():
        watch_meeting(dist, recorder.folder)
    if "LOCKSTEP_PROGRAM_SPAWNS" in os.environ:
        watch_spawn(torch.multiprocessing, recorder.world)


def watch_spawn(multiprocessing, world):
    import inspect
    spawn = multiprocessing.spawn

    def spawned(fn, args=(), nprocs=1, *rest, **kwargs):
        names = list(inspect.signature(fn).parameters)[1:]
        if len(names) >= len(args):
            args = tuple(world if "world" in name or "nproc" in name else value for name, value in zip(names, args))
        os.environ[SPAWNED] = str(world)
        return spawn(fn, args, world, *rest, **kwargs)
    multiprocessing.spawn = spawned


def watch_meeting(dist, folder):
    import functools
    import inspect
    import multiprocessing
    init = dist.distributed_c10d.init_process_group
    signature = inspect.signature(init)

    @functools.wraps(init)
    def initialized(*args, **kwargs):
        is_child = multiprocessing.parent_process() is not None and MET not in os.environ
        is_child |= os.environ.get("TORCHELASTIC_RUN_ID", OWN_RUN) != OWN_RUN
        if is_child and "LOCKSTEP_PROGRAM_SPAWNS" not in os.environ:
            open(f"{folder}/spawns", "a").close()
            raise RuntimeError("a process that the program has started is a rank: say --spawns to lockstep")
        os.environ[MET] = "1"
        wanted = signature.bind(*args, **kwargs).arguments.get("world_size", -1)
        if is_child and SPAWNED in os.environ and wanted not in (-1, None, int(os.environ[SPAWNED])):
            raise RuntimeError(f"it waits for {wanted} ranks where lockstep has started {os.environ[SPAWNED]}: "
                               "is that number written in the script?")
        return init(*args, **kwargs)
    dist.init_process_group = dist.distributed_c10d.init_process_group = initialized
