"""The same scenario under other launchers: mpirun, by hand as nodes, by hand as ranks. What the
machine lacks is skipped, with the reason."""
import os
import pathlib
import signal
import socket
import subprocess
import time
import unittest

from harness import PROGRAM, TOY, QuietTime, alive, descendants, rank_of, read_json
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


KEY = {"LOCKSTEP_JOB_KEY": "the secret of these tests alone"}
NO_KEY = "warning: the job has no key"


class Nodes(LauncherTest):
    def node(self, rank, port, *args, ranks=2, **env):
        env = {**KEY, **env}
        return self.start(TOY, "--nodes", 2, "--node-rank", rank, "--ranks-per-node", ranks,
                          "--master-addr", "127.0.0.1", "--master-port", port, *args, **env)

    def test_two_nodes(self):
        path, port = self.tmp / "result.json", free_port()
        codes, texts = self.ends([self.node(0, port, "--json", path), self.node(1, port)])
        self.assertEqual(codes, [0, 0], texts)
        self.assertNotIn(NO_KEY, texts[0])
        self.expect_pass(path, 4)

    def test_without_a_key_there_is_a_warning(self):
        path, port = self.tmp / "result.json", free_port()
        nodes = [self.by_itself(0, port, "--json", path), self.by_itself(1, port)]
        codes, texts = self.ends(nodes)
        self.assertEqual(codes, [0, 0], texts)
        self.assertIn(NO_KEY, texts[0])
        self.assertNotIn(NO_KEY, texts[1])
        self.expect_pass(path, 2)

    def by_itself(self, rank, port, *args, **env):
        """A node of one rank, without a key."""
        return self.start(TOY, "--nodes", 2, "--node-rank", rank, "--master-addr", "127.0.0.1",
                          "--master-port", port, *args, **env)

    def test_without_a_key_one_that_does_not_belong_ends_nothing(self):
        path, port = self.tmp / "result.json", free_port()
        first = self.by_itself(0, port, "--json", path)
        (code,), (text,) = self.ends([self.by_itself(1, port, "--set", "/steps=3")])
        self.assertEqual(code, 2, text)
        self.assertIn("refused: it has another scenario, option, program, job or world size", text)
        codes, texts = self.ends([first, self.by_itself(1, port)])
        self.assertEqual(codes, [0, 0], texts)
        self.assertIn("refused to let 127.0.0.1 join: it has another scenario", texts[0])
        self.expect_pass(path, 2)

    def test_another_key(self):
        port = free_port()
        first = self.node(0, port, *IMPATIENT)
        (code,), (text,) = self.ends([self.node(1, port, LOCKSTEP_JOB_KEY="not the secret of them")])
        self.assertEqual(code, 2, text)
        self.assertIn("refused: it does not know the job's key", text)
        codes, texts = self.ends([first])
        self.assertEqual(codes, [3], texts)
        self.assertIn("refused to let 127.0.0.1 join: it does not know the job's key", texts[0])
        self.assertIn("ranks 2, 3 have not joined within 4000 ms", texts[0])

    def test_a_key_in_a_file(self):
        port, key = free_port(), self.tmp / "key"
        key.write_text("a secret that stands in a file\n")
        key.chmod(0o600)
        codes, texts = self.ends([self.by_itself(0, port, "--job-key-file", key),
                                  self.by_itself(1, port, LOCKSTEP_JOB_KEY_FILE=str(key))])
        self.assertEqual(codes, [0, 0], texts)
        self.assertNotIn(NO_KEY, texts[0])
        key.chmod(0o644)
        codes, texts = self.ends([self.by_itself(0, port, "--job-key-file", key)])
        self.assertEqual(codes, [2], texts)
        self.assertIn("other users have access to it (mode 0644)", texts[0])

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


    def test_a_node_that_is_killed_takes_its_records_along(self):
        path, port = self.tmp / "result.json", free_port()
        long = ("--set", "/steps=200000")
        nodes = [self.node(0, port, *long, "--json", path), self.node(1, port, *long)]
        there = lambda: {2, 3} <= {rank_of(pid) for pid in descendants(nodes[1].pid)}
        self.assertTrue(wait_until(there, 60))
        time.sleep(2)
        nodes[1].kill()
        codes, texts = self.ends(nodes)
        self.assertIn(codes[0], (3, 10), texts)
        failure = read_json(path)["runs"][0]["failure"]
        self.assertIn(failure["rank"], (2, 3), failure)
        self.assertEqual((failure["kind"], failure["signal"], failure["exit_code"],
                          failure["phase"]), ("lost", None, None, None), failure)
        self.assertRegex(failure["message"],
                         "^rank [23]: its process is gone, its records are lost")
        for rank in (2, 3):
            self.assertNotIn(rank, failure["explanation"]["missing"])
            self.assertNotIn(rank, failure["explanation"]["entered"])


IMPATIENT = ("--set", "/timeouts/collective_ms=1000", "--set", "/timeouts/construction_ms=2000",
             "--set", "/timeouts/step_ms=3000", "--set", "/timeouts/rendezvous_ms=4000")


class ByHand(LauncherTest):
    """Ranks started one by one with torchrun's variables."""

    def ranks(self, count, *args, each=(), **env):
        env = {**KEY, **env}
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
        clock = QuietTime()
        codes, texts = self.ends([first, second])
        self.assertLess(clock.passed(), 20)
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
        first = self.start(TOY, *args, RANK="0", WORLD_SIZE="2", **KEY)
        second = self.start(TOY, *args, RANK="1", WORLD_SIZE="3", **KEY)
        codes, texts = self.ends([first, second])
        self.assertEqual(codes, [2, 2], texts)
        self.assertRegex(texts[0], "with rank 1 was refused: .* ranks 3 .* rank 0 has .* ranks 2 ")
        self.assertRegex(texts[1], "refused: .* ranks 3 .* rank 0 has .* ranks 2 ")

    def test_a_rank_that_comes_twice(self):
        args = ("--rendezvous", f"tcp://127.0.0.1:{free_port()}")
        codes, texts = self.ends([self.start(TOY, *args, RANK=rank, WORLD_SIZE="3", **KEY)
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
                (("--nodes", "2"), {}, "without --node-rank"),
                ((), {"RANK": "0", "WORLD_SIZE": "1", "LOCKSTEP_JOB_KEY": "short"},
                 "LOCKSTEP_JOB_KEY holds a key of 5 bytes")):
            codes, texts = self.ends([self.start(TOY, *args, **env)])
            self.assertEqual(codes, [2], texts)
            self.assertIn(text, texts[0])


if __name__ == "__main__":
    unittest.main()
