"""A script that spawns its ranks itself spawns as many as are asked for."""


def watch(recorder):
    import inspect
    import torch
    spawn = torch.multiprocessing.spawn

    def spawned(fn, args=(), nprocs=1, *rest, **kwargs):
        names = list(inspect.signature(fn).parameters)[1:]
        if len(names) >= len(args):
            args = tuple(recorder.world if "world" in name or "nproc" in name else value
                         for name, value in zip(names, args))
        return spawn(fn, args, recorder.world, *rest, **kwargs)
    torch.multiprocessing.spawn = spawned
