"""What `lockstep sweep -- COMMAND` needs of a rank: each DistributedDataParallel gets the cap that is measured, and the
ends of optimizer steps are noted. Nothing else of the program is changed. It judges nothing."""
import inspect
import json
import os
import sys
import threading
import time
import weakref

from . import arguments, on_cpu, spawn, traced
from .at_end import at_end
from .steps import watch_steps

DEFAULT_CAP = 25  # of DistributedDataParallel, where a script gives none
PATIENCE_S = 20  # for the end of a script that has been measured


class Measurement:
    def __init__(self):
        self.folder = os.environ["LOCKSTEP_PROGRAM_DIR"]
        self.world, self.scale = int(os.environ["LOCKSTEP_PROGRAM_WORLD"]), 1
        cap, warmup, steps = os.environ["LOCKSTEP_PROGRAM_SWEEP"].split()
        self.cap, self.warmup, self.wanted = float(cap), int(warmup), int(steps)
        self.end, self.held = {"on_cpu": False}, None
        self.given, self.models, self.groups, self.buckets = [], [], [], []
        self.ends, self.steps = [], 0
        self.clock = None  # the optimizer whose steps count: the first one that steps
        self.written = False
        self.rank, self.pid = None, 0
        self.trace = traced.Trace() if "LOCKSTEP_PROGRAM_TRACE" in os.environ else None

    def meet(self):
        """While there is a process group: at its end a script may have none any more."""
        import torch.distributed as dist
        ready = dist.is_available() and dist.is_initialized()
        self.pid = self.pid or os.getpid()
        if self.rank is None or ready:
            self.rank = dist.get_rank() if ready else int(os.environ.get("RANK", 0))
            self.ranks = dist.get_world_size() if ready else 1

    def count(self, optimizer):
        if self.clock is None:
            self.clock = optimizer
            self.meet()
        if optimizer is not self.clock:
            return
        if self.written:  # the script has caught SystemExit
            leave()
        self.steps += 1
        if self.trace is not None:
            self.trace.end_step(time.perf_counter_ns(), self.steps > self.warmup)
        if self.steps < self.warmup:
            return
        if self.steps == self.warmup:
            self.look_at_buckets()
        self.ends.append(time.perf_counter_ns())
        if len(self.ends) > self.wanted:
            self.finish()

    def look_at_buckets(self):
        """In bytes, of all models; by now they have been built anew in the order of the gradients."""
        for model in [model() for model in self.models]:
            for bucket in model.reducer._get_zeros_like_grad_buckets() if model is not None else []:
                self.buckets.append(bucket.buffer().numel() * bucket.buffer().element_size())

    def finish(self):
        """After the last step, on all ranks: none leaves while another is still being sent to."""
        import torch.distributed as dist
        self.write()
        try:
            if dist.is_initialized():
                dist.barrier()
        except RuntimeError:  # another is gone, as all will be
            pass
        if self.trace is not None:  # its hooks are called from threads, which may not meet the end of Python
            leave()
        late = threading.Timer(PATIENCE_S, leave)
        late.daemon = True
        late.start()
        raise SystemExit(0)

    def write(self):
        import torch
        if self.written or not (self.given or self.steps) or self.pid != os.getpid():
            return  # or a worker of a loader ends
        self.written = True
        self.meet()
        with open(f"{self.folder}/times-{self.rank}.json", "x", encoding="utf-8") as file:
            json.dump({"rank": self.rank, "world": self.ranks, "torch": str(torch.__version__),
                       "given": self.given, "steps": self.steps, "buckets": self.buckets, "ends_ns": self.ends,
                       **({} if self.trace is None else {"trace": self.trace.written()}), **self.end}, file)


def leave():
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def watch_models(measurement):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    begin = DDP.__init__
    signature = inspect.signature(begin)

    def init(self, *args, **kwargs):
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:
            return begin(self, *args, **kwargs)  # raises what a caller expects
        own = given.arguments.get("bucket_cap_mb")
        measurement.given.append(float(own) if isinstance(own, (int, float)) else None)
        if own is not None or measurement.cap != DEFAULT_CAP:  # else as it is: PyTorch 2's first bucket is smaller then
            given.arguments["bucket_cap_mb"] = measurement.cap
        begin(*given.args, **given.kwargs)
        measurement.meet()
        measurement.models.append(weakref.ref(self))
        if measurement.trace is not None:
            measurement.trace.take(self)
        # Kept to the end, as in models.py: torch 1.13 hangs where a Reducer is the last to hold it.
        measurement.groups.append(self.process_group)
    init.__signature__ = signature
    DDP.__init__ = init


def watch_optimizers(measurement):
    def around(optimizer, step):
        result = step()
        measurement.count(optimizer)
        return result
    watch_steps(around)


def install():
    measurement = Measurement()
    if measurement.trace is not None:
        traced.watch(measurement.trace)
    for watch in (watch_models, watch_optimizers, spawn.watch, on_cpu.stand_in, arguments.watch):
        watch(measurement)
    at_end(measurement.write, 10)
