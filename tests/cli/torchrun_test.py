"""Under torchrun: its variables, two agents, and ranks that it starts again."""
import json
import os
import signal
import unittest

from harness import PROGRAM, TOY, descendants, rank_of
from launchers import LauncherTest, free_port, wait_until

# Without a search for unused parameters buckets are arranged anew after the first step, so also
# after a restart: other sums, and other last bits, than without one.
RESUMED = {
    "name": "resumed", "what": "a test", "world_size": 3, "steps": 120, "batch_size": 24,
    "model": {"kind": "mlp", "in_features": 8, "hidden": [12, 10], "out_features": 4,
              "activation": "tanh"},
    "data": {"kind": "randn", "samples": 96, "features": 8, "targets": 4},
    "loss": {"kind": "mse"},
    "optimizer": {"kind": "sgd", "lr": 0.01, "momentum": 0.9},
    "reducer": {"kind": "bucketed", "bucket_cap_mb": 0.0005, "first_bucket_mb": 0.0002,
                "find_unused_parameters": True},
    "checkpoint": {"kind": "resume", "path": "run.checkpoint", "if_missing": "start",
                   "every_steps": 10},
    "lanes": ["replica", "replay", "float64"]}
INVARIANT = {**RESUMED, "reducer": {"kind": "invariant", "virtual_shards": 8}, "lanes": ["replica", "invariant"]}


class Torchrun(LauncherTest):
    def setUp(self):
        super().setUp()
        self.path = self.tmp / "result.json"

    def worker(self, *args):
        return ["--no_python", PROGRAM, "worker", *args, "--json", self.path]

    def test_four_ranks_without_further_options(self):
        code, text = self.command(*self.torchrun("log"), "--master_port", free_port(),
                                  "--nproc_per_node", 4, *self.worker(TOY))
        self.assertEqual(code, 0, text)
        self.assertIn("4 ranks by torchrun: RANK=0 WORLD_SIZE=4", text)
        self.expect_pass(self.path, 4)

    def test_two_agents_of_eight(self):
        port = free_port()
        codes, texts = self.ends([self.popen(
            *self.torchrun(f"log-{i}"), "--nnodes", 2, "--nproc_per_node", 8, "--rdzv_backend",
            "c10d", "--rdzv_id", "two", "--rdzv_endpoint", f"127.0.0.1:{port}",
            *self.worker(TOY)) for i in range(2)])
        self.assertEqual(codes, [0, 0], texts)
        self.assertIn("16 ranks by torchrun: RANK=0 WORLD_SIZE=16 GROUP_RANK=0 GROUP_WORLD_SIZE=2",
                      "".join(texts))
        self.expect_pass(self.path, 16)

    def test_a_killed_rank_is_started_again_and_resumes(self):
        self.resumes(RESUMED)

    def test_its_bits_are_those_of_one_device(self):
        self.resumes(INVARIANT, "--set", "/world_size=1")

    def resumes(self, keys, *as_whole):
        scenario = self.tmp / "scenario.json"
        scenario.write_text(json.dumps(keys))
        whole = self.verify_json(scenario, "--set", f"/checkpoint/path={self.tmp}/whole", *as_whole)["runs"][0]
        agent = self.popen(*self.torchrun("log"), "--master_port", free_port(), "--nproc_per_node", 3,
                           "--max_restarts", 1, *self.worker(scenario))
        self.assertTrue(wait_until((self.tmp / "run.checkpoint").exists, 60))
        ranks = {rank_of(pid): pid for pid in descendants(agent.pid)}
        os.kill(ranks[1], signal.SIGKILL)
        (code,), (text,) = self.ends([agent])
        self.assertEqual(code, 0, text)
        run = self.expect_pass(self.path, 3)
        self.assertEqual(run["final_hash"], whole["final_hash"])
        self.assertGreater(run["start_step"], 0)


if __name__ == "__main__":
    unittest.main()
