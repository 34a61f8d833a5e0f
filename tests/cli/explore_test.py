#!/usr/bin/env python3
"""lockstep explore: clean reducers, race mutants, replay, exhaustive, outputs, bad input."""
import os
import signal
import subprocess
import time
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, alive, descendants, read_json

FOLDER = "scenarios/explore"
TOY = f"{FOLDER}/toy.json"
FOUND = {"skip_wait": {"use_before_completion", "lost_update"},
         "reuse_buffer": {"lost_update"},
         "unordered_launch": {"mismatched_collective", "different_bits", "error"}}


class ExploreTest(ProgramTest):
    def explore(self, *args, code=0, timeout=120):
        path = self.tmp / "result.json"
        result = self.run_program("explore", *args, "--json", path, timeout=timeout)
        self.assertEqual(result.code, code, result.text)
        return result, read_json(path) if path.exists() else None

    def test_clean_reducers_have_one_result_under_all_schedules(self):
        result, document = self.explore(TOY, "--schedules", 500)
        self.assertIn("pass: 1,000 schedules of 2 scenarios, 0 findings", result.out)
        for one in document["scenarios"]:
            self.assertEqual(one["result"]["explored"], 500)
            self.assertGreater(one["result"]["distinct"], 300)
            self.assertEqual(one["result"]["reference"], "replay")

    def test_every_race_mutant_is_found_shrunk_and_replayed(self):
        for name, kinds in FOUND.items():
            for kind in ("bucketed", "c10d"):
                path, pinned = f"{FOLDER}/{name}.json", ["--set", f"/reducer/kind={kind}"]
                result, document = self.explore(path, *pinned, "--schedules", 2000)
                one, = document["scenarios"]
                finding, = one["result"]["findings"]
                self.assertIn(finding["kind"], kinds)
                self.assertEqual(finding["smallest"]["world_size"], 2, name)
                self.assertLess(finding["smallest"]["steps"], 3)
                self.assertTrue(finding["smallest"]["interleaving"])
                self.assertIn(f"{one['again']} --replay {finding['seed']}", result.out)
                self.assertLessEqual(finding["smallest"]["preemptions"], 1, result.out)
                replayed, again = self.explore(path, *pinned, "--replay", finding["seed"])
                same = again["scenarios"][0]["result"]
                self.assertEqual(same["reproduced"], 100)
                self.assertEqual(same["findings"][0]["what"], finding["what"])
                self.assertIn("100 of 100 the same", replayed.out)

    def test_invariant_has_the_bits_of_one_device_under_all_schedules(self):
        """Whatever arrives first, whatever the number of ranks; and races of it are found as well."""
        path = f"{FOLDER}/invariant.json"
        for ranks in (2, 3, 5):
            _, document = self.explore(path, "--schedules", 300, "--set", f"/world_size={ranks}")
            one, = document["scenarios"]
            self.assertEqual((one["result"]["reference"], one["result"]["explored"]), ("invariant", 300))
            self.assertGreater(one["result"]["distinct"], 250)
        for name, kinds in FOUND.items():
            _, document = self.explore(path, "--schedules", 500, "--set", f'/mutants=[{{"kind": "{name}"}}]', code=1)
            finding, = document["scenarios"][0]["result"]["findings"]
            self.assertIn(finding["kind"], kinds, name)
            # Two ranks all-reduce, and have no parts that are gathered too early.
            ranks = 3 if (name, finding["kind"]) == ("skip_wait", "lost_update") else 2
            self.assertEqual(finding["smallest"]["world_size"], ranks, name)

    def test_shards_that_meet_in_a_layer_have_the_bits_of_one_device_under_all_schedules(self):
        sync = ("--set", '/model={"kind": "batch_norm_mlp", "in_features": 10, "hidden": [6], "out_features": 5, "norm": "sync"}')
        path = f"{FOLDER}/invariant.json"
        for ranks in (2, 3):
            _, document = self.explore(path, "--schedules", 300, "--set", f"/world_size={ranks}", *sync)
            one, = document["scenarios"]
            self.assertEqual((one["result"]["reference"], one["result"]["explored"]), ("invariant", 300))
        _, document = self.explore(path, "--schedules", 500, *sync, "--set", '/mutants=[{"kind": "skip_wait"}]', code=1)
        self.assertTrue(document["scenarios"][0]["result"]["findings"])

    def test_other_reducers_and_features_are_clean_too(self):
        for sets in (["/reducer/gradient_as_bucket_view=true"], ["/reducer/find_unused_parameters=true"],
                     ["/accumulate_steps=5"], ['/comm_hook={"kind": "fp16"}'], ["/zero_grad=none"],
                     ['/model={"kind": "batch_norm_mlp", "in_features": 10, "hidden": [6], "out_features": 5}'],
                     ["/reducer/kind=flat"], ["/reducer/kind=per_parameter"], ["/reducer/kind=manual"],
                     ["/world_size=7"], ["/communicator/algorithm=bcube"],
                     ['/optimizer={"kind": "adam", "lr": 0.01}']):
            words = [word for one in sets for word in ("--set", one)]
            _, document = self.explore(TOY, "--schedules", 40, *words)
            for one in document["scenarios"]:
                self.assertEqual(one["result"]["reference"], "replay", sets)

    def test_a_finding_that_nobody_expects_fails(self):
        result, document = self.explore(TOY, "--schedules", 200, "--set",
                                        '/mutants=[{"kind": "skip_wait"}]', code=1)
        self.assertEqual(document["verdict"], "fail")
        self.assertTrue(result.out.splitlines()[-1].endswith("exit 1"))
        result, document = self.explore(f"{FOLDER}/skip_wait.json", "--schedules", 50, "--set",
                                        "/mutants=[]", code=1)
        self.assertIn("a finding is expected, and there is none", result.out)

    def test_the_same_seed_finds_the_same(self):
        found = []
        for jobs in (1, 2):
            _, document = self.explore(f"{FOLDER}/reuse_buffer.json", "--jobs", jobs)
            findings = [one["result"]["findings"][0] for one in document["scenarios"]]
            found.append([(one["seed"], one["what"], one["smallest"]) for one in findings])
        self.assertEqual(*found)

    def test_exhaustive_ends_and_finds_what_seeds_find(self):
        small = ["--set", "/world_size=2", "--set", "/steps=1", "--set", "/reducer/kind=bucketed"]
        result, document = self.explore(TOY, *small, "--exhaustive", "--preemptions", 0)
        one = document["scenarios"][0]["result"]
        self.assertTrue(one["exhausted"])
        self.assertEqual(one["distinct"], one["explored"])
        _, document = self.explore(f"{FOLDER}/skip_wait.json", *small, "--exhaustive")
        finding = document["scenarios"][0]["result"]["findings"][0]
        self.assertIsNone(finding["seed"])

    def test_bad_input(self):
        for args, why in (
                (["--set", "/world_size=1"], "one rank has no schedules"),
                (["--set", "/reducer/kind=sharded"], 'explore does not know reducer "sharded"'),
                (["--set", '/mutants=[{"kind": "wrong_divisor"}]'], "does not know mutant"),
                (["--schedules", "0"], "--schedules"),
                (["--replay", "0"], "--replay"),
                (["--replay", "1", "--exhaustive"], "--exhaustive"),
                (["--set", '/faults=[{"kind": "kill", "rank": 2, "step": 3}]'], "/faults")):
            result = self.run_program("explore", TOY, *args)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(why, result.err, args)

    def test_interrupted_it_says_what_it_knows(self):
        run = subprocess.Popen([PROGRAM, "explore", TOY, "--schedules", "100000000"], text=True,
                               cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        end = time.monotonic() + 30
        while not descendants(run.pid) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(2)
        workers = descendants(run.pid)
        os.kill(run.pid, signal.SIGINT)
        out, err = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 130, out + err)
        self.assertIn("interrupted by signal 2; exit 130", out.splitlines()[-1])
        self.assertFalse(any(alive(pid) for pid in workers))


if __name__ == "__main__":
    unittest.main()
