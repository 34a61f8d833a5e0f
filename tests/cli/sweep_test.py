#!/usr/bin/env python3
"""lockstep sweep: real runs of a small scenario, outputs, exit codes, bad input, Ctrl-C."""
import csv
import os
import signal
import subprocess
import time
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, read_json, svg_texts

TOY = "scenarios/equivalence/toy_model.json"
MATRIX = "scenarios/equivalence/mlp_matrix.json"
QUICK = ["--steps", "2", "--warmup", "1", "--allow-busy"]


class SweepTest(ProgramTest):
    def sweep(self, *args, code=0, timeout=120):
        result = self.run_program("sweep", *args, timeout=timeout)
        self.assertEqual(result.code, code, result.text)
        return result

    def test_table_json_csv_markdown_and_baseline(self):
        out = {kind: self.tmp / f"sweep.{kind}" for kind in ("json", "csv", "md", "svg")}
        args = [TOY, "--caps", "0.00001,25,30", "--worlds", "2,3", "--reducers", "bucketed,flat",
                "--set", "/reducer/first_bucket_mb=0.00001", *QUICK, "--rounds", "2"]
        result = self.sweep(*args, "--json", out["json"], "--csv", out["csv"], "--markdown",
                            out["md"], "--svg", out["svg"], "--threshold", "step_ms<=60000")
        self.assertIn("threshold step_ms<=60000: pass", result.out)
        self.assertIn("wrong: 0", result.out.splitlines()[-1])
        document = read_json(out["json"])["sweep"]
        labels = [line["label"] for line in document["combinations"]]
        self.assertEqual(labels, [
            f"world_size={world} reducer={rest}" for world in (2, 3)
            for rest in ("bucketed bucket_cap_mb=1e-05", "bucketed bucket_cap_mb=25", "flat")])
        self.assertEqual(document["combinations"][1]["same_caps_mb"], [30])
        self.assertIn("bucket_cap_mb=25", document["simulated"]["calibrated_on"])
        self.assertTrue(all(line["predicted_ms"] > 0 for line in document["combinations"]))
        self.assertEqual(document["runs"], 12)
        for line in document["combinations"]:
            self.assertEqual(line["wrong"], 0)
            self.assertEqual([run["replicas"] for run in line["runs"]], ["same", "same"])
            self.assertLessEqual(line["step_ms"]["low"], line["step_ms"]["median"])
        rows = list(csv.DictReader(out["csv"].read_text().splitlines()))
        self.assertEqual([row["label"] for row in rows], labels)
        self.assertEqual(sum(row.startswith("| 2 |") for row in out["md"].read_text().splitlines()), 3)
        texts = svg_texts(out["svg"])
        for text in ("world_size=3 reducer=bucketed", "world_size=2 reducer=flat", "step time (ms)"):
            self.assertIn(text, texts)
        again = self.sweep(*args, "--baseline", out["json"], code=3)
        self.assertIn("too few to tell", again.out)

    def test_a_broken_threshold_fails(self):
        result = self.sweep(TOY, "--caps", "25", *QUICK, "--rounds", "1", "--threshold",
                            "step_ms<=0.000001", code=1)
        self.assertIn("exit 1", result.out.splitlines()[-1])

    def test_replicas_that_differ_are_wrong(self):
        result = self.sweep("scenarios/negative/dropped_bucket.json", "--caps", "25", *QUICK,
                            "--rounds", "1", "--set",
                            '/mutants=[{"kind": "flip_bit", "rank": 1, "step": 2}]', code=1)
        self.assertIn("wrong: 1", result.out.splitlines()[-1])

    def test_data_parallel_is_checked_against_one_device(self):
        path = self.tmp / "sweep.json"
        args = ["scenarios/sweeps/ddp_against_data_parallel.json", "--reducers", "data_parallel,none",
                *QUICK, "--rounds", "1", "--set", "/model/hidden=[8]", "--json", path]
        self.sweep(*args)
        lines = read_json(path)["sweep"]["combinations"]
        self.assertEqual([line["runs"][0]["replicas"] for line in lines], ["same", "not_compared"])
        args[2] = "data_parallel"
        result = self.sweep(*args, "--set", '/mutants=[{"kind": "wrong_divisor"}]', code=1)
        self.assertIn("wrong: 1", result.out.splitlines()[-1])

    def test_auto_measures_each_layout_once(self):
        path = self.tmp / "auto.json"
        self.sweep(TOY, "--caps", "auto", *QUICK, "--rounds", "1", "--json", path)
        sweep = read_json(path)["sweep"]
        self.assertEqual(len(sweep["predictions"]), 1)
        self.assertGreaterEqual(len(sweep["combinations"]), 1)

    def test_virtual_shards_are_measured_and_predicted(self):
        path = self.tmp / "shards.json"
        self.sweep("scenarios/stragglers/named_compute.json", "--set", "/faults=[]", "--set",
                   "/reducer/virtual_shards=4", "--worlds", "2", "--reducers", "bucketed,invariant",
                   "--caps", "25", *QUICK, "--rounds", "1", "--json", path)
        plain, shards = read_json(path)["sweep"]["combinations"]
        self.assertEqual((plain["reducer"], shards["reducer"]), ("bucketed", "invariant"))
        self.assertGreaterEqual(shards["buckets"], 1)
        for line, least_ms in ((plain, 24), (shards, 48)):  # two shards of 8 + 16 ms
            self.assertGreater(line["step_ms"]["median"], least_ms)
            self.assertGreater(line["predicted_ms"], least_ms)

    def test_other_keys_are_varied(self):
        path = self.tmp / "vary.json"
        self.sweep("scenarios/gallery/auto_encoder.json", "--vary",
                   "/reducer/find_unused_parameters=[false, true]", "--worlds", "2", "--reducers",
                   "c10d", "--caps", "25", *QUICK, "--rounds", "1", "--json", path)
        sweep = read_json(path)["sweep"]
        self.assertEqual([line["varied"] for line in sweep["combinations"]],
                         [{"/reducer/find_unused_parameters": on} for on in (False, True)])
        self.assertEqual(len(sweep["reducers"]), 1)

    def test_bad_input(self):
        for args, why in (
                (["--caps", "1,x"], '--caps: "x"'),
                (["--caps", "0"], '--caps: "0"'),
                (["--worlds", "0"], '--worlds: "0"'),
                (["--reducers", "buckted"], 'did you mean "bucketed"?'),
                (["--threshold", "stepms<=3"], 'did you mean "step_ms"?'),
                (["--vary", "/steps"], "--vary"),
                (["--baseline", "/nowhere"], "cannot be opened"),
                (["--reference", TOY], "--reference"),
                (["--set", "/nonsense=1"], "nonsense"),
                (["--svg", "/proc/nope"], "--svg"),
                (["--json", "/proc/nope"], "--json")):
            result = self.sweep(TOY, *args, code=2)
            self.assertIn(why, result.err, args)
            self.assertIn("nothing was run", result.err)

    def test_a_matrix_must_be_pinned(self):
        result = self.sweep(MATRIX, "--caps", "1", "--worlds", "2", code=2)
        self.assertIn("the matrix leaves", result.err)
        self.assertIn("/communicator", result.err)

    def test_interrupted_it_prints_what_it_knows(self):
        run = subprocess.Popen([PROGRAM, "sweep", TOY, "--caps", "25", *QUICK, "--rounds", "500"],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               cwd=ROOT, env=self.env)
        time.sleep(6)
        os.kill(run.pid, signal.SIGINT)
        out, _ = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 130, out)
        self.assertIn("interrupted by signal 2", out)


if __name__ == "__main__":
    unittest.main()
