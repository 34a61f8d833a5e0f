"""Pages show commands and what they print: blocks that begin with "$ ". What differs from run to run is left out when the
two are compared: times, versions, what a machine is called, the last bits of a sum."""
import os
import re
import shlex
import subprocess

from harness import PATIENCE_S, PROGRAM

PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
CHANGING = ((r"^lockstep \d.*?  (?=seed|$)", "lockstep VERSION  "), (r"^lockstep \d\S* \(\w+\+?\)$", "lockstep VERSION"),
            (r"\d+(\.\d+)? ms", "TIME ms"), (r" +\d+\.\d$", " SECONDS"), (r"\b(for|after) \d+\.\d s", r"\1 TIME s"),
            (r"in \d\.\d+ s$", "in TIME s"), (r"worst distance \S+", "worst distance ROUNDING"), (r"evidence  \S+", "evidence DIR"), (r"(victim rank \d+: \w+): .*", r"\1"),
            # The last bits are those of one BLAS kernel.
            (r"(-?\d\.\d{5})\d*  0x[0-9a-f]{8}", r"\1  BITS"), (r"[\d,]{9,} ulp", "MANY ulp"),
            # Left out where the machine is busy, and another line for another PyTorch.
            (r"^ +first operator beyond.*\n", ""), (r"^ +every operator .*fits.*\n", ""), (r"^  tap .*\n", ""))
# Of what was measured, and of what is concluded from it.
MEASURED = ((r"\d+\.\d+", "N"), (r" +", " "), (r"\(\S+x\) in \d+ of", "in N of"), (r"first in step \d+", "first in step N"),
            (r"^(machine (busy|disturbed|quiet)|2 ranks: |inconclusive;|measured).*\n?", ""))


def comparable(text, measured=False):
    for pattern, same in CHANGING + (MEASURED if measured else ()):
        text = re.sub(pattern, same, text, flags=re.M)
    return text.strip()


def run(command, cwd, env):
    """As it stands, with the built program and the Python of the tests."""
    words = [{"lockstep": PROGRAM, "python3": PYTHON}.get(word, word) for word in shlex.split(command)]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          env={**env, "COLUMNS": "200"})
