"""What a program finds as it is without the agent. Libraries read the signatures of torch's functions, and pass on what these name:
Lightning makes a loader anew, and would lose its collate function. Models are saved whole, copied and traced."""
import json
import os
import subprocess
import unittest

from program_test import PROGRAM, PYTHON, ScriptTest

SCRIPT = """
import inspect, json, os, torch, torch.distributed as dist
from torch import multiprocessing, nn, optim
from torch.utils import data

def signature_of(thing):
    try:
        return str(inspect.signature(thing)).split(" at 0x")[0]
    except (TypeError, ValueError):
        return None  # of a builtin

METHODS = "__init__ __iter__ __call__ __setstate__".split()
found = {}
for module in (torch, data, dist, nn, nn.functional, nn.parallel, nn.utils, optim, optim.lr_scheduler, torch.autograd, multiprocessing):
    for name, thing in vars(module).items():
        if name.startswith("_"):
            continue
        if not isinstance(thing, type):
            found[module.__name__ + "." + name] = signature_of(thing) if callable(thing) else None
            continue
        for method, function in vars(thing).items():
            if method in METHODS or callable(function) and not method.startswith("_"):
                found[".".join((module.__name__, name, method))] = signature_of(function)
with open(os.path.join(os.path.dirname(__file__), os.environ.get("RANK", "") + "-" + os.environ.get("LOCKSTEP_PROGRAM_SCALE", "") + ".json"), "w") as file:
    json.dump(found, file)
dist.init_process_group("gloo", **({} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "store": dist.HashStore()}))
net = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
optimizer = optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.ones(2, 2) + dist.get_rank()).sum().backward()
    optimizer.step()
"""
MODELS = """
import copy, io, torch, torch.distributed as dist
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 3)
    def forward(self, x, scale=1):
        return self.out(x).tanh() * scale
dist.init_process_group("gloo")
torch.manual_seed(3)
x, net = torch.randn(36, 5), Net()
model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for begin in range(0, 36, 12):
    mine = x[begin + 12 // dist.get_world_size() * dist.get_rank():][:12 // dist.get_world_size()]
    optimizer.zero_grad()
    model(x=mine, scale=2).pow(2).mean().backward()
    optimizer.step()
    for whole in (net, model, {"model": net, "optimizer": optimizer}):
        torch.save(whole, io.BytesIO())
    with torch.no_grad():
        assert copy.deepcopy(net)(mine).equal(net(mine))
    copy.deepcopy(net)(mine).sum().backward()
    torch.jit.trace(net, mine)
    if hasattr(torch, "func"):
        torch.func.vmap(lambda row: net(row))(mine)
"""
# A loader of another library, as torchdata's: its worker sends what torch's own fetcher made, and torch's loader does not receive it.
WORKER = """
import multiprocessing, torch, torch.distributed as dist
from torch import nn
from torch.utils import data
from torch.utils.data._utils import collate, fetch, worker
torch.manual_seed(3)
samples = data.TensorDataset(torch.randn(36, 5), torch.randn(36, 3))
def work(batches, sent):
    worker._worker_info = worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=samples)
    fetcher = fetch._MapDatasetFetcher(samples, True, collate.default_collate, False)
    for indices in batches:
        sent.send([part.tolist() for part in fetcher.fetch(indices)])
class Loader:
    def __init__(self, batches):
        self.batches, (self.received, self.sent) = list(batches), multiprocessing.Pipe(False)
    def __iter__(self):
        process = multiprocessing.get_context("fork").Process(target=work, args=(self.batches, self.sent))
        process.start()
        self.sent.close()
        yield from (map(torch.tensor, self.received.recv()) for _ in self.batches)
        process.join()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = nn.parallel.DistributedDataParallel(nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
size = 12 // world
for x, y in Loader([list(range(begin + size * rank, begin + size * (rank + 1))) for begin in range(0, 36, 12)]):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""
# Tensor's own methods are builtins, whose wrappers may show anything; these take any words.
ANY = ("torch.Tensor.", "torch.nn.Module.cuda", "torch.nn.Module.half", "torch.nn.Module.bfloat16", "torch.Generator")


class Unchanged(ScriptTest):
    maxDiff = None

    def found(self, name):
        return json.loads((self.folder / name).read_text())

    def test_signatures_are_those_of_torch(self):
        self.apart()
        (self.folder / "train.py").write_text(SCRIPT)
        plain = {key: value for key, value in os.environ.items() if key != "RANK"}
        subprocess.run([PYTHON, self.folder / "train.py"], check=True, env=plain, capture_output=True)
        torchs = self.found("-.json")
        self.assertGreater(sum(value is not None for value in torchs.values()), 1000)
        for verb, options, names in (("verify", ("--world-sizes", "2"), ("0-1.json", "1-1.json", "0-2.json")),
                                     ("run", ("--world-size", "2"), ("0-1.json",)),
                                     ("sweep", ("--worlds", "2", "--caps", "1,25"), ("0-1.json",))):
            for old in self.folder.glob("[01]-*.json"):
                old.unlink()
            ran = self.called(verb, SCRIPT, *options)
            for name in names:
                with self.subTest(verb=verb, name=name):
                    self.assertTrue((self.folder / name).exists(), ran.stdout + ran.stderr)
                    own = self.found(name)
                    others = {key: (value, own.get(key)) for key, value in torchs.items()
                              if value is not None and own.get(key) != value and not key.startswith(ANY)}
                    self.assertEqual(others, {})

    def test_models_are_saved_whole_copied_and_traced(self):
        """Between steps, whose forwards these are not."""
        self.verified(MODELS, 0)

    def test_what_the_worker_of_another_loader_sends(self):
        self.verified(WORKER, 0)


if __name__ == "__main__":
    unittest.main()
