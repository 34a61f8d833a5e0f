#!/usr/bin/env python3
"""Step times of PyTorch's own DistributedDataParallel, on request. Reads one JSON object a line,
    {"scenario": {...}, "steps": 10, "warmup": 3}
where the scenario is that of `lockstep scenario explain`, trains it on fresh processes, and answers
    {"step_ms": 71.3}
the median over the steps after the warm-up of the mean over ranks (mean_ms: their mean), or
{"error": "..."}. With "record": true the ranks are recorded by scripts/lockstep_record.py. The first
line that it writes says which torch it has. Exit code 77: this Python has none with Gloo.

A step is what it is in lockstep: taking the samples, clearing gradients, forward, backward with the
averaging, update. Data are random numbers of the scenario's shapes."""
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("GLOG_minloglevel", "2")  # errors only
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"  # read when the library is loaded
sys.dont_write_bytecode = True
# The scenarios' models in torch.nn are those that the tests compare bit for bit.
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "scripts")]
try:
    import torch
    import torch.distributed as dist
    if not dist.is_available() or not dist.is_gloo_available():
        raise ImportError("without Gloo")
except ImportError as error:
    print(json.dumps({"error": f"{sys.executable} has no torch with distributed ({error})"}))
    sys.exit(77)

import models
import recipe
import training
from networks import Unsupported

PATIENCE_S = 120


def samples_of(options, dtype):
    """(inputs, targets) of the kinds of data that the benchmarks have."""
    generator = torch.Generator().manual_seed(1)
    count, kind = options["samples"], options["kind"]
    if kind == "randn":
        return [torch.randn(count, options[key], generator=generator, dtype=dtype)
                for key in ("features", "targets")]
    if kind == "images":
        shape = (count, 3, options["height"], options["width"])
        return [torch.randn(shape, generator=generator, dtype=dtype),
                torch.randint(options["classes"], (count,), generator=generator)]
    if kind == "tokens":
        shape = (count, options["length"])
        return [torch.randint(options["vocabulary"], shape, generator=generator) for _ in range(2)]
    raise Unsupported(f"data {kind}")


class Rank:
    def __init__(self, scenario, rank):
        self.scenario = scenario
        dtype = training.DTYPES[scenario["dtype"]]
        self.input, self.target = samples_of(scenario["data"], dtype)
        torch.manual_seed(scenario["seed"])
        model = models.build(scenario["model"], dtype)
        self.optimizer = recipe.optimizer_of(scenario["optimizer"],
                                             scenario["optimizer_sharding"],
                                             list(model.parameters()))
        self.ddp = training.wrap(model, scenario["reducer"])
        share = scenario["batch_size"] // scenario["world_size"]
        self.rows = torch.arange(rank * share, (rank + 1) * share)

    def step(self):
        begin = time.perf_counter()
        batch, target = self.input[self.rows], self.target[self.rows]
        self.optimizer.zero_grad(set_to_none=self.scenario["zero_grad"] == "none")
        recipe.loss_of(self.scenario, self.ddp(batch), target, 1).backward()
        self.optimizer.step()
        return (time.perf_counter() - begin) * 1000


def rank_process(request, rank, folder):
    result = folder / f"rank-{rank}.json"
    try:
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        scenario = request["scenario"]
        dist.init_process_group("gloo", init_method=f"file://{folder / 'rendezvous'}", rank=rank,
                                world_size=scenario["world_size"], timeout=training.TIMEOUT)
        trained = Rank(scenario, rank)
        if request.get("record"):
            from lockstep_record import record
            record(trained.ddp, trained.optimizer, str(folder / "recording"))
        times = [trained.step() for _ in range(request["warmup"] + request["steps"])]
        dist.barrier()
        dist.destroy_process_group()
        result.write_text(json.dumps({"ms": times[request["warmup"]:]}))
    except Exception as error:
        result.write_text(json.dumps({"error": f"rank {rank}: {type(error).__name__}: {error}"}))
    os._exit(0)


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def measure(request, folder):
    """Ranks are forked, so that torch is loaded once; this process has run no operation."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank_process, args=(request, rank, folder))
             for rank in range(request["scenario"]["world_size"])]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + PATIENCE_S
    for process in ranks:
        process.join(max(0, deadline - time.monotonic()))
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    if late:
        return {"error": f"{len(late)} ranks of PyTorch did not end within {PATIENCE_S} s"}
    files = [folder / f"rank-{rank}.json" for rank in range(len(ranks))]
    results = [json.loads(file.read_text()) if file.exists() else {"error": "a rank died"}
               for file in files]
    for result in results:
        if "error" in result:
            return result
    steps = zip(*(result["ms"] for result in results))
    means = [sum(step) / len(step) for step in steps]
    return {"step_ms": median(means), "mean_ms": sum(means) / len(means)}


def main():
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            training.check(request["scenario"])
            with tempfile.TemporaryDirectory(prefix="ddp-step-time-") as folder:
                answer = measure(request, pathlib.Path(folder))
        except Unsupported as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
