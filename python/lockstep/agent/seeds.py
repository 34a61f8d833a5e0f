"""A program that seeds nothing is given a seed where LOCKSTEP_PROGRAM_SEED is set: the same on all ranks and on one
device."""
import os
import random


def watch(recorder):
    import torch
    if "LOCKSTEP_PROGRAM_SEED" not in os.environ:
        return
    seed = int(os.environ["LOCKSTEP_PROGRAM_SEED"])
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy
        numpy.random.seed(seed)
    except ImportError:
        pass
