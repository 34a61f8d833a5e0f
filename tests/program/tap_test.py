"""Collectives of unmodified programs: what the tap sees, sums replayed bit for bit, sharded parameters compared whole.
With PyTorch of LOCKSTEP_PEER_PYTHON, and of other Pythons (LOCKSTEP_TORCH_PYTHONS, separated by colons)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PEER = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]
MISSING = "LOCKSTEP_TORCH_PYTHONS names no Python with another PyTorch"

# 19 by 17: no part of it is even.
SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
{begin}
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(96, 19)
data = TensorDataset(x, x.sum(1, keepdim=True))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data), drop_last=True)
net = nn.Sequential(nn.Linear(19, 17), nn.Tanh(), nn.Linear(17, 1))
{model}
optimizer = {optimizer}
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y, reduction="{reduction}").backward()
    {after}
    optimizer.step()
dist.destroy_process_group()
"""
ADAM = "torch.optim.Adam(net.parameters(), lr=0.01)"
BY_HAND = "for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= world"
DDP = "net = nn.parallel.DistributedDataParallel(net)"
SHARDED = """from torch.distributed.fsdp import fully_shard
mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
for part in (net[0], net[2], net): fully_shard(part, mesh=mesh)"""
MIXED = SHARDED.replace("fully_shard\n", "fully_shard, MixedPrecisionPolicy\n", 1).replace(
    "mesh=mesh)", "mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))")
FLAT = """from torch.distributed.fsdp import FullyShardedDataParallel
net = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=True)"""
IMPORT_ZERO = "from torch.distributed.optim import ZeroRedundancyOptimizer"
ZERO = "ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)"


def script(begin="", model="", optimizer=ADAM, reduction="mean", after="pass"):
    return SCRIPT.format(begin=begin, model=model, optimizer=optimizer, reduction=reduction, after=after)


def version(python):
    said = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    return tuple(int(part) for part in said.stdout.split(".")[:2])


class Tap(unittest.TestCase):
    def verify(self, python, text, worlds="3"):
        """The exit code, and of the last world size what --json says."""
        with tempfile.TemporaryDirectory() as folder:
            path, result = pathlib.Path(folder, "train.py"), pathlib.Path(folder, "result.json")
            path.write_text(text)
            ran = subprocess.run([PROGRAM, "verify", "--world-sizes", worlds, "--json", str(result), "--limit", "300",
                                  "--", python, str(path)], capture_output=True, text=True, timeout=900,
                                 env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": folder})
            self.said = ran.stdout + ran.stderr
            return ran.returncode, json.loads(result.read_text())["worlds"][-1]

    def passes(self, python, text, sums, worlds="3"):
        code, world = self.verify(python, text, worlds)
        # PyTorch 1.13 has been seen to abort so as it ends, after the last step and without a trace: once more then.
        if code == 3 and "ended with signal 6: terminate called without an active exception" in self.said:
            code, world = self.verify(python, text, worlds)
        self.assertEqual(code, 0, self.said)
        if sums:
            self.assertEqual(world["lanes"]["replay"]["evidence"], f"{sums} of {sums} sums over Gloo, bit for bit")
            self.assertEqual(world["lanes"]["replay"]["steps"], world["lanes"]["replica"]["steps"])
        else:
            self.assertNotIn("replay", world["lanes"])
        for lane in world["lanes"].values():
            self.assertEqual(lane["control"], "detected", self.said)

    def test_gradients_summed_by_hand(self):
        for python in (PEER, *OTHERS):
            with self.subTest(python):
                self.passes(python, script(after=BY_HAND), sums=16)

    def test_a_maximum_is_no_sum(self):
        self.passes(PEER, script(after=BY_HAND + "\n    dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX)"), sums=16)

    def test_a_sum_of_a_group(self):
        group = "half = dist.new_group(sorted({0, world - 1}))"
        after = BY_HAND + "\n    if rank in (0, world - 1): dist.all_reduce(torch.ones(5), group=half)"
        self.passes(PEER, script(model=group, after=after), sums=20)

    def test_the_reducer_is_seen_where_pytorch_has_hooks(self):
        for python in (PEER, *OTHERS):
            with self.subTest(python):
                hooks = version(python) >= (2, 14)
                self.passes(python, script(model=DDP), sums=4 if hooks else 0)
                self.assertIn("tap: hooks of PyTorch" if hooks else "no sums for lane replay", self.said)

    def test_zero_redundancy_optimizer(self):
        for python in (PEER, *OTHERS):
            with self.subTest(python):
                self.passes(python, script(IMPORT_ZERO, DDP, ZERO), sums=4 if version(python) >= (2, 14) else 0)

    @unittest.skipUnless(OTHERS, MISSING)
    def test_fully_shard(self):
        for python in OTHERS:
            with self.subTest(python):
                self.passes(python, script(model=SHARDED), sums=8)
                self.passes(python, script(model=MIXED), sums=8)  # in double all the way
                code, world = self.verify(python, script(model=SHARDED, reduction="sum"))
                self.assertEqual(code, 1, self.said)
                self.assertEqual(world["lanes"]["float64"]["cause"], "summed_loss")
                self.assertEqual(world["lanes"]["float64"]["entry"], "gradient of 0.weight")
                late = "net.set_requires_gradient_sync(False); net(x).pow(2).mean().backward()"
                code, world = self.verify(python, script(model=SHARDED, after=late))
                found = world["lanes"]["float64"]  # one device leaves nothing out
                self.assertEqual((code, found["cause"], found["step"]), (1, "no_sync_at_step", 1), self.said)
                once = script("import itertools; steps = itertools.count(1)", SHARDED, after="if next(steps) == 2 and rank == 1: continue")
                code, world = self.verify(python, once)
                found = world["lanes"]["replica"]  # its shards alone miss an update; no collective does
                self.assertEqual((code, found["cause"], found["step"]), (1, "update_on_one_rank", 2), self.said)

    @unittest.skipUnless(OTHERS, MISSING)
    def test_a_reduce_scatter_adds_as_an_all_reduce_of_the_whole(self):
        scatter = ("\n    for n in (7, 101, 3001, 9999): "
                   "dist.reduce_scatter_tensor(torch.empty(n), torch.randn(world * n) * (rank + 1.1))")
        for python in OTHERS:
            with self.subTest(python):
                self.passes(python, script(after=BY_HAND + scatter), sums=32)

    @unittest.skipUnless(OTHERS, MISSING)
    def test_flat_shards_accuse_nobody(self):
        for python in OTHERS:
            with self.subTest(python):
                code, world = self.verify(python, script(model=FLAT))
                self.assertEqual(code, 3, self.said)
                if "FSDP needs a non-CPU accelerator" in self.said:  # PyTorch 2.15
                    continue
                self.assertIn("flat shards of FullyShardedDataParallel", world["lanes"]["replica"]["evidence"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
