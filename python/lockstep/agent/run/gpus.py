"""A program written for GPUs, on a machine that has none: its CUDA devices are the CPU, as for `lockstep verify -- COMMAND`.
Where there are GPUs it is left alone, unless LOCKSTEP_PROGRAM_PRETEND_GPUS is set."""
import glob
import os

from .. import arguments, on_cpu

DEVICES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")  # looked for without CUDA, which no fork survives


class Marks(dict):
    """Each that becomes true is a file at once: whoever is killed has told of it."""

    def __init__(self, folder):
        super().__init__(on_cpu=False)
        self.folder = folder

    def __setitem__(self, name, value):
        if value and not self.get(name):
            open(f"{self.folder}/{name}", "a", encoding="utf-8").close()
        super().__setitem__(name, value)


def has_any():
    return any(glob.glob(pattern) for pattern in DEVICES)


def watch(flight):
    if has_any() and not os.environ.get("LOCKSTEP_PROGRAM_PRETEND_GPUS"):
        return
    flight.scale, flight.held, flight.end = 1, None, Marks(flight.folder)
    for watch_part in (on_cpu.stand_in, arguments.watch):
        watch_part(flight)
