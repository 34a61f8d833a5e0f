"""The drill of `lockstep verify -- COMMAND`: the first wrong step once more, operator by operator. It names the operator that
mixes samples of a batch, says where no operator is to blame, and never drills what passes."""
import json
import subprocess
import unittest

from together import PROGRAM, PYTHON, ROOT, TogetherTest

# Every rank has its slice of a batch of 12; `{before}`, `{loss}` and `{after}` are the mistakes.
SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
x, y, weight = torch.randn(48, 7), torch.randn(48, 3), torch.rand(48, 1)
net = nn.Sequential(nn.Linear(7, 9), {layer}, nn.Tanh(), nn.Linear(9, 3))
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.{optimizer}
for begin in range(0, 48, 12):
    mine = slice(begin + rank * 12 // world, begin + (rank + 1) * 12 // world)
    {before}
    optimizer.zero_grad()
    out = model(x[mine])
    loss = {loss}
    loss.backward()
    {after}
    optimizer.step()
dist.destroy_process_group()
"""
MEAN = "F.mse_loss(out, y[mine])"


HOOK = """
    def limited(_, bucket):
        part = bucket.buffer()
        dist.all_reduce(part.mul_(0.05 / part.norm() / world))
        done = torch.futures.Future()
        done.set_result(part)
        return done
    begin or model.register_comm_hook(None, limited)"""


def script(layer="nn.Identity()", loss=MEAN, before="pass", after="pass", optimizer="SGD(model.parameters(), lr=0.05)"):
    return SCRIPT.format(layer=layer, loss=loss, before=before, after=after, optimizer=optimizer)


def line_of(text, words):
    return next(number for number, line in enumerate(text.split("\n"), 1) if words in line)


class Drill(TogetherTest):
    def verify(self, *command, options=()):
        self.apart()
        result = self.folder / "result.json"
        ran = subprocess.run([PROGRAM, "verify", "--world-sizes", "3", "--json", str(result), *options, "--", PYTHON,
                              *map(str, command)], capture_output=True, text=True, timeout=600, env=self.environment)
        self.said = ran.stdout + ran.stderr
        return ran.returncode, json.loads(result.read_text())["worlds"][0]["drill"]

    def drilled(self, text, options=("--drill",), world=3):
        verdict = self.verdict(text, "--world-sizes", world, *options)
        self.said, found = verdict.said, verdict.result["worlds"][0]
        self.seconds = found["duration_ms"] / 1000
        self.assertEqual(verdict.code, 1, self.said)
        return found["drill"]

    def test_a_batch_norm_of_each_ranks_own(self):
        for world in (2, 3):
            drill = self.drilled(script(layer="nn.BatchNorm1d(9)"), world=world)
            self.assertEqual((drill["stage"], drill["operator"]["function"], drill["operator"]["module"]),
                             ("forward", "torch.nn.functional.batch_norm", "1"), self.said)

    def test_a_loss_that_is_no_mean_of_samples(self):
        text = script(loss=f"({MEAN} +\n            out.std())")
        drill = self.drilled(text)
        self.assertEqual(drill["operator"]["function"], "torch.Tensor.std", self.said)
        self.assertEqual(drill["operator"]["line"], f"train.py:{line_of(text, 'out.std')}", self.said)

    def test_what_no_operator_does(self):
        drill = self.drilled(script(after="for p in net.parameters(): p.grad *= world"))
        self.assertEqual(drill["stage"], "reduction", self.said)
        drill = self.drilled(script(optimizer="SGD(model.parameters(), lr=0.05 * world)"))
        self.assertEqual(drill["stage"], "update", self.said)

    def test_weights_that_were_other_before_the_step(self):
        drill = self.drilled(script(layer="nn.Linear(9, 9)", before="net[1].bias.data += 0.1 * rank * (begin == 24)"))
        self.assertEqual((drill["stage"], drill["parameter"], drill["ranks"]), ("start", "1.bias", [1, 2]), self.said)

    def test_what_only_gradients_of_ranks_prove(self):
        self.drilled(script(before="mine = slice(begin, begin + 8) if rank == 0 else slice(begin + 8, begin + 12)"), world=2)
        self.assertIn("cause uneven_batches: ", self.said)
        self.assertIn("one device's gradient is that of the ranks, weighted 0.667, 0.333", self.said)
        self.drilled(script(before=HOOK), world=2)
        self.assertIn("cause clipped_before_sum: ", self.said)
        self.assertIn("each rank limited the norm of its own gradients to 0.05", self.said)

    def test_ranks_with_different_numbers_of_samples_and_another_mistake(self):
        uneven = "mine = slice(begin + 8 * rank, begin + (8 if rank + 1 < world else 12))"
        self.drilled(script(before=uneven, loss="F.mse_loss(out / out.std(), y[mine], reduction='sum') * world / 36"), world=2)
        self.assertIn("cause own_batch: ", self.said)
        samples = "F.mse_loss(out, y[mine], reduction='sum') * world / 36"
        self.drilled(script(before=uneven, loss=f"{samples} + {MEAN}"), world=2)
        self.assertIn("cause uneven_batches: ", self.said)

    def test_what_an_operator_is_given_of_each_ranks_own_batch(self):
        """A weight, advantages, a running mean that is no buffer: made without a gradient, so that no operator that has one is to blame."""
        weighted = "w = (y[mine] > 0).sum() / (y[mine] < 0).sum()"
        normalized = "adv = y[mine, 0]\n    adv = (adv - adv.mean()) / (adv.std() + 1e-5)"
        running = "seen = 0.9 * globals().get('seen', torch.zeros(7)) + 0.1 * x[mine].mean(0)"
        for before, loss, whole in (
                (weighted, "F.binary_cross_entropy_with_logits(out, (y[mine] > 0).double(), pos_weight=w)", "torch.Tensor.sum"),
                (normalized, "-(out.log_softmax(1)[:, 0] * adv).mean()", "torch.Tensor.mean"),
                (running, "F.mse_loss(out + (x[mine] - seen)[:, :3] * out, y[mine])", "torch.Tensor.mean")):
            with self.subTest(loss):
                text = script(before=before, loss=loss)
                self.drilled(text)
                self.assertIn("cause own_batch: ", self.said)
                line = line_of(text, before.split("\n")[-1].strip())
                self.assertIn(f"is given what {whole} makes of each rank's own batch, at train.py:{line}", self.said)

    def test_what_all_ranks_share_of_their_batches_is_no_rank_s_own(self):
        """The mean is summed over the ranks, and what is wrong is the loss's."""
        shared = "seen = x[mine].mean(0)\n    dist.all_reduce(seen)\n    seen /= world"
        drill = self.drilled(script(before=shared, loss=f"({MEAN} + ((out[:, :1] - seen[0]) ** 2).mean() + out.std())"))
        self.assertEqual(drill["operator"]["function"], "torch.Tensor.std", self.said)
        self.assertNotIn("is given what", self.said)

    def test_a_loss_that_each_rank_weights_otherwise(self):
        self.drilled(script(loss=f"(1 + rank) * {MEAN}"))
        self.assertIn("cause loss_scaled_apart: ", self.said)
        self.assertIn("they are multiplied by 1, 2, 3", self.said)

    def test_a_row_of_zeros_for_padding(self):
        """The layer fills it under no_grad() when it is made, and then it has no history to show."""
        drill = self.drilled(script(before="nn.Embedding(5, 2, padding_idx=0)",
                                    loss=f"({MEAN} + out.std())"))
        self.assertEqual(drill["operator"]["function"], "torch.Tensor.std", self.said)

    def test_examples(self):
        example = ROOT / "examples/contrastive.py"
        for bug, function in (("own_negatives", "torch.Tensor.matmul"), ("scaled_by_maximum", "torch.Tensor.max"),
                              ("variance_penalty", "torch.Tensor.var")):
            with self.subTest(bug):
                code, drill = self.verify(example, "--bug", bug, options=("--drill",))
                self.assertEqual(code, 1, self.said)
                self.assertEqual(drill["operator"]["function"], function, self.said)
                self.assertIn("cause own_batch: ", self.said)
        code, drill = self.verify(example)
        self.assertEqual((code, drill), (0, None), self.said)

    def test_when_it_is_left(self):
        self.assertIsNone(self.drilled(script(layer="nn.BatchNorm1d(9)"), options=("--no-drill",)))
        drill = self.drilled(script(layer="nn.BatchNorm1d(9)"), options=())
        self.assertTrue(drill or self.seconds > 10, "it is quick")
        code, drill = self.verify(ROOT / "examples/toy_ddp.py", options=("--drill",))
        self.assertEqual((code, drill), (0, None), self.said)


if __name__ == "__main__":
    unittest.main()
