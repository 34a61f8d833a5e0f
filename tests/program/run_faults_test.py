"""`lockstep run -- COMMAND`: each kind of fault is found with the right rank, step and kind, victims are victims, nobody
is accused of a clean run on a busy machine, and a fault whose address was never reached is told."""
import glob
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch

SCRIPT = """
import os, signal, sys, time, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(24 * world, 7)
data = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
net = nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
{model}
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step, (x, y) in enumerate(loader, 1):
    {begin}
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    {after}
    optimizer.step()
    {pace}
dist.barrier()
dist.destroy_process_group()
"""
SHARDED = """net[1] = nn.Tanh()
from torch.distributed.fsdp import fully_shard
for part in (net[0], net[2], net): fully_shard(part, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))"""
OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]
DDP = "net = nn.parallel.DistributedDataParallel(net)"
BY_HAND = "for p in net.parameters(): dist.all_reduce(p.grad)"
PACE = "time.sleep(0.02)"


def script(model=DDP, begin="pass", after="pass", pace="pass"):
    return SCRIPT.format(model=model, begin=begin, after=after, pace=pace)


# A worker of rank 1's loader shares a core with four that compute: it is ready, and has no core.
CROWDED = """
import os, subprocess, sys, time, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Decoded(Dataset):
    def __len__(self): return 96
    def __getitem__(self, i):
        begin = time.process_time()
        while time.process_time() - begin < 0.002: pass
        return torch.full((5,), float(i)), torch.ones(1)
dist.init_process_group("gloo")
core = min(os.sched_getaffinity(0))
def crowd(number):
    if int(os.environ["RANK"]) == 1: os.sched_setaffinity(0, {core})
busy = [] if dist.get_rank() != 1 else [
    subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\\nwhile os.getppid() == {os.getpid()}: pass"])
    for _ in range(4)]
net = nn.Linear(5, 1)
for p in net.parameters(): dist.broadcast(p.data, 0)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
for x, y in DataLoader(Decoded(), batch_size=4, num_workers=1, worker_init_fn=crowd):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    for p in net.parameters(): dist.all_reduce(p.grad)
    optimizer.step()
for one in busy: one.kill(), one.wait()
"""


class RunTest(FolderTest):
    def run_text(self, text, *options, python=PYTHON, world=2):
        """The exit code, and what --json says; once more where a busy machine left it undecided."""
        for rest_s in (2, 5, 10, None):
            answer = self.run_once(text, *options, python=python, world=world)
            if rest_s is None or "busy machine: nobody is blamed" not in self.said:
                return answer
            time.sleep(rest_s)

    def run_once(self, text, *options, python, world, verb="run"):
        path, result = self.folder / "train.py", self.folder / "result.json"
        path.write_text(text)
        result.unlink(missing_ok=True)
        command = [PROGRAM, verb, "--world-size", str(world), "--json", str(result), *options, "--", python, str(path)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600,
                             env={**self.environment, "OMP_NUM_THREADS": "1"})
        self.said = ran.stdout + ran.stderr
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return ran.returncode, json.loads(result.read_text())

    def fails(self, fault, kind, rank, step, *options, text=None, **how):
        code, found = self.run_text(text or script(), "--fault", fault, *options, **how)
        self.assertEqual(code, 1, self.said)
        self.assertEqual(found["faults"][0]["acted_on"], [rank])
        failure = found["failure"]
        self.assertEqual((failure["kind"], failure["rank"], failure["step"]), (kind, rank, step), self.said)
        self.assertNotIn(rank, failure["victims"])
        return found


