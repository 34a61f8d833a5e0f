"""Trainings without an optimizer, as many are written that show how synchronization works: what the script writes to its weights
is a step, and is judged as an optimizer's is. Weights decide there, since a script may divide what it summed while it uses it."""
import textwrap
import unittest

from program_test import ScriptTest

SCRIPT = """
import torch, torch.distributed as dist
import torch.nn.functional as F
dist.init_process_group('gloo')
rank, world, rate = dist.get_rank(), dist.get_world_size(), 0.1
torch.manual_seed(0)
x, y = torch.randn(60, 6), torch.randn(60, 2)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
params = list(model.parameters())
def average():
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
{begin}
for step in range(5):
    mine = slice((step * world + rank) * 4, (step * world + rank + 1) * 4)
{step}
{end}
dist.destroy_process_group()
"""
LOSS = "F.mse_loss(model(x[mine]), y[mine])"
EACH = """{loss}.backward()
average()
with torch.no_grad():
    for p in params:
        {update}
        p.grad = None"""

# As research code has them: none of torch's.
OPTIMIZER = """
class Sgd:
    def __init__(self, params): self.params, self.was = list(params), {}
    def zero_grad(self):
        for p in self.params: p.grad = None
    @torch.no_grad()
    def step(self):
        for p in self.params:
            p.add_(self.was.setdefault(p, torch.zeros_like(p)).mul_(0.9).add_(p.grad), alpha=-rate)
optimizer = Sgd(params)
"""


def script(step, begin="", end=""):
    return SCRIPT.replace("{begin}", begin).replace("{step}", textwrap.indent(step.format(loss=LOSS), "    ")).replace("{end}", end)


def each(update, **others):
    return script(EACH.replace("{update}", update), **others)


