"""Leaves typed facts of every optimizer step of a training, one JSON line each. It judges nothing:
`lockstep verify -- COMMAND` reads the lines. The program is not changed, but computes in double."""
import hashlib
import json
import os
import sys
import types
from multiprocessing import util

MOST_SAMPLES = 65536  # of a step; beyond, the step has none
MOST_BYTES = 256 << 20  # of a rank's file; beyond, it has no end and cannot be judged


class Recorder:
    def __init__(self):
        self.folder = os.environ["LOCKSTEP_PROGRAM_DIR"]
        self.world = int(os.environ["LOCKSTEP_PROGRAM_WORLD"])
        self.scale = int(os.environ["LOCKSTEP_PROGRAM_SCALE"])
        self.file, self.bytes, self.steps, self.optimizers = None, 0, 0, 0
        self.names, self.models, self.projections = {}, [], {}
        self.end = {"summed": False, "batch_norms": 0, "backwards": 0, "stale_epochs": 0, "dropout": False,
                    "draws": False}
        self.forget()

    def forget(self):
        """What belongs to one step."""
        self.samples, self.ddp_forwards, self.forwards, self.unsynced = [], 0, 0, False

    def write(self, line):
        import torch.distributed as dist
        if self.file is None:
            ready = dist.is_available() and dist.is_initialized()
            self.rank = dist.get_rank() if ready else int(os.environ.get("RANK", 0))
            ranks = dist.get_world_size() if ready else 1
            self.file = open(f"{self.folder}/rank-{self.rank}.jsonl", "x", encoding="utf-8")
            self.pid = os.getpid()
            self.write({"kind": "head", "rank": self.rank, "world": ranks})
        text = json.dumps(line) + "\n"
        self.bytes += len(text)
        if self.bytes <= MOST_BYTES and self.pid == os.getpid():
            self.file.write(text)

    def close(self):
        if self.file is None and not self.end["backwards"]:
            return
        self.write({"kind": "end", "steps": self.steps, **self.end})
        self.file.close()


def user_line():
    """The innermost line that is neither torch's nor ours."""
    frame = sys._getframe(1)
    while frame:
        name = frame.f_code.co_filename
        if "/torch/" not in name and not name.startswith(("<", os.path.dirname(__file__))):
            return f"{os.path.basename(name)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def sketch(recorder, tensor):
    """Four projections on signs, and the norm: enough for a distance and a ratio."""
    import torch
    if tensor is None:
        return None
    flat = tensor.detach().double().reshape(-1)
    signs = recorder.projections.get(flat.numel())
    if signs is None:
        generator = torch.Generator().manual_seed(flat.numel())
        signs = torch.randint(0, 2, (4, flat.numel()), generator=generator).to(torch.float64) * 2 - 1
        recorder.projections[flat.numel()] = signs
    values = [float(value) for value in signs @ flat] + [float(flat.norm())]
    return [value if abs(value) < float("inf") else None for value in values]


def bytes_of(tensor):
    """Of any dtype; NumPy knows no bfloat16."""
    import torch
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def digest(tensors):
    code = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        code.update(b"-" if tensor is None else bytes_of(tensor))
    return code.hexdigest()


def state_tensors(optimizer, params):
    import torch
    return [value for param in params for _, value in sorted(optimizer.state.get(param, {}).items())
            if isinstance(value, torch.Tensor)]


def watch_optimizers(recorder):
    import torch
    begin = torch.optim.Optimizer.__init__

    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        step = self.step.__func__
        number = recorder.optimizers
        recorder.optimizers += 1

        def stepped(self, *args, **kwargs):
            params = [param for group in self.param_groups for param in group["params"]]
            before = [sketch(recorder, param) for param in params] if recorder.steps == 0 else []
            grads = [param.grad for param in params]
            line = {"kind": "step", "optimizer": number, "line": user_line(), "before": before,
                    "names": [recorder.names.get(id(param), f"parameter {i}") for i, param in enumerate(params)],
                    "grads": [sketch(recorder, grad) for grad in grads],
                    "grad_hashes": [digest([grad]) for grad in grads]}
            result = step(self, *args, **kwargs)
            recorder.steps += 1
            buffers = [buffer for model in recorder.models for buffer in model.buffers()]
            samples = recorder.samples if len(recorder.samples) <= MOST_SAMPLES else []
            line.update(step=recorder.steps, lr=[float(group["lr"]) for group in self.param_groups],
                        params=[sketch(recorder, param) for param in params], samples=samples,
                        param_hashes=[digest([param]) for param in params],
                        buffer_hash=digest(buffers), state_hash=digest(state_tensors(self, params)),
                        ddp_forwards=recorder.ddp_forwards, forwards=recorder.forwards,
                        unsynced=recorder.unsynced)
            recorder.write(line)
            recorder.forget()
            return result
        self.step = types.MethodType(stepped, self)  # a method: schedulers look for its __func__
    torch.optim.Optimizer.__init__ = init


