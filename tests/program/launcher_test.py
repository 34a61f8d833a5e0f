"""`lockstep verify|run|sweep -- torchrun ... train.py`: the launcher is left out, since lockstep starts the ranks, and what cannot be left
out is refused with a sentence. With PyTorch of LOCKSTEP_PEER_PYTHON."""
import functools
import json
import os
import pathlib
import subprocess
import sys
import unittest

from folders import FolderTest
from program_test import PROGRAM, PYTHON

SCRIPT = """
import os, sys, torch, torch.distributed as dist
from torch import nn
assert dist.is_torchelastic_launched() and sys.argv[1:] in ([], ["--sum"])
dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.parallel.DistributedDataParallel(nn.Linear(7, 5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(6):
    x = torch.randn(12, 7)[int(os.environ["LOCAL_RANK"])::int(os.environ["LOCAL_WORLD_SIZE"])]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), torch.ones(len(x), 5), reduction="sum" if sys.argv[1:] else "mean")
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
RUN = (PYTHON, "-m", "torch.distributed.run")
FAULT = ("--fault", "kill rank=1 step=3")


@functools.lru_cache(maxsize=None)
def working_run():
    """Debian's torch.distributed.run of 1.13 fails before it starts a rank."""
    for python in (PYTHON, *filter(None, os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":"))):
        command = (python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "1", "--no_python", "true")
        if subprocess.run(command, capture_output=True, check=False, timeout=120).returncode == 0:
            return command[:3]
    raise unittest.SkipTest("no Python has a torch.distributed.run that works")


class Launchers(FolderTest):
    def lockstep(self, verb, *words, text=SCRIPT):
        pathlib.Path(self.folder, "train.py").write_text(text)
        result = self.folder / "result.json"
        ran = subprocess.run([PROGRAM, verb, "--json", result, *words], capture_output=True, text=True, timeout=600,
                             cwd=self.folder, env=self.environment)
        self.said = ran.stdout + ran.stderr
        return ran.returncode, json.loads(result.read_text()) if result.exists() else None

    def test_is_left_out_and_its_number_of_ranks_taken(self):
        code, found = self.lockstep("verify", "--", *RUN, "--standalone", "--nproc_per_node=3", "train.py")
        self.assertEqual(code, 0, self.said)
        self.assertEqual([world["world_size"] for world in found["worlds"]], [3])
        self.assertEqual(found["command"][-2:], ["-u", "train.py"])
        self.assertIn("--nproc_per_node=3 is left out, for lockstep starts the ranks: ", self.said)
        code, found = self.lockstep("verify", "--world-sizes", "2", "--", "env", "DEPTH=4", *RUN, "--nproc-per-node", "3", "-m", "train", "--sum",
                                    text=SCRIPT.replace("dist.init", "assert os.environ['DEPTH'] == '4'\ndist.init", 1))
        self.assertEqual(code, 1, self.said)
        self.assertEqual([world["world_size"] for world in found["worlds"]], [2])
        self.assertIn("cause summed_loss: ", self.said)

    def test_lightnings_and_accelerates_tell_the_ranks_by_variables(self):
        for name, words, told in (("fabric", ("run", "--devices=2", "--precision", "64", "--strategy", "ddp"),
                                   {"LT_CLI_USED": "1", "LT_PRECISION": "64", "LT_STRATEGY": "ddp"}),
                                  ("accelerate", ("launch", "--cpu", "--num_processes", "2", "--mixed_precision", "no"),
                                   {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "no"})):
            with self.subTest(name):
                launcher = self.folder / name
                launcher.write_text(f"#!{PYTHON}\n")
                launcher.chmod(0o755)
                check = f"assert {told} == {{name: os.environ.get(name) for name in {list(told)}}}\n" \
                        "assert os.environ.get('LT_DEVICES', os.environ['WORLD_SIZE']) == os.environ['WORLD_SIZE']\n"
                code, found = self.lockstep("verify", "--", launcher, *words, "train.py", text=SCRIPT.replace("dist.init", check + "dist.init"))
                self.assertEqual(code, 0, self.said)
                self.assertEqual([world["world_size"] for world in found["worlds"]], [2])

    def test_torchrun_is_of_the_python_beside_it(self):
        """By its first line, and where that says nothing, the python3 of its folder."""
        for first in (f"#!{PYTHON}", "#!/bin/sh"):
            with self.subTest(first):
                torchrun = self.folder / "torchrun"
                torchrun.write_text(first + "\n")
                torchrun.chmod(0o755)
                beside = self.folder / "python3"
                beside.unlink(missing_ok=True)
                beside.symlink_to(PYTHON)
                code, found = self.lockstep("verify", "--", torchrun, "--nproc_per_node", "2", "train.py")
                self.assertEqual(code, 0, self.said)
                self.assertEqual(found["command"][0], PYTHON if PYTHON in first else str(beside))

    def test_with_faults(self):
        code, found = self.lockstep("run", *FAULT, "--", *RUN, "--nproc_per_node", "3", "train.py")
        self.assertEqual((code, found["failure"]["rank"], found["failure"]["victims"]), (1, 1, [0, 2]), self.said)

    def test_that_is_asked_to_start_them_itself(self):
        code, found = self.lockstep("run", "--world-size", "3", "--spawns", *FAULT, "--", *working_run(), "--nproc_per_node", "3", "train.py")
        self.assertEqual((code, found["failure"]["rank"], found["failure"]["kind"]), (1, 1, "crash"), self.said)

    def test_within_another_command_it_is_told(self):
        command = f"exec {' '.join(working_run())} --nproc_per_node 2 train.py"
        code, _ = self.lockstep("verify", "--", "sh", "-c", command)
        self.assertEqual(code, 3, self.said)
        self.assertEqual(self.said.count("the program starts its ranks itself (mp.spawn or the like): say --spawns"), 1, self.said)

    def test_what_cannot_be_left_out(self):
        beside = self.folder / "mpirun"
        for words, sentence in (((*RUN, "--nnodes", "2", "train.py"), "2 hosts, and a program is judged on one"),
                                ((*RUN, "--run-path", "train.py"), "its option --run-path cannot be left out"),
                                ((*RUN, "--no-such-option", "train.py"), "its option --no-such-option cannot be left out"),
                                ((*RUN, "--nproc_per_node"), "its option --nproc_per_node has no value"),
                                ((*RUN, "--nproc_per_node", "2"), "it is given nothing to start"),
                                ((PYTHON, "-m", "torch.distributed.launch", "train.py"), "it gives the script --local-rank"),
                                ((str(beside), "-n", "2", sys.executable, "train.py"), "it starts ranks, and so does lockstep")):
            for verb in ("verify", "run", "sweep"):
                with self.subTest(words=words[-2:], verb=verb):
                    code, _ = self.lockstep(verb, "--", *words)
                    self.assertEqual(code, 2, self.said)
                    self.assertIn(sentence, self.said)


if __name__ == "__main__":
    unittest.main()