class ByHand(ScriptTest):
    def test_ways_to_write_to_weights(self):
        """All right: the last two give the sum to a tensor of their own, and divide while they use it."""
        for name, text in {
            "no_grad": each("p -= rate * p.grad"),
            "data": each("p.data = p.data - rate * p.grad"),
            "momentum": each("v = was[p] = 0.9 * was.get(p, 0) + p.grad; p.sub_(rate * v)", begin="was = {}"),
            "class": script("optimizer.zero_grad()\n{loss}.backward()\naverage()\noptimizer.step()", begin=OPTIMIZER),
            "foreach": script("{loss}.backward()\naverage()\nwith torch.no_grad(): torch._foreach_add_(params, "
                              "[p.grad for p in params], alpha=-rate)\nmodel.zero_grad()"),
            "ddp": script("ddp.zero_grad()\nF.mse_loss(ddp(x[mine]), y[mine]).backward()\n"
                          "for p in params: p.data.add_(p.grad.data, alpha=-rate)",
                          begin="ddp = torch.nn.parallel.DistributedDataParallel(model)"),
            "vector": script("model.zero_grad()\n{loss}.backward()\n"
                             "g = torch.cat([p.grad.reshape(-1) for p in params]); dist.all_reduce(g)\n"
                             "utils.vector_to_parameters(utils.parameters_to_vector(params).detach() - rate * g / world, params)",
                             begin="from torch.nn import utils"),
            "parts": each("p.view(-1).sub_(rate * p.grad.view(-1))"),
            "detach": each("p.detach().numpy()[...] -= rate * p.grad.numpy()"),
            "autograd.backward": each("p -= rate * p.grad").replace(f"{LOSS}.backward()", f"torch.autograd.backward([{LOSS}])"),
            "autograd.grad": script("grads = torch.autograd.grad({loss}, params)\nwith torch.no_grad():\n"
                                    "    for p, g in zip(params, grads):\n        dist.all_reduce(g); p -= rate * g / world"),
        }.items():
            with self.subTest(name):
                said = self.verified(text, 0)
                self.assertIn("lane float64  pass: 5 steps; control failed, as it must", said)

    def test_mistakes(self):
        for cause, lane, text in (
                ("not_divided", "float64", script("{loss}.backward()\nfor p in params:\n    dist.all_reduce(p.grad)\n"
                                                  "    p.data -= rate * p.grad; p.grad.zero_()")),
                ("not_divided", "float64", script("grads = torch.autograd.grad({loss}, params)\nwith torch.no_grad():\n"
                                                  "    for p, g in zip(params, grads):\n        dist.all_reduce(g); p -= rate * g")),
                ("lr_scaled", "float64", each("p -= rate * world * p.grad")),
                ("not_reduced", "replica", script("{loss}.backward()\nfor p in params:\n    if p.dim() > 1: dist.all_reduce(p.grad); "
                                                  "p.grad /= world\n    p.data -= rate * p.grad; p.grad.zero_()")),
                ("not_waited", "replica", script("{loss}.backward()\nfor p in params: dist.all_reduce(p.grad, async_op=True)\n"
                                                 "for p in params:\n    p.data -= rate * p.grad / world; p.grad.zero_()")),
                ("update_on_one_rank", "replica", each("p -= rate * p.grad * 1 if rank == 0 else 0"))):
            with self.subTest(cause):
                said = self.verified(text, 1)
                self.assertIn(f"lane {lane:<8} fail: step 1, ", said)
                self.assertIn(f"      cause {cause}: ", said.split(f"lane {lane}")[1])

    def test_the_line_is_that_of_the_update(self):
        text = each("p -= rate * world * p.grad")
        line = text.splitlines().index("            p -= rate * world * p.grad") + 1
        self.assertIn(f"      at train.py:{line}\n", self.verified(text, 1))

    def test_weights_that_are_averaged(self):
        """In each step the weights are those of one device, and are compared; every second step they are of no such training."""
        average = "if step % {every} == 0:\n    for p in params:\n        dist.all_reduce(p.data); p.data /= world"
        step = "{loss}.backward()\nfor p in params:\n    p.data -= rate * p.grad; p.grad.zero_()\n" + average
        self.assertIn("lane float64  pass: 5 steps", self.verified(script(step.replace("{every}", "1")), 0))
        said = self.verified(script(step.replace("{every}", "2").replace("== 0", "== 1")), 3)
        self.assertIn("lane replica  inconclusive: ranks update with their own gradients and continue from a combination of all their parameters, first before step 3, 2 times in all", said)

    def test_what_only_looks_at_weights_is_no_step(self):
        text = each("p -= rate * p.grad", end="with torch.no_grad(): model(x)\nsum(p.data.norm() for p in params)")
        seen = text.replace("    average()\n", "    sum(float(p.data.norm()) for p in params)\n    average()\n")
        self.assertNotEqual(seen, text)
        self.assertIn("lane float64  pass: 5 steps", self.verified(seen, 0))
        never = script("{loss}.backward()\naverage()\nsum(float(p.data.norm()) for p in params)")
        self.assertIn("lane float64  inconclusive: no optimizer step to compare", self.verified(never, 3))

    def test_an_optimizer_that_is_made_later(self):
        """From then on, torch is as it was."""
        begin = """
F.mse_loss(model(x[:4]), y[:4]).backward()
for p in params:
    p.data -= rate * p.grad
    p.grad = None
assert "data" in vars(torch.Tensor)
optimizer = torch.optim.SGD(params, 0.1)
assert not {"data", "add_", "__isub__"} & set(vars(torch.Tensor))
"""
        said = self.verified(script("optimizer.zero_grad()\n{loss}.backward()\naverage()\noptimizer.step()", begin=begin), 0)
        self.assertIn("lane float64  pass: 6 steps", said)

    def test_models_that_are_updated_in_turn(self):
        """As of a GAN: each has its steps, although the gradients of the other one are zero, or left over, there."""
        begin = """
G, D = torch.nn.Linear(6, 2), torch.nn.Linear(2, 1)
def update(net, rate):
    for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= world
    with torch.no_grad():
        for p in net.parameters(): p -= rate * p.grad
    net.zero_grad()
"""
        step = """z, real = (batch[step * 12:][rank * 12 // world:(rank + 1) * 12 // world] for batch in (x, y))
fake = G(z)
(F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()).backward(); update(D, rate)
F.softplus(-D(fake)).mean().backward(); update(G, rate{scale}); D.zero_grad()"""
        self.assertIn("lane float64  pass: 10 steps", self.verified(script(step.replace("{scale}", ""), begin=begin), 0))
        said = self.verified(script(step.replace("{scale}", " * world"), begin=begin), 1)
        self.assertIn("lane float64  fail: step 2, parameter weight\n      cause lr_scaled: ", said)

    def test_beside_an_optimizer(self):
        begin = "other = torch.nn.Linear(6, 2); optimizer = torch.optim.SGD(params, 0.1)"
        step = """optimizer.zero_grad(); {loss}.backward(); average(); optimizer.step(); other.zero_grad()
F.mse_loss(other(x[mine]), y[mine]).backward()
for p in other.parameters():
    {sum}; p.data -= rate * p.grad"""
        for verdict, cause, how in ((0, "", "dist.all_reduce(p.grad); p.grad /= world"), (1, "not_divided", "dist.all_reduce(p.grad)"),
                                    (1, "not_reduced", "pass")):
            said = self.verified(script(step.replace("{sum}", how), begin=begin), verdict)
            self.assertIn(f"cause {cause}: " if cause else "lane float64  pass: 10 steps", said)

    def test_what_is_added_to_a_batch_is_no_weight(self):
        """As to make it adversarial: each rank's is its own. Beside an optimizer, too."""
        for optimizer in ("", "optimizer = torch.optim.SGD(params, 0.1)"):
            step = """shift = torch.zeros(4, 6, requires_grad=True)
F.mse_loss(model(x[mine] + shift), y[mine]).backward()
with torch.no_grad(): shift += 0.1 * shift.grad.sign()
model.zero_grad(); F.mse_loss(model(x[mine] + shift.detach()), y[mine]).backward()
average()
""" + ("optimizer.step()" if optimizer else "for p in params: p.data -= rate * p.grad")
            self.assertIn("lane replica  pass: 5 steps", self.verified(script(step, begin=optimizer), 3))

    def test_an_update_made_of_rounding_is_left_out(self):
        """A bias of keys changes nothing, so that its gradient is rounding, which Adam's update makes large; divided early or late."""
        begin = """
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(3, 3) for _ in range(3))
        self.out = torch.nn.Linear(3, 2)
    def forward(self, x):
        x = x.reshape(-1, 2, 3)
        return self.out(((self.q(x) @ self.k(x).transpose(1, 2)).softmax(-1) @ self.v(x)).mean(1))
model = Attention(); params = list(model.parameters()); m, v = {}, {}
"""
        step = """model.zero_grad(); {loss}.backward()
for p in params:
    dist.all_reduce(p.grad){early}
    g = p.grad{late}
    m[p] = 0.9 * m.get(p, 0) + 0.1 * g; v[p] = 0.99 * v.get(p, 0) + 0.01 * g * g
    p.data -= 0.01 * m[p] / (v[p].sqrt() + 1e-30)"""
        for early, late in (("; p.grad /= world", ""), ("", " / world")):
            with self.subTest(late=late):
                self.verified(script(step.replace("{early}", early).replace("{late}", late), begin=begin), 0)

    def test_run_counts_its_steps(self):
        ran = self.called("run", each("p -= rate * p.grad"), "--world-size", "3", "--fault", "kill rank=1 step=3")
        self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
        self.assertIn("rank 1 was killed by SIGKILL (9) in backward of step 3; it never entered all_reduce 9 ", ran.stdout)
        ran = self.called("run", each("p -= rate * p.grad"), "--world-size", "3")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("3 ranks, 5 steps;", ran.stdout)

    def test_sweep_measures_its_steps(self):
        text = script("ddp.zero_grad()\nF.mse_loss(ddp(x[:4]), y[:4]).backward()\n"
                      "for p in params: p.data.add_(p.grad.data, alpha=-rate)",
                      begin="ddp = torch.nn.parallel.DistributedDataParallel(model)").replace("range(5)", "range(500)")
        report = self.folder / "sweep.json"
        ran = self.called("sweep", text, "--worlds", "2", "--caps", "1,25", "--rounds", "2", "--json", report)
        self.assertIn(ran.returncode, (0, 3), ran.stdout + ran.stderr)  # of such a model no cap need be the best
        self.assertNotIn("too few", ran.stdout)
        self.assertIn('"step_ms"', report.read_text())


if __name__ == "__main__":
    unittest.main()
