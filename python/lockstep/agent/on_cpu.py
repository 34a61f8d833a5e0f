"""A program written for GPUs runs on the CPU: its CUDA devices are the CPU, its NCCL is Gloo. That there are GPUs is
said only where LOCKSTEP_PROGRAM_PRETEND_GPUS is set; elsewhere it is noted that the program asked."""
import collections
import contextlib
import functools
import inspect
import os
import sys
import time
import types

from . import arguments, sync_batch_norm
from .imports import after_import

HARMLESS = ("empty_cache",)  # does nothing where there is no GPU: libraries call it on the CPU as well
NO_OPERATIONS = ("set_device", "synchronize", "ipc_collect", "init", "reset_peak_memory_stats",
                 "reset_max_memory_allocated", "set_per_process_memory_fraction", "set_rng_state",
                 "set_rng_state_all")
MOST_SCALERS = 16  # of which a scale is told
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")


def device_on_cpu(device, recorder):
    import torch
    word = device.type if isinstance(device, torch.device) else device
    if type(device) is not int and not (isinstance(word, str) and word.split(":")[0] == "cuda"):
        return device
    recorder.end["on_cpu"] = True
    return torch.device("cpu")


class Event:
    """Of torch.cuda: on the CPU all that was asked for is done."""

    def __init__(self, *args, **kwargs):
        self.at = time.perf_counter()

    def record(self, stream=None):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return (other.at - self.at) * 1e3

    def query(self):
        return True

    def wait(self, *args):
        pass
    synchronize = wait


class Stream(contextlib.AbstractContextManager):
    def __init__(self, *args, **kwargs):
        self.device_index, self.cuda_stream, self.stream_id, self.device_type = 0, 0, 0, 0
        self.device = sys.modules["torch"].device("cpu")

    def __exit__(self, *error):
        return None

    def query(self):
        return True

    def is_capturing(self):
        return False

    def record_event(self, event=None):
        return event or Event()

    def wait(self, *args):
        pass
    synchronize = wait_stream = wait_event = wait


def watch_devices(recorder):
    import torch

    def on_cpu(device):
        return device_on_cpu(device, recorder)

    def cuda(self, *args, **kwargs):
        recorder.end["on_cpu"] = True
        return self
    arguments.replace("device", on_cpu)
    torch.Tensor.cuda = torch.nn.Module.cuda = cuda
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    load = torch.load

    @functools.wraps(load)
    def loaded(file, map_location=None, *args, **kwargs):
        return load(file, map_location="cpu" if map_location is None else on_location(map_location), *args, **kwargs)

    def on_location(where):
        if isinstance(where, dict):
            return "cpu"
        return where if callable(where) else on_cpu(where)
    torch.load = loaded
    for owner, name in ((torch, "set_default_device"), (torch, "Generator")):
        if hasattr(owner, name):
            setattr(owner, name, of_device(getattr(owner, name), on_cpu))


def of_device(function, on_cpu):
    """One whose only argument is a device; a class stays a class."""
    if isinstance(function, type):
        class Kind(type):
            def __instancecheck__(cls, thing):
                return isinstance(thing, function)

            def __call__(cls, device="cpu"):
                return function(device=on_cpu(device))
        return Kind(function.__name__, (), {})

    @functools.wraps(function)
    def called(device=None):
        return function(on_cpu(device))
    return called


def watch_cuda(recorder):
    import torch
    cuda = torch.cuda
    for name in NO_OPERATIONS:
        if hasattr(cuda, name):
            setattr(cuda, name, noted(recorder))
    for name in HARMLESS:
        setattr(cuda, name, lambda: None)
    cuda.synchronize = noted(recorder, lambda: recorder.held and recorder.held.complete())
    cuda.Event, cuda.Stream = Event, Stream
    cuda.current_stream = cuda.default_stream = lambda device=None: Stream()
    cuda.stream = cuda.device = lambda thing=None: contextlib.nullcontext()
    cuda.current_device = lambda: 0
    cuda.is_current_stream_capturing = lambda: False
    cuda.get_device_name = lambda device=None: "CPU"
    cuda.get_device_capability = lambda device=None: (8, 0)
    cuda.get_device_properties = lambda device=None: types.SimpleNamespace(
        name="CPU", major=8, minor=0, total_memory=1 << 34, multi_processor_count=1)
    cuda.mem_get_info = lambda device=None: (1 << 33, 1 << 34)
    cuda.memory_stats = lambda device=None: collections.defaultdict(int)
    cuda.get_rng_state = lambda device=None: torch.get_rng_state()
    cuda.get_rng_state_all = lambda: [torch.get_rng_state()]


