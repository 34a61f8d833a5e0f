"""Mistakes that no script of examples/ has: each is found with step, entry and cause, and what looks like one passes."""
import unittest

from together import TogetherTest

BEGIN = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(48, 6)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4, sampler=DistributedSampler(x))
net = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
"""
LOOP = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step, (x, y) in enumerate(loader, 1):
    optimizer.zero_grad()
    {before}
    cross_entropy(net(x), y).backward()
    {after}
    optimizer.step()
dist.destroy_process_group()
"""
DDP = "net = DistributedDataParallel(net)\n"
ALONE = "net = DistributedDataParallel(net, process_group=[dist.new_group([one]) for one in range(world)][rank])\n"
EACH = "for p in net.parameters(): "
MEAN = EACH + "dist.all_reduce(p.grad); p.grad /= world"
OWN = """class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.scale = net, torch.full((6,), 1.0 + {rank})
    def forward(self, x):
        return self.net(x * self.scale)
net = DistributedDataParallel(Own())
"""
QUEUE = """class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
        self.register_buffer("seen", torch.zeros(6))
    def forward(self, x):
        result = self.net(x - self.seen)
        self.seen.copy_(x.mean(0))
        return result
net = DistributedDataParallel(Own(), broadcast_buffers=False)
"""
TEACHER = "torch.manual_seed({seed})\nteacher = nn.Linear(6, 2)\n" + DDP
TAUGHT = "with torch.no_grad(): y = teacher(x).softmax(1)"
GATHER = """class Gather(torch.autograd.Function):
    def forward(ctx, own):
        parts = [torch.zeros_like(own) for _ in range(world)]
        dist.all_gather(parts, own)
        return torch.cat(parts)
    def backward(ctx, gradient):
        gradient = gradient.clone()
        {summed}
        return gradient.chunk(world)[rank]
cross_entropy = lambda out, y: (Gather.apply(out) ** 2).mean()
""" + DDP
# Columns of the first layer and rows of the second one, as tensor-parallel ranks hold them.
PARTS = """class Copy(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x)
    @staticmethod
    def backward(ctx, gradient):
        dist.all_reduce(gradient)
        return gradient
class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x
    backward = staticmethod(lambda ctx, gradient: gradient)
class Parts(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(rank)
        self.up, self.down = nn.Linear(6, 4), nn.Linear(4, 2, bias=False)
    def forward(self, x):
        return Sum.apply(self.down(self.up(Copy.apply(x)).tanh()))
net, loader = Parts(), DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=8)
"""
CENTER = """class Centered(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(2))
    def forward(self, out, y):
        loss = cross_entropy(out - self.center, y)
        self.center = self.center * 0.5 + out.detach().mean(0)
        return loss
criterion = Centered()
""" + DDP
# As libraries derive optimizers that sum gradients: `{before}` or `{after}` the step that they are made of.
OPTIMIZER = """class Summing(torch.optim.SGD):
    def sums(self):
        for p in self.param_groups[0]["params"]: dist.all_reduce(p.grad); p.grad /= world
    def step(self, closure=None):
        {before}
        super().step(closure)
        {after}
"""
SPLIT = ("from torch.utils.data import random_split\n"
         "x = random_split(x, [40, 8], generator=torch.Generator().manual_seed({seed}))[0]\n"
         "loader = DataLoader(TensorDataset(x.dataset[x.indices], (x.dataset[x.indices].sum(1) > 0).long()), 4, sampler=DistributedSampler(x))\n")
# Of two parameters of one size, rank 1 sums the second first.
SWAPPED = ("net = nn.Sequential(nn.Linear(6, 2), nn.Tanh(), nn.Linear(2, 2, bias=False), nn.Tanh(), nn.Linear(2, 2, bias=False))\n",
           "own = list(net.parameters())\n    if rank == 1: own[2], own[3] = own[3], own[2]\n"
           "    for p in own: dist.all_reduce(p.grad); p.grad /= world")
SUMMED = "cross_entropy = lambda out, y: nn.functional.cross_entropy(out, y, reduction='sum')\n" + DDP
NOISE = EACH + "p.grad += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed({seed}))"
# A layer that some forwards go past, and what each forward does by `{does}`, of `h`.
LAYERS = """import random, numpy
{made}
class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)
    def forward(self, x, go=True):
        h = self.first(x).tanh()
        {does}
        return self.last(h)
net = DistributedDataParallel(Layers(), find_unused_parameters=True)
"""
GO = "if {when}: h = h + self.middle(h).tanh()"
CRITIC = """critic = DistributedDataParallel(nn.Linear(2, 1))
other = torch.optim.SGD(critic.parameters(), lr=0.1)
"""
CRITICIZED = "for p in other.param_groups[0]['params']: p.grad = None\n    critic(net(x).detach()).square().mean().backward()\n    {when}other.step()"
SOME = "group = [dist.new_group([0, 1]), dist.new_group([2])][rank // 2]\n    "
W0 = "gradient of 0.weight"
BUCKET = ("bucket = torch.cat([p.grad.flatten() for p in net.parameters()]) / world\n"
          "    work = dist.all_reduce(bucket, async_op=True); {before}work.wait()\n"
          "    for p, part in zip(net.parameters(), bucket.clone().split([p.numel() for p in net.parameters()])): p.grad = part.view_as(p)\n"
          "    bucket = bucket + 0{after}")
