"""The same scenario under other launchers: mpirun, by hand as nodes, by hand as ranks. What the
machine lacks is skipped, with the reason."""
import os
import pathlib
import signal
import subprocess
import time
import unittest

from harness import PROGRAM, TOY, alive, descendants, rank_of, read_json
from launchers import LauncherTest, free_port, wait_until

MATRIX = "scenarios/equivalence/mlp_matrix.json"


class Mpi(LauncherTest):
    def mpirun(self, ranks, *args):
        self.need("mpirun", "openmpi-bin")
        return self.command("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks, PROGRAM,
                            "worker", *args)

    def test_three_ranks(self):
        path = self.tmp / "result.json"
        code, text = self.mpirun(3, TOY, "--json", path)
        self.assertEqual(code, 0, text)
        self.assertIn("3 ranks by mpi: OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3", text)
        self.expect_pass(path, 3)

    def test_a_matrix_is_bad_input(self):
        code, text = self.mpirun(2, MATRIX)
        self.assertEqual(code, 2, text)
        self.assertIn("a launcher's ranks are one run", text)


class Nodes(LauncherTest):
    def node(self, rank, port, *args, ranks=2, **env):
        return self.start(TOY, "--nodes", 2, "--node-rank", rank, "--ranks-per-node", ranks,
                          "--master-addr", "127.0.0.1", "--master-port", port, *args, **env)

    def test_two_nodes(self):
        path, port = self.tmp / "result.json", free_port()
        codes, texts = self.ends([self.node(0, port, "--json", path), self.node(1, port)])
        self.assertEqual(codes, [0, 0], texts)
        self.expect_pass(path, 4)

    def test_another_scenario_is_refused(self):
        port = free_port()
        codes, texts = self.ends([self.node(0, port, "--set", "/timeouts/rendezvous_ms=4000", *SHORT),
                                  self.node(1, port, "--set", "/steps=3")])
        self.assertEqual(codes[1], 2, texts)
        self.assertIn("refused", texts[1])
        self.assertEqual(codes[0], 3, texts)
        self.assertIn("ranks 2, 3 have not joined", texts[0])

    def test_a_rank_that_is_killed_is_named_by_the_other_node(self):
        path, port = self.tmp / "result.json", free_port()
        long = ("--set", "/steps=200000")
        nodes = [self.node(0, port, *long, "--json", path), self.node(1, port, *long)]
        ranks = {}

        def there():
            ranks.update({rank_of(pid): pid for pid in descendants(nodes[1].pid)})
            return 3 in ranks
        self.assertTrue(wait_until(there, 60))
        time.sleep(2)
        kids = [pid for node in nodes for pid in descendants(node.pid)]
        os.kill(ranks[3], signal.SIGKILL)
        codes, texts = self.ends(nodes)
        self.assertEqual(codes[1], 128 + 9, texts)
        self.assertIn(codes[0], (3, 10), texts)
        failure = read_json(path)["runs"][0]["failure"]
        self.assertEqual((failure["rank"], failure["signal"]), (3, 9), failure)
        self.assertEqual([pid for pid in kids if alive(pid)], [])


SHORT = ("--set", "/timeouts/collective_ms=1000", "--set", "/timeouts/construction_ms=2000", "--set",
         "/timeouts/step_ms=3000")


class ByHand(LauncherTest):
    """Ranks started one by one with torchrun's variables."""

    def ranks(self, count, *args, each=(), **env):
        return [self.start(TOY, *args, *(each[rank] if each else ()), RANK=str(rank),
                           WORLD_SIZE=str(count), **env) for rank in range(count)]

    def test_a_file(self):
        place = f"file://{self.tmp}/meet"
        pathlib.Path(self.tmp / "meet").write_text("127.0.0.1:1 stale\n")
        codes, texts = self.ends(self.ranks(2, "--rendezvous", place))
        self.assertEqual(codes, [0, 0], texts)
        self.assertFalse((self.tmp / "meet").exists())

    def test_tcp_and_an_interface(self):
        place = f"tcp://127.0.0.1:{free_port()}"
        codes, texts = self.ends(self.ranks(2, "--rendezvous", place, "--interface", "lo"))
        self.assertEqual(codes, [0, 0], texts)

    def test_redis(self):
        self.need("redis-server", "redis-server")
        port = free_port()
        server = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--bind",
                                   "127.0.0.1"], stdout=subprocess.DEVNULL, cwd=self.tmp)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        time.sleep(1)
        codes, texts = self.ends(self.ranks(2, "--rendezvous", f"redis://127.0.0.1:{port}/x"))
        self.assertEqual(codes, [0, 0], texts)

    def test_a_verdict_of_fail_is_everybodys(self):
        args = ("--set", "/mutants=[{\"kind\": \"wrong_divisor\"}]")
        place = f"tcp://127.0.0.1:{free_port()}"
        codes, texts = self.ends(self.ranks(2, *args, "--rendezvous", place))
        self.assertEqual(codes, [1, 1], texts)

    def test_bad_input(self):
        for args, env, text in (
                ((), {"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 contradicts WORLD_SIZE=2"),
                ((), {}, "no launcher has started this process"),
                ((), {"RANK": "0", "WORLD_SIZE": "2"}, "nothing says where rank 0 is"),
                (("--launcher", "mpi"), {"RANK": "0", "WORLD_SIZE": "2"}, "not both set"),
                (("--interface", "no0"), {"RANK": "0", "WORLD_SIZE": "2"}, "no such interface"),
                (("--set", "/communicator/kind=local"), {"RANK": "0", "WORLD_SIZE": "1"},
                 "its ranks in one process"),
                (("--nodes", "2", "--node-rank", "2"), {}, "--node-rank 2 with --nodes 2"),
                (("--nodes", "2"), {}, "without --node-rank")):
            codes, texts = self.ends([self.start(TOY, *args, **env)])
            self.assertEqual(codes, [2], texts)
            self.assertIn(text, texts[0])


if __name__ == "__main__":
    unittest.main()
