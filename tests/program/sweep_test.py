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

# Sums that take 30 ms and 20 more each MB, one after the other, while the backward goes on.
LATER = """
import concurrent.futures, os, threading
wire = concurrent.futures.ThreadPoolExecutor(1)
def hook(state, bucket):
    done, buffer = torch.futures.Future(), bucket.buffer()
    def transfer():
        time.sleep(0.03 + 0.02 * buffer.numel() * 4 / 1e6)
        done.set_result(buffer)
    wire.submit(transfer)
    return done
net.register_comm_hook(None, hook)
"""
# 8 layers of 0.6 MB: 8 buckets at 0.5 MiB, 2 or 3 at 1.5 MiB.
PREDICTED = TRAINING.replace("range(4)", "range(8)").format(model=DDP + LATER, steps=10**6)


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
        script = TRAINING.format(model=SLEEPS, steps=50).replace("optimizer.step()", "optimizer.step(); torch.cuda.synchronize()")
        code, world = self.sweep(script, "--allow-busy", "--rounds", "2")  # one for a GPU, too
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

    def predict(self, text, *options, caps="0.5,1.5,25", **named):
        folder = self.folder / "calibration"
        code, world = self.sweep(text, "--allow-busy", "--rounds", "1", "--predict", "--calibration", str(folder),
                                 *options, caps=caps, **named)
        return code, world, folder

    def test_a_cap_that_was_held_out_is_predicted(self):
        """And what it is predicted by, simulate takes at more ranks."""
        for python in [PEER, *OTHERS]:
            with self.subTest(python):
                self.check_predicted(*self.predict(PREDICTED, python=python))

    def check_predicted(self, code, world, folder):
        predicted = world["prediction"]
        self.assertLess(predicted["largest_off"], 0.4, self.said)  # other work on the machine; the control is off by more
        self.assertEqual(code, 0 if predicted["largest_off"] <= 0.1 else 3, self.said)
        self.assertEqual([cap["bucket_cap_mb"] for cap in predicted["caps"] if cap["measured_ms"] is not None],
                         [line["bucket_cap_mb"] for line in world["lines"]])
        simulated = self.folder / "simulated.json"
        ran = subprocess.run([PROGRAM, "simulate", str(folder / "scenario.json"), "--machine", str(folder / "machine.json"),
                              "--world-size", "16", "--json", str(simulated)], capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertIn("program", ran.stdout)
        self.assertEqual(json.loads(simulated.read_text())["runs"][0]["world_size"], 16)

    def test_a_prediction_that_is_off_is_inconclusive(self):
        """The control: a hook that holds the backward up, which is not simulated, changes when gradients are there."""
        code, world, _ = self.predict(TRAINING.replace("range(4)", "range(8)").format(model=SLEEPS, steps=10**6), caps="0.5,25")
        self.assertEqual(code, 3, self.said)
        self.assertIn("predictions are off by", world["prediction"]["inconclusive"])
        self.assertGreater(world["prediction"]["largest_off"], 0.5, self.said)
        self.assertIn("measured: ", self.said)

    def test_what_cannot_be_predicted_says_why(self):
        unused = DDP.replace(", 7)", ", 7, find_unused_parameters=True)")
        for text, caps, sentence in ((TRAINING.format(model=DDP, steps=50), "25,100", "all caps that were measured give the same buckets"),
                                     (TRAINING.format(model=unused, steps=50), "0.5,25", "find_unused_parameters"),
                                     (TRAINING.format(model="", steps=9), "0.5,25", "made no DistributedDataParallel")):
            with self.subTest(sentence):
                code, world, folder = self.predict(text, caps=caps)
                self.assertEqual(code, 3, self.said)
                self.assertIn(sentence, world["inconclusive"])
                self.assertIn("nothing was written", self.said)
                self.assertEqual(list(folder.iterdir()), [])

    def test_bad_options_are_bad_input(self):
        for words in (["--caps", "0"], ["--caps", "x"], ["--caps", "1,1"], ["--worlds", "1"], ["--warmup", "1"],
                      ["--reducers", "c10d"], ["--svg", "f.svg"], ["--baseline", "f.json"], ["--vary", "/a=[1]"],
                      ["--predict", "--caps", "25"], ["--calibration", "/tmp/none"],
                      ["--calibration", "/dev/null/x", "--predict"], ["--calibration", "x", "--predict", "--worlds", "2,3"]):
            with self.subTest(words):
                ran = subprocess.run([PROGRAM, "sweep", *words, "--", "/bin/true"], capture_output=True, text=True,
                                     timeout=60)
                self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
                self.assertIn(words[0], ran.stderr)
                self.assertNotIn("or auto", ran.stderr)


if __name__ == "__main__":
    unittest.main()