CASES = (  # model, before, after, what it must give: step, entry, cause
    (DDP + "net.module.add_module('extra', nn.Linear(2, 2))\n", "pass", "pass", (1, "parameter extra.weight", "outside_ddp")),
    (DDP, "if step == 3 and rank == 1: net.module[0].requires_grad_(False)", "pass", (3, W0, "frozen_after_ddp")),
    (OWN.format(rank="rank"), "pass", "pass", (1, "gradient of net.0.weight", "own_constants")),
    ("", "pass", EACH + "dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)", (1, W0, "no_sum")),
    ("", "pass", EACH + "dist.all_reduce(p.grad); dist.all_reduce(p.grad); p.grad /= 2", (1, W0, "reduced_again")),
    (DDP, "pass", "if step == 4 and rank == 1: [p.grad.mul_(0.5) for p in net.parameters()]",
     (4, "parameter 0.weight", "scaled_apart")),
    (DDP + "for p in net.parameters(): p.register_hook(lambda g: g * min(1, 0.01 / float(g.norm())))\n", "pass", "pass",
     (1, W0, "clipped_before_sum")),
    (DDP, "if step == 2: optimizer.param_groups[0]['weight_decay'] = 0.1 * world", "pass", (2, "parameter 0.weight", "option_scaled")),
    (DDP, "if step == 2 and rank == 2: optimizer.param_groups[0]['params'].pop()", "pass",
     (2, "parameter 3.bias", "other_parameters")),
    (DDP, "if step == 2 and rank == 0: net.eval()", "pass", (2, "dropout", "other_mode")),
    ("", "pass", f"group = dist.new_group([0])\n    {EACH}rank or dist.all_reduce(p.grad, group=group)",
     (1, "parameter 0.weight", "not_reduced")),
    ("", "pass", EACH + "p.grad.clamp_(-0.01, 0.01); dist.all_reduce(p.grad); p.grad /= world", (1, W0, "clipped_before_sum")),
    ("", "pass", EACH + "p.grad.sign_(); dist.all_reduce(p.grad); p.grad /= world", (1, W0, "changed_before_sum")),
    ("", "pass", EACH + "p.grad /= world; p.grad += 0.1 * p.data; dist.all_reduce(p.grad)", (1, W0, "penalty_scaled")),
    ("", "pass", EACH + "dist.all_reduce(p.grad); p.grad += 0.1 * p.data; p.grad /= world", (1, W0, "penalty_scaled")),
    ("", "pass", SOME + EACH + "dist.all_reduce(p.grad, group=group); p.grad /= world", (1, "parameter 0.weight", "some_ranks_summed")),
    ("", "pass", EACH + "parts = [torch.zeros_like(p) for _ in range(world)]; dist.all_gather(parts, p.grad); p.grad.copy_(parts[0])",
     (1, W0, "not_reduced")),
    (TEACHER.format(seed="rank"), TAUGHT, "pass", (1, W0, "own_frozen_model")),
    (QUEUE, "pass", "pass", (2, "gradient of net.0.weight", "own_buffers")),
    (CENTER, "pass", "optimizer.zero_grad(); criterion(net(x), y).backward()", (2, W0, "own_buffers")),
    (GATHER.format(summed="pass"), "pass", "pass", (1, W0, "gathered_as_constants")),
    (GATHER.format(summed="dist.all_reduce(gradient)"), "pass", EACH + "p.grad /= world", (1, W0, "divided_twice")),
    ("", "pass", f"{MEAN}\n    (0.01 * net(x).logsumexp(1).mean()).backward()", (1, "parameter 0.weight", "summed_early")),
    (SWAPPED[0], "pass", SWAPPED[1], (1, "parameter 2.weight", "summed_in_other_order")),
    (DDP, "pass", NOISE.format(seed="rank"), (1, "parameter 0.weight", "changed_after_sum")),
    ("", "pass", f"{MEAN}\n    {NOISE.format(seed='rank')}", (1, "parameter 0.weight", "changed_after_sum")),
    (DDP, "pass", "made = torch.autograd.grad(cross_entropy(net(x), y), list(net.parameters()))\n"
     "    for p, g in zip(net.parameters(), made): p.grad = g", (1, "parameter 0.weight", "past_hooks")),
    ("", "pass", "flat = torch.cat([p.grad.flatten() for p in net.parameters()]); dist.all_reduce(flat)\n"
     "    for p in reversed(list(net.parameters())): p.grad, flat = flat[:p.numel()].view_as(p) / world, flat[p.numel():]",
     (1, W0, "misplaced_gradients")),
    (DDP, "x = (x - x.mean(0)) / x.std(0)", "pass", (1, "inputs", "own_statistics")),
    (SUMMED, "pass", "nn.utils.clip_grad_norm_(net.parameters(), 0.001)", (1, W0, "summed_loss")),
    (DDP, "if step == 1 and rank == 1: net.module[3].bias.data += 1", "pass", (1, "parameter 3.bias", "changed_between_steps")),
    (ALONE, "pass", "pass", (1, "parameter 0.weight", "some_ranks_summed")),
    ("", "pass", EACH + "dist.all_reduce(p.grad); p.grad /= max(1, world - 1)", (1, W0, "scaled_by_ranks")),
    (DDP, "optimizer.param_groups[0]['momentum'] = 0.9\n"
     "    if step == 3 and rank == 1: optimizer.state[net.module[0].weight]['momentum_buffer'].zero_()", "pass",
     (3, "parameter 0.weight", "state_changed")),
    ("", "pass", EACH + "dist.all_reduce(p.grad)\n    nn.utils.clip_grad_norm_(net.parameters(), 0.01)\n    " + EACH + "p.grad /= world",
     (1, W0, "clipped_before_sum")),
    (DDP + CRITIC, CRITICIZED.format(when="if rank == 0: "), "pass", (1, "optimizer", "update_on_one_rank")),
    ("", "pass", BUCKET.format(before="bucket[:6] = 0; ", after=""), (1, W0, "written_in_flight")),
)
CORRECT = (
    ("", "pass", BUCKET.format(before="", after="; bucket.zero_()")),
    (DDP, "pass", NOISE.format(seed="step")),
    (DDP, "x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)", "pass"),
    (DDP, "x = x + torch.randn_like(x)", "pass"),
    (OWN.format(rank="0"), "pass", "pass"),
    ("", "pass", f"{MEAN}; dist.all_reduce(p.grad); p.grad /= world"),  # a mean of means that are alike
    (DDP, "net.train(step < 3)", "pass"),
    (DDP + CRITIC, CRITICIZED.format(when=""), "pass"),
    (LAYERS.format(made="drawn = random.Random(7)", does=GO.format(when="drawn.random() < 0.5")), "pass", "pass"),
    (LAYERS.format(made="drawn = random.SystemRandom()", does=GO.format(when="drawn.random() < 2")), "pass", "pass"),
    (LAYERS.format(made="", does="h = h.clone(); h[x[:, 0] > 0] += self.middle(h[x[:, 0] > 0])"), "pass", "pass"),
    (DDP, "pass", EACH + "p.grad.mul_(0.5)"),
    (TEACHER.format(seed="1"), TAUGHT, "pass"),
    (GATHER.format(summed="dist.all_reduce(gradient)"), "pass", "pass"),
    ("", "pass", EACH + "dist.all_reduce(p.grad); p.grad /= world; p.grad += 0.1 * p.data"),
    ("", "pass", EACH + "dist.all_reduce(p.grad); p.grad /= world; p.grad.clamp_(-0.01, 0.01)"),
    ("", "pass", "flat = torch.cat([p.grad.flatten() for p in net.parameters()][::-1]); dist.all_reduce(flat)\n"
     "    for p in reversed(list(net.parameters())): p.grad, flat = flat[:p.numel()].view_as(p) / world, flat[p.numel():]"),
)


