"""Hashes and sketches of the agent: other bits, other hash, also where many bytes are folded first; and a sketch of a tensor
is the sum of its parts'. In the Python that has torch."""
import os
import pathlib
import random
import sys
import unittest

try:
    import torch
except ImportError:
    peer = os.environ.get("LOCKSTEP_PEER_PYTHON") or "/usr/bin/python3"
    os.execv(peer, [peer, "-B", *sys.argv])

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from lockstep.agent import sketches  # noqa: E402

LARGE = sketches.MOST_HASHED_WHOLE // 4 + 1  # of float32: folded, with a rest that is no whole word
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Digests(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.random = random.Random(1)

    def tensors(self):
        return [torch.randn(elements).to(dtype) for dtype in DTYPES for elements in (3, 2 * LARGE + 1)]

    def test_equal_bits(self):
        for tensor in self.tensors():
            self.assertEqual(sketches.digest([tensor]), sketches.digest([tensor.clone()]))
            padded = torch.cat([tensor, tensor])[1:1 + len(tensor)]  # not where a word begins
            self.assertEqual(sketches.digest([padded]), sketches.digest([padded.clone()]))

    def test_one_bit(self):
        for tensor in self.tensors():
            before, content = sketches.digest([tensor]), tensor.view(torch.uint8).numpy()
            places = [0, len(content) - 1, *(self.random.randrange(len(content)) for _ in range(50))]
            for at in places:
                bit = 1 << self.random.randrange(8)
                content[at] ^= bit
                self.assertNotEqual(sketches.digest([tensor]), before, at)
                content[at] ^= bit
            self.assertEqual(sketches.digest([tensor]), before)

    def test_changes_that_cancel_in_a_sum(self):
        for tensor in self.tensors():
            before = sketches.digest([tensor])
            for _ in range(50):
                one, other = self.random.sample(range(len(tensor)), 2)
                changed = tensor.clone()
                changed[one], changed[other] = -tensor[one], -tensor[other]
                self.assertNotEqual(sketches.digest([changed]), before, (one, other))
                changed[one], changed[other] = tensor[other], tensor[one]
                if tensor[one] != tensor[other]:
                    self.assertNotEqual(sketches.digest([changed]), before, (one, other))

    def test_pieces_in_another_order(self):
        tensor = torch.randn(4 * sketches.AT_ONCE, dtype=torch.float64)
        pieces = tensor.split(sketches.AT_ONCE)
        self.assertNotEqual(sketches.digest([torch.cat(pieces[::-1])]), sketches.digest([tensor]))

    def test_signs_of_zeros(self):
        zeros = torch.zeros(LARGE)
        self.assertNotEqual(sketches.digest([zeros]), sketches.digest([-zeros]))


class Sketches(unittest.TestCase):
    def test_parts_add_up(self):
        tensor = torch.randn(7, 3 * sketches.AT_ONCE // 7, dtype=torch.float64)
        whole = sketches.sketch(tensor)
        parts = [sketches.sketch_part(tensor[begin:begin + 3], tensor.shape, 0, begin) for begin in (0, 3, 6)]
        for at in range(4):
            self.assertAlmostEqual(sum(part[at] for part in parts), whole[at], delta=1e-9 * whole[4])
        self.assertAlmostEqual(sum(part[4] ** 2 for part in parts) ** 0.5, whole[4], delta=1e-9 * whole[4])

    def test_a_difference_shows(self):
        for elements in (5, 2 * sketches.AT_ONCE):
            tensor = torch.randn(elements, dtype=torch.float64)
            changed = tensor.clone()
            changed[-1] += 1e-3
            before, after = sketches.sketch(tensor), sketches.sketch(changed)
            for at in range(4):
                self.assertAlmostEqual(abs(after[at] - before[at]), 1e-3, delta=1e-6)


if __name__ == "__main__":
    unittest.main()
