"""Writes a small TorchScript module: make_script_model.py FILE [by_batch]. A file of its own, since
torch.jit.script reads the source of what it compiles."""
import sys

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, by_batch: bool):
        super().__init__()
        self.by_batch = by_batch
        self.fc1, self.fc2, self.norm = nn.Linear(8, 12), nn.Linear(12, 4), nn.LayerNorm(12)

    def forward(self, x):
        h = torch.tanh(self.norm(self.fc1(x)))
        for _ in range(x.size(1) // 4):  # control flow, which a trace would lose
            h = h * 1.5
        if self.by_batch and bool(h.sum() > 0):  # what one sample gives depends on the others
            h = h * 2
        return self.fc2(h)


if __name__ == "__main__":
    torch.manual_seed(7)
    torch.jit.script(Net("by_batch" in sys.argv)).save(sys.argv[1])
