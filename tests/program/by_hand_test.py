"""Trainings without an optimizer, as many are written that show how synchronization works: what the script writes to its weights
is a step, and is judged as an optimizer's is. Weights decide there, since a script may divide what it summed while it uses it."""
import subprocess
import unittest

from folders import FolderTest
from program_test import PROGRAM, PYTHON

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


def script(step, begin="", end=""):
    indented = "".join(f"    {line}\n" for line in step.format(loss=LOSS).splitlines())
    return SCRIPT.replace("{begin}", begin).replace("{step}", indented).replace("{end}", end)


def each(update, **others):
    return script(EACH.replace("{update}", update), **others)


class ByHand(FolderTest):
    def verified(self, text, expected, *options):
        path = self.folder / "train.py"
        path.write_text(text)
        ran = subprocess.run([PROGRAM, "verify", "--world-sizes", "3", *options, "--", PYTHON, path], capture_output=True,
                             text=True, timeout=600, env=self.environment)
        self.assertEqual(ran.returncode, expected, ran.stdout + ran.stderr)
        return ran.stdout

    def test_ways_to_write_to_weights(self):
        """All right: the last two give the sum to a tensor of their own, and divide while they use it."""
        for name, text in {
            "no_grad": each("p -= rate * p.grad"),
            "data": each("p.data = p.data - rate * p.grad"),
            "momentum": each("v = was[p] = 0.9 * was.get(p, 0) + p.grad; p.sub_(rate * v)", begin="was = {}"),
            "foreach": script("{loss}.backward()\naverage()\nwith torch.no_grad(): torch._foreach_add_(params, "
                              "[p.grad for p in params], alpha=-rate)\nmodel.zero_grad()"),
            "ddp": script("ddp.zero_grad()\nF.mse_loss(ddp(x[mine]), y[mine]).backward()\n"
                          "for p in params: p.data.add_(p.grad.data, alpha=-rate)",
                          begin="ddp = torch.nn.parallel.DistributedDataParallel(model)"),
            "vector": script("model.zero_grad()\n{loss}.backward()\n"
                             "g = torch.cat([p.grad.reshape(-1) for p in params]); dist.all_reduce(g)\n"
                             "utils.vector_to_parameters(utils.parameters_to_vector(params).detach() - rate * g / world, params)",
                             begin="from torch.nn import utils"),
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

    def called(self, verb, text, *options):
        path = self.folder / "train.py"
        path.write_text(text)
        return subprocess.run([PROGRAM, verb, *options, "--", PYTHON, path], capture_output=True, text=True, timeout=600,
                              env=self.environment)

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
