"""Parameters that one rank alone has, beside copies that all ranks have, are accused of nothing: embedding tables that are dealt
to owners, whose rows ranks send each other."""
import subprocess
import unittest

from folders import FolderTest
from program_test import PROGRAM, PYTHON

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
ITS_OWN = "[made[table] for table in own]"


class Parts(FolderTest):
    def verify(self, held, optimizer="SGD", world="2", after="pass"):
        path = self.folder / "train.py"
        text = SCRIPT
        for name, value in (("held", held), ("optimizer", optimizer), ("after", after)):
            text = text.replace(f"{{{name}}}", value)
        path.write_text(text)
        ran = subprocess.run([PROGRAM, "verify", "--no-drill", "--world-sizes", world, "--", PYTHON, path], capture_output=True,
                             text=True, timeout=600, env=self.environment)
        return ran.returncode, ran.stdout + ran.stderr

    def test_tables_that_one_rank_alone_has(self):
        for optimizer, world in (("SGD", "2"), ("Adam", "3")):
            with self.subTest(optimizer):
                code, said = self.verify(ITS_OWN, optimizer, world)
                self.assertEqual(code, 3, said)
                self.assertIn("each rank seems to have parameters, as parameter 4, that no other has", said)

    def test_tables_that_all_ranks_make_and_one_alone_trains(self):
        code, said = self.verify("made")
        self.assertEqual(code, 3, said)
        self.assertIn("one rank alone trains parameter 4, and no other uses it", said)

    def test_a_table_of_which_each_rank_trains_a_copy_is_accused(self):
        """As one that nobody deals: it is outside DistributedDataParallel, and one device has as many parameters."""
        code, said = self.verify("made", after="sum(made[0](rows[rank::world, 0]).square().mean() for _ in '1').backward()")
        self.assertEqual(code, 1, said)
        self.assertIn("cause outside_ddp: ", said)


if __name__ == "__main__":
    unittest.main()