def noted(recorder, action=lambda: None):
    def called(*args, **kwargs):
        action()
        recorder.end["on_cpu"] = True
    return called


def watch_groups(recorder):
    import torch.distributed as dist
    if not dist.is_available():
        return
    begin, group, barrier = dist.init_process_group, dist.new_group, dist.barrier

    def backend_of(name):
        if name is None or "nccl" in str(name) or "cuda" in str(name):
            recorder.end["on_cpu"] |= name is not None
            return "gloo"
        return name

    @functools.wraps(begin)
    def init(backend=None, *args, **kwargs):
        kwargs.pop("device_id", None)
        return begin(backend_of(backend), *args, **kwargs)

    @functools.wraps(group)
    def new(ranks=None, *args, backend=None, **kwargs):
        kwargs.pop("device_id", None)
        return group(ranks, *args, backend=backend and backend_of(backend), **kwargs)

    @functools.wraps(barrier)
    def waited(*args, device_ids=None, **kwargs):
        return barrier(*args, **kwargs)
    for name, function in (("init_process_group", init), ("new_group", new), ("barrier", waited)):
        setattr(dist, name, function)
        setattr(dist.distributed_c10d, name, function)
    watch_futures(recorder, dist.distributed_c10d.Work)
    if hasattr(dist, "ReduceOp") and hasattr(dist.ReduceOp, "AVG"):
        dist.all_reduce = dist.distributed_c10d.all_reduce = averaging(recorder, dist)


def watch_futures(recorder, work):
    """NCCL has one of each of its works. Where Gloo has none, of a reduce_scatter, it is one that was waited for."""
    import torch
    future_of = work.get_future

    def future(self):
        try:
            return future_of(self)
        except RuntimeError:
            if not recorder.end["on_cpu"]:
                raise
        self.wait()
        done = torch.futures.Future()
        done.set_result(results_of(self))
        return done
    work.get_future = future


def results_of(work):
    try:
        return work.result()
    except RuntimeError:  # Gloo keeps some of them to itself
        return []


def averaging(recorder, dist):
    """Gloo has no average. One that is asked for with async_op is made at once, and handed over when it is waited for."""
    reduce = dist.all_reduce

    @functools.wraps(reduce)
    def reduced(tensor, op=dist.ReduceOp.SUM, group=None, async_op=False):
        if op != dist.ReduceOp.AVG:
            return reduce(tensor, op, group, async_op)
        mean = tensor.detach().clone() if async_op and recorder.held else tensor
        reduce(mean, dist.ReduceOp.SUM, group)
        mean /= dist.get_world_size(group)
        if mean is not tensor:
            return recorder.held.keep(Stream(), group or dist.group.WORLD, [(tensor, mean)])
        return Stream() if async_op else None  # done: it may be waited for
    return reduced


def watch_models(recorder):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    begin = DDP.__init__

    @functools.wraps(begin)
    def init(self, module, device_ids=None, output_device=None, *args, **kwargs):
        recorder.end["on_cpu"] |= device_ids is not None
        begin(self, module, None, None, *args, **kwargs)
    DDP.__init__ = init
    torch.nn.DataParallel.__init__ = alone(torch.nn.DataParallel.__init__)
    after_import("torch.distributed.device_mesh", watch_meshes)
    after_import("torch.distributed.fsdp.fully_sharded_data_parallel", watch_flat_shards)
    for name in FUSED:
        kind = getattr(torch.optim, name)
        kind.__init__ = unfused(kind.__init__)
    for owner in (torch.cuda.amp, getattr(torch, "amp", None)):
        if hasattr(owner, "GradScaler"):
            watch_scaler(owner.GradScaler, recorder.end.get("loss_scales", []))


def alone(begin):
    """Of DataParallel: the one device computes what it would deal to several."""
    @functools.wraps(begin)
    def init(self, module, device_ids=None, output_device=None, dim=0):
        import torch
        torch.nn.Module.__init__(self)
        self.module, self.dim, self.device_ids, self.output_device = module, dim, [], None
    return init


def watch_meshes(module):
    import torch.distributed as dist

    def of_cpu(make, place):
        @functools.wraps(make)
        def made(*args, **kwargs):
            args = list(args)
            if len(args) > place and args[place] == "cuda":
                args[place] = "cpu"
            if kwargs.get("device_type") == "cuda":
                kwargs["device_type"] = "cpu"
            return make(*args, **kwargs)
        return made
    for name in ("init_process_group", "new_group"):  # it has imported them by name
        if hasattr(module, name):
            setattr(module, name, getattr(dist, name))
    module.init_device_mesh = dist.init_device_mesh = of_cpu(module.init_device_mesh, 0)
    module.DeviceMesh.__init__ = of_cpu(module.DeviceMesh.__init__, 1)


