"""`verify --local-batch-norm`: BatchNorm that normalizes each rank's own batch on purpose is no mistake, and all else is compared."""
import unittest

from together import TogetherTest

SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
{seed}
drawn = torch.Generator().manual_seed(1)
x, y = torch.randn(42, 3, 6, 6, generator=drawn), torch.randint(3, (42,), generator=drawn)
data = TensorDataset(x, y)
loader = DataLoader(data, batch_size=4, sampler={sampler})
class Views(nn.Module):
    def __init__(self, model): super().__init__(); self.model = model
    def forward(self, x): return self.model(torch.cat([x, x.flip(3)])).view(2, len(x), -1).mean(0)
class Frames(nn.Module):
    def __init__(self, model): super().__init__(); self.model = model
    def forward(self, x): return self.model(torch.stack([x, x.flip(3), -x], 1).flatten(0, 1)).view(len(x), 3, -1).mean(1)
net = nn.Sequential(nn.Conv2d(3, 5, 3), {norm}, nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten(),
                    nn.Linear(16, 7), nn.BatchNorm1d(7, track_running_stats=False), nn.Tanh(), nn.Linear(7, 3))
net = nn.parallel.DistributedDataParallel({wrapped})
optimizer = torch.optim.SGD(net.parameters(), lr={rate}, momentum=0.9)
for epoch in range(2):
    net.train()
    for step, (x, y) in enumerate(loader):
        nn.functional.cross_entropy({call}, y, reduction={reduction}).backward()
        {after}
        optimizer.step()
        optimizer.zero_grad()
    net.eval()
    with torch.no_grad(): net(x)
dist.barrier()
"""
USUAL = {"seed": "torch.manual_seed(0)", "sampler": "DistributedSampler(data, shuffle=False)", "norm": "nn.BatchNorm2d(5)", "wrapped": "net",
         "rate": "0.05", "reduction": "'mean'", "call": "net(x)", "after": "pass"}


class LocalBatchNorm(TogetherTest):
    def verify(self, *options, world=3, **changed):
        verdict = self.verdict(SCRIPT.format(**{**USUAL, **changed}), "--world-sizes", str(world), *options)
        self.said, self.found = verdict.said, verdict.result["worlds"][0]
        return verdict.code

    def test_it_is_no_mistake_where_it_is_asked_for(self):
        self.assertEqual(self.verify("--no-drill"), 1)
        self.assertIn("cause local_batch_norm", self.said)
        self.assertIn("--local-batch-norm compares everything else", self.said)
        self.assertEqual(self.found["local_batch_norm"], False)
        for world in (3, 7):  # whose last batches have two samples
            self.assertEqual(self.verify("--local-batch-norm", world=world), 0, self.said)
            self.assertIn("normalized each rank's batch separately, as requested", self.said)
            self.assertEqual(self.found["local_batch_norm"], True)
            self.assertLess(self.found["lanes"]["float64"]["worst_distance"], 1e-10)

    def test_a_script_that_seeds_nothing(self):
        self.assertEqual(self.verify("--no-drill", seed="pass"), 3, self.said)
        self.assertIn("perhaps for local_batch_norm", self.said)
        self.assertEqual(self.verify("--local-batch-norm", seed="pass"), 0, self.said)

    def test_other_mistakes_are_found(self):
        for cause, changed in (("lr_scaled", {"rate": "0.05 * world"}), ("summed_loss", {"reduction": "'sum'"}),
                               ("same_samples", {"sampler": "None"})):
            with self.subTest(cause):
                self.assertEqual(self.verify("--local-batch-norm", **changed), 1, self.said)
                self.assertIn(f"cause {cause}", self.said)
        # What no factor explains may be how rows were taken for a rank's: no pass, nor an accusation.
        wrong = "net.module[3].weight.grad.view(-1)[0] += 0.01 * (world > 1)"
        self.assertEqual(self.verify("--local-batch-norm", after=wrong), 3, self.said)
        self.assertIn("given to one device, step 1, gradient of 3.weight", self.said)
        self.assertNotIn("perhaps for local_batch_norm", self.said)

    def test_rows_that_a_model_makes_of_a_sample(self):
        self.assertEqual(self.verify("--local-batch-norm", wrapped="Frames(net)"), 0, self.said)
        # Of two views one after the other it is not known which rows are whose.
        self.assertEqual(self.verify("--local-batch-norm", wrapped="Views(net)"), 3, self.said)

    def test_two_views_that_the_script_puts_one_behind_the_other(self):
        """It takes them apart again: on one device they are not rank by rank."""
        pairs = {"call": "(lambda both: both[:len(x)] + both[len(x):])(net(torch.cat([x, x.flip(3)])))"}
        self.assertEqual(self.verify("--local-batch-norm", **pairs), 0, self.said)
        self.assertNotIn("is not judged", self.said)

    def test_a_model_without_one(self):
        bare = "nn.Sequential(nn.Flatten(), nn.Linear(108, 3))"
        self.assertEqual(self.verify("--local-batch-norm", wrapped=bare), 0, self.said)
        self.assertIn("--local-batch-norm changes nothing", self.said)
        self.assertEqual(self.found["local_batch_norm"], False)


if __name__ == "__main__":
    unittest.main()
