"""torch.nn.SyncBatchNorm on the CPU: outputs, gradients and running statistics are those of BatchNorm over the batch of all
ranks; a script that uses it is compared with one device."""
import os
import subprocess
import unittest

from folders import FolderTest
from program_test import PROGRAM, PYTHON

OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]

BEGIN = """
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
"""
CHECKS = """
torch.manual_seed(0)
close = lambda a, b: torch.allclose(a, b, rtol=1e-9 if a.dtype == torch.float64 else 1e-4, atol=1e-9 if a.dtype == torch.float64 else 1e-5)
for shape, make in (((6 * world, 3, 4, 5), lambda: nn.BatchNorm2d(3)), ((6 * world, 3), lambda: nn.BatchNorm1d(3, momentum=None)),
                    ((6 * world, 3, 7), lambda: nn.BatchNorm1d(3, affine=False, eps=1e-3)),
                    ((6 * world, 2, 2, 3, 2), lambda: nn.BatchNorm3d(2, track_running_stats=False))):
    whole = make()
    own = nn.SyncBatchNorm.convert_sync_batchnorm(make())
    for step in range(3):
        x = torch.randn(shape) * 3 + 5
        weights = torch.randn(shape)
        a, b = x.clone().requires_grad_(), x[rank::world].clone().requires_grad_()
        expected, found = whole(a), own(b)
        assert close(found, expected[rank::world]), "output"
        (expected * weights).sum().backward()
        (found * weights[rank::world]).sum().backward()
        assert close(b.grad, a.grad[rank::world]), "gradient of the input"
        for one, other in zip(own.parameters(), whole.parameters()):
            summed = one.grad.clone()
            dist.all_reduce(summed)
            assert close(summed, other.grad), "gradient"
    for one, other in zip(own.buffers(), whole.buffers()):
        assert close(one, other) if one.is_floating_point() else one == other, "running statistics"
    assert close(own.eval()(x), whole.eval()(x)), "evaluation"
"""
TRAINING = """
torch.manual_seed(1)
net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)))
model = nn.parallel.DistributedDataParallel(net.cuda(), device_ids=[0])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(4):
    x, y = torch.randn(12, 1, 5, 5), torch.arange(12) % 2
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[rank::world]), y[rank::world]).backward()
    optimizer.step()
dist.destroy_process_group()
"""


class SyncBatchNorm(FolderTest):
    def verify_text(self, text, *options, python=PYTHON):
        path = self.folder / "train.py"
        path.write_text(text)
        ran = subprocess.run([PROGRAM, "verify", *options, "--", python, str(path)], capture_output=True, text=True, timeout=600,
                             env=self.environment)
        return ran.returncode, ran.stdout + ran.stderr

    def test_is_batch_norm_over_all_ranks(self):
        for python in (PYTHON, *OTHERS):
            with self.subTest(python=python):
                code, said = self.verify_text(BEGIN + CHECKS + TRAINING, "--world-sizes", "2,3", python=python)
                self.assertEqual(code, 0, said)
                self.assertIn("note: its CUDA devices were the CPU, its NCCL was Gloo", said)

    def test_batch_norm_of_each_rank_beside_it_is_found(self):
        code, said = self.verify_text(BEGIN + TRAINING.replace("nn.SyncBatchNorm.convert_sync_batchnorm(", "("))
        self.assertEqual(code, 1, said)
        self.assertIn("cause local_batch_norm", said)


if __name__ == "__main__":
    unittest.main()