def watch_flat_shards(module):
    begin = module.FullyShardedDataParallel.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        kwargs.pop("device_id", None)
        begin(self, *args, **kwargs)
    module.FullyShardedDataParallel.__init__ = init


def unfused(begin):
    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        if kwargs.get("fused"):
            kwargs["fused"] = False
        begin(self, *args, **kwargs)
    return init


def watch_scaler(kind, scales):
    """Scaling keeps small gradients of 16 bits; there are none in double, so it is off. By what each scaler would have begun is told: ranks
    that differ in it divide the average by a number of their own. Of one that a checkpoint has set nothing is known ("")."""
    begin, load, state_of = kind.__init__, kind.load_state_dict, kind.state_dict
    signature = inspect.signature(begin)

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        asked = signature.bind(self, *args, **kwargs)
        asked.apply_defaults()
        if asked.arguments["enabled"] and len(scales) < MOST_SCALERS:
            self._lockstep_place = len(scales)
            scales.append(repr(float(asked.arguments["init_scale"])))
            self._lockstep_state = {name: asked.arguments[name] for name in ("growth_factor", "backoff_factor", "growth_interval")}
            self._lockstep_state |= {"scale": float(asked.arguments["init_scale"]), "_growth_tracker": 0}
        asked.arguments["enabled"] = False
        begin(*asked.args, **asked.kwargs)

    @functools.wraps(load)
    def loaded(self, state):
        if hasattr(self, "_lockstep_place"):
            scales[self._lockstep_place] = ""
        return load(self, state)

    @functools.wraps(state_of)
    def state(self):
        """As one that scales has it: scripts log it, and keep it in checkpoints."""
        return dict(getattr(self, "_lockstep_state", None) or state_of(self))
    kind.__init__, kind.load_state_dict, kind.state_dict = init, loaded, state


def without_compiler(recorder):
    """What a compiler fuses rounds otherwise, and compiling takes longer than the training that is judged."""
    import torch
    if not hasattr(torch, "compile"):
        return

    @functools.wraps(torch.compile)
    def compiled(model=None, **kwargs):
        recorder.end["compile_off"] = True
        return model if model is not None else lambda function: function
    torch.compile = compiled
    if hasattr(torch.nn.Module, "compile"):  # 2.2
        torch.nn.Module.compile = functools.wraps(torch.nn.Module.compile)(lambda self, *args, **kwargs: compiled(self) and None)


def pretend(recorder):
    import torch
    # Only a script that does not train with one GPU is told on one device what the ranks are.
    cuda, number = torch.cuda, int(os.environ.get("LOCKSTEP_PROGRAM_ALL_GPUS", recorder.world))
    cuda.is_available = cuda.is_bf16_supported = lambda *args, **kwargs: True
    cuda.device_count = lambda: number
    if hasattr(torch, "accelerator"):
        one = torch.accelerator
        one.is_available, one.device_count = lambda: True, lambda: number
        one.current_stream = lambda device=None: Stream()
        one.current_accelerator = lambda check_available=False: torch.device("cuda")
        for name in ("set_device_index", "set_device_idx", "synchronize", "device_index"):
            if hasattr(one, name):
                setattr(one, name, lambda *args, **kwargs: contextlib.nullcontext())
        for name in ("current_device_index", "current_device_idx"):
            setattr(one, name, lambda: 0)
    from torch.utils import data
    begin = data.DataLoader.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        kwargs.pop("pin_memory", None)
        begin(self, *args, **kwargs)
    data.DataLoader.__init__ = init


def note_questions(recorder):
    """For a program that ends because there is no GPU: whoever reads its end may tell of the pretence."""
    import torch

    def noting(ask):
        @functools.wraps(ask)
        def asked(*args, **kwargs):
            if "/torch/" not in sys._getframe(1).f_code.co_filename:
                open(f"{recorder.folder}/asked_for_gpus", "a").close()
            return ask(*args, **kwargs)
        return asked
    for owner in (torch.cuda, getattr(torch, "accelerator", None)):
        for name in ("is_available", "device_count"):
            if hasattr(owner, name):
                setattr(owner, name, noting(getattr(owner, name)))


def watch(recorder):
    stand_in(recorder)
    without_compiler(recorder)


def stand_in(recorder):
    watch_devices(recorder)
    watch_cuda(recorder)
    watch_groups(recorder)
    watch_models(recorder)
    sync_batch_norm.watch(recorder)
    if os.environ.get("LOCKSTEP_PROGRAM_PRETEND_GPUS"):
        pretend(recorder)
    else:
        note_questions(recorder)
