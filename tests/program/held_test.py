"""Results of asynchronous collectives reach a script under `lockstep verify -- COMMAND` when it waits for them: a missing
wait() is found whoever wins the race, and every way of waiting counts."""
import textwrap
import unittest

from together import TogetherTest

SCRIPT = """
import time
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("{backend}")
rank, world = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda" if "{backend}" == "nccl" else "cpu")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1)).to(device)
x, y = torch.randn(24, 5, device=device), torch.randn(24, 1, device=device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
params = list(model.parameters())


def flatten():
    return torch.cat([param.grad.flatten() for param in params]) / world


def unflatten(flat):
    for param, part in zip(params, flat.split([param.numel() for param in params])):
        param.grad.copy_(part.view_as(param))


def begin(**options):
    for param in params:
        param.grad /= world
    return [dist.all_reduce(param.grad, async_op=True, **options) for param in params]


for step in range(3):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x[rank::world]), y[rank::world]).backward()
{reduce}
    optimizer.step()
dist.destroy_process_group()
"""
PEERS = """
flat = flatten()
got = [flat if peer == rank else torch.zeros_like(flat) for peer in range(world)]
others = [peer for peer in range(world) if peer != rank]
sent, read = [dist.isend(flat, peer) for peer in others], [dist.irecv(got[peer], peer) for peer in others]
for work in {wanted}: work.wait()
unflatten(sum(got))"""
RIGHT = {
    "peers": PEERS.replace("{wanted}", "sent + read"),
    "wait": "for work in begin(): work.wait()",
    "poll": "works = begin()\nwhile not all(work.is_completed() for work in works): time.sleep(0.001)",
    "future": "for future in [work.get_future().then(lambda made: made.value()[0].mul_(1)) for work in begin()]: future.wait()",
    "barrier": "begin(); dist.barrier()",
    "flat": "flat = flatten(); work = dist.all_reduce(flat, async_op=True); work.wait(); unflatten(flat)",
    "gather": """
flat = flatten()
dist.reduce(flat, 0, async_op=True).wait()
parts = [torch.zeros_like(flat) for _ in range(world)]
dist.all_gather(parts, flat, async_op=True).wait()
unflatten(parts[0])""",
    "metric": "for work in begin(): work.wait()\ndist.all_reduce(torch.ones(1), async_op=True)",
}
WRONG = {
    "peers": PEERS.replace("{wanted}", "sent"),
    "last alone": "begin()[-1].wait()",
    "flat": "flat = flatten(); dist.all_reduce(flat, async_op=True); unflatten(flat)",
    "broadcast": "for param in params: dist.reduce(param.grad, 0); param.grad /= world; dist.broadcast(param.grad, 0, async_op=True)",
}
# Streams of NCCL keep the order of calls.
RIGHT_ON_GPUS = {"last alone": WRONG["last alone"], "synchronize": "begin(); torch.cuda.synchronize()",
                 "mean": "for param in params: param.grad *= world\nfor work in begin(op=dist.ReduceOp.AVG): work.wait()"}
WRONG_ON_GPUS = {"mean": "for param in params: param.grad *= world\nbegin(op=dist.ReduceOp.AVG)"}


class Held(TogetherTest):
    def verify(self, reduce, backend):
        text = SCRIPT.replace("{backend}", backend).replace("{reduce}", textwrap.indent(reduce.strip(), "    "))
        return self.verify_text(text, "--world-sizes", "3", "--no-drill")

    def test_every_way_of_waiting_counts(self):
        for backend, cases in (("gloo", RIGHT), ("nccl", RIGHT_ON_GPUS)):
            for name, reduce in cases.items():
                with self.subTest(backend=backend, case=name):
                    code, said = self.verify(reduce, backend)
                    self.assertEqual(code, 0, said)

    def test_a_missing_wait_is_found(self):
        for backend, cases in (("gloo", WRONG), ("nccl", WRONG_ON_GPUS)):
            for name, reduce in cases.items():
                with self.subTest(backend=backend, case=name):
                    code, said = self.verify(reduce, backend)
                    self.assertEqual(code, 1, said)
                    self.assertIn("cause not_waited", said)


if __name__ == "__main__":
    unittest.main()
