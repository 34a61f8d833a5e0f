"""Programs that lay ranks out in a mesh: tensor parallel ranks hold one model and have one batch, and one device fills a mesh of
any shape. PyTorch 1.13 has none: with the Pythons of LOCKSTEP_TORCH_PYTHONS."""
import sys
import unittest

import tap_test
from tap_test import MISSING, OTHERS, script

TENSOR = """from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.device_mesh import init_device_mesh
{mesh}
net = nn.Sequential(nn.Linear(19, 16), nn.Tanh(), nn.Linear(16, 1))
parallelize_module(net, {of}, {{"0": ColwiseParallel(), "2": RowwiseParallel()}})
loader = DataLoader(data, batch_size=8, sampler={sampler})"""
WHOLE = TENSOR.format(mesh='mesh = init_device_mesh("cpu", (world,))', of="mesh", sampler=None)
PLANE = TENSOR.format(mesh='mesh = init_device_mesh("cpu", mesh_shape=(world // 2, 2), mesh_dim_names=("data", "tensor"))',
                      of='mesh["tensor"]', sampler='DistributedSampler(data, mesh["data"].size(), mesh["data"].get_local_rank())')
SHARDED = PLANE + """
from torch.distributed.fsdp import fully_shard
for part in (net[0], net[2], net): fully_shard(part, mesh=mesh["data"])"""
HYBRID = """from torch.distributed.fsdp import fully_shard
mesh = dist.device_mesh.init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copies", "shards"))
for part in (net[0], net[2], net): fully_shard(part, mesh=mesh)"""
SGD = "torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)"


@unittest.skipUnless(OTHERS, MISSING)
class Meshes(unittest.TestCase):
    verify, passes = tap_test.Tap.verify, tap_test.Tap.passes

    def test_tensor_parallel_ranks_have_one_batch(self):
        for python in OTHERS:
            with self.subTest(python):
                code, world = self.verify(python, script(model=WHOLE, optimizer=SGD), worlds="2")
                self.assertEqual((code, world["batches"]), (0, 1), self.said)
                self.assertIn("2 ranks share one model and one batch; one device has that batch", self.said)

    def test_a_plane_of_ranks(self):
        for python in OTHERS:
            with self.subTest(python):
                code, world = self.verify(python, script(model=SHARDED, optimizer=SGD), worlds="4")
                self.assertEqual((code, world["batches"]), (0, 2), self.said)
                code, world = self.verify(python, script(model=SHARDED, optimizer=SGD, reduction="sum"), worlds="4")
                found = world["lanes"]["float64"]
                self.assertEqual((code, found["cause"], found["step"]), (1, "summed_loss", 1), self.said)
                code, world = self.verify(python, script(model=PLANE, optimizer=SGD), worlds="4")
                self.assertEqual((code, world["lanes"]["replica"]["cause"]), (1, "some_ranks_summed"), self.said)

    def test_ranks_whose_inputs_are_parts_of_a_batch_are_not_accused(self):
        layout = WHOLE.replace('"0": ColwiseParallel()', '"0": ColwiseParallel(input_layouts=Shard(0))')
        imports = "from torch.distributed.tensor import Shard"
        for python in OTHERS:
            with self.subTest(python):
                code, world = self.verify(python, script(imports, layout.replace('RowwiseParallel()', 'RowwiseParallel(output_layouts=Shard(0))'),
                                                         optimizer=SGD), worlds="2")
                self.assertEqual((code, world["lanes"]["replica"]["verdict"]), (3, "pass"), self.said)
                self.assertIn("each rank's input may be a part of the batch", self.said)

    def test_one_device_fills_a_mesh_of_any_shape(self):
        for python in OTHERS:
            for worlds in ("2", "4"):
                with self.subTest(f"{python}, {worlds}"):
                    code, world = self.verify(python, script(model=HYBRID), worlds)
                    self.assertEqual((code, world["lanes"]["float64"]["verdict"]), (0, "pass"), self.said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