def watch_ddp(recorder):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    begin, forward = DDP.__init__, DDP.forward

    def init(self, module, *args, **kwargs):
        begin(self, module, *args, **kwargs)
        recorder.models.append(module)
        recorder.names.update({id(param): name for name, param in module.named_parameters()})
        norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
                 and not isinstance(part, torch.nn.SyncBatchNorm)]
        recorder.end["batch_norms"] += len(norms)

        drawn = []  # the generator's state before each forward under way

        def before(part, inputs):
            drawn.append(torch.get_rng_state() if torch.is_grad_enabled() else None)
            if torch.is_grad_enabled():
                recorder.forwards += 1
                recorder.samples += rows(inputs)

        def after(part, inputs, output):
            state = drawn.pop() if drawn else None
            if state is not None and not torch.equal(state, torch.get_rng_state()):
                recorder.end["draws"] = True
        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)

    def counted(self, *args, **kwargs):
        recorder.ddp_forwards += torch.is_grad_enabled()
        recorder.unsynced = not self.require_backward_grad_sync
        return forward(self, *args, **kwargs)
    DDP.__init__, DDP.forward = init, counted


def in_double(value):
    import torch
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(in_double(part) for part in value)
    if type(value) is dict:
        return {key: in_double(part) for key, part in value.items()}
    return value


def rows(batch):
    """A number for each sample of a batch, by its first tensor."""
    import torch
    while isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    if not isinstance(batch, torch.Tensor) or batch.dim() == 0:
        return []
    return [digest([row]) for row in batch]


def watch_loaders(recorder):
    from torch.utils import data
    begin, iterate = data.DataLoader.__init__, data.DataLoader.__iter__
    sampler = data.distributed.DistributedSampler
    deal = sampler.__iter__

    def init(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, *args, **kwargs):
        if batch_sampler is None and batch_size is not None:
            batch_size *= recorder.scale
        elif isinstance(getattr(batch_sampler, "batch_size", None), int):
            batch_sampler.batch_size *= recorder.scale
        begin(self, dataset, batch_size, shuffle, sampler, batch_sampler, *args, **kwargs)

    def iterated(self):
        for batch in iterate(self):
            yield in_double(batch)

    def dealt(self):
        import torch
        used = self.__dict__.setdefault("_lockstep_epochs", set())
        if torch.is_grad_enabled():  # an evaluation may see one order for ever
            if self.shuffle and self.epoch in used:
                recorder.end["stale_epochs"] += 1
            used.add(self.epoch)
        return deal(self)
    data.DataLoader.__init__, data.DataLoader.__iter__, sampler.__iter__ = init, iterated, dealt


def watch_rest(recorder):
    import torch
    functional, backward = torch.nn.functional, torch.Tensor.backward

    def counted(self, *args, **kwargs):
        recorder.end["backwards"] += 1
        if recorder.file is None:  # while the group still says which rank this is
            recorder.write({"kind": "begin"})
        return backward(self, *args, **kwargs)
    torch.Tensor.backward = counted

    def noting(loss):
        def noted(*args, **kwargs):
            recorder.end["summed"] |= kwargs.get("reduction") == "sum" and torch.is_grad_enabled()
            return loss(*args, **kwargs)
        return noted
    for name in ("cross_entropy", "mse_loss", "nll_loss", "l1_loss", "binary_cross_entropy",
                 "binary_cross_entropy_with_logits"):
        setattr(functional, name, noting(getattr(functional, name)))

    def kept(input, *args, **kwargs):
        recorder.end["dropout"] = True  # draws differ between W ranks and one: off in this lane
        return input
    functional.dropout = kept


def watch_spawn(recorder):
    import inspect
    import torch
    spawn = torch.multiprocessing.spawn

    def spawned(fn, args=(), nprocs=1, *rest, **kwargs):
        names = list(inspect.signature(fn).parameters)[1:]
        if len(names) >= len(args):
            args = tuple(recorder.world if "world" in name or "nproc" in name else value
                         for name, value in zip(names, args))
        return spawn(fn, args, recorder.world, *rest, **kwargs)
    torch.multiprocessing.spawn = spawned


def without_autocast():
    """Double all the way: a cast to 16 bits would make W ranks and one device differ by its rounding."""
    import torch
    begin = torch.autocast.__init__

    def init(self, device_type, dtype=None, enabled=True, *args, **kwargs):
        begin(self, device_type, dtype, False, *args, **kwargs)
    torch.autocast.__init__ = init


def install():
    import torch
    recorder = Recorder()
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = lambda self, *args, **kwargs: self.double()
    torch.nn.Module.float = lambda self: self.double()
    for kind in (torch.Tensor, torch.nn.Module):
        kind.half = kind.bfloat16 = lambda self, *args, **kwargs: self.double()
    without_autocast()
    for watch in (watch_optimizers, watch_ddp, watch_loaders, watch_rest, watch_spawn):
        watch(recorder)
    util.Finalize(None, recorder.close, exitpriority=10)  # children of multiprocessing, too
