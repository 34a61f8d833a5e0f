"""A data set that a DistributedSampler deals is one: what ranks make of it each for itself is told, and what is drawn, or
cut up before, is not. And an order of the script's own, in every epoch."""
import unittest

from together import TogetherTest

TRAINING = """
import numpy as np, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
np.random.seed(3 + rank)
class Rows(Dataset):
    def __init__(self, rows): self.rows, self.mean = rows, 0
    def __len__(self): return len(self.rows)
    def __getitem__(self, i): return {item}
rows = torch.randn(48, 5) + 1
data = Rows(rows)
sampler = DistributedSampler(data, seed=3)
{made}
net = DistributedDataParallel(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    {loader}
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
"""
ITEM = "(self.rows[i] - self.mean, self.rows[i].sum().reshape(1))"
LOADER = "loader = DataLoader(data, 4, sampler=sampler, num_workers={})"
OWN_ORDER = "loader = DataLoader(Subset(data, torch.randperm(48).tolist()[rank::world]), 4)"


class Items(TogetherTest):
    def verify(self, made="pass", item=ITEM, loader=LOADER.format(0), *options):
        return self.verify_text(TRAINING.format(made=made, item=item, loader=loader), "--world-sizes", "3", *options)

    def test_a_scaler_of_a_ranks_own_samples(self):
        for workers in (0, 2):
            code, said = self.verify("data.mean = rows[list(sampler)].mean(0)", loader=LOADER.format(workers))
            self.assertEqual(code, 3, said)
            self.assertIn("cause other_items: ", said)
            self.assertRegex(said, r"sample \d+ of the data set is another one on rank \d than on")
        code, said = self.verify("data.mean = rows.mean(0)", loader=LOADER.format(2))
        self.assertEqual(code, 0, said)

    def test_rows_that_each_rank_chooses(self):
        chosen = "data.rows = rows[np.random.permutation(48)]"
        code, said = self.verify(chosen)
        self.assertEqual(code, 3, said)
        self.assertIn("cause other_items: ", said)
        code, said = self.verify(chosen.replace("np.random", "np.random.RandomState(1)"))
        self.assertEqual(code, 0, said)

    def test_targets_that_each_rank_numbers_by_itself(self):
        code, said = self.verify(item="(self.rows[i], self.rows[i].sum().reshape(1) * (1 + rank))")
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause other_items: ", said)

    def test_what_is_drawn_or_cut_up_before_is_no_other_data_set(self):
        noise = "(self.rows[i] + torch.from_numpy(np.random.randn(5)), self.rows[i].sum().reshape(1))"
        other = noise.replace("np.random", "self.drawn")
        own = "rows = rows[rank::world]; data = Rows(rows)"
        for arguments in ({"item": noise}, {"item": noise, "loader": LOADER.format(2)},
                          {"made": "data.drawn = np.random.RandomState(rank)", "item": other, "loader": "if epoch: break\n    " + LOADER.format(0)},
                          {"made": own, "loader": "loader = DataLoader(data, 4)"}):
            with self.subTest(arguments):
                code, said = self.verify(**arguments)
                self.assertNotIn("other_items", said)
                self.assertEqual(code, 0, said)

    def test_what_is_drawn_beside_the_first_tensor_of_a_sample(self):
        drawn = "torch.from_numpy({}.randn(1))"
        target = "(self.rows[i], {})"
        of_each = "np.random.RandomState(100 * rank + i)"
        for generator in ("np.random", "self.drawn", of_each):
            item = target.format(drawn.format(generator))
            arguments = {"made": "data.drawn = np.random.RandomState(rank)", "item": item}
            with self.subTest(generator):
                code, said = self.verify(**arguments)
                self.assertEqual(code, 0, said)
                self.assertIn("since it drew different ones", said)
                code, said = self.verify(**arguments, loader=LOADER.format(2))
                self.assertEqual(code, 0, said)
                code, said = self.verify_text(TRAINING.format(loader=LOADER.format(0), **arguments).replace("(net(x), y)", "(net(x), y, reduction='sum')"),
                                              "--world-sizes", "3")
                self.assertIn("cause summed_loss: ", said)

    def test_what_a_stream_draws(self):
        stream = """class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for i in range(rank, 48, world): yield data[i]"""
        item = "(self.rows[i], torch.from_numpy(np.random.randn(1)))"
        for workers in (0, 1):
            code, said = self.verify(stream, item, f"loader = DataLoader(Stream(), 4, num_workers={workers})")
            self.assertEqual(code, 0, said)
            self.assertIn("since it drew different ones", said)

    def test_an_order_that_ranks_draw_apart_from_the_second_epoch_on(self):
        evaluated = OWN_ORDER + "\n    if rank == 0: torch.rand(1)"
        code, said = self.verify(loader=evaluated)
        self.assertEqual(code, 3, said)
        self.assertIn("inconclusive: step 5, samples\n      cause other_shuffles: ", said)
        code, said = self.verify(loader=OWN_ORDER)
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()
