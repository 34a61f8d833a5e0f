"""lockstep.kernels: planted operators are named, and innocent ones are not. Needs a Python with torch."""
import importlib.util
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from torch import nn  # noqa: E402

from lockstep import kernels  # noqa: E402

LIBRARY = torch.library.Library("lockstep_test", "DEF")
LIBRARY.define("planted(Tensor x, int how) -> Tensor")
BATCH, AGAIN, THREADS, MIXED, BACKWARD, NEVER = range(6)
calls = [0]


def planted(x, how):
    calls[0] += 1
    off = {BATCH: x.shape[0] > 4, AGAIN: calls[0] > 1, THREADS: torch.get_num_threads() > 1,
           MIXED: False, BACKWARD: x.shape[0] > 4, NEVER: False}[how]
    if how == MIXED:
        return x - x.mean(0)
    return torch.where(torch.arange(len(x))[:, None] == 1, x * (1 + 3e-7), x) if off else x.clone()


LIBRARY.impl("planted", planted, "CPU")


class Planted(torch.autograd.Function):
    @staticmethod
    def forward(context, x, how):
        context.how = how
        return torch.ops.lockstep_test.planted(x, NEVER if how == BACKWARD else how)

    @staticmethod
    def backward(context, gradient):
        return torch.ops.lockstep_test.planted(gradient, context.how if context.how == BACKWARD else NEVER), None


class Scale(nn.Module):
    """No operator of it adds anything up in its forward."""

    def __init__(self, how=NEVER):
        super().__init__()
        self.weight, self.how = nn.Parameter(torch.tensor([1.5, 2.25, 3.0])), how

    def forward(self, x):
        return torch.relu(Planted.apply(x * self.weight, self.how))


def look(*modules, samples=9, **given):
    calls[0] = 0
    return kernels.look(nn.Sequential(*modules), torch.randn(samples, 3, generator=torch.Generator().manual_seed(5)), **given)


class Kernels(unittest.TestCase):
    def found(self, report):
        return [(what, found.operator, found.module, found.phase, found.why)
                for what, found in (("again", report.again), *report.threads, *report.parts) if found is not None]

    def test_nothing_is_named_where_nothing_differs(self):
        report = look(Scale(), Scale())
        self.assertEqual(self.found(report), [], report)
        self.assertTrue(report.repeats)
        self.assertIs(report.depends_on_batch, False)
        self.assertGreaterEqual(report.operators, 8)
        self.assertEqual(sum(line.endswith("  the same bits") for line in str(report).splitlines()), 5, report)
        self.assertIn("wherever it is computed, and so has each sample in shards of other sizes", str(report))

    def test_a_kernel_that_depends_on_the_batch(self):
        self.assertTrue(look(Scale(), Scale(BATCH)).repeats)
        by_part = look(Scale(), Scale(BATCH), parts=[range(3), range(5), range(1, 2), range(2, 6)]).parts
        self.assertEqual([found and found.operator for _, found in by_part],
                         ["lockstep_test.planted", None, "lockstep_test.planted", None])
        first = by_part[0][1]
        self.assertEqual((first.module, first.phase, first.why, first.samples), ("1 (Scale)", "forward", "kernel", 1))
        self.assertIn("lockstep_test.planted in 1 (Scale), forward: other bits for this sample", str(first))

    def test_in_the_backward(self):
        (_, found), = look(Scale(), Scale(BACKWARD), parts=[range(3)]).parts
        self.assertEqual((found.operator, found.phase, found.why), ("lockstep_test.planted", "backward", "kernel"))

    def test_what_does_not_repeat(self):
        report = look(Scale(AGAIN))
        self.assertFalse(report.repeats)
        self.assertEqual((report.again.operator, report.again.module), ("lockstep_test.planted", "0 (Scale)"))

    def test_what_depends_on_threads(self):
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            report = look(Scale(THREADS))
            self.assertEqual(torch.get_num_threads(), 1)
        finally:
            torch.set_num_threads(before)
        self.assertIsNone(report.again)
        self.assertFalse(report.repeats)
        (what, found), = report.threads
        self.assertEqual((what, found.operator), ("2 threads, not 1", "lockstep_test.planted"))

    def test_functions_of_the_batch_are_no_kernels(self):
        for modules in ((Scale(), Scale(MIXED)), (Scale(), nn.BatchNorm1d(3))):
            report = look(*modules, parts=[range(4)], threads=[])
            (_, found), = report.parts
            self.assertEqual((found.why, found.phase), ("over_the_batch", "forward"), report)
            self.assertIn("another function", str(found))

    def test_draws(self):
        report = look(Scale(), nn.Dropout(0.5), parts=[range(1, 5)], threads=[])
        self.assertIsNone(report.again)
        (_, found), = report.parts
        self.assertEqual((found.why, found.module), ("draws", "1 (Dropout)"))

    def test_a_model_that_refuses_one_sample_or_branches(self):
        (_, refused), = look(nn.BatchNorm1d(3), parts=[range(1)]).parts
        self.assertIn("refuses these samples", str(refused))

        class Branches(nn.Module):
            def forward(self, x):
                return x + 1 if len(x) > 4 else x * 2

        report = look(Scale(), Branches(), parts=[range(2)], threads=[])
        self.assertEqual(report.parts[0][1].why, "other_operators")
        self.assertIsNone(report.depends_on_batch)

    def test_samples_in_the_second_dimension_or_beside_others(self):
        """(steps, samples) as attention has it, flattened either way."""
        class Turned(nn.Module):
            def __init__(self, how):
                super().__init__()
                self.scale = Scale(how)

            def forward(self, x):
                steps = torch.stack([x, 2 * x]).reshape(-1, 3)  # the samples of step 0, then those of step 1
                return self.scale(steps).reshape(2, -1, 3).transpose(0, 1)

        self.assertIs(look(Turned(NEVER)).depends_on_batch, False)
        self.assertIs(look(Turned(BATCH), parts=[range(2)]).depends_on_batch, True)

    def test_everything_is_as_before(self):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
        model[0].weight.grad = torch.ones(4, 3)
        state, random = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
        kernels.look(model, torch.randn(6, 3, generator=torch.Generator().manual_seed(1)))
        self.assertTrue(torch.equal(torch.get_rng_state(), random))
        for name, value in model.state_dict().items():
            self.assertTrue(torch.equal(value, state[name]), name)
        self.assertTrue(torch.equal(model[0].weight.grad, torch.ones(4, 3)))
        self.assertIsNone(model[0].bias.grad)
        self.assertEqual(len(model[0]._forward_hooks), 0)

    def test_misuse_is_told(self):
        with self.assertRaisesRegex(ValueError, "first dimension"):
            kernels.look(nn.Linear(3, 3), torch.zeros(3, 3), torch.zeros(4))
        with self.assertRaisesRegex(ValueError, "on the CPU"):
            kernels.look(nn.Linear(3, 3), torch.zeros(3, 3, device="meta"))
        with self.assertRaisesRegex(ValueError, "a range of some"):
            look(Scale(), parts=[range(4, 12)])
        with self.assertRaisesRegex(ValueError, "no loss"):
            kernels.look(Loss(), torch.randn(4, 3))


class Loss(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)

    def forward(self, x):
        return super().forward(x).mean()


if __name__ == "__main__":
    unittest.main()
