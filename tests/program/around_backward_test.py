"""What a script does to weights and gradients around a backward: an optimizer that steps within it, weights that are moved before
the second one of a step and back again, and one that no forward of DistributedDataParallel came before."""
import pathlib
import sys
import textwrap
import unittest

from program_test import ScriptTest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from lockstep.agent.collectives import once  # noqa: E402

SCRIPT = """
import torch, torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group('gloo')
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
x = torch.randn(48, 6)
data = TensorDataset(x, (x.sum(1) > 0).long())
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
params = list(net.parameters())
def average():
    for p in params:
        dist.all_reduce(p.grad)
        p.grad /= world
{begin}
for x, y in loader:
    net.zero_grad()
{step}
dist.destroy_process_group()
"""
SGD = "optimizer = torch.optim.SGD(params, lr=0.1)"
FUSED = """{wrap}
each = {p: torch.optim.SGD([p], lr=0.1) for p in params}
def update(p):
    {average}
    each[p].step()
for p in params:
    p.accumulated = p.expand_as(p).grad_fn.next_functions[0][0]
    p.accumulated.register_hook(lambda *_, p=p: update(p))"""
SHARPNESS = """F.cross_entropy(net(x), y).backward()
{first}
moved = [0.05 * p.grad for p in params]
with torch.no_grad():
    for p, e in zip(params, moved): p.add_(e)
net.zero_grad()
F.cross_entropy(net(x), y).backward()
average()
with torch.no_grad():
    for p, e in zip(params, moved): p.sub_(e)
optimizer.step()"""
PAST = """w, b, v, c = params
F.cross_entropy(F.linear(torch.tanh(F.linear(x, w, b)), v, c), y).backward()
{average}
optimizer.step()"""


def script(begin, step):
    return SCRIPT.replace("{begin}", begin).replace("{step}", textwrap.indent(step, "    "))


def fused(wrap, average):
    return script(FUSED.replace("{wrap}", wrap).replace("{average}", average), "F.cross_entropy(net(x), y).backward()")


class AroundBackward(ScriptTest):
    def test_an_optimizer_that_steps_within_backward(self):
        said = self.verified(fused("net = DistributedDataParallel(net)", "pass"), 1)
        self.assertIn("fail: step 1, parameter 2.bias\n      cause not_reduced: ", said)
        self.assertNotIn("unused_parameter", said)
        self.verified(fused("", "dist.all_reduce(p.grad); p.grad /= world"), 0)

    def test_weights_that_are_moved_and_moved_back(self):
        """They are apart by rounding when the optimizer steps, and began alike."""
        said = self.verified(script(SGD, SHARPNESS.replace("{first}", "pass")), 1)
        self.assertIn("fail: step 1, parameter 0.weight\n      cause own_weights: ", said)
        self.assertNotIn("different_start", said)
        self.verified(script(SGD, SHARPNESS.replace("{first}", "average()")), 0)

    def test_a_wrapper_that_is_never_called(self):
        wrapped = "net = DistributedDataParallel(net)\n" + SGD
        said = self.verified(script(wrapped, PAST.replace("{average}", "pass")), 1)
        self.assertIn("cause module_past_ddp: ", said)
        self.assertNotIn("second_backward", said)


class Once(unittest.TestCase):
    def test_a_function_that_calls_itself_by_its_name_is_noted_once(self):
        """As those of torch.distributed do, where a TorchFunctionMode is on."""
        noted, modes = [], ["on"]

        def plain(tensor):
            return names["all_reduce"](tensor) if modes and modes.pop() else tensor

        def noting(tensor):
            noted.append(tensor)
            return plain(tensor)
        names = {"all_reduce": once(plain, noting)}
        self.assertEqual([names["all_reduce"](one) for one in (1, 2)], [1, 2])
        self.assertEqual(noted, [1, 2])


if __name__ == "__main__":
    unittest.main()
