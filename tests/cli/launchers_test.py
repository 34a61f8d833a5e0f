"""The same scenario under other launchers: mpirun, by hand as nodes, by hand as ranks. What the
machine lacks is skipped, with the reason."""
import os
import pathlib
import signal
import socket
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
        codes, texts = self.ends([self.node(0, port), self.node(1, port, "--set", "/steps=3")])
        self.assertEqual(codes, [2, 2], texts)
        self.assertIn("refused: it has", texts[1])
        self.assertIn("with rank 2 was refused: it has", texts[0])

    def test_a_node_that_does_not_come(self):
        codes, texts = self.ends([self.node(0, free_port(), *IMPATIENT)])
        self.assertEqual(codes, [3], texts)
        self.assertIn("ranks 2, 3 have not joined within 4000 ms", texts[0])

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


IMPATIENT = ("--set", "/timeouts/collective_ms=1000", "--set", "/timeouts/construction_ms=2000",
             "--set", "/timeouts/step_ms=3000", "--set", "/timeouts/rendezvous_ms=4000")


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

    def test_memory_that_ranks_of_different_parents_share(self):
        place = f"tcp://127.0.0.1:{free_port()}"
        codes, texts = self.ends(self.ranks(3, "--rendezvous", place, "--set", "/world_size=3",
                                            "--set", "/communicator/kind=shm"))
        self.assertEqual(codes, [0, 0, 0], texts)

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

    def test_rank_0_is_killed(self):
        place = f"tcp://127.0.0.1:{free_port()}"
        first, second = self.ranks(2, "--rendezvous", place, "--set", "/steps=200000")
        started = self.ranks_below(first) + self.ranks_below(second)
        first.kill()
        begin = time.monotonic()
        codes, texts = self.ends([first, second])
        self.assertLess(time.monotonic() - begin, 20)
        self.assertEqual(codes, [-signal.SIGKILL, 3], texts)
        self.assertIn("the process of rank 0 is gone: nothing was judged", texts[1])
        # Those below the killed one learn of it from the kernel: one second, as promised.
        wait_until(lambda: not [pid for pid in started if alive(pid)], 1)
        self.assertEqual([pid for pid in started if alive(pid)], [])

    def ranks_below(self, process):
        found = []

        def there():
            found[:] = [pid for pid in descendants(process.pid) if rank_of(pid) is not None]
            return found
        self.assertTrue(wait_until(there, 60))
        return found

    def test_a_port_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as other:
            place = f"127.0.0.1:{other.getsockname()[1]}"
            codes, texts = self.ends(self.ranks(2, "--rendezvous", f"tcp://{place}", *IMPATIENT))
        self.assertEqual(codes, [2, 3], texts)
        self.assertIn(f"rank 0: cannot listen at {place}: Address already in use", texts[0])
        self.assertIn(f"rank 0 was not found in time: {place}", texts[1])

    def test_an_address_that_does_not_resolve(self):
        codes, texts = self.ends(self.ranks(2, *IMPATIENT, MASTER_ADDR="no..host",
                                            MASTER_PORT=str(free_port())))
        self.assertEqual(codes, [2, 3], texts)
        self.assertIn("rank 0: no..host: Name or service not known", texts[0])
        self.assertIn("rank 1: waiting for rank 0: no..host: Name or service not known", texts[1])
        self.assertIn("rank 0 was not found in time: no..host", texts[1])

    def test_another_world_size_on_one_rank(self):
        args = ("--rendezvous", f"tcp://127.0.0.1:{free_port()}")
        first = self.start(TOY, *args, RANK="0", WORLD_SIZE="2")
        second = self.start(TOY, *args, RANK="1", WORLD_SIZE="3")
        codes, texts = self.ends([first, second])
        self.assertEqual(codes, [2, 2], texts)
        self.assertRegex(texts[0], "with rank 1 was refused: .* ranks 3 .* rank 0 has .* ranks 2 ")
        self.assertRegex(texts[1], "refused: .* ranks 3 .* rank 0 has .* ranks 2 ")

    def test_a_rank_that_comes_twice(self):
        args = ("--rendezvous", f"tcp://127.0.0.1:{free_port()}")
        codes, texts = self.ends([self.start(TOY, *args, RANK=rank, WORLD_SIZE="3")
                                  for rank in ("0", "1", "1")])
        self.assertEqual(codes, [2, 2, 2], texts)
        self.assertIn("with rank 1 was refused: rank 1 has joined already", texts[0])

    def test_interrupted_while_it_waits(self):
        for rank in ("0", "1"):
            waiting = self.start(TOY, "--rendezvous", f"tcp://127.0.0.1:{free_port()}", RANK=rank,
                                 WORLD_SIZE="2")
            time.sleep(1)
            waiting.send_signal(signal.SIGTERM)
            (code,), (text,) = self.ends([waiting], 20)
            self.assertEqual(code, 128 + signal.SIGTERM, text)
            self.assertIn("interrupted by signal 15", text)

    def test_bad_input(self):
        for args, env, text in (
                ((), {"RANK": "2", "WORLD_SIZE": "2"}, "RANK=2 contradicts WORLD_SIZE=2"),
                ((), {}, "no launcher has started this process"),
                ((), {"RANK": "0", "WORLD_SIZE": "2"}, "nothing says where rank 0 is"),
                (("--launcher", "mpi"), {"RANK": "0", "WORLD_SIZE": "2"}, "not both set"),
                (("--interface", "no0"), {"RANK": "0", "WORLD_SIZE": "2"}, "no such interface"),
                (("--set", "/communicator/kind=local"), {"RANK": "0", "WORLD_SIZE": "1"},
                 "its ranks in one process"),
                (("--device", "auto"), {"RANK": "0", "WORLD_SIZE": "1"}, "each machine's own choice"),
                (("--nodes", "2", "--node-rank", "2"), {}, "--node-rank 2 with --nodes 2"),
                (("--nodes", "2"), {}, "without --node-rank")):
            codes, texts = self.ends([self.start(TOY, *args, **env)])
            self.assertEqual(codes, [2], texts)
            self.assertIn(text, texts[0])


if __name__ == "__main__":
    unittest.main()
