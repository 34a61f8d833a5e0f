"""Reads what `lockstep verify --export FOLDER` leaves (sim/worker/export.h tells the format)."""
import json
import pathlib

import numpy
import torch


class Run:
    """One exported run: its settings, and its tensors as lists in order of registration."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        if (self.manifest["format"], self.manifest["version"]) != ("lockstep_export", 1):
            raise ValueError(f"{folder}: not an export that this program knows")
        self.scenario = self.manifest["scenario"]
        self.order = json.loads((self.folder / self.manifest["order"]).read_text())

    def title(self):
        axes = [f"{pointer.split('/')[-1]}={value}" for pointer, value in self.manifest["set"].items()]
        return " ".join([self.scenario["name"], *axes])

    def sample_count(self):
        return self.manifest["data"][0]["shape"][0]

    def tensors(self, *path):
        """("final", "parameters") -> [(name, tensor or None)]"""
        entries = self.manifest
        for key in path:
            entries = entries[key]
        return [(entry["name"], self._load(entry)) for entry in entries]

    def _load(self, entry):
        if entry["file"] is None:
            return None
        array = numpy.load(self.folder / entry["file"])
        if entry["dtype"] == "bfloat16":
            return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
        return torch.from_numpy(array)


def find_runs(paths):
    folders = []
    for path in map(pathlib.Path, paths):
        found = [path] if (path / "manifest.json").exists() else sorted(
            manifest.parent for manifest in path.glob("*/manifest.json"))
        if not found:
            raise ValueError(f"{path}: no exported run (manifest.json) here")
        folders += found
    return [Run(folder) for folder in folders]


def bits(tensor):
    whole = tensor.detach().contiguous()
    return (whole.view(torch.int16) if whole.dtype == torch.bfloat16 else whole).numpy().tobytes()


def first_difference(ours, theirs):
    """None, or where and how two lists of (name, tensor) differ in a bit."""
    for (name, own), (_, other) in zip(ours, theirs):
        if own is None or other is None:
            if (own is None) != (other is None):
                return f"{name}: {'absent' if own is None else 'present'} in the export only"
            continue
        if own.dtype != other.dtype or own.shape != other.shape:
            return f"{name}: {own.dtype}{list(own.shape)} and {other.dtype}{list(other.shape)}"
        if bits(own) == bits(other):
            continue
        differs = [i for i, (a, b) in enumerate(zip(own.flatten(), other.flatten()))
                   if bits(a) != bits(b)]
        at = differs[0]
        return (f"{name}[{at}]: {own.flatten()[at].item()!r} and {other.flatten()[at].item()!r}"
                f" ({len(differs)} of {own.numel()} differ)")
    return None
