"""`lockstep run`: what it says of runs with faults, and `lockstep campaign`."""
import json
import subprocess
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, TOY, ProgramTest, read_json

TIMEOUTS = '/timeouts={"collective_ms": 800, "construction_ms": 1000, "step_ms": 1200}'


class Run(ProgramTest):
    def run_with(self, fault, *more):
        return self.run_program("run", TOY, "--set", TIMEOUTS, "--set", "/steps=4", "--set",
                                "/faults=" + json.dumps([fault]), *more)

    def test_a_failure_that_was_not_expected_is_explained(self):
        result = self.run_with({"kind": "kill", "rank": 2, "step": 3})
        self.assertEqual(result.code, 3, result.text)
        self.assertRegex(result.out, r"(?m)^failed: rank 2 .*SIGKILL")
        self.assertIn("lockstep run ", result.out)

    def test_an_expected_failure_is_met(self):
        expect = {"outcome": "failed", "primary_rank": 2, "kind": "hang", "within_ms": 1300,
                  "named": {"phase": "backward"}}
        result = self.run_with({"kind": "stop", "rank": 2, "step": 3}, "--set",
                               "/expect=" + json.dumps(expect))
        self.assertEqual(result.code, 0, result.text)
        self.assertRegex(result.out, r"(?m)^failed, as expected: rank 2 ")
        self.assertRegex(result.out, r"(?m)^  expected: .*: met")

    def test_a_wrong_expectation_is_not_met(self):
        expect = {"outcome": "failed", "primary_rank": 1, "kind": "crash"}
        result = self.run_with({"kind": "kill", "rank": 2, "step": 3}, "--set",
                               "/expect=" + json.dumps(expect))
        self.assertEqual(result.code, 1, result.text)
        self.assertIn("primary_rank: expected 1, got 2", result.out)

    def test_a_delay_changes_nothing(self):
        result = self.run_with({"kind": "stall", "rank": 1, "duration_ms": 30})
        self.assertEqual(result.code, 0, result.text)
        self.assertRegex(result.out, r"(?m)^completed, as expected: 4 steps")

    def test_without_the_right_a_link_is_limited_in_the_rank_or_not_at_all(self):
        fault = {"kind": "slow_link", "rank": 1, "bandwidth_mb_per_s": 1}
        for means, code in (("auto", 0), ("veth", 3)):
            faults = "/faults=" + json.dumps([{**fault, "means": means}])
            done = subprocess.run(
                ["setpriv", "--bounding-set=-sys_admin", PROGRAM, "run", TOY, "--set", faults],
                capture_output=True, text=True, env=self.env, cwd=ROOT, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn('means "veth" of a fault: a network namespace: Operation not permitted',
                      done.stdout)

    def test_a_fault_that_cannot_be_is_bad_input(self):
        result = self.run_with({"kind": "stop", "rank": 9})
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("there is no rank 9", result.text)
        result = self.run_with({"kind": "slow_device", "rank": 1})
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("slow_device is about what a host puts into a device's stream", result.text)


class Campaign(ProgramTest):
    def test_says_what_it_drew_and_how_it_went(self):
        path = self.tmp / "campaign.json"
        result = self.run_program("campaign", "--seeds", "6", "--seed", "11", "--json", path)
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("known after ms", result.out)
        document = read_json(path)
        self.assertEqual(document["campaign"]["seed"], 11)
        self.assertEqual(sum(kind["runs"] for kind in document["campaign"]["kinds"]), 6)
        self.assertEqual([run["name"] for run in document["runs"]],
                         sorted(f"seed-{seed}" for seed in range(11, 17)))
        self.assertEqual(document["runs"][0]["again"], "lockstep campaign --seeds 1 --seed 11")


if __name__ == "__main__":
    unittest.main()
