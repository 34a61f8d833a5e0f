"""One wrong term of a loss, a teacher that one device updates otherwise, constants of a rank's own samples, labels without an
offset, gradients that are clipped or compressed one by one: the drill finds the cause, and the right form passes."""
import unittest

from drill_test import line_of, script
from program_test import ScriptTest

SUM, MEAN = "F.mse_loss(out, y[mine], reduction='sum')", "F.mse_loss(out, y[mine])"
# As users load their data; `{before}`, `{loss}` and `{after}` are the mistakes.
LOADED = """
import copy, torch, torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
x = torch.randn(48, 6)
y = (x.sum(1) > 0).long() + (x[:, 0] > 1).long()
loader = DataLoader(TensorDataset(x, y), batch_size=4, sampler=DistributedSampler(x))
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
{before}
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    {loss}
    loss.backward()
    optimizer.step()
    {after}
dist.destroy_process_group()
"""
CROSS_ENTROPY = "loss = F.cross_entropy(model(x), y)"
TEACHER = "teacher = copy.deepcopy(net).requires_grad_(False)"
TAUGHT = "out = model(x)\n    loss = F.cross_entropy(out, y) + F.mse_loss(out, teacher(x))"
FOLLOWS = """with torch.no_grad():
        for one, own in zip(teacher.parameters(), net.parameters()): one.mul_({decay}).add_(own, alpha=1 - ({decay}))"""
CLASSES = """counts = torch.zeros(3)
for _, labels in {batches}: counts += torch.bincount(labels, minlength=3)
weight = 16 / (counts + 1)"""
SIGNS = """
def signs(_, bucket):
    part = bucket.buffer(){sign} / world
    dist.all_reduce(part)
    done = torch.futures.Future()
    done.set_result(part)
    return done
model.register_comm_hook(None, signs)
for begin"""
GATHER = """
class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, own):
        parts = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(parts, own)
        return torch.cat(parts)
    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        {summed}
        return gradient.chunk(world)[rank]
for begin"""


def loaded(before="pass", loss=CROSS_ENTROPY, after="pass"):
    return LOADED.format(before=before, loss=loss, after=after)


