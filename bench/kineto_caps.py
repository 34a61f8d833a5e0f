#!/usr/bin/env python3
"""How far is virtual time off that knows a DDP training by its profiler's traces alone?

Trains an MLP of 12.6 M parameters in DistributedDataParallel over Gloo, one thread a rank, with several
bucket caps: `--rounds` times all caps after each other. In each round one run is traced at `--profile-at`.
`lockstep calibrate` makes a machine of the traces of the middle round, `lockstep simulate` tells the step at
each cap. Prints predicted, measured (median of all steps, 95 % bootstrap interval over rounds) and error.

usage: python3 bench/kineto_caps.py --lockstep build/test/bin/lockstep   (a PyTorch that has Kineto: its wheels)
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1024 * 1024


def train(a):
    import torch
    import torch.distributed as dist
    from torch.profiler import ProfilerActivity, profile, schedule
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    widths = [1024, 1024, 1024, 1024, 2048, 1024, 1024, 512, 1024, 1024, 1024, 1024]  # buckets of several sizes
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=a.cap)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    x = torch.randn(a.batch, widths[0])

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(4):  # buckets are rebuilt, memory is there
        step()
    dist.barrier()
    times = []
    if a.trace:
        def write(p):
            p.export_chrome_trace(str(pathlib.Path(a.trace) / f"rank{rank}.json.gz"))
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True,
                     schedule=schedule(wait=0, warmup=2, active=a.steps, repeat=1), on_trace_ready=write) as p:
            for i in range(a.steps + 2):
                begin = time.monotonic()
                step()
                if i >= 2:
                    times.append((time.monotonic() - begin) * 1e3)
                p.step()
    else:
        for _ in range(a.steps):
            begin = time.monotonic()
            step()
            times.append((time.monotonic() - begin) * 1e3)
    if rank == 0:
        pathlib.Path(a.out).write_text(json.dumps(times))
    dist.destroy_process_group()


def run(a, cap, port, trace=None):
    with tempfile.TemporaryDirectory() as tmp:
        out = pathlib.Path(tmp) / "times.json"
        command = [sys.executable, __file__, "--train", "--cap", str(cap), "--out", str(out), "--steps", str(a.steps),
                   "--batch", str(a.batch)]
        if trace:
            command += ["--trace", str(trace)]
        ranks = []
        for rank in range(a.world):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(a.world), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL))
        if any([p.wait() for p in ranks]):
            sys.exit(f"a rank failed at cap {cap}")
        return json.loads(out.read_text())


def interval(rounds):
    draw = random.Random(1)
    medians = sorted(statistics.median([t for r in draw.choices(rounds, k=len(rounds)) for t in r]) for _ in range(400))
    return medians[10], medians[389]


def predict(a, traces, caps):
    files = [str(traces / f"rank{rank}.json.gz") for rank in range(a.world)]
    machine, document = traces / "machine.json", traces / "predicted.json"
    subprocess.run([a.lockstep, "calibrate", *files, "--out", machine, "-q"], check=True)
    scenario = {
        "name": "traced", "what": "A training as its profiler saw it", "world_size": a.world, "steps": 5,
        "batch_size": a.world, "model": {"kind": "parameters", "file": files[0]},
        "data": {"kind": "randn", "features": 1, "targets": 1}, "loss": {"kind": "mse"},
        "optimizer": {"kind": "sgd", "lr": 0.01}, "compute": {"kind": "emulated", "profile": files[0]},
        "reducer": {"kind": "c10d", "bucket_cap_mb": a.profile_at}, "communicator": {"kind": "c10d"},
        "lanes": ["replica"], "expect": {"verdict": "pass"}}
    path = traces / "scenario.json"
    path.write_text(json.dumps(scenario))
    predicted = {}
    for cap in caps:
        subprocess.run([a.lockstep, "simulate", path, "--machine", machine, "--set", f"/reducer/bucket_cap_mb={cap}",
                        "--set", f"/reducer/first_bucket_mb={cap}",  # as PyTorch does where a cap is given
                        "--json", document], check=True, stdout=subprocess.DEVNULL)
        predicted[cap] = settled_ms(json.loads(document.read_text()))
    return predicted


def settled_ms(document):
    return document["runs"][0]["numbers"]["step_p50_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--lockstep", default="lockstep")
    p.add_argument("--caps", default="2,5,10,25,50")
    p.add_argument("--profile-at", type=float, default=2)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--keep", help="a folder for the traces")
    for internal in ("--out", "--trace"):
        p.add_argument(internal, help=argparse.SUPPRESS)
    p.add_argument("--cap", type=float, help=argparse.SUPPRESS)
    p.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.train:
        return train(a)
    caps = [float(cap) for cap in a.caps.split(",")]
    measured, profiled = {cap: [] for cap in caps}, []
    folder = pathlib.Path(a.keep or tempfile.mkdtemp())
    port = 29600
    for number in range(a.rounds):
        trace = folder / str(number)
        trace.mkdir(parents=True, exist_ok=True)
        port += 1
        profiled.append(run(a, a.profile_at, port, trace))
        for cap in caps:
            port += 1
            measured[cap].append(run(a, cap, port))
    middle = sorted(range(a.rounds), key=lambda n: statistics.median(profiled[n]))[a.rounds // 2]
    predicted = predict(a, folder / str(middle), caps)
    traced = statistics.median(profiled[middle])
    print(f"traced at {a.profile_at:g} MiB: {traced:.1f} ms a step")
    print("cap MiB  predicted ms  measured ms  (95 %)  error")
    errors = []
    for cap in caps:
        steps = statistics.median([t for r in measured[cap] for t in r])
        low, high = interval(measured[cap])
        errors.append(abs(predicted[cap] / steps - 1))
        print(f"{cap:7g}  {predicted[cap]:12.1f}  {steps:11.1f}  ({low:.1f} .. {high:.1f})"
              f"  {(predicted[cap] / steps - 1) * 100:+.1f} %")
    print(f"mean error {sum(errors) / len(errors) * 100:.1f} %, largest {max(errors) * 100:.1f} %")


if __name__ == "__main__":
    main()