class Runs(RunTest):
    def is_late(self, fault, kind, rank, *options, **how):
        code, found = self.run_text(script(pace=PACE), "--fault", fault, *options, **how)
        self.assertEqual(code, 0, self.said)
        self.assertEqual((found["straggler"]["class"], found["straggler"]["rank"]), (kind, rank), self.said)
        return found["straggler"]

    def test_a_rank_whose_loader_has_no_core_is_not_accused(self):
        code, found = self.run_text(CROWDED, world=3)
        self.assertEqual(code, 0, self.said)
        self.assertIsNone(found["straggler"]["rank"], self.said)
        self.assertIn(found["straggler"]["class"], ("starved", "none"), self.said)

    def test_where_the_time_of_steps_goes(self):
        code, found = self.run_once(script(pace=PACE), python=PYTHON, world=3, verb="analyze")
        self.assertEqual(code, 0, self.said)
        ranks = found["metrics"]["ranks"]
        self.assertEqual([rank["rank"] for rank in ranks], [0, 1, 2])
        self.assertIn("means of 11 steps", self.said)
        self.assertNotIn("nothing can be said", self.said)
        code, found = self.run_once(script(begin="if rank == 1 and step == 2: sys.exit(3)"), python=PYTHON, world=2, verb="analyze")
        self.assertEqual((code, found["metrics"], found["failure"]["rank"]), (1, None, 1), self.said)

    def test_a_killed_rank_and_its_victims(self):
        found = self.fails("kill rank=1 step=3", "crash", 1, 3, world=3)
        self.assertEqual(found["failure"]["signal"], 9)
        self.assertEqual(found["failure"]["victims"], [0, 2])
        self.assertEqual(found["failure"]["missing"], [1])
        for rank in (0, 2):
            self.assertIn("onnection", found["ranks"][rank]["error"], self.said)

    def test_an_exit_and_an_exception(self):
        self.fails("exit rank=0 step=2 code=7", "exit", 0, 2)
        self.assertIn("exited with code 7", self.said)
        found = self.fails("exception rank=1 step=4 phase=forward", "exception", 1, 4)
        self.assertEqual(found["ranks"][1]["line"], "train.py:18")

    def test_an_exception_whose_text_no_utf8_can_hold(self):
        code, found = self.run_text(script(begin="if step == 3 and rank: raise ValueError('caf\\udce9')"))
        self.assertEqual((code, found["failure"]["rank"]), (1, 1), self.said)
        self.assertEqual(found["ranks"][1]["error"], "ValueError: caf?", self.said)

    def test_ranks_that_die_alike_accuse_nobody_and_say_why(self):
        """As where C++ finds no driver: the reason stands above the frames of its stack."""
        text = script(begin="import os, sys; print('terminate called\\n  what():  no driver\\nframe #0: x', file=sys.stderr, flush=True); os.abort()")
        code, found = self.run_text(text)
        self.assertEqual((code, found["failure"]["rank"]), (1, None), self.said)
        self.assertIn("ranks 0 and 1 all ended by SIGABRT (6): no driver", self.said)
        self.assertNotIn("victim", self.said)

    def test_a_hang_under_scaled_timeouts(self):
        found = self.fails("deadlock rank=1 step=3 phase=forward", "hang", 1, 3, "--timeout-scale", "0.001", world=3)
        self.assertEqual(found["ranks"][0]["timeout_ms"], 1800)
        self.assertEqual(found["failure"]["missing"], [1])
        self.assertGreaterEqual(found["failure"]["waited_ms"], 1500)
        self.assertIn("imed out", self.said)

    def test_a_program_for_gpus_runs_on_the_cpu_of_a_machine_that_has_none(self):
        text = script(begin="torch.cuda.set_device(rank); x, y = x.to(rank), y.cuda(non_blocking=True)").replace('"gloo"', '"nccl"').replace(
            DDP, "net = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[rank])")
        result = self.fails("kill rank=1 step=3", "crash", 1, 3, "--pretend-gpus", text=text)
        self.assertIn("note: its CUDA devices were the CPU, its NCCL was Gloo", self.said)
        self.assertTrue(result["on_cpu"])
        if glob.glob("/dev/nvidia[0-9]*"):
            self.skipTest("there are GPUs, which are the program's")
        code, result = self.run_text(text)
        self.assertEqual((code, result["on_cpu"]), (0, True), self.said)
        code, _ = self.run_text(text.replace("rank, world =", "assert torch.cuda.is_available()\nrank, world ="))
        self.assertEqual(code, 1, self.said)
        self.assertIn("note: it asked whether there are GPUs: try --pretend-gpus", self.said)

    def test_what_a_script_catches_before_it_ends_is_known(self):
        """As hydra does: ranks that time out end by sys.exit(1), and are victims all the same."""
        for end in ("sys.exit(1)", "raise SystemExit(1)", "os._exit(1)"):
            with self.subTest(end):
                loop = script().replace("for step, (x, y)", "def train():\n  for step, (x, y)").replace("\n    ", "\n      ").replace(
                    "dist.barrier()", f"try: train()\nexcept Exception:\n    print('it failed')\n    {end}\ndist.barrier()")
                found = self.fails("deadlock rank=2 step=3 phase=forward", "hang", 2, 3, "--timeout-scale", "0.001", text=loop, world=3)
                self.assertEqual(found["failure"]["victims"], [0, 1], self.said)
                found = self.fails("exception rank=1 step=3", "exception", 1, 3, text=loop)
                self.assertIn("InjectedFault", found["failure"]["message"])

    def test_a_stopped_rank_that_nobody_times_out_on(self):
        found = self.fails("stop rank=0 step=2", "hang", 0, 2, "--hang-after", "3")
        self.assertIn("stopped (state T)", found["failure"]["message"])
        self.assertEqual(found["failure"]["victims"], [1])

    def test_who_computes_before_the_first_step_does_not_hang(self):
        """As compiling does; who stands still there does."""
        for busy_s in (4.3, 4.1, 4.7):  # a look at the records may fall just where it goes on
            busy = f"end = time.monotonic() + {busy_s}\nwhile rank == 1 and time.monotonic() < end: pass\n"
            code, found = self.run_text(script(model=busy + DDP), "--hang-after", "2")
            self.assertIn((found["failure"] or {"kind": None})["kind"], (None, "starved"), self.said)
            self.assertTrue(code == 0 or re.search(r"busy machine.* without a core for [0-9.]+ s", self.said), self.said)
        code, found = self.run_text(script(model=f"rank and time.sleep(600)\n{DDP}"), "--hang-after", "4")
        self.assertEqual((code, found["failure"]["kind"], found["failure"]["rank"]), (1, "hang", 1), self.said)

    def test_a_hang_of_the_programs_own_names_its_line(self):
        code, found = self.run_text(script(begin="if rank == 1 and step == 3: time.sleep(600)"), "--hang-after", "3")
        self.assertEqual(code, 1, self.said)
        self.assertEqual((found["failure"]["kind"], found["failure"]["rank"]), ("hang", 1), self.said)
        self.assertIn("train.py:16 <module>()", found["ranks"][1]["stack"], self.said)

    def test_who_calls_another_collective_than_most(self):
        found = self.fails("skip_backward rank=1 step=3", "rejected", 1, 4, "--timeout-scale", "0.001", world=3)
        self.assertEqual(found["failure"]["victims"], [0, 2])
        self.assertIn("rank 1 called broadcast 8", self.said)

        text = script(model="pass", after="for p in list(net.parameters())[step == 2 and rank:]: dist.all_reduce(p.grad)")
        code, found = self.run_text(text, "--timeout-scale", "0.001")
        self.assertEqual((code, found["failure"]["rank"]), (1, None), self.said)  # of two nobody can tell
        self.assertIn("which of them is wrong is not known", self.said)

    def test_who_waits_in_a_group_of_some_ranks_is_not_to_blame(self):
        group = "group = dist.new_group([0, 1])\n" + DDP
        text = script(model=group, after="if rank < 2 and not (rank == 1 and step == 3): dist.all_reduce(x, group=group)")
        code, found = self.run_text(text, "--timeout-scale", "0.001", world=3)
        self.assertEqual((code, found["failure"]["rank"]), (1, None), self.said)
        self.assertIn("rank 0 waits in collective 3 of the group of ranks 0 and 1, which rank 1 never entered", self.said)
        text = script(model=group, after="""if rank == 1 and step == 3: time.sleep(600)
    if rank < 2: dist.all_reduce(x, group=group)""")
        code, found = self.run_text(text, "--timeout-scale", "0.001", world=3)
        self.assertEqual((code, found["failure"]["rank"]), (1, 1), self.said)

    def test_who_never_comes_to_a_monitored_barrier(self):
        code, found = self.run_text(script(model="pass", after="time.sleep(600) if rank == 1 and step == 3 else dist.monitored_barrier()"),
                                    "--timeout-scale", "0.001", world=3)
        self.assertEqual((code, found["failure"]["kind"], found["failure"]["rank"]), (1, "hang", 1), self.said)
        self.assertIn("Rank 1 failed to pass monitoredBarrier in 1800 ms", self.said)

    @unittest.skipUnless(OTHERS, "LOCKSTEP_TORCH_PYTHONS names no Python with another PyTorch")
    def test_shards_of_other_versions_of_pytorch(self):
        for python in OTHERS:
            with self.subTest(python):
                self.fails("kill rank=1 step=3", "crash", 1, 3, text=script(model=SHARDED), python=python, world=3)
                code, found = self.run_text(script(model=SHARDED), "--fault", "stall rank=2 duration_ms=150", python=python,
                                            world=3)
                self.assertEqual((code, found["straggler"]["rank"]), (0, 2), self.said)

    def test_who_is_late_in_every_step(self):
        self.assertGreater(self.is_late("stall rank=1 duration_ms=60", "compute", 1, world=3)["cost_ms"], 30)

    def test_who_stood_still_once(self):
        late = self.is_late("stall rank=0 step=5 duration_ms=1500 phase=forward", "stopped", 0)
        self.assertEqual(late["phase"], "forward")

    def test_a_fault_that_never_acted_is_told(self):
        for fault in ("kill rank=1 step=300", "stall rank=1 collective=all_to_all duration_ms=3",
                      "exit rank=0 collective=4000"):
            with self.subTest(fault):
                code, found = self.run_text(script(), "--fault", fault)
                self.assertEqual(code, 3, self.said)
                self.assertEqual(found["faults"][0]["acted_on"], [])
                self.assertIn("never acted", found["inconclusive"])

    def test_clean_runs_on_a_busy_machine_accuse_nobody(self):
        loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
        try:
            for world in (2, 3):
                code, found = self.run_text(script(pace=PACE), world=world)
                self.assertEqual(code, 0, self.said)
                self.assertIn(found["straggler"]["class"], ("none", "starved"), self.said)
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def test_bad_faults_are_refused_before_anything_runs(self):
        for fault, sentence in (("kill rank=5", "there is no rank 5; expected a rank from 0 to 1"),
                                ("kill rank=x", "rank: "), ("kill", "rank"), ("explode rank=1", "is no fault of a program"),
                                ("slow_link rank=1", "nothing stands between a rank and its connections"),
                                ("stall rank=1", "duration_ms"), ("stall rank=1 duration_ms=-1", "duration_ms: "),
                                ("kill rank=1 stp=3", "unknown key \"stp\""), ("kill rank=1 rank=0", "twice"),
                                ("exception rank=1 at_ms=5", "at_ms is no address of it"), ("", "KIND")):
            with self.subTest(fault):
                ran = subprocess.run([PROGRAM, "run", "--fault", fault or " ", "--", "/bin/true"], capture_output=True,
                                     text=True, timeout=60)
                self.assertEqual(ran.returncode, 2, ran.stderr)
                self.assertIn(sentence if fault else "no kind", ran.stderr)
        ran = subprocess.run([PROGRAM, "run", "--timeout-scale", "0", "--", "/bin/true"], capture_output=True, text=True,
                             timeout=60)
        self.assertEqual(ran.returncode, 2, ran.stderr)

    def test_a_program_that_never_meets_is_inconclusive(self):
        code, found = self.run_text("print('done')")
        self.assertEqual(code, 3, self.said)
        self.assertIn("without init_process_group", found["inconclusive"])


if __name__ == "__main__":
    unittest.main()
