"""Gradients of two runs of unmodified programs, compared: rounding by the order of addition, or another training?
With PyTorch of LOCKSTEP_PEER_PYTHON, and of other Pythons (LOCKSTEP_TORCH_PYTHONS, separated by colons)."""
import json
import pathlib
import subprocess
import unittest

from folders import FolderTest
from tap_test import ADAM, BY_HAND, DDP, MISSING, OTHERS, PEER, PROGRAM, SHARDED, script, version

BY_HAND_ON_ONE = "for p in net.parameters(): dist.all_reduce(p.grad); p.grad *= (1.0001 if rank == 0 else 1) / world"
CLIP = "nn.utils.clip_grad_norm_(net.parameters(), 0.01)"
SLOWER = ADAM.replace("0.01", "0.02")


class Gradients(FolderTest):
    def run_program(self, *words):
        ran = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=600,
                             env=self.environment, cwd=self.folder)
        self.said = ran.stdout + ran.stderr
        return ran.returncode

    def record(self, name, *options, python=PEER, **how):
        path = pathlib.Path(self.folder, f"{name}.py")
        path.write_text(script(**how))
        code = self.run_program("run", "--world-size", 3, "--gradients", name, *options, "--", python, path)
        self.assertEqual(code, 0, self.said)

    def compared(self, a, b, code):
        self.assertEqual(self.run_program("compare", a, b, "--json", "result.json", "--html", "result.html"), code, self.said)
        self.assertIn("<h1>lockstep compare</h1>", pathlib.Path(self.folder, "result.html").read_text())
        return json.loads(pathlib.Path(self.folder, "result.json").read_text())["gradients"]

    def test_rounding_and_what_is_none(self):
        self.record("ddp", model=DDP)
        self.record("by_hand", after=BY_HAND)
        found = self.compared("ddp", "by_hand", 3)
        self.assertEqual(found["gap"], "weights_apart", self.said)
        self.record("following", "--follow", "ddp", after=BY_HAND)
        found = self.compared("ddp", "following", 0)
        self.assertEqual((found["follows"], found["steps"], found["control_failed"]), ("B", 4, True))
        self.assertGreater(found["explained"], 100)
        self.assertIn("multiplied_before", found["means_a"])
        self.assertIn("divided_after", found["means_b"])
        self.record("clipped", "--follow", "ddp", model=DDP, after=CLIP)
        self.assertEqual(self.compared("ddp", "clipped", 1)["difference"], "clipping")
        self.record("rate", "--follow", "ddp", model=DDP, optimizer=SLOWER)
        self.assertEqual(self.compared("ddp", "rate", 1)["difference"], "update")
        self.assertIn("the learning rate is 0.01 in A and 0.02 in B", self.said)
        self.record("scaled", "--follow", "ddp", after=BY_HAND_ON_ONE)
        self.assertEqual(self.compared("ddp", "scaled", 1)["difference"], "reduction")
        self.record("summed", "--follow", "ddp", model=DDP, reduction="sum")
        found = self.compared("ddp", "summed", 1)
        self.assertEqual((found["difference"], found["place"]["step"]), ("local_gradient", 1))

    def test_a_log_whose_last_line_was_cut_is_followed(self):
        self.record("cut", model=DDP)
        with open(pathlib.Path(self.folder, "cut/gradients-1.jsonl"), "a", encoding="utf-8") as index:
            index.write('{"kind": "loc')
        self.record("following", "--follow", "cut", model=DDP)
        self.assertEqual(self.compared("cut", "following", 0)["follows"], "B", self.said)

    def test_bad_input(self):
        for words, told in ((["--gradients", "/proc/none"], "--gradients /proc/none"),
                            (["--follow", "none"], "--follow"),
                            (["--gradients", "new", "--follow", "none"], "gradients-0.jsonl"),
                            (["--gradients", self.folder], "is not empty")):
            code = self.run_program("run", *words, "--", PEER, "-c", "pass")
            self.assertEqual(code, 2, self.said)
            self.assertIn(told, self.said)
        self.assertFalse(pathlib.Path(self.folder, "new").exists())
        self.assertEqual(self.run_program("run", "--gradients", "empty", "--", PEER, "-c", "pass"), 3, self.said)
        self.assertEqual(self.run_program("compare", "empty", "empty"), 2, self.said)

    @unittest.skipUnless(OTHERS, MISSING)
    def test_shards(self):
        for python in (python for python in OTHERS if version(python) >= (2, 6)):
            with self.subTest(python=python):
                name = str(version(python)[1])
                self.record("ddp" + name, python=python, model=DDP, after=CLIP)
                self.record("fsdp" + name, "--follow", "ddp" + name, python=python, model=SHARDED, after=CLIP)
                found = self.compared("ddp" + name, "fsdp" + name, 0)
                self.assertGreater(found["explained"], 100)
                self.assertIn("divided_after", found["means_b"])


if __name__ == "__main__":
    unittest.main()
