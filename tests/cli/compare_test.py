#!/usr/bin/env python3
"""bench/compare: what its ratios and its verdict against a baseline are, and one short run."""
import copy
import json
import math
import pathlib
import subprocess
import sys
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, read_json

sys.path.insert(0, str(ROOT / "bench"))
import ratios

COMPARE = ROOT / "bench/compare"


def document(rounds=6, gloo=0.9, shm=0.7):
    """A comparison that never was, in which c10d takes 100 ms and a step alone 60."""
    cells = [{"model": model, "world_size": world, "cap_mb": 25,
              "step_ms": {"c10d": [100 + r for r in range(rounds)],
                          "bucketed_gloo": [gloo * (100 + r) for r in range(rounds)],
                          "bucketed_shm": [shm * 100 + r for r in range(rounds)],
                          "none": [60 + r for r in range(rounds)],
                          "python_ddp": [110 + r for r in range(rounds)]}}
             for model in ("mlp", "gpt") for world in (2, 4)]
    return {"machine": {"cpu": "some", "cores": 2}, "rounds": rounds, "cells": cells,
            "settings": {"steps": 1, "warmup": 1, "models": ["mlp", "gpt"], "worlds": [2, 4],
                         "caps": [25], "sets": []}}


def figure(made, name, world=2):
    function = ratios.figures(ratios.cells_of(made, world))[name]
    return ratios.estimate(function, made["rounds"], 1)


class RatiosTest(unittest.TestCase):
    def test_figures(self):
        made = document()
        self.assertAlmostEqual(figure(made, "bucketed_gloo/c10d")["value"], 0.9)
        self.assertAlmostEqual(figure(made, "added_shm/added_c10d")["value"], 10 / 40)
        found = figure(made, "mlp_shm/python_ddp", 4)
        self.assertLessEqual(found["low"], found["value"])
        self.assertLessEqual(found["value"], found["high"])

    def test_of_several_cells_the_geometric_mean(self):
        made = document()
        made["cells"][0]["step_ms"]["bucketed_gloo"] = [1.6 * (100 + r) for r in range(6)]
        self.assertAlmostEqual(figure(made, "bucketed_gloo/c10d")["value"], math.sqrt(1.6 * 0.9))

    def test_what_was_not_measured_has_no_figure(self):
        made = document()
        for cell in made["cells"]:
            del cell["step_ms"]["python_ddp"]
        self.assertIsNone(figure(made, "mlp_shm/python_ddp"))

    def test_where_nothing_is_added_nothing_is_said(self):
        made = document()
        for cell in made["cells"]:
            cell["step_ms"]["none"] = cell["step_ms"]["c10d"]
        self.assertIsNone(figure(made, "added_shm/added_c10d"))

    def test_baseline(self):
        before = document()
        self.assertEqual(ratios.against_baseline(document(), before, 1)["verdict"], "pass")
        slower = ratios.against_baseline(document(gloo=1.0), before, 1)
        self.assertEqual(slower["verdict"], "fail")
        self.assertEqual(sum(line.endswith(": slower") for line in slower["lines"]), 2)
        other = copy.deepcopy(before)
        other["machine"]["cpu"] = "another"
        for then in (other, document(rounds=4)):
            self.assertEqual(ratios.against_baseline(document(), then, 1)["verdict"],
                             "inconclusive")


class CompareTest(ProgramTest):
    def compare(self, *args, code=0):
        build = pathlib.Path(PROGRAM).resolve().parents[1]
        done = subprocess.run([sys.executable, "-B", COMPARE, "--build", build, "--models",
                               "autoencoder", "--worlds", "2", "--caps", "25", "--steps", "2",
                               "--warmup", "1", "--all-reduce-rounds", "0", *map(str, args)],
                              capture_output=True, text=True, timeout=PATIENCE_S, env=self.env)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_one_round(self):
        path = self.tmp / "compare.json"
        done = self.compare("--rounds", "1", "--json", path)
        last = done.stdout.splitlines()[-1]
        self.assertRegex(last, r"^geo_mean W=2 bucketed_gloo/c10d=[\d.]+ added_shm/added_c10d=\S+ "
                               r"mlp_shm/c10d=not_measured mlp_shm/python_ddp=not_measured$")
        made = read_json(path)
        self.assertEqual(made["rounds"], 1)
        variants = {"c10d", "bucketed_gloo", "bucketed_shm", "none"}
        self.assertLessEqual(variants, set(made["cells"][0]["step_ms"]))
        self.assertTrue(made["torch"] or made["notes"])
        self.compare("--rounds", "1", "--baseline", path, "--python", "none", code=3)

    def test_scenarios(self):
        result = self.run_program("scenario", "check", "bench/scenarios")
        self.assertIn("ok: 4 files", result.text)

    def test_bad_input(self):
        for args in (["--models", "nope"], ["--rounds", "0"], ["--worlds", "1"],
                     ["--baseline", "/nowhere"], ["--set", "/nonsense=1"]):
            self.compare("--rounds", "1", "--python", "none", *args, code=2)


if __name__ == "__main__":
    unittest.main()
