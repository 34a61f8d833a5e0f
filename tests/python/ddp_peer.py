"""Trains exported runs once more with PyTorch's own DistributedDataParallel and compares the final
weights, buffers, gradients and optimizer state bit for bit:

    lockstep verify SCENARIO --set /reducer/kind=c10d --set /communicator/kind=c10d --export FOLDER
    /usr/bin/python3 tests/python/ddp_peer.py FOLDER

Needs the torch of the same LibTorch as lockstep's (Debian: python3-torch). Exit code: 0 all
equal that can be compared, 1 a run differs, 2 bad input or PyTorch failed, 3 none can be compared,
77 not with this Python."""
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"  # read when the library is loaded
sys.dont_write_bytecode = True
try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch with distributed ({error})")
    sys.exit(77)

import exported
import recipe
import training
from networks import Unsupported

PATIENCE_S = 60


def prepare():
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(True)
    torch._C._set_graph_executor_optimize(False)  # as lockstep runs TorchScript: nothing is fused


def rank_process(run, rank, folder):
    try:
        training.train(run, rank, folder / "rendezvous", folder / f"rank-{rank}.pt")
    except Exception as error:
        (folder / f"rank-{rank}.error").write_text(f"{type(error).__name__}: {error}")
        os._exit(1)


def ends_in_time(run, folder):
    """Do all ranks end? Ranks are forked, so that torch is loaded once."""
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=rank_process, args=(run, rank, folder))
             for rank in range(run.scenario["world_size"])]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + PATIENCE_S
    for process in ranks:
        process.join(max(0, deadline - time.monotonic()))
    late = [process for process in ranks if process.is_alive()]
    for process in late:
        process.kill()
        process.join()
    if not late and any(process.exitcode for process in ranks) and not list(folder.glob("*.error")):
        raise RuntimeError("a rank ended without a word")
    return not late


def train_all(run, folder):
    """The states of all ranks."""
    # PyTorch's own ranks have hung, once in some thousand runs, with nothing of ours in them.
    first, second = folder / "first", folder / "second"
    for folder in (first, second):
        folder.mkdir()
        if ends_in_time(run, folder):
            break
    else:
        raise RuntimeError(f"ranks of PyTorch did not end within {PATIENCE_S} s, twice")
    errors = [f"rank {path.stem[5:]}: {path.read_text()}" for path in folder.glob("*.error")]
    if errors:
        raise RuntimeError("; ".join(sorted(errors)))
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(run.scenario["world_size"])]


def compare(run):
    """("equal" | "differs" | "cannot" | "failed", what there is to say)"""
    try:
        training.check(run.scenario)
        problem = recipe.order_problem(run.scenario, run.order, run.sample_count())
        if problem:
            return "differs", problem
        with tempfile.TemporaryDirectory(prefix="ddp-peer-") as folder:
            states = train_all(run, pathlib.Path(folder))
    except Unsupported as error:
        return "cannot", str(error)
    except RuntimeError as error:
        return "failed", str(error)
    for what in ("parameters", "buffers", "gradients", "optimizer_state"):
        difference = exported.first_difference(run.tensors("final", what), states[0][what])
        if difference:
            return "differs", f"{what}: {difference}"
    difference = recipe.data_difference(run.manifest["final"]["reducer_data"],
                                        states[0]["reducer_data"])
    if difference:
        return "differs", f"reducer_data: {difference}"
    same = all(exported.first_difference(states[0]["parameters"], state["parameters"]) is None
               for state in states)
    tensors = len(states[0]["parameters"]) + len(states[0]["buffers"])
    return "equal", f"{tensors} tensors" + ("" if same else "; ranks differ among each other")


def why_not_comparable(runs):
    """Bits are those of one LibTorch: another version may round elsewhere."""
    if not dist.is_available() or not dist.is_gloo_available():
        return f"torch {torch.__version__} here has no Gloo"
    own = torch.__version__.split(".")[:2]
    for run in runs:
        other = run.manifest["libraries"]["torch"]
        if other.split(".")[:2] != own:
            return f"torch here is {torch.__version__}, the runs were made with LibTorch {other}"
    return None


def main(paths):
    if not paths:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        runs = exported.find_runs(paths)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    reason = why_not_comparable(runs)
    if reason:
        print(f"skipped: {reason}")
        return 77
    prepare()
    width = max(len(run.title()) for run in runs)
    words = []
    for run in runs:
        word, text = compare(run)
        words.append(word)
        scenario = run.scenario
        print(f"{run.title():{width}}  W={scenario['world_size']} {scenario['steps']:>3} steps  "
              f"{word:7}  {text}", flush=True)
    print(f"{words.count('equal')} of {len(words)} runs equal those of torch {torch.__version__}")
    if "failed" in words or "differs" in words:
        return 2 if "failed" in words else 1
    return 0 if "equal" in words else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
