"""The same scenario under other launchers: mpirun, torchrun, by hand as nodes. What the machine
lacks is skipped, with the reason."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import unittest

from harness import PROGRAM, ROOT, TOY, ProgramTest, alive, descendants, rank_of, read_json

MATRIX = "scenarios/equivalence/mlp_matrix.json"
NEGATIVE = "scenarios/negative/wrong_divisor.json"
TORCHRUN = ["/usr/bin/python3", "-m", "torch.distributed.run"]
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def has_torchrun():
    probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
    return pathlib.Path("/usr/bin/python3").exists() and subprocess.run(
        ["/usr/bin/python3", "-c", probe]).returncode == 0


class Launchers(ProgramTest):
    def setUp(self):
        super().setUp()
        self.env["TMPDIR"] = str(self.tmp)
        for name in NAMES:
            self.env.pop(name, None)

    def command(self, *command, timeout=150, **options):
        return subprocess.run([*map(str, command)], cwd=ROOT, env=self.env, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout,
                              **options)

    def start(self, *args, **env):
        process = subprocess.Popen([PROGRAM, "worker", *map(str, args)], cwd=ROOT,
                                   env={**self.env, **env}, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def ends(self, processes, timeout=120):
        texts = [process.communicate(timeout=timeout)[0] for process in processes]
        return [process.returncode for process in processes], texts

    def expect_pass(self, path, ranks):
        run = read_json(path)["runs"][0]
        self.assertEqual((run["verdict"], run["world_size"]), ("pass", ranks), run)
        self.assertEqual({lane["control"] for lane in run["lanes"].values()}, {"detected"})


class Mpi(Launchers):
    def mpirun(self, ranks, *args):
        if not shutil.which("mpirun"):
            self.skipTest("no mpirun (Debian: openmpi-bin)")
        return self.command("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks, PROGRAM,
                            "worker", *args)

    def test_three_ranks(self):
        path = self.tmp / "result.json"
        done = self.mpirun(3, TOY, "--json", path)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("3 ranks by mpi: OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=3", done.stdout)
        self.expect_pass(path, 3)

    def test_a_matrix_is_bad_input(self):
        done = self.mpirun(2, MATRIX)
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("a launcher's ranks are one run", done.stdout)


class Torchrun(Launchers):
    def torchrun(self, *args):
        if not has_torchrun():
            self.skipTest("no torchrun (Debian: python3-torch)")
        # Redirects as a map: with Python 3.11 this torchrun cannot iterate over a flag of 0.
        return self.command(*TORCHRUN, "--redirects", "0:1", "--tee", "0:1", "--log_dir",
                            self.tmp / "log", "--master_port", free_port(), "--no_python", *args)

    def test_four_ranks_without_further_options(self):
        path = self.tmp / "result.json"
        done = self.torchrun("--nproc_per_node", 4, PROGRAM, "worker", TOY, "--json", path)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("4 ranks by torchrun: RANK=0 WORLD_SIZE=4", done.stdout)
        self.expect_pass(path, 4)


class Nodes(Launchers):
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
        end = time.monotonic() + 60
        ranks = {}
        while time.monotonic() < end and 3 not in ranks:
            ranks = {rank_of(pid): pid for pid in descendants(nodes[1].pid)}
            time.sleep(0.05)
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


class ByHand(Launchers):
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
        if not shutil.which("redis-server"):
            self.skipTest("no redis-server")
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


class Hosts(Launchers):
    def verify(self, hosts, script, *args):
        shell = self.tmp / "shell"
        shell.write_text("#!/bin/sh\n" + script)
        shell.chmod(0o700)
        return self.run_program("verify", TOY, "--hosts", hosts, "--ranks-per-host", 2,
                                "--remote-shell", shell, "--master-port", free_port(), *args,
                                timeout=150)

    def test_a_given_command(self):
        path = self.tmp / "result.json"
        done = self.verify("127.0.0.1,localhost", 'exec sh -c "$2"\n', "--json", path)
        self.assertEqual(done.code, 0, done.text)
        self.expect_pass(path, 4)

    def test_a_host_that_cannot_be_reached(self):
        done = self.verify("nowhere", "exit 255\n")
        self.assertEqual(done.code, 3, done.text)
        self.assertIn("nowhere could not be reached", done.text)

    def test_no_host_is_an_option_of_the_shell(self):
        for hosts in ("-oProxyCommand=x", "a b", ","):
            self.assertEqual(self.verify(hosts, "exit 0\n").code, 2, hosts)

    def test_across_a_network(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and ip (Debian: iproute2)")
        names = [f"lockstep-{os.getpid()}-{i}" for i in (1, 2)]

        def ip(*words):
            return subprocess.run(["ip", *words], capture_output=True, text=True)
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                self.skipTest(f"no network namespaces here: {made.stderr.strip()}")
            self.addCleanup(ip, "netns", "del", name)
        made = ip("link", "add", "ls0", "netns", names[0], "type", "veth", "peer", "name", "ls0",
                  "netns", names[1])
        if made.returncode:
            self.skipTest(f"no veth pair here: {made.stderr.strip()}")
        for i, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.213.7.{i + 1}/24", "dev", "ls0")
            ip("-n", name, "link", "set", "ls0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        path = self.tmp / "result.json"
        script = f'exec ip netns exec lockstep-{os.getpid()}-${{1##*.}} sh -c "$2"\n'
        done = self.verify("10.213.7.1,10.213.7.2", script, "--interface", "ls0", "--json", path)
        self.assertEqual(done.code, 0, done.text)
        self.expect_pass(path, 4)


if __name__ == "__main__":
    unittest.main()
