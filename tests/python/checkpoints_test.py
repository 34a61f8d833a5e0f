"""`lockstep compare` and `--save-weights` with files that PyTorch's own torch.save and torch.load
write and read. Skipped (exit code 77) where this Python has no torch."""
import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import io
import itertools
import math
import os
import pathlib
import pickle
import random
import sys
import types
import unittest
import uuid

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]
try:
    import torch
    import torch.distributed
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch ({error})")
    sys.exit(77)

import ddp_peer  # noqa: E402
import exported  # noqa: E402
from harness import TOY, ProgramTest, read_json  # noqa: E402

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64,
          torch.complex128, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def some(dtype):
    values = torch.arange(12).reshape(3, 4) - 3
    return values.to(torch.bool if dtype == torch.bool else dtype) if dtype != torch.uint8 \
        else values.abs().to(dtype)


class Executed:
    """Leaves a file, if anybody unpickles it."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Mode(enum.Enum):
    train = 1


Named = collections.namedtuple("Named", "a b")


class Loop:
    """Refers to itself."""

    def __init__(self):
        self.me, self.pair = self, (self, 1)


class Files(ProgramTest):
    def save(self, name, value, **options):
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(value, path, **options)
        return path

    def compare(self, a, b, *args, code=0):
        result = self.run_program("compare", a, b, *args, "--json", self.tmp / "result.json")
        self.assertEqual(result.code, code, result.text)
        return result.text

    def document(self):
        return read_json(self.tmp / "result.json")

    def test_every_dtype_in_every_layout(self):
        for dtype in DTYPES:
            whole = some(dtype)
            wide = torch.stack([whole, whole], 1)
            a = self.save("a.pt", {"w": whole})
            for other in (whole.t().contiguous().t(), wide[:, 1], torch.cat([whole, whole])[3:]):
                self.compare(a, self.save("b.pt", {"w": other}))
            changed = whole.clone()
            changed[2, 1] = ~changed[2, 1] if dtype == torch.bool else changed[2, 1] + 1
            self.compare(a, self.save("b.pt", {"w": changed.t().contiguous().t()}), code=1)
            (tensor,) = self.document()["files"][0]["tensors"]
            word = str(dtype).split(".")[1]
            self.assertEqual((tensor["a"]["dtype"], tensor["difference"]["first"]["element"]),
                             (word, [2, 1]))
            self.assertEqual(tensor["difference"]["differing"], 1)

    def test_values_and_ulp_are_those_of_torch(self):
        torch.manual_seed(3)
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            a, b = torch.randn(100).to(dtype), torch.randn(100).to(dtype)
            self.compare(self.save("a.pt", {"w": a}), self.save("b.pt", {"w": b}), code=1)
            found = self.document()["files"][0]["tensors"][0]["difference"]
            error = (a.double() - b.double()).abs().max().item()
            self.assertEqual(found["largest_error"], error)
            self.assertEqual(found["relative_error"], error / b.double().abs().max().item())
            self.assertEqual(found["first"]["a_value"], a[0].double().item())
            for rtol in (0.5, 3.0):
                close = torch.isclose(a.double(), b.double(), rtol=rtol, atol=0.1)
                self.compare(self.tmp / "a.pt", self.tmp / "b.pt", "--rtol", rtol, "--atol", "0.1",
                             code=0 if close.all() else 1)
                found = self.document()["files"][0]["tensors"][0]["difference"]
                self.assertEqual(found["beyond_tolerance"], int((~close).sum()))

    def test_a_checkpoint_of_model_and_optimizer(self):
        def checkpoint(lr):
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
            optimizer = torch.optim.Adam(model.parameters(), lr=lr)
            for _ in range(2):
                model(torch.randn(5, 3))
                for parameter in model.parameters():  # no autograd: ranks of another test are forked
                    parameter.grad = torch.randn_like(parameter)
                optimizer.step()
            return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2,
                    "name": "text", "parameter": next(model.parameters()), "nothing": None}
        a = self.save("a.pt", checkpoint(0.01))
        self.compare(a, self.save("b.pt", checkpoint(0.01)))
        text = self.compare(a, self.save("c.pt", checkpoint(0.02)), "-v", code=1)
        self.assertIn("optimizer/state/0/exp_avg", text)
        self.assertRegex(text, r"optimizer/param_groups/0/lr +float64 .* different")
        self.compare(a, self.save("m.pth", checkpoint(0.01)["model"]), "--key-a", "model")
        module = {f"module.{name}": value for name, value in checkpoint(0.01)["model"].items()}
        text = self.compare(a, self.save("d.pt", {"model": module}), "--key", "model")
        self.assertIn("names  7 names of B begin with module.", text)

    def test_nothing_in_a_file_is_executed(self):
        good = self.save("good.pt", {"w": torch.ones(2)})
        bad = self.save("bad.pt", {"w": torch.ones(2), "x": Executed(self.tmp / "executed")})
        text = self.compare(good, bad)
        self.assertIn("not compared in B, for only code could make it  x (posix.mkdir)", text)
        only = self.save("only.pt", Executed(self.tmp / "executed"))
        text = self.compare(good, only, code=2)
        self.assertIn("only.pt: error: data.pkl, byte ", text)
        self.assertIn("needs posix.mkdir, and lockstep executes nothing in a file", text)
        self.assertFalse((self.tmp / "executed").exists())
        whole = self.save("module.pt", torch.nn.Linear(2, 2))
        self.assertIn("save state_dict()", self.compare(good, whole, code=2))

    def test_real_checkpoints_hold_strangers(self):
        strangers = {
            "namespace": argparse.Namespace(lr=0.1, layers=[1, 2]), "counter": collections.Counter("abca"),
            "path": pathlib.Path("/tmp/run"), "paths": [pathlib.PurePosixPath("a"), pathlib.Path("b")],
            "when": datetime.datetime.now(), "for": datetime.timedelta(seconds=3), "mode": Mode.train,
            "today": datetime.date.today(), "size": torch.Size([1, 2]), "dtype": torch.bfloat16,
            "device": torch.device("cpu"), "layout": torch.strided,
            "default": collections.defaultdict(list, a=[1]), "ordered": collections.OrderedDict(b=2),
            "partial": functools.partial(max, 1), "function": math.sqrt, "class": Mode, "set": {1, 2},
            "frozen": frozenset([3]), "bytes": b"abc", "array": bytearray(b"abc"), "complex": 1 + 2j,
            "range": range(3), "slice": slice(1, 2), "decimal": decimal.Decimal("1.5"),
            "fraction": fractions.Fraction(1, 3), "uuid": uuid.uuid4(), "named": Named(1, 2),
            "random": random.getstate(), "error": ValueError("x"), "loop": Loop(),
            "deque": collections.deque([1]), "simple": types.SimpleNamespace(a=1), "keys": {Mode.train: 1}}
        try:
            import numpy
            strangers |= {"numpy": numpy.random.get_state(), "scalar": numpy.float64(0.5),
                          "int": numpy.int64(3), "numpy_dtype": numpy.dtype("f4"),
                          "generator": numpy.random.default_rng(1)}
        except ImportError:
            pass
        model = {"weight": torch.ones(3)}
        plain = self.save("plain.pt", {"model": model})
        cases = [*strangers.items(), ("all", strangers)]
        for protocol, (name, stranger) in itertools.product((2, 3, 4, 5), cases):
            with self.subTest(stranger=name, protocol=protocol):
                path = self.save("a.pt", {"model": model, "epoch": 3, "args": stranger},
                                 pickle_protocol=protocol)
                self.assertIn("pass: ", self.compare(path, path))
                self.assertIn("pass: 1 tensor, 3 elements", self.compare(path, plain, "--key", "model"))
        text = self.compare(path, path)
        self.assertIn("not compared in A, for only code could make it  args/namespace (argparse.Namespace)",
                      text)
        self.assertIn("(and ", text)
        skipped = {entry["name"]: entry["type"] for entry in self.document()["files"][0]["not_compared"]}
        self.assertEqual(skipped["args/path"], "pathlib.PosixPath")
        with_tensors = self.save("b.pt", {"model": model, "ema": argparse.Namespace(w=torch.ones(2))})
        text = self.compare(with_tensors, with_tensors, code=2)
        self.assertIn("ema needs argparse.Namespace, which holds tensors", text)
        self.compare(with_tensors, plain, "--key", "model")

    def test_every_protocol_says_the_same(self):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.Adam(model.parameters())
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()
        shared = "a text that stands there twice"
        value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 2 ** 40,
                 shared: [shared, (torch.arange(6).reshape(2, 3).t(), 1.5, None, True)],
                 "x" * 300: 2 ** 100, "bytes": b"x" * 300, "array": bytearray(b"abc"),
                 "parameter": next(model.parameters()), "half": torch.ones(2).bfloat16()}
        paths = {protocol: self.save(f"{protocol}.pt", value, pickle_protocol=protocol)
                 for protocol in (2, 3, 4, 5)}
        value["epoch"] += 1
        for protocol in (3, 4, 5):
            self.compare(paths[2], paths[protocol])
            entry = self.document()["files"][0]
            self.assertEqual(entry["not_compared"], [])
            self.assertGreater(entry["equal"], 15)
            other = self.save("other.pt", value, pickle_protocol=protocol)
            self.assertIn("epoch", self.compare(paths[2], other, code=1))

    def test_other_formats_are_refused_in_words(self):
        good = self.save("good.pt", {"w": torch.ones(2)})
        legacy = self.save("legacy.pt", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
        self.assertIn("before PyTorch 1.6", self.compare(good, legacy, code=2))
        older = self.save("protocol.pt", {"w": torch.ones(2)}, pickle_protocol=1)
        self.compare(good, older, code=2)
        script = self.tmp / "script.pt"
        torch.jit.script(torch.nn.Linear(2, 2)).save(str(script))
        self.assertIn("TorchScript", self.compare(good, script, code=2))
        plain = self.tmp / "plain.pt"
        plain.write_bytes(pickle.dumps({"w": 1}))
        self.assertIn("neither", self.compare(good, plain, code=2))
        sparse = self.save("sparse.pt", {"w": torch.eye(2).to_sparse()})
        self.assertIn("_rebuild_sparse_tensor", self.compare(good, sparse, code=2))

    def test_cut_short_anywhere(self):
        good = self.save("good.pt", {"w": torch.ones(2)})
        content = good.read_bytes()
        cut = self.tmp / "cut.pt"
        for size in range(1, len(content), len(content) // 23):
            cut.write_bytes(content[:size])
            self.assertIn("cut.pt: error: ", self.compare(good, cut, code=2))


class SavedWeights(ProgramTest):
    """What lockstep saves, and what Python's own DDP trains from the same export."""

    SETS = ("/world_size=3", "/steps=4", "/reducer/kind=c10d",
            '/communicator={"kind":"c10d","algorithm":"ring"}')

    def save(self, name, *sets):
        path, folder = self.tmp / name, self.tmp / (name + ".export")
        words = [word for value in (*self.SETS, *sets) for word in ("--set", value)]
        result = self.run_program("verify", TOY, *words, "--save-weights", path, "--export", folder)
        self.assertEqual(result.code, 0, result.text)
        return path, exported.Run(folder / "0001")

    def test_torch_reads_them(self):
        path, run = self.save("w.pt", '/optimizer={"kind":"adam","lr":0.002}')
        saved = torch.load(path)
        for name, tensor in run.tensors("final", "parameters"):
            self.assertTrue(torch.equal(saved["state_dict"][name], tensor), name)
        self.assertEqual(set(saved["optimizer"]["state"]), {0, 1, 2, 3})
        moments = saved["optimizer"]["state"][0]
        self.assertEqual(set(moments), {"step", "exp_avg", "exp_avg_sq"})
        self.assertEqual(moments["step"].item(), 4)
        model = torch.nn.ModuleDict({"fc1": torch.nn.Linear(10, 10), "fc2": torch.nn.Linear(10, 5)})
        model.load_state_dict(saved["state_dict"])
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.load_state_dict({**saved["optimizer"],
                                   "param_groups": optimizer.state_dict()["param_groups"]})
        again = io.BytesIO()
        torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, again)
        (self.tmp / "again.pt").write_bytes(again.getvalue())
        for key in ("state_dict", "optimizer/state"):
            result = self.run_program("compare", path, self.tmp / "again.pt", "--key", key)
            self.assertEqual(result.code, 0, result.text)

    def test_python_s_ddp_ends_with_the_same_bits(self):
        path, run = self.save("w.safetensors")
        reason = ddp_peer.why_not_comparable([run])
        if reason:
            self.skipTest(reason)
        ddp_peer.prepare()
        folder = self.tmp / "peer"
        folder.mkdir()
        state = ddp_peer.train_all(run, folder)[0]
        weights = {f"module.{name}": tensor for name, tensor in state["parameters"]}
        peer = self.tmp / "peer.pt"
        torch.save({"state_dict": weights}, peer)
        result = self.run_program("compare", path, peer, "--key-b", "state_dict")
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("names  4 names of B begin with module.", result.out)
        weights["module.fc1.weight"][3, 4] += 1e-6
        torch.save({"state_dict": weights}, peer)
        result = self.run_program("compare", path, peer, "--key-b", "state_dict")
        self.assertEqual(result.code, 1, result.text)
        self.assertIn("first difference  fc1.weight float32 [10, 10], element [3, 4]", result.out)


if __name__ == "__main__":
    unittest.main()
