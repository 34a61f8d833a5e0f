"""Threads that are not done with their work when the program ends. One of Gloo's that still has to free a tensor which
Python made needs the GIL for it; where Python is on its way out by then, PyTorch 1.13 aborts: "terminate called without
an active exception". The time between the end of a collective and that is short, but not on a machine under load."""
import os
import threading
import time

from .at_end import at_end

PATIENCE_S = 1  # a thread of the program's own may compute for ever
LOOK_EVERY_S = 0.001  # asleep: whoever waits for the GIL gets it
LOOKS = 3  # in a row at which all slept


def others_sleep():
    """Do all threads but this one wait for something, as the kernel sees them?"""
    own = str(threading.get_native_id())
    return all(state_of(thread) == "S" for thread in os.listdir("/proc/self/task") if thread != own)


def state_of(thread):
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1].decode()
    except OSError:  # it has ended
        return "S"


def wait_for_threads(patience_s=PATIENCE_S):
    """Blocks for a few milliseconds, for `patience_s` at most where a thread goes on."""
    until, asleep = time.monotonic() + patience_s, 0
    while asleep < LOOKS and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        asleep = asleep + 1 if others_sleep() else 0


def watch(recorder):
    at_end(lambda: recorder.is_forked() or wait_for_threads(), 0)
