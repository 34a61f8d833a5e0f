"""Lane hook: communication hooks that lose a part of the gradients on purpose, within a bound that the user states. With
PyTorch of LOCKSTEP_PEER_PYTHON."""
import hashlib
import pathlib
import sys
import threading
import time
import unittest

from together import TogetherTest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from lockstep.agent import gloo_threads  # noqa: E402


SCRIPT = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def quantized(tensor):
    scale = tensor.abs().max() / 127
    return torch.round(tensor / scale) * scale


class Top:
    left = {}

    def __call__(self, gradients, bucket):
        gradients = gradients + self.left.get(bucket.index(), 0)
        kept, largest = torch.zeros_like(gradients), gradients.abs().topk(gradients.numel() // 2).indices
        kept[largest] = gradients[largest]
        self.left[bucket.index()] = gradients - kept
        return kept


top = Top()


def hook(state, bucket):
    own = bucket.buffer()
    world = dist.get_world_size()
    %s
    done = torch.futures.Future()
    done.set_result(sent)
    return done


dist.init_process_group("gloo")
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(10, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
model = DistributedDataParallel(net)
%s
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
inputs = torch.randn(16, 24, 10)
for batch in inputs:
    own = batch.chunk(dist.get_world_size())[dist.get_rank()]
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(own), own.sum(1, keepdim=True)).backward()
    optimizer.step()
dist.destroy_process_group()
"""
REGISTERED = "model.register_comm_hook(None, hook)"
SUM = "; dist.all_reduce(sent)"
QUANTIZED = "sent = quantized(own / world)" + SUM


class CommHook(TogetherTest):
    def judged(self, body, *options, register=REGISTERED, world=3, judges=True):
        verdict = self.verdict(SCRIPT % (body, register), "--world-sizes", world, *options)
        self.said, world = verdict.said, verdict.result["worlds"][0]
        if judges:  # a run that broke off says why
            self.assertIn("hook", world["lanes"], f"{world}\n{self.said}")
        return verdict.code, world, world["lanes"].get("hook")

    def test_what_a_quantizing_hook_loses(self):
        code, world, lane = self.judged(QUANTIZED, "--hook-error", "0.05")
        self.assertEqual((code, lane["verdict"], lane["control"], lane["steps"]), (0, "pass", "detected", 16), self.said)
        self.assertEqual(world["lanes"]["float64"]["verdict"], "pass", self.said)
        code, world, lane = self.judged("sent = quantized(own)" + SUM, "--hook-error", "0.05")
        self.assertEqual((code, lane["cause"], lane["step"]), (1, "hook_beyond_bound", 1), self.said)
        self.assertEqual(world["lanes"]["float64"]["verdict"], "pass", self.said)
        own = "sent = quantized(own / world)" + SUM + "; sent = sent + (own - quantized(own)) * 1e-3"
        code, world, lane = self.judged(own, "--hook-error", "0.05")
        self.assertEqual((code, lane["cause"], lane["step"]), (1, "hook_results_differ", 1), self.said)
        code, world, lane = self.judged(QUANTIZED, "--hook-error", "100")
        self.assertEqual((code, lane["verdict"]), (3, "void"), self.said)
        self.assertIn("a rank left out shows only below", self.said)

    def test_what_error_feedback_makes_up_for(self):
        code, _, lane = self.judged("sent = top(own / world, bucket)" + SUM, "--hook-owed", "1.2")
        self.assertEqual((code, lane["verdict"]), (0, "pass"), self.said)
        code, _, lane = self.judged("sent = own / world * 0.5" + SUM, "--hook-owed", "1.2")
        self.assertEqual((code, lane["cause"]), (1, "hook_beyond_bound"), self.said)

    def test_without_a_bound_or_a_hook(self):
        code, world, lane = self.judged(QUANTIZED, judges=False)
        self.assertEqual((code, lane, world["comm_hook"]), (1, None, "hook"), self.said)
        self.assertIn("judged by --hook-error", self.said)
        code, world, lane = self.judged("pass", "--hook-error", "0.05", register="")
        self.assertEqual((code, lane["verdict"], world["comm_hook"]), (3, "inconclusive", None), self.said)


class Threads(unittest.TestCase):
    """At the end of a rank a thread is waited for that still works, but not for ever."""

    def waited(self, rounds, patience_s):
        worker = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha512", b"a", b"b", rounds), daemon=True)
        worker.start()  # without the GIL, as Gloo's work
        begin = time.monotonic()
        gloo_threads.wait_for_threads(patience_s)
        return worker, time.monotonic() - begin

    def test_a_thread_that_works_is_waited_for(self):
        worker, _ = self.waited(300_000, 60)
        worker.join(timeout=0.02)  # what is left of it is Python's
        self.assertFalse(worker.is_alive())

    def test_but_not_for_ever(self):
        worker, waited_s = self.waited(30_000_000, 0.1)
        self.assertTrue(worker.is_alive())
        self.assertGreaterEqual(waited_s, 0.1)


if __name__ == "__main__":
    unittest.main()
