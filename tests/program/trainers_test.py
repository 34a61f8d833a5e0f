"""`lockstep run -- COMMAND` with Accelerate and Lightning: faults by rank and step are acted out and named, also where
Lightning starts the ranks itself. LOCKSTEP_PEER_PYTHON, or one of LOCKSTEP_TORCH_PYTHONS, must have them."""
import functools
import json
import os
import pathlib
import subprocess
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHONS = [os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3"),
           *filter(None, os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":"))]

DATA = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x = torch.randn(48, 6)
loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
loss = nn.functional.cross_entropy
"""
ACCELERATE = DATA + """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
for x, y in loader:
    optimizer.zero_grad()
    accelerator.backward(loss(model(x), y))
    optimizer.step()
accelerator.end_training()
"""
LIGHTNING = DATA + """
import lightning
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, number):
        return loss(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)
if __name__ == "__main__":
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Net(), loader)
"""


@functools.lru_cache(maxsize=None)
def python_with(library):
    for python in PYTHONS:
        probe = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
        if subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0:
            return python
    raise unittest.SkipTest(f"no Python that has torch has {library}")


class Trainers(FolderTest):
    def failure_of(self, library, text, fault, *options):
        path, result = self.folder / "train.py", self.folder / "result.json"
        path.write_text(text)
        ran = subprocess.run([PROGRAM, "run", "--world-size", "2", "--json", result, "--fault", fault, *options, "--",
                              python_with(library), path], capture_output=True, text=True, timeout=600,
                             env={**self.environment, "OMP_NUM_THREADS": "1"})
        said = ran.stdout + ran.stderr
        self.assertEqual(ran.returncode, 1, said)
        found = json.loads(result.read_text())
        self.assertEqual(found["faults"][0]["acted_on"], [1], said)
        return [found["failure"][key] for key in ("kind", "rank", "step", "victims")]

    def test_a_rank_of_accelerate_that_is_killed_is_named(self):
        self.assertEqual(self.failure_of("accelerate", ACCELERATE, "kill rank=1 step=3"), ["crash", 1, 3, [0]])

    def test_a_rank_of_lightning_that_fails_is_named(self):
        self.assertEqual(self.failure_of("lightning", LIGHTNING, "exception rank=1 step=3"), ["exception", 1, 3, [0]])

    def test_ranks_that_lightning_starts_are_found(self):
        self.assertEqual(self.failure_of("lightning", LIGHTNING, "kill rank=1 step=3", "--spawns"), ["crash", 1, 3, [0]])


if __name__ == "__main__":
    unittest.main()
