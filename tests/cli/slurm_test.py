"""Under Slurm: a cluster of two nodes for the test, both on this machine, in a folder of its own."""
import ctypes
import getpass
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from harness import PATIENCE_S, PROGRAM, TOY, descendants, read_json
from launchers import PATH, LauncherTest, free_port, wait_until

PR_SET_CHILD_SUBREAPER = 36
CONFIGURATION = """
ClusterName=lockstep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={tmp}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
StateSaveLocation={tmp}/state
SlurmdSpoolDir={tmp}/spool-%n
SlurmctldPidFile={tmp}/slurmctld.pid
SlurmdPidFile={tmp}/slurmd-%n.pid
SlurmctldLogFile={tmp}/slurmctld.log
SlurmdLogFile={tmp}/slurmd-%n.log
MailProg=/bin/true
KillWait=2
MinJobAge=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=10:00 State=UP
"""


class Cluster:
    """munged, slurmctld and two slurmd. What they leave behind becomes a child of this process, so
    that all can be stopped."""

    def __init__(self):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        (self.tmp / "state").mkdir(mode=0o700)
        for node in ("n1", "n2"):
            (self.tmp / f"spool-{node}").mkdir(mode=0o700)
        (self.tmp / "munge.key").write_bytes(os.urandom(128))
        (self.tmp / "munge.key").chmod(0o400)
        (self.tmp / "slurm.conf").write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], user=getpass.getuser(), tmp=self.tmp,
            ports=[free_port() for _ in range(3)]))
        self.env = {"SLURM_CONF": str(self.tmp / "slurm.conf"), "PATH": PATH}
        # Later slurmd look for a cgroup file system, though nothing here asks for one.
        if int(self.ask("slurmd", "-V").split()[-1].split(".")[0]) >= 24:  # "slurm-wlm 24.11.5"
            (self.tmp / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        self.daemons = []
        self.up = False

    def start(self):
        self.daemon("munged", "--foreground", "--force", f"--key-file={self.tmp}/munge.key",
                    f"--socket={self.tmp}/munge.socket", f"--pid-file={self.tmp}/munged.pid",
                    f"--seed-file={self.tmp}/munged.seed", f"--log-file={self.tmp}/munged.log")
        wait_until((self.tmp / "munge.socket").exists, 20)
        self.daemon("slurmctld", "-D", "-i", "-f", self.tmp / "slurm.conf")
        for node in ("n1", "n2"):
            self.daemon("slurmd", "-D", "-N", node, "-f", self.tmp / "slurm.conf")
        if not wait_until(lambda: self.ask("sinfo", "-h", "-o", "%D %T") == "2 idle", 60):
            raise RuntimeError("the cluster is not up: " + (self.tmp / "log").read_text()[-4000:])
        self.up = True

    def daemon(self, *command):
        with open(self.tmp / "log", "ab") as log:
            self.daemons.append(subprocess.Popen(
                [*map(str, command)], cwd=self.tmp, stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={**os.environ, **self.env}))

    def ask(self, *command):
        return subprocess.run(command, text=True, stdout=subprocess.PIPE, timeout=PATIENCE_S,
                              stderr=subprocess.DEVNULL,
                              env={**os.environ, **self.env}).stdout.strip()

    def stop(self):
        # Steps end through slurmctld, which asks munged: in this order, each when those are gone.
        wait_until(lambda: not self.ask("squeue", "-h"), 20)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in descendants(os.getpid()):
            os.kill(pid, signal.SIGKILL)
        while descendants(os.getpid()):
            os.wait()
        shutil.rmtree(self.tmp, ignore_errors=True)


class Slurm(LauncherTest):
    cluster = None

    @classmethod
    def tearDownClass(cls):
        if cls.cluster:
            cls.cluster.stop()

    def setUp(self):
        super().setUp()
        for program, package in (("munged", "munge"), ("slurmctld", "slurm-wlm"),
                                 ("slurmd", "slurm-wlm"), ("srun", "slurm-wlm")):
            self.need(program, package)
        if not Slurm.cluster:
            Slurm.cluster = Cluster()
            Slurm.cluster.start()
        if not Slurm.cluster.up:
            self.fail("the cluster is not up")
        self.env.update(Slurm.cluster.env)
        self.path = self.tmp / "result.json"

    def srun(self, *args):
        return self.command("srun", "--immediate=60", *args)

    def test_tasks_on_one_node_need_no_option(self):
        code, text = self.srun("--nodes=1", "--ntasks=3", PROGRAM, "worker", TOY, "--json",
                               self.path)
        self.assertEqual(code, 0, text)
        self.assertIn("3 ranks by slurm: SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=3", text)
        self.expect_pass(self.path, 3)

    def test_eight_tasks_on_two_nodes(self):
        code, text = self.srun("--nodes=2", "--ntasks=8", PROGRAM, "worker", TOY, "--rendezvous",
                               f"file://{self.tmp}/meet", "--json", self.path)
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 8)

    def test_torchrun_below_srun(self):
        """Slurm's variables count agents then."""
        code, text = self.srun("--nodes=2", "--ntasks-per-node=1", *self.torchrun("log"), "--nnodes",
                               2, "--nproc_per_node", 2, "--rdzv_backend", "c10d", "--rdzv_id",
                               "below", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "--no_python",
                               PROGRAM, "worker", TOY, "--json", self.path)
        self.assertEqual(code, 0, text)
        self.assertIn("4 ranks by torchrun: RANK=0 WORLD_SIZE=4", text)
        self.expect_pass(self.path, 4)

    def one_task_per_node(self, *args):
        return self.srun("--nodes=2", "--ntasks-per-node=1", PROGRAM, "worker", TOY, *args,
                         "--master-addr", "127.0.0.1", "--master-port", free_port())

    def test_one_task_per_node(self):
        code, text = self.one_task_per_node("--nodes", 2, "--ranks-per-node", 4, "--json",
                                            self.path)
        self.assertEqual(code, 0, text)
        self.assertIn("8 ranks by slurm: SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 SLURM_NODEID=0",
                      text)
        self.expect_pass(self.path, 8)

    def test_a_soak_is_shared_by_two_nodes_and_merged(self):
        if self.run_program("soak", "--help").code != 0:
            self.skipTest("built without tools")
        folder = self.tmp / "soak"
        code, text = self.srun("--nodes=2", "--ntasks-per-node=1", PROGRAM, "soak", "--shard", "auto",
                               "--slices", 2, "--only", "explore", "--jobs", 1, "--out", folder)
        self.assertEqual(code, 0, text)
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["1-of-2", "2-of-2"])
        seeds = [json.loads(line)["seed"] for part in folder.iterdir()
                 for line in (part / "ledger.jsonl").read_text().splitlines()]
        self.assertEqual(len(seeds), len(set(seeds)))
        merged = self.run_program("soak", "--merge", folder, "--json", self.path)
        self.assertEqual(merged.code, 0, merged.text)
        self.assertEqual(read_json(self.path)["totals"][0]["slices"], 4)

    def test_a_contradiction_names_both(self):
        code, text = self.one_task_per_node("--nodes", 3, "--ranks-per-node", 2)
        self.assertEqual(code, 2, text)
        self.assertIn("--nodes 3 contradicts the 2 tasks that slurm has started", text)

    def test_a_verdict_of_fail_is_every_tasks(self):
        code, text = self.one_task_per_node("--nodes", 2, "--ranks-per-node", 2, "--set",
                                            '/mutants=[{"kind": "wrong_divisor"}]')
        self.assertEqual(code, 1, text)
        self.assertEqual(text.count("Exited with exit code 1"), 2, text)


if __name__ == "__main__":
    unittest.main()
