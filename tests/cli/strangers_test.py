"""Strangers at the ports of a job cost it nothing. `scripts/strangers --runs N` does many more."""
import os
import statistics
import sys
import unittest

from launchers import LauncherTest
from strangers import KINDS, StrangersRun

RUNS = int(os.environ.get("LOCKSTEP_STRANGERS_RUNS", "16"))


class Strangers(LauncherTest):
    def test_runs_pass_as_without_them(self):
        alone, beside, reached = [], [], 0
        for number in range(RUNS):
            kind, nodes = KINDS[number % len(KINDS)], 2 + number // len(KINDS) % 2
            if number % 7 < 2:
                alone.append(StrangersRun(self, None, nodes, number).seconds)
            run = StrangersRun(self, kind, nodes, number)
            self.assertTrue(run.good, (number, kind, nodes, run.codes, run.verdict(), run.texts))
            self.assertGreater(run.reached, 0, kind)
            beside.append(run.seconds)
            reached += run.reached
        self.assertGreater(reached, RUNS, "no port of Gloo's")
        print(f"{RUNS} runs with strangers at {reached} ports: median {statistics.median(beside):.2f} s, "
              f"at most {max(beside):.2f} s; without: median {statistics.median(alone):.2f} s, at most "
              f"{max(alone):.2f} s", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