class Terms(ScriptTest):
    def test_a_sum_that_is_added_to_a_mean(self):
        for mean in ("out.abs().mean()", MEAN):  # of something else, or of the same, so that all gradients have one factor
            text = script(loss=f"0.5 * {mean} + 0.01 * {SUM}")
            said = self.verified(text, 1, "--drill")
            self.assertIn("cause summed_loss: ", said)
            line = line_of(text, "reduction='sum'")
            self.assertIn(f"; the loss adds a sum over samples (torch.nn.functional.mse_loss at train.py:{line}) to a mean", said)
        self.verified(script(loss=f"0.5 * {MEAN} + 0.01 * {SUM} / 12 * world"), 0)

    def test_a_term_that_counts_a_rank_s_own_samples(self):
        text = script(loss="F.mse_loss(out, y[mine]) + len(out) / 48 * out.square().mean()")
        said = self.verified(text, 1, "--drill")
        self.assertIn("cause other_numbers: ", said)
        self.assertIn("is multiplied by 0.08333 on each rank, and by 0.25 on one device", said)
        self.verified(text.replace("len(out) / 48", "len(out) * world / 48"), 0)

    def test_a_term_times_or_over_the_ranks(self):
        for factor, by in (("world *", "3"), ("1 / world *", "0.3333")):
            with self.subTest(factor):
                said = self.verified(script(loss=f"F.mse_loss(out, y[mine]) + {factor} out.abs().mean()"), 1, "--drill")
                self.assertIn("cause scaled_by_ranks: ", said)
                self.assertIn(f"is multiplied by {by} on each rank, and by 1 on one device", said)

    def test_a_sum_of_gradients_that_nothing_divides(self):
        """There it is the mean among the terms that counts too much."""
        by_hand = script(loss=f"{MEAN} + 0.1 * {SUM}", after="for p in net.parameters(): dist.all_reduce(p.grad)")
        said = self.verified(by_hand.replace("nn.parallel.DistributedDataParallel(net)", "net"), 1, "--drill")
        self.assertIn("cause not_divided: ", said)

    def test_a_teacher_whose_decay_depends_on_the_ranks(self):
        for decay in ("0.9 ** world", "1 - len(x) / 48"):
            with self.subTest(decay):
                said = self.verified(loaded(TEACHER, TAUGHT, FOLLOWS.format(decay=decay)), 1)
                self.assertIn("fail: step 2, gradient of 0.weight\n      cause other_frozen_model: ", said)
        self.verified(loaded(TEACHER, TAUGHT, FOLLOWS.format(decay="0.9")), 0)

    def test_weights_of_classes_that_a_rank_counts_in_its_own_shard(self):
        weighted = "loss = (F.cross_entropy(model(x), y, reduction='none') * weight[y]).mean()"
        text = loaded(CLASSES.format(batches="loader"), weighted)
        said = self.verified(text, 1, "--drill")
        self.assertIn("cause own_constants: ", said)
        line = line_of(text, "torch.bincount")
        self.assertIn(f"is given what torch.bincount makes of each rank's own samples before the training, at train.py:{line}", said)
        self.verified(loaded(CLASSES.format(batches="[(x, y)]"), weighted), 0)

    def test_a_sum_over_ranks_that_the_loss_is_given(self):
        after = "own = out.detach().mean(0)\n    dist.all_reduce(own)\n    centre = 0.9 * centre + 0.1 * own{divided}"
        text = loaded("centre = torch.zeros(3)", "out = model(x)\n    loss = F.cross_entropy(out - centre, y)", after)
        said = self.verified(text.replace("{divided}", ""), 1, "--drill")
        self.assertIn("fail: step 2, gradient of 0.weight\n      cause other_numbers: ", said)
        line = line_of(text, "own = ")
        self.assertIn(f"is given what torch.Tensor.mean makes at train.py:{line}, which is alike on all ranks but not that of one device", said)
        self.verified(text.replace("{divided}", " / world"), 0)

    def test_rows_that_meet_a_mean_of_each_rank_s_own(self):
        for mean in ("out.mean(0)", "out.mean()"):
            text = script(loss=f"(1 - F.cosine_similarity(out - {mean}, y[mine], dim=1)).mean()")
            said = self.verified(text, 1, "--drill")
            self.assertIn("cause own_batch: ", said)
            line = line_of(text, "cosine_similarity")
            self.assertIn(f"is given what torch.Tensor.mean makes of each rank's own batch, at train.py:{line}", said)

    def test_labels_that_lack_the_rank_s_offset(self):
        gathered = "import torch.distributed.nn, torch, "
        loss = "F.cross_entropy(out @ torch.cat(torch.distributed.nn.functional.all_gather(y[mine])).T, torch.arange(4){offset})"
        text = script(loss=loss).replace("import torch, ", gathered).replace("torch.arange(4)", "torch.arange(len(out))")
        said = self.verified(text.replace("{offset}", ""), 1, "--drill")
        self.assertIn("cause indices_without_offset: ", said)
        self.assertIn("; torch.nn.functional.cross_entropy is given the same indices on every rank", said)
        self.verified(text.replace("{offset}", " + rank * len(out)"), 0)

    def test_gradients_that_are_clipped_one_by_one(self):
        clip = "for p in net.parameters(): p.grad *= min(1, {limit} / (float(p.grad.norm()) + 1e-6))\n    "
        total = "for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= world\n    "
        for limit in (0.05, 0.3):  # of every rank, and of some
            by_hand = script(after=clip.format(limit=limit) + total).replace("nn.parallel.DistributedDataParallel(net)", "net")
            said = self.verified(by_hand, 1, "--drill")
            self.assertIn("cause clipped_before_sum: ", said)
            self.assertIn(f"; each rank limited the norm of each parameter's own gradient to {limit}\n", said)
        self.verified(by_hand.replace(clip.format(limit=limit) + total, total + clip.format(limit=limit)), 0)

    def test_what_a_communication_hook_leaves_out(self):
        text = script().replace("\nfor begin", SIGNS)
        said = self.verified(text.replace("{sign}", ".sign()"), 1, "--drill")
        self.assertIn("cause hook_beyond_bound: ", said)
        self.assertIn("; after backward the gradient is as the communication hook signs left it", said)
        self.verified(text.replace("{sign}", ""), 0)

    def test_a_gather_of_one_s_own_beside_other_operators(self):
        text = script(loss="(out @ Gather.apply(out).T).square().mean()").replace("\nfor begin", GATHER)
        said = self.verified(text.replace("{summed}", "pass"), 1, "--drill")
        self.assertIn("cause gathered_as_constants: ", said)
        self.verified(text.replace("{summed}", "dist.all_reduce(gradient)"), 0)

    def test_a_capacity_of_each_rank_s_own_batch(self):
        text = script(before="keep = (x[mine, 0] > 0).cumsum(0) <= 3",
                      loss="F.mse_loss(torch.where(keep[:, None], out, torch.zeros(())), y[mine])")
        said = self.verified(text, 1, "--drill")
        self.assertIn("cause own_batch: ", said)
        self.assertIn("is given what torch.Tensor.cumsum makes of each rank's own batch, at train.py:14", said)

    def test_examples_and_what_a_generator_makes_in_one_batch(self):
        """Rows of the generator have other last bits on one device, and are no samples."""
        before = "maker = nn.parallel.DistributedDataParallel(nn.Linear(6, 6))"
        loss = ("made = maker(x)\n    out = model(torch.cat([x, made.detach()]))\n"
                "    loss = F.softplus(out[:len(x)]).mean() + F.softplus(-out[len(x):]).mean(){wrong}")
        text = loaded(before, loss)
        said = self.verified(text.replace("{wrong}", " * world"), 1)
        self.assertIn("fail: step 1, gradient of 0.weight", said)
        self.verified(text.replace("{wrong}", ""), 0)

    def test_tensors_without_a_model(self):
        text = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
x, y = torch.randn(48, 6), torch.randn(48, 3)
weight, bias = torch.randn(6, 3, requires_grad=True), torch.zeros(3, requires_grad=True)
for begin in range(0, 48, 12):
    mine = slice(begin + rank * 12 // world, begin + (rank + 1) * 12 // world)
    (x[mine] @ weight + bias - y[mine]).square().mean().backward()
    with torch.no_grad():
        for p in (weight, bias):
            dist.all_reduce(p.grad)
            p -= 0.1 * p.grad{divided}
            p.grad = None
dist.destroy_process_group()
"""
        said = self.verified(text.replace("{divided}", ""), 1)
        self.assertIn("fail: step 1, gradient of parameter 0\n      cause not_divided: ", said)
        self.verified(text.replace("{divided}", " / world"), 0)


if __name__ == "__main__":
    unittest.main()
