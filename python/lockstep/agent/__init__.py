"""Leaves typed facts of every optimizer step of a training, one JSON line each. It judges nothing:
`lockstep verify -- COMMAND` reads the lines. The program is not changed, but computes in double.

Each module watches one thing of torch, by `watch(recorder)`."""
import os
from multiprocessing import util

from . import checkpoints, collectives, double, loaders, losses, models, optimizers, random_draws, shards, spawn, tap
from .recorder import Recorder


def install():
    if "LOCKSTEP_PROGRAM_FAULTS" in os.environ:  # `lockstep run -- COMMAND`
        from . import run
        return run.install()
    recorder = Recorder()
    for part in (double, optimizers, models, loaders, losses, random_draws, spawn,
                 collectives, checkpoints, shards, tap):
        part.watch(recorder)
    util.Finalize(None, recorder.close, exitpriority=10)  # children of multiprocessing, too
