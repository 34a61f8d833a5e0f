"""`lockstep sweep -- COMMAND`: the cap that a script's own time must depend on is found, and none is recommended where
nothing depends on it. Times are decided by sleeps, so that other work on the machine decides nothing.
With PyTorch of LOCKSTEP_PEER_PYTHON, and of other Pythons (LOCKSTEP_TORCH_PYTHONS, separated by colons)."""
import json
import os
import pathlib
import subprocess
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PEER = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]

# Gradients of 2.4 MB in layers of 0.6: with 0.5 MiB about one bucket each.
TRAINING = """
import time
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
net = nn.Sequential(*[nn.Linear(390, 390) for _ in range(4)])
{model}
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range({steps}):
    optimizer.zero_grad()
    net(torch.ones(2, 390)).sum().backward()
    optimizer.step()
print("came to its end")
"""
# The cap by its place, which is not the same in all versions.
DDP = """
import inspect
values = inspect.signature(nn.parallel.DistributedDataParallel).parameters
place = list(values).index("bucket_cap_mb")
net = nn.parallel.DistributedDataParallel(net, *[value.default for value in list(values.values())[1:place]], 7)
"""
SLEEPS = DDP + """
def hook(state, bucket):
    time.sleep(0.05)
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
net.register_comm_hook(None, hook)
"""


class Sweep(FolderTest):
    def sweep(self, text, *options, python=PEER, caps="0.5,25"):
        script, path = self.folder / "train.py", self.folder / "result.json"
        script.write_text(text)
        ran = subprocess.run([PROGRAM, "sweep", "--caps", caps, "--warmup", "2", "--steps", "3", "--json", str(path),
                              *options, "--", python, str(script)], capture_output=True, text=True, timeout=600,
                             env=self.environment)
        self.said = ran.stdout + ran.stderr
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return ran.returncode, json.loads(path.read_text())["worlds"][0]

    def test_fewer_buckets_win_where_each_takes_its_time(self):
        for python in [PEER, *OTHERS]:
            with self.subTest(python):
                code, world = self.sweep(TRAINING.format(model=SLEEPS, steps=10**6), "--allow-busy", python=python)
                self.assertEqual(code, 0, self.said)
                self.assertEqual(world["own_caps_mb"], [7], "positional, and replaced")
                few, many = world["lines"][1]["buckets"], world["lines"][0]["buckets"]
                self.assertLess(few, many, self.said)
                self.assertGreaterEqual(world["lines"][0]["step_ms"]["low"], 50 * many)
                self.assertEqual(world["contrast"]["recommended_mb"], 25, self.said)

    def test_two_rounds_recommend_nothing(self):
        """The control: what is as large a difference, but may be chance."""
        code, world = self.sweep(TRAINING.format(model=SLEEPS, steps=50), "--allow-busy", "--rounds", "2")
        self.assertEqual(code, 0, self.said)
        self.assertIsNone(world["contrast"]["recommended_mb"], self.said)
        self.assertIn("too few to tell", world["answer"])

    def test_caps_with_the_same_buckets_are_no_choice(self):
        code, world = self.sweep(TRAINING.format(model=DDP, steps=50), caps="25,100,500")
        self.assertEqual(code, 0, self.said)
        self.assertEqual([line["same_buckets_mb"] for line in world["lines"]], [[100, 500]])
        self.assertIsNone(world["contrast"])
        self.assertIn("all caps give the same buckets", world["answer"])

    def test_what_cannot_be_measured_is_inconclusive_with_the_reason(self):
        by_hand = "[p.register_hook(lambda g: g) for p in net.parameters()]"
        for text, sentence in ((TRAINING.format(model=by_hand, steps=9), "made no DistributedDataParallel"),
                               (TRAINING.format(model=DDP, steps=3) + "dist.destroy_process_group()", "took 3 steps of its optimizer, too few"),
                               ("import torch; import no_such_module", "No module named 'no_such_module'"),
                               ("print('done')", "no DistributedDataParallel and took no optimizer step")):
            with self.subTest(sentence):
                code, world = self.sweep(text)
                self.assertEqual(code, 3, self.said)
                self.assertIn(sentence, world["inconclusive"])
                self.assertIn(sentence, self.said)
                self.assertEqual(world["lines"], [])

    def test_bad_options_are_bad_input(self):
        for words in (["--caps", "0"], ["--caps", "x"], ["--caps", "1,1"], ["--worlds", "1"], ["--warmup", "1"],
                      ["--reducers", "c10d"], ["--svg", "f.svg"], ["--baseline", "f.json"], ["--vary", "/a=[1]"]):
            with self.subTest(words):
                ran = subprocess.run([PROGRAM, "sweep", *words, "--", "/no/such"], capture_output=True, text=True,
                                     timeout=60)
                self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
                self.assertIn(words[0], ran.stderr)


if __name__ == "__main__":
    unittest.main()
