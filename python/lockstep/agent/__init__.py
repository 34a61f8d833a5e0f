"""Leaves typed facts of every optimizer step of a training, one JSON line each. It judges nothing:
`lockstep verify -- COMMAND` reads the lines. The program is not changed, but computes in double
unless LOCKSTEP_PROGRAM_OWN_DTYPES is set.

Each module watches one thing of torch, by `watch(recorder)`."""
import os

from . import (accelerated, arguments, by_hand, checkpoints, collated, collectives, comm_hooks, double, drill, gloo_threads, handed, held, hooked, items, loaders, local_batch_norm, losses, models, on_cpu,
               optimizers, random_draws, seeds, shards, spawn, tap)
from .at_end import at_end
from .recorder import Recorder


def install():
    if "LOCKSTEP_PROGRAM_FAULTS" in os.environ:  # `lockstep run -- COMMAND`
        from . import run
        return run.install()
    if "LOCKSTEP_PROGRAM_SWEEP" in os.environ:  # `lockstep sweep -- COMMAND`
        from . import sweep
        return sweep.install()
    recorder = Recorder()
    if "LOCKSTEP_PROGRAM_FLIGHT" in os.environ:  # innermost: what the others make of a call is no script's
        from . import run
        run.watch()
    if recorder.in_double:
        double.watch(recorder)
    for part in (held, seeds, handed, local_batch_norm, optimizers, models, items, collated, loaders, losses, hooked, comm_hooks, random_draws, spawn, collectives, checkpoints,
                 by_hand, shards, tap, gloo_threads, accelerated, on_cpu, arguments, drill):  # held within the others, the last three around them
        part.watch(recorder)
    at_end(recorder.close, 10)
