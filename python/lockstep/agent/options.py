"""Batch sizes that a script takes by argparse, W times as large on one device (LOCKSTEP_PROGRAM_SCALED_OPTIONS), as a user would
give them for the global batch: what the script makes of them, a learning rate or a divisor, is then that of this batch.
Before torch, and with it the rest of the agent, is imported: options are often read first."""
import argparse
import os
import re

OF_BATCH = re.compile(r"(?:.*_)?(?:batch_?size|batch|bsz?)(?:_.*)?", re.IGNORECASE)
OF_NO_TRAINING = re.compile(r"eval|valid|val_|_val|test|infer", re.IGNORECASE)


class Scaled(int):
    """A batch size that is W times as large already. This file is loaded twice, alone and with the agent: told by what it has."""
    scaled_by_lockstep = True


def is_of_batch(name):
    return OF_BATCH.fullmatch(name) and not OF_NO_TRAINING.search(name)


def watch():
    scale, parse = int(os.environ["LOCKSTEP_PROGRAM_SCALE"]), argparse.ArgumentParser.parse_known_args

    def parsed(self, *args, **kwargs):
        found, rest = parse(self, *args, **kwargs)
        for name, value in list(vars(found).items()):
            if is_of_batch(name) and isinstance(value, int) and not isinstance(value, (bool, Scaled)):
                setattr(found, name, Scaled(value * scale))
        return found, rest
    argparse.ArgumentParser.parse_known_args = parsed