class Causes(TogetherTest):
    def verify_text(self, text, *options, drill="--no-drill"):
        return super().verify_text(text, drill, *options)

    def text(self, model, before, after):
        return BEGIN + model + LOOP.format(before=before, after=after)

    def test_mistakes_are_found(self):
        for *parts, (step, entry, cause) in CASES:
            with self.subTest(cause):
                code, said = self.verify_text(self.text(*parts), "--world-sizes", "3")
                self.assertEqual(code, 1, said)
                self.assertIn(f"fail: step {step}, {entry}\n      cause {cause}: ", said)

    def test_what_looks_like_one_passes(self):
        for parts in CORRECT:
            with self.subTest(parts):
                code, said = self.verify_text(self.text(*parts))
                self.assertEqual(code, 0, said)

    def test_several_backwards_of_one_forward(self):
        """As PyTorch allows where it looks for unused parameters."""
        both = "out = net(x)\n    cross_entropy(out, y).backward(retain_graph=True)\n    out.square().mean().backward()"
        text = self.text("net = DistributedDataParallel(net, find_unused_parameters=True)\n", "pass", "pass")
        text = text.replace("cross_entropy(net(x), y).backward()", "{loss}")
        code, said = self.verify_text(text.replace("{loss}", both), "--world-sizes", "3", drill="--drill")
        self.assertEqual(code, 1, said)
        self.assertIn("cause second_backward: ", said)
        self.assertNotIn("not drilled", said)
        code, said = self.verify_text(text.replace("{loss}", "out = net(x)\n    (cross_entropy(out, y) + out.square().mean()).backward()"))
        self.assertEqual(code, 0, said)

    def test_two_forwards_and_then_two_backwards(self):
        """DistributedDataParallel sums in the first one, which may be under no_sync() in its place."""
        both, first = "ours, theirs = cross_entropy(net(x), y), cross_entropy(net(-x), 1 - y)\n    ", "cross_entropy(net(x), y).backward()"
        text = self.text(DDP, "pass", "pass").replace(first, "{loss}").replace("Dropout(0.5)", "Identity()")
        code, said = self.verify_text(text.replace("{loss}", both + "ours.backward()\n    theirs.backward()"), "--world-sizes", "3")
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, parameter 0.weight\n      cause second_backward: ", said)
        for right in (both + "(ours + theirs).backward()", first + "\n    " + first.replace("x", "-x"),
                      f"with net.no_sync(): {first}\n    {first}"):
            code, said = self.verify_text(text.replace("{loss}", right))
            self.assertEqual(code, 0, said)

    def test_sums_among_the_ranks_of_a_node(self):
        """Whatever they sum by: what they have in common tells."""
        groups = "groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]\n"
        flat = ("flat = torch.cat([p.grad.flatten() for p in net.parameters()])\n    dist.all_reduce(flat, group=groups[rank // 2])\n"
                "    for p, part in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])): p.grad.copy_(part.view_as(p) / 2)")
        gather = EACH + ("parts = [torch.zeros_like(p), torch.zeros_like(p)]; dist.all_gather(parts, p.grad, group=groups[rank // 2]); "
                         "p.grad = sum(parts) / 2")
        for way in (flat, gather):
            code, said = self.verify_text(self.text(groups, "pass", way), "--world-sizes", "4")
            self.assertEqual(code, 1, said)
            self.assertIn("fail: step 1, parameter 0.weight\n      cause some_ranks_summed: ", said)
            self.assertIn("; ranks 0 and 1, and ranks 2 and 3 have summed among themselves alone", said)

    def test_owners_that_clip_their_share_by_its_own_norm(self):
        text = self.text(DDP, "pass", "{clip}").replace("torch.optim.SGD(net.parameters(), ", "Zero(net.parameters(), torch.optim.Adam, ")
        text = text.replace("import os, ", "from torch.distributed.optim import ZeroRedundancyOptimizer as Zero\nimport os, ")
        own = "nn.utils.clip_grad_norm_([p for group in optimizer.optim.param_groups for p in group['params']], 0.01)"
        code, said = self.verify_text(text.replace("{clip}", own))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause clipped_by_shard: ", said)
        self.assertIn(", and the norm of several parts is 0.01\n", said)
        code, said = self.verify_text(text.replace("{clip}", "nn.utils.clip_grad_norm_(net.parameters(), 0.01)"))
        self.assertEqual(code, 0, said)

    def test_a_generator_that_is_called_past_ddp(self):
        """Its forward comes before the critic's step, and its backward after that."""
        step = ("out = {net}(x)\n    critic.zero_grad(); critic(out.detach()).square().mean().backward(); other.step()\n"
                "    (1 - critic(out)).square().mean().backward()")
        text = self.text(DDP + CRITIC, "pass", "pass").replace("cross_entropy(net(x), y).backward()", step)
        code, said = self.verify_text(text.replace("{net}", "net.module"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 2, parameter 0.weight\n      cause module_past_ddp: ", said)
        code, said = self.verify_text(text.replace("{net}", "net"))
        self.assertEqual(code, 0, said)

    def test_groups_of_parameters_in_any_order(self):
        """As of a set: each process iterates over it in its own order."""
        text = self.text(DDP, "pass", "pass").replace("(net.parameters(), lr", "(list(net.parameters())[::-1 if rank == 1 else 1], momentum=0.9, lr")
        code, said = self.verify_text(text, "--world-sizes", "3")
        self.assertEqual(code, 0, said)

    def test_random_features_of_each_ranks_own(self):
        features = OWN.format(rank="0").replace("self.net, self.scale = net, torch.full((6,), 1.0 + 0)",
                                                "self.net = net; self.register_buffer('scale', torch.full((6,), 1.0 + rank))")
        text = self.text(features.replace("DistributedDataParallel(Own())", "Own()"), "pass", MEAN)
        code, said = self.verify_text(text, "--world-sizes", "3")
        self.assertEqual(code, 1, said)
        self.assertIn("cause own_buffers: ", said)

    def test_teachers_of_each_ranks_own_whose_outputs_are_handed_on(self):
        """Ranks start from weights of their own as well, so that one device is handed what the losses were given."""
        text = self.text("torch.manual_seed(50 + rank + 10 * world)\nnet = nn.Linear(6, 2)\nearly = copy.deepcopy(net)\n" + DDP
                         + "teacher = {teacher}\n", TAUGHT, "pass").replace("import os, ", "import copy, os, ")
        code, said = self.verify_text(text.replace("{teacher}", "early"))
        self.assertEqual(code, 3, said)
        self.assertIn("cause own_frozen_model: ", said)
        code, said = self.verify_text(text.replace("{teacher}", "copy.deepcopy(net.module)"))
        self.assertEqual(code, 0, said)

    def test_an_update_that_depends_on_the_number_of_ranks(self):
        text = self.text(f"{DDP}class Own(torch.optim.SGD):\n    def step(self, closure=None):\n        for p in net.parameters():\n"
                         "            p.data -= 0.1 * torch.cat([g / g.norm() for g in p.grad.chunk({parts})])\n", "pass", "pass")
        text = text.replace("torch.optim.SGD(net", "Own(net")
        code, said = self.verify_text(text.replace("{parts}", "2"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.replace("{parts}", "world"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, parameter 0.weight\n      cause other_update: ", said)

    def test_a_sum_that_is_divided_by_the_batch_size_of_a_rank(self):
        """A constant of the script, which one device with the batches of all ranks has as well."""
        summed = "nn.functional.cross_entropy(net(x), y, reduction='sum'){divided}.backward()"
        text = self.text(DDP, "pass", "pass").replace("cross_entropy(net(x), y).backward()", summed)
        code, said = self.verify_text(text.replace("{divided}", ".div(4)"))
        self.assertEqual(code, 3, said)
        self.assertIn("divide by len() of the batch", said)
        code, said = self.verify_text(text.replace("{divided}", ".div(len(x))"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.replace("{divided}", ""))
        self.assertEqual(code, 1, said)
        self.assertIn("cause summed_loss: ", said)

    def test_state_that_the_owner_of_a_parameter_keeps(self):
        """As Muon's: parameters are sent on, their momentum is not."""
        owned = ("class Own(torch.optim.SGD):\n    def step(self, closure=None):\n        params = self.param_groups[0]['params']\n"
                 "        for i, p in enumerate(params):\n            if i % world == rank:\n"
                 "                kept = self.state[p].setdefault('momentum', torch.zeros_like(p))\n"
                 "                p.data -= 0.1 * kept.mul_(0.9).add_(p.grad)\n            dist.broadcast(p.data, i % world)\n")
        text = self.text(DDP + owned, "pass", "pass").replace("torch.optim.SGD(net", "Own(net")
        code, said = self.verify_text(text)
        self.assertEqual(code, 0, said)

    def test_a_rate_of_the_global_batch_by_an_option_of_the_script(self):
        """args.batch_size * world: one device with the batch of all ranks gets it by its option, as a user would give it."""
        text = self.text(DDP, "pass", "pass").replace("import os, ", "import argparse, os, ").replace("batch_size=4", "batch_size=args.batch_size")
        text = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch-size', type=int, default=4)\nargs = parser.parse_args()\n" + text
        code, said = self.verify_text(text.replace("lr=0.1", "lr=0.01 * args.batch_size * world"))
        self.assertEqual(code, 0, said)
        self.assertIn("note: one device was given a batch size 2 times as large by the script's own option", said)
        code, said = self.verify_text(text.replace("lr=0.1", "lr=0.01 * world"))
        self.assertEqual(code, 1, said)
        self.assertIn("cause lr_scaled: ", said)
        code, said = self.verify_text(text.replace("cross_entropy(net(x), y)", "nn.functional.cross_entropy(net(x), y, reduction='sum').div(args.batch_size)"))
        self.assertEqual(code, 0, said)

    def test_an_update_that_draws(self):
        """As stochastic rounding and Langevin dynamics do. One device that has drawn more before proves nothing."""
        text = self.text(f"{{seed}}\n{DDP}class Own(torch.optim.SGD):\n    def step(self, closure=None):\n        super().step()\n"
                         "        for p in net.parameters(): p.data += 0.01 * torch.randn_like(p)\n", "pass", "pass")
        text = text.replace("torch.optim.SGD(net", "Own(net")
        code, said = self.verify_text(text.replace("{seed}", "torch.manual_seed(1)"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.replace("{seed}", "torch.manual_seed(rank)"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, parameter 0.weight\n      cause drawn_in_update: ", said)
        code, said = self.verify_text(text.replace("{seed}", "torch.manual_seed(world)"))
        self.assertEqual(code, 3, said)
        self.assertIn("the update draws random numbers, which differ between several ranks and one device", said)

    def test_samplers_that_part_or_leave_samples_out(self):
        for given, cause in (("x, seed=rank", "other_shuffles"), ("x, num_replicas=2 * world, rank=rank", "other_replicas")):
            with self.subTest(cause):
                code, said = self.verify_text(self.text(DDP, "pass", "pass").replace("DistributedSampler(x)", f"DistributedSampler({given})"))
                self.assertEqual(code, 1, said)
                self.assertIn(f"fail: sample order\n      cause {cause}: ", said)

    def test_splits_of_the_data_that_ranks_draw_for_themselves(self):
        """One device is handed their batches, and all steps agree: that some samples are dealt twice is still told."""
        code, said = self.verify_text(self.text(SPLIT.format(seed="rank") + DDP, "pass", "pass"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: sample order\n      cause other_splits: ", said)
        code, said = self.verify_text(self.text(SPLIT.format(seed="1") + DDP, "pass", "pass"))
        self.assertEqual(code, 0, said)

    def test_scales_of_the_loss_that_ranks_choose_for_themselves(self):
        """Scaling is off, so that no gradient and no weight differs."""
        text = self.text("scaler = torch.cuda.amp.GradScaler({scale}, 2.0, 0.5, 2000, True)\n" + DDP, "pass", "pass")
        text = text.replace("cross_entropy(net(x), y)", "scaler.scale(cross_entropy(net(x), y))")
        text = text.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")
        code, said = self.verify_text(text.replace("{scale}", "1024.0 * (1 + rank)"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, scale of the loss\n      cause loss_scaled_apart: ", said)
        code, said = self.verify_text(text.replace("{scale}", "1024.0"))
        self.assertEqual(code, 0, said)

    def test_an_optimizer_of_the_scripts_own_that_sums_within_its_step(self):
        text = self.text(OPTIMIZER, "pass", "pass").replace("torch.optim.SGD(net", "Summing(net")
        code, said = self.verify_text(text.format(before="self.sums()", after="pass"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.format(before="pass", after="self.sums()"))
        self.assertEqual(code, 1, said)
        self.assertIn("cause not_reduced: ", said)
        whole = "self.sums()\n        with torch.no_grad():\n            for p in self.param_groups[0]['params']: p -= {rate} * p.grad"
        text = text.replace("super().step(closure)", "pass")
        code, said = self.verify_text(text.format(before=whole.format(rate="0.1"), after="pass"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.format(before=whole.format(rate="0.1 * world"), after="pass"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, parameter 0.weight", said)
        code, said = self.verify_text(text.format(before=whole.format(rate="0.1 * world"), after="pass"), drill="--drill")
        self.assertIn("cause not_divided: ", said)
        self.assertIn("the update of 0.weight is 2 times that of one device", said)

    def test_what_is_only_looked_at_is_dealt_as_often_as_it_likes(self):
        """A first batch on one rank, a validation that shuffles and pads, in a worker that ends before the script calls a
        collective, and accuracy on what was trained."""
        look = ("rank or next(iter(loader))\nvalid = DataLoader(TensorDataset(x[:7]), sampler=DistributedSampler(x[:7]), num_workers=1)\n"
                "def look(loader):\n    for x, *_ in loader:\n        with torch.no_grad(): net(x)\n"
                "    dist.all_reduce(torch.ones(1))\n")
        code, said = self.verify_text(self.text(DDP + look, "step == 2 and look(valid)", "look(loader)"))
        self.assertEqual(code, 0, said)

    def test_ranks_that_hold_parts_of_one_model_are_not_accused(self):
        code, said = self.verify_text(self.text(PARTS, "pass", "pass"))
        self.assertEqual(code, 3, said)
        self.assertIn("each seems to hold a part of one model", said)

    def test_samples_that_are_given_by_name_and_a_sum_by_hand_are_seen(self):
        summed = "(-net(input=x).log_softmax(1)[range(len(y)), y]).sum()"
        code, said = self.verify_text(self.text(DDP, "pass", "pass").replace("cross_entropy(net(x), y)", summed))
        self.assertEqual(code, 1, said)
        self.assertIn("cause summed_loss: ", said)

    def test_inputs_that_are_computed_of_each_ranks_batch_do_not_pass(self):
        text = self.text(DDP, "x = x / x.max()", "pass")
        for what in (text, text.replace("net = nn.Seq", "torch.seed(); net = nn.Seq", 1)):
            code, said = self.verify_text(what)
            self.assertEqual(code, 3, said)
            self.assertIn("they are computed from each rank's own batch", said)

    def test_steps_of_several_optimizers_share_a_backward(self):
        sums = ("for p in net[:3].parameters(): dist.all_reduce(p.grad); p.grad /= world\n"
                "    for p in net[3:].parameters(): dist.all_reduce(p.grad)")
        text = self.text("other = torch.optim.SGD(net[3:].parameters(), lr=0.1)\n", "pass", sums + "{divided}").replace(
            "net.parameters(), lr", "net[:3].parameters(), lr").replace("optimizer.zero_grad()", "net.zero_grad()").replace(
            "    optimizer.step()", "    optimizer.step()\n    other.step()")
        code, said = self.verify_text(text.replace("{divided}", "; p.grad /= world"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(text.replace("{divided}", ""))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 2, gradient of 3.weight\n      cause not_divided: ", said)

    def test_a_forward_past_ddp_is_under_no_no_sync(self):
        parts = ("with net.no_sync(): cross_entropy(net(x[:2]), y[:2]).backward()\n"
                 "    cross_entropy(net.module(x[2:]), y[2:]).backward()")
        code, said = self.verify_text(self.text(DDP, "pass", "pass").replace("cross_entropy(net(x), y).backward()", parts))
        self.assertEqual(code, 1, said)
        self.assertIn("cause module_past_ddp: ", said)

    def test_a_number_of_ranks_that_is_written_down_accuses_nobody(self):
        code, said = self.verify_text(self.text("", "pass", EACH + "dist.all_reduce(p.grad); p.grad /= 2"))
        self.assertEqual(code, 3, said)
        self.assertIn("one device divides its gradients by 2 as well", said)

    def test_gradients_that_are_zeroed_before_the_step_are_told(self):
        code, said = self.verify_text(self.text(DDP, "pass", "optimizer.zero_grad()"))
        self.assertEqual(code, 3, said)
        self.assertIn("zero_grad()", said)

    def test_what_each_rank_decides_or_computes_for_itself(self):
        """By item(), by NumPy, by its rank: the drill finds the parameter, or the number."""
        for does, cause, said_of_it in (
                (GO.format(when="rank % 2"), "other_branches", "; rank 1 uses middle.bias, and one device does not"),
                (GO.format(when="float(x.mean()) > 0.05"), "other_branches", " middle.bias, and one device does"),
                ("h = h / h.detach().std().item()", "own_numbers", "; torch.Tensor.div is given "),
                ("h = h * (1 + 0.1 * rank)", "own_numbers", "; torch.Tensor.mul is given 1, 1.1, and on one device 1"),
                ("h = h * (h > float(numpy.median(h.detach().numpy())))", "own_numbers", "; torch.Tensor.mul is given ")):
            with self.subTest(does):
                code, said = self.verify_text(self.text(LAYERS.format(made="", does=does), "pass", "pass"), drill="--drill")
                self.assertEqual(code, 1, said)
                self.assertIn("fail: step 1, gradient of ", said)
                self.assertIn(f"cause {cause}: ", said)
                self.assertIn(said_of_it, said)

    def test_a_number_that_only_backward_shows(self):
        """A loss that is scaled to the other's size has that one's value, whatever it is of."""
        two = "a = cross_entropy(net(x), y)\n    a.backward()\n    b = net(x).square().mean()\n    (b * (a.item() / b.item())).backward()"
        text = self.text(DDP, "pass", "pass").replace("cross_entropy(net(x), y).backward()", two)
        code, said = self.verify_text(text, drill="--drill")
        self.assertEqual(code, 1, said)
        self.assertIn("cause own_numbers: ", said)
        self.assertIn("torch.Tensor.mul is given ", said)

    def test_a_forward_that_draws_by_any_generator_is_not_accused(self):
        noise = "h = h + 0.1 * torch.randn(h.shape, generator=drawn)"
        for made, does in (("numpy.random.seed(rank)", GO.format(when="numpy.random.random() < 0.5")),
                           ("random.seed(rank)", GO.format(when="random.random() < 0.5")),
                           ("drawn = random.Random(rank)", GO.format(when="drawn.random() < 0.5")),
                           ("drawn = numpy.random.default_rng(rank)", "h = h + 0.1 * torch.from_numpy(drawn.standard_normal(tuple(h.shape))).to(h)"),
                           ("drawn = torch.Generator().manual_seed(rank)", noise)):
            with self.subTest(made):
                code, said = self.verify_text(self.text(LAYERS.format(made=made, does=does), "pass", "pass"))
                self.assertEqual(code, 3, said)
                self.assertIn("its forward draws random numbers", said)

    def test_a_parameter_that_is_used_under_no_sync_alone(self):
        """PyTorch before 2.4 leaves it out of the sum; of a later one all is right."""
        parts = "with net.no_sync(): cross_entropy(net(x[:2]), y[:2]).backward()\n    cross_entropy(net(x[2:], False), y[2:]).backward()"
        text = self.text(LAYERS.format(made="", does=GO.format(when="go")), "pass", "pass").replace("cross_entropy(net(x), y).backward()", parts)
        code, said = self.verify_text(text)
        if code == 0:
            self.skipTest("PyTorch 2.4 or later")
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, parameter middle.weight\n      cause used_unsynced_alone: ", said)

    def test_a_layer_that_is_replaced_late_is_told_where_ddp_refuses(self):
        late = "if step == 3: net.module[3] = nn.Linear(8, 2); optimizer.add_param_group({'params': net.module[3].parameters()})"
        code, said = self.verify_text(self.text(DDP, late, "pass"))
        self.assertEqual(code, 1, said)
        self.assertIn("cause parameter_replaced: ", said)

    def test_of_two_ranks_of_which_one_leaves_early_nobody_is_named(self):
        text = self.text(DDP, "pass", "pass").replace("    optimizer.step()", "    optimizer.step()\n    if rank == 1 and step == 3: break")
        code, said = self.verify_text(text)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "broke off: .*rank 1 .* while rank 0 waited in .* it is unknown")

    def test_ranks_that_broadcast_each_from_itself_are_told(self):
        """Each sends, and nobody receives."""
        code, said = self.verify_text(self.text(EACH + "dist.broadcast(p.data, src=rank)\n", "pass", MEAN), "--world-sizes", "3")
        self.assertEqual(code, 1, said)
        self.assertIn("broke off: ranks called different collectives: rank 0 called broadcast 1 (from rank 0, 384 bytes), rank 1 called "
                      "broadcast 1 (from rank 1, 384 bytes), rank 2 called broadcast 1 (from rank 2, 384 bytes)", said)

    def test_a_module_around_the_one_that_ddp_takes(self):
        """One device calls it, and has other names for its parameters."""
        around = "class Task(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.part = net\n" \
                 "    def forward(self, x):\n        return self.part(x)\nnet = Task()\nif world > 1: net.part = DistributedDataParallel(net.part)\n"
        code, said = self.verify_text(self.text(around, "pass", "pass"))
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(self.text(around, "pass", "for p in net.parameters(): p.grad /= world"), drill="--drill")
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause divided_twice: ", said)
        self.assertIn("every operator fits, and so does each rank's gradient; ", said)

    def test_arrays_of_numpy_are_made_double(self):
        for made in ("torch.tensor", "torch.as_tensor", "torch.from_numpy"):
            with self.subTest(made):
                code, said = self.verify_text(self.text(DDP, f"x = {made}(x.numpy().astype('float32'))", "pass"))
                self.assertEqual(code, 0, said)

    def test_a_factor_that_clips_one_side_alone(self):
        """The norm that clip_grad_norm_() found has it, as gradients no longer do."""
        model = DDP + "cross_entropy = nn.CrossEntropyLoss(reduction='sum')\n"
        code, said = self.verify_text(self.text(model, "pass", "nn.utils.clip_grad_norm_(net.parameters(), 3.0)"))
        self.assertEqual(code, 1, said)
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause summed_loss: ", said)
        self.assertNotIn(" 0.5 times that of one device", said)

    def test_a_layer_that_the_optimizer_never_got_is_noted(self):
        """One device does the same, so that it is no difference."""
        stale = "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)"
        code, said = self.verify_text(self.text(stale + "\nnet[3] = nn.Linear(8, 2)\n" + DDP, "pass", "pass").replace("\n" + stale + "\nfor", "\nfor"))
        self.assertEqual(code, 0, said)
        self.assertIn("note: no optimizer has 3.weight, 3.bias, which are trained; ", said)

    def test_ranks_that_wrap_other_models_are_told_and_none_is_named(self):
        text = self.text("if rank == 1: net[0].requires_grad_(False)\n" + DDP, "pass", "pass")
        code, said = self.verify_text(text, "--world-sizes", "3")
        self.assertEqual(code, 1, said)
        self.assertIn("broke off: ranks 0, 1 and 2 ended with exceptions of the same type at train.py", said)

    def test_who_leaves_after_the_first_step_is_named(self):
        """The others wait where DistributedDataParallel agrees on its buckets, in C++."""
        text = self.text(DDP, "pass", "pass").replace("    optimizer.step()", "    optimizer.step()\n    if rank == 1: break").replace(
            "dist.destroy", "dist.barrier()\ndist.destroy")
        code, said = self.verify_text(text, "--world-sizes", "3")
        self.assertEqual(code, 1, said)
        self.assertRegex(said, "broke off: ranks called different collectives: ranks 0 and 2 called .*, rank 1 called barrier")


if __name__ == "__main__":
    unittest.main()
