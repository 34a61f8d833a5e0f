"""What one rank alone has is no copy that could differ from another rank's, and is accused of nothing: embedding tables that are
dealt to owners, whose rows ranks send each other; whole models, as of an ensemble."""
import unittest

from together import TogetherTest

SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x, rows = torch.randn(48, 5), torch.randint(0, 11, (48, 6))
y = (x.sum(1, keepdim=True) > 0).float()
top, made = nn.Sequential(nn.Linear(5 + 6 * 4, 8), nn.Tanh(), nn.Linear(8, 1)), [nn.Embedding(11, 4) for _ in range(6)]
own = [table for table in range(6) if table * world // 6 == rank]
class Exchange(torch.autograd.Function):  # columns of all rows, for all columns of its rows
    @staticmethod
    def forward(ctx, mine):
        ctx.width = mine.shape[1]
        return torch.cat(gathered(mine), 1).chunk(world)[rank].contiguous()
    @staticmethod
    def backward(ctx, gradient):
        return torch.cat(gathered(gradient))[:, rank * ctx.width:(rank + 1) * ctx.width] / world
def gathered(mine):
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine.contiguous())
    return parts
tables = nn.ModuleList({held})
top = DistributedDataParallel(top)
optimizer = torch.optim.{optimizer}([*top.parameters(), *tables.parameters()], lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    batch = slice(12 * step, 12 * step + 12)
    mine = torch.cat([made[table](rows[batch, table]) for table in own], 1)
    given = torch.cat([x[batch].chunk(world)[rank], Exchange.apply(mine)], 1)
    binary_cross_entropy_with_logits(top(given), y[batch].chunk(world)[rank]).backward()
    {after}
    optimizer.step()
dist.destroy_process_group()
"""
ALONE = """
import torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
{seed}
net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4, sampler={sampler})
optimizer = torch.optim.{optimizer}
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    {after}
    optimizer.step()
dist.all_reduce(net(x).detach())
dist.destroy_process_group()
"""
ITS_OWN = "[made[table] for table in own]"


class Parts(TogetherTest):
    def verify(self, text, world, **words):
        for name, value in words.items():
            text = text.replace(f"{{{name}}}", value)
        return self.verify_text(text, "--no-drill", "--world-sizes", world)

    def tables(self, held, optimizer="SGD", world="2", after="pass"):
        return self.verify(SCRIPT, world, held=held, optimizer=optimizer, after=after)

    def alone(self, seed, sampler="None", optimizer="SGD(net.parameters(), lr=0.1)", after="pass", world="2"):
        return self.verify(ALONE, world, seed=seed, sampler=sampler, optimizer=optimizer, after=after)

    def test_tables_that_one_rank_alone_has(self):
        for optimizer, world in (("SGD", "2"), ("Adam", "3")):
            with self.subTest(optimizer):
                code, said = self.tables(ITS_OWN, optimizer, world)
                self.assertEqual(code, 3, said)
                self.assertIn("each rank seems to have parameters, as parameter 4, that no other rank has", said)

    def test_tables_that_all_ranks_make_and_one_alone_trains(self):
        code, said = self.tables("made")
        self.assertEqual(code, 3, said)
        self.assertIn("one rank alone trains parameter 4, and no other uses it", said)

    def test_a_table_of_which_each_rank_trains_a_copy_is_accused(self):
        """As one that nobody deals: it is outside DistributedDataParallel, and one device has as many parameters."""
        code, said = self.tables("made", after="sum(made[0](rows[rank::world, 0]).square().mean() for _ in '1').backward()")
        self.assertEqual(code, 1, said)
        self.assertIn("cause outside_ddp: ", said)

    def test_models_that_are_meant_to_differ(self):
        """An ensemble of models that each rank draws, and a search for a rate."""
        for world in ("2", "3"):
            code, said = self.alone("torch.manual_seed(rank)", world=world)
            self.assertEqual(code, 3, said)
            self.assertIn("do they train models of their own (an ensemble", said)
        code, said = self.alone("torch.manual_seed(0)", optimizer="Adam(net.parameters(), lr=0.01 * (1 + rank))")
        self.assertEqual(code, 3, said)
        self.assertIn("do they train models of their own (a search for options)", said)

    def test_ranks_that_are_dealt_one_data_set_are_to_hold_one_model(self):
        code, said = self.alone("", "DistributedSampler(x)")
        self.assertEqual(code, 1, said)
        self.assertIn("cause not_reduced: ", said)
        self.assertIn("; ranks start from different weights as well\n", said)
        code, said = self.alone("", "DistributedSampler(x)", after="for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= world")
        self.assertEqual(code, 1, said)
        self.assertIn("cause different_start: ", said)


if __name__ == "__main__":
    unittest.main()
