"""Ranks that draw their own augmentation: one device is given the batches of the ranks, and what a script computes of them is
judged; what each rank makes of its own batch as a whole is inconclusive, whether forwards or losses are given it."""
import unittest

from together import TogetherTest

SCRIPT = """
import random, torch, torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
points = torch.randn(48, 6)
class Augmented(Dataset):
    def __len__(self):
        return len(points)
    def __getitem__(self, place):
        return points[place] * random.uniform(0.9, 1.1), int(points[place].sum() > 0)
loader = DataLoader(Augmented(), batch_size=4, sampler=DistributedSampler(points))
teacher = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)){mode}
net = DistributedDataParallel(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
random.seed(rank)
for x, y in loader:
    optimizer.zero_grad()
    {loss}.backward()
    optimizer.step()
dist.destroy_process_group()
"""
OF_ITS_OWN_BATCH = "one device that is given the ranks' batches computes different inputs or targets from them"


BY_HAND = ("it = iter(range(6))\nfor x, y in ((points[i * 4 * world:][:4 * world][rank::world] * random.uniform(0.9, 1.1), "
           "(points[i * 4 * world:][:4 * world][rank::world].sum(1) > 0).long()) for i in it if i < 4):")


def script(loss, mode=".eval()", by_hand=False):
    text = SCRIPT.format(loss=loss, mode=mode)
    return text.replace("for x, y in loader:", BY_HAND) if by_hand else text


# Each rank loads the whole batch, whose size is so many times that of one, and takes its part.
WHOLE = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
data = TensorDataset(torch.randn(36, 5), torch.randn(36, 3))
model = nn.parallel.DistributedDataParallel(nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=4 * world, shuffle=True, generator=torch.Generator().manual_seed(2)):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x[rank::world]), y[rank::world])
    ({factor} * loss).backward()
    optimizer.step()
"""


class Handed(TogetherTest):
    def verify(self, loss, **how):
        return self.verify_text(script(loss, **how), "--no-drill", "--world-sizes", "3")

    def test_what_is_made_sample_by_sample_passes(self):
        for loss in ("cross_entropy(net(x), y)", "cross_entropy(net((x - 0.1) / 1.3), y)",
                     "cross_entropy(net(x - 0.5 * x.mean(1, keepdim=True)), y)",
                     "mse_loss(net(x), one_hot(y, 2) * 0.9 + 0.05)"):
            with self.subTest(loss):
                code, said = self.verify(loss)
                self.assertEqual(code, 0, said)
                self.assertIn("note: one device was given", said)
                self.assertNotIn("is not judged", said)

    def test_losses_that_are_added_and_weighted_have_the_scale_of_the_ranks(self):
        """Of numbers that the script has, and that are no number of rows."""
        for loss in ("(cross_entropy(net(x), y) + 0.3 * mse_loss(net(x), one_hot(y, 2).double()))",
                     "(cross_entropy(net(x), y, reduction='none').mean() + 0.0 * sum(p.square().sum() for p in net.parameters()))"):
            with self.subTest(loss):
                code, said = self.verify(loss, by_hand=True)
                self.assertEqual(code, 0, said)

    def test_losses_that_are_divided_by_a_number_of_rows_may_have_another_scale(self):
        for loss in ("(cross_entropy(net(x), y, reduction='sum') / len(y))", "(cross_entropy(net(x), y, reduction='sum') * 0.25)",
                     "(cross_entropy(net(x), y, reduction='sum') / (1 + y.sum()))"):
            with self.subTest(loss):
                code, said = self.verify(loss, by_hand=True)
                self.assertEqual(code, 3, said)
                self.assertIn("but the script changes the loss after", said)

    def test_a_sum_of_losses_that_is_scaled_by_the_ranks_is_a_failure(self):
        code, said = self.verify("(cross_entropy(net(x), y, reduction='sum') + 0.3 * mse_loss(net(x), one_hot(y, 2).double(), reduction='sum'))", by_hand=True)
        self.assertEqual(code, 1, said)
        self.assertIn("cause summed_loss: ", said)

    def test_what_is_made_of_each_ranks_batch_is_inconclusive(self):
        for loss in ("cross_entropy(net(x / x.abs().max()), y)", "cross_entropy(net(x - x.mean(0)), y)",
                     "mse_loss(net(x), one_hot(y, 2) * 0.9 + 0.1 * one_hot(y, 2).double().mean(0))"):
            with self.subTest(loss):
                code, said = self.verify(loss)
                self.assertEqual(code, 3, said)
                self.assertIn(OF_ITS_OWN_BATCH, said)

    def test_a_batch_norm_that_is_a_reason_is_told(self):
        code, said = self.verify("cross_entropy(net(x), y)")
        self.assertEqual(code, 0, said)
        text = script("cross_entropy(net(x), y)").replace("nn.Linear(6, 8), nn.Tanh()", "nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh()")
        code, said = self.verify_text(text, "--no-drill")
        self.assertEqual(code, 3, said)
        self.assertIn("perhaps for local_batch_norm", said)

    def test_rows_that_the_script_puts_in_an_order_of_its_own(self):
        """Two views of each sample, one after the other, as in DPO and SimCLR: of all ranks they are not those of each in turn."""
        pairs = "(lambda h: cross_entropy(h[:len(x)] - h[len(x):], y))(net(torch.cat([x, {other}])))"
        code, said = self.verify(pairs.format(other="x.flip(1)"))
        self.assertEqual(code, 0, said)
        self.assertNotIn("is not judged", said)
        code, said = self.verify(pairs.format(other="x / x.abs().max()"))
        self.assertEqual(code, 3, said)

    def test_means_over_other_numbers_of_targets_are_a_reason(self):
        code, said = self.verify("cross_entropy(net(x), y, ignore_index=0)")
        self.assertEqual(code, 3, said)
        self.assertIn("perhaps for mean_of_means: ", said)

    def test_what_is_made_of_batches_that_no_loader_gives_is_not_judged(self):
        code, said = self.verify_text(script("cross_entropy(net(x), y)", mode="", by_hand=True), "--no-drill")
        self.assertEqual(code, 0, said)
        self.assertIn("what the script computes from a batch before model and loss receive it is not judged", said)

    def test_a_teacher_is_given_the_ranks_batches_as_well(self):
        taught = "mse_loss(net(x), teacher(x).detach())"
        code, said = self.verify(taught)
        self.assertEqual(code, 0, said)
        code, said = self.verify(taught, mode="")
        self.assertEqual(code, 3, said)
        self.assertIn(OF_ITS_OWN_BATCH, said)

    def test_a_part_of_a_batch_that_grows_with_the_ranks(self):
        code, said = self.verify_text(WHOLE.format(factor="1"), "--world-sizes", 3)
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(WHOLE.format(factor="world"), "--world-sizes", 3)
        self.assertEqual(code, 1, said)
        self.assertIn("cause scaled_by_ranks: ", said)


if __name__ == "__main__":
    unittest.main()
