"""What was found and named badly, what a first step nearly hides, and who was accused although a draw explains all of it."""
import unittest

from program_test import ScriptTest
from terms_test import CROSS_ENTROPY, loaded

BY_HAND = ("model = nn.parallel.DistributedDataParallel(net)", "model = net")
# A Function of the script, whose backward makes the gradient of a weight.
LAYER = """
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()
    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        own = gradient.t() @ x
        return gradient @ weight, {own}
class Layer(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(made, given) * 0.3)
    def forward(self, x): return Product.apply(x, self.weight)
net = nn.Sequential(Layer(6, 8), nn.Tanh(), Layer(8, 3))
"""
ADAM = """
class Adam:
    def __init__(self, params):
        self.params, self.steps = list(params), 0
        self.means = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.params]
    def zero_grad(self): net.zero_grad()
    @torch.no_grad()
    def step(self):
        self.steps += 1
        for p, (mean, square) in zip(self.params, self.means):
            dist.all_reduce(p.grad)
            g = p.grad{divided}
            mean.mul_(0.9).add_(g, alpha=0.1)
            square.mul_(0.999).addcmul_(g, g, value=0.001)
            p -= 0.01 * mean / (1 - 0.9 ** self.steps) / ((square / (1 - 0.999 ** self.steps)).sqrt() + 1e-3)
"""
# Matrices are normalized, which hides a factor, and vectors are not.
NORMALIZING = """
class Normalizing(torch.optim.Optimizer):
    def __init__(self, params): super().__init__(params, {{"lr": 0.02}})
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            dist.all_reduce(p.grad)
            g = p.grad{divided}
            p.add_(g / (g.norm() + 1e-7) if g.dim() == 2 else g, alpha=-0.02)
"""
GAN = """
made, told = nn.Linear(3, 6), nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
makes, tells = {makes}, nn.parallel.DistributedDataParallel(told)
of_made, of_told = torch.optim.SGD(made.parameters(), lr=0.05), torch.optim.SGD(told.parameters(), lr=0.05)
for x, y in loader:
    fake = makes(x[:, :3])
    both = tells(torch.cat([x, fake.detach()]))
    of_told.zero_grad(); (both[len(x):].mean() - both[:len(x)].mean() + both.square().mean()).backward(); of_told.step()
    told.requires_grad_(False)
    of_made.zero_grad(); told(fake).square().mean().backward(); of_made.step()
    told.requires_grad_(True)
dist.destroy_process_group()
raise SystemExit
"""


class Drawn(ScriptTest):
    def test_a_loss_of_random_numbers_is_not_accused(self):
        """They are drawn outside forwards: more of them on one device, or others on each rank."""
        masked = "out = model(x)\n    out = out * (torch.rand_like(out) > 0.2)\n    loss = F.cross_entropy(out, y)"
        latent = "own = torch.randn(len(x), 3)\n    out = model(x)\n    loss = F.cross_entropy(out + 0.1 * own, y)"
        numpy = "import numpy\n    noise = torch.from_numpy(numpy.random.rand(len(x)))\n    loss = (model(x)[:, 0] * noise).square().mean()"
        for loss in (masked, latent, numpy):
            with self.subTest(loss):
                said = self.verified(loaded(loss=loss), 3)
                self.assertIn("random draws outside the model's forward, which differ between several ranks and one device", said)

    def test_draws_excuse_no_factor_and_nothing_where_all_draw_the_same(self):
        said = self.verified(loaded(loss=f"torch.rand(len(x))\n    {CROSS_ENTROPY} * world"), 1)
        self.assertIn("cause scaled_by_ranks: ", said)
        said = self.verified(loaded(loss="torch.rand(3)\n    loss = F.cross_entropy(model(x), y).log1p()"), 1, "--drill")
        self.assertIn("cause function_of_mean: ", said)


class Named(ScriptTest):
    def test_a_backward_of_the_script_that_is_of_its_own_batch(self):
        said = self.verified(loaded(before=LAYER.format(own="own / (own.norm() + 0.001)")), 1, "--drill")
        self.assertIn("cause own_batch: ", said)
        self.assertIn("; the backward of Product.apply makes the gradient of 0.weight of each rank's own batch, train.py:", said)
        said = self.verified(loaded(before=LAYER.format(own="own / len(x)")), 1, "--drill")
        self.assertIn("cause scaled_by_ranks: ", said)
        self.verified(loaded(before=LAYER.format(own="own")), 0)

    def test_a_factor_that_an_update_hides(self):
        """It is proven by one device whose gradients have it."""
        text = loaded(before=ADAM).replace(*BY_HAND).replace("torch.optim.SGD(model.parameters(), lr=0.1)", "Adam(net.parameters())")
        self.verified(text.replace("{divided}", " / world"), 0)
        said = self.verified(text.replace("{divided}", ""), 1, "--drill")
        self.assertIn("cause not_divided: ", said)
        self.assertIn("; all steps agree with one device that multiplies its gradients by 3", said)
        said = self.verified(text.replace("{divided}", " / world / world"), 1, "--drill")
        self.assertIn("cause divided_twice: ", said)
        self.assertIn("; all steps agree with one device that multiplies its gradients by 0.3333", said)

    def test_a_factor_that_a_norm_nearly_hides_of_the_first_parameter(self):
        text = loaded(before=NORMALIZING.replace("{{", "{").replace("}}", "}")).replace(*BY_HAND).replace(
            "torch.optim.SGD(model.parameters(), lr=0.1)", "Normalizing(net.parameters())")
        self.verified(text.replace("{divided}", " / world"), 0)
        said = self.verified(text.replace("{divided}", ""), 1, "--drill")
        self.assertIn("cause not_divided: ", said)

    def test_options_of_one_owner_that_a_first_step_of_adam_nearly_hides(self):
        zero = "torch.distributed.optim.ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)"
        text = loaded("import torch.distributed.optim", CROSS_ENTROPY + "\n    {decay}").replace(
            "torch.optim.SGD(model.parameters(), lr=0.1)", zero)
        self.verified(text.replace("{decay}", "pass"), 0)
        said = self.verified(text.replace("{decay}", "optimizer.param_groups[0]['weight_decay'] = 0.01 * rank"), 1)
        self.assertIn("cause other_options: ", said)
        self.assertIn("weight_decay=0.0 in group 0, on rank 1 weight_decay=0.01", said)

    def test_a_generator_that_no_ddp_holds(self):
        text = loaded().replace("for x, y", GAN + "for x, y", 1)
        self.verified(text.replace("{makes}", "nn.parallel.DistributedDataParallel(made)"), 0)
        self.assertIn("cause outside_ddp: ", self.verified(text.replace("{makes}", "made"), 1))

    def test_a_rank_that_trains_before_the_others(self):
        before = "if rank == 0: F.cross_entropy(net(x[:4]), y[:4]).backward(); optimizer.step()\nfor x, y"
        said = self.verified(loaded().replace("for x, y", before), 1)
        self.assertIn("lane replica  fail: step 1, parameter 0.weight\n      cause module_past_ddp: ", said)

    def test_ranks_that_leave_out_different_steps(self):
        text = loaded().replace("    optimizer.step()", "    if x.abs().max() < 2.5: optimizer.step()")
        self.assertIn("cause update_on_one_rank: ", self.verified(text, 1))


if __name__ == "__main__":
    unittest.main()
