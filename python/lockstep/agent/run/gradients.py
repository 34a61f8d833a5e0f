"""The gradients of a run, for `lockstep compare RUN_A RUN_B`: of each rank its local ones, as backward made them, and
what the optimizer was given once they were reduced; of the parameters a checksum, before the first step and after each.

A run that follows another one takes the gradients of that one in each step, after it has recorded its own: the reduced
ones, and where they are clipped what came of it. So both go through the same weights, and each step can be compared by
itself."""
import functools
import json
import os

from ..at_end import at_end
from ..imports import after_import
from ..shards import is_shard
from ..steps import watch_steps

MOST_BYTES = 1 << 30  # of all ranks together; what comes later is not recorded
VERSION = 1


def checksum(tensor, first):
    """Of a part of a tensor that begins at element `first`: those of all parts add up, modulo 2^64, to that of the
    whole."""
    import torch
    flat = tensor.detach().contiguous().reshape(-1)
    words = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}.get(flat.element_size())
    if words is None or flat.numel() == 0:
        return 0
    at = (torch.arange(first + 1, first + 1 + flat.numel(), dtype=torch.int64) * -7046029254386353131)
    at = (at ^ (at >> 29)) * -4658895280553007687
    return int((flat.view(words).to(torch.int64) * (at | 1)).sum()) & (1 << 64) - 1


class Part:
    """What this rank holds of a parameter, or of its gradient."""

    def __init__(self, tensor, rank):
        self.whole_elements, self.first, self.why = tensor.numel(), 0, ""
        self.sharded = is_shard(tensor)
        self.local = tensor
        if self.sharded:
            self.local = tensor.to_local()
            self.place(tensor)
        self.written = self.sharded or rank == 0  # what all ranks hold, one of them writes
        if self.local.layout is not strided() or self.local.device.type != "cpu":
            self.why = "a gradient is sparse, or not on the CPU"

    def place(self, tensor):
        mesh, placements = tensor.device_mesh, tensor.placements
        if mesh.ndim != 1 or not placements[0].is_shard(0):
            self.why = "a parameter is sharded in another way than by its rows over all ranks"
            return
        rows, ranks = tensor.shape[0], mesh.size()
        most = -(-rows // ranks)  # torch.chunk's
        self.first = min(rows, most * mesh.get_local_rank()) * (tensor.numel() // max(rows, 1))


def strided():
    import torch
    return torch.strided


class Gradients:
    def __init__(self, flight):
        self.flight = flight
        self.folder, self.share = os.environ["LOCKSTEP_PROGRAM_GRADIENTS"], MOST_BYTES // flight.world
        self.index = self.numbers = self.followed = None
        self.names, self.modules, self.pid = {}, set(), 0
        self.optimizers = []
        self.bytes = self.step = 0
        self.why = ""  # nothing more is recorded
        self.forget()

    def forget(self):
        self.local, self.arrivals, self.reduced, self.clipped = {}, {}, None, False

    def open(self):
        rank = self.flight.rank
        self.index = open(f"{self.folder}/gradients-{rank}.jsonl", "x", encoding="utf-8")
        self.numbers = open(f"{self.folder}/gradients-{rank}.bin", "xb")
        self.pid = os.getpid()
        if "LOCKSTEP_PROGRAM_FOLLOW" in os.environ:
            self.followed = Followed(os.environ["LOCKSTEP_PROGRAM_FOLLOW"])
        import torch
        self.write({"kind": "head", "version": VERSION, "rank": rank, "world": self.flight.world,
                    "torch": str(torch.__version__), "id": os.environ["LOCKSTEP_PROGRAM_GRADIENTS_ID"],
                    "follows": self.followed.id if self.followed else ""})

    def write(self, line):
        self.index.write(json.dumps(line) + "\n")

    def arrived(self, key, grad):
        """As autograd accumulates it, over the micro-batches of a step."""
        if not self.flight.here() or self.why:
            return
        old = self.local.get(key)
        self.local[key] = grad.detach().clone() if old is None else old + grad.detach()
        self.arrivals[key] = self.arrivals.get(key, 0) + 1

    def take_optimizer(self, optimizer):
        self.optimizers.append(optimizer)
        for param in params_of(optimizer):
            if param.requires_grad and not is_shard(param):
                param.register_hook(lambda grad, key=id(param): self.arrived(key, grad))

    def name_parameters(self, module):
        if id(module) not in self.modules:
            self.modules.add(id(module))
            for name, param in module.named_parameters():
                self.names.setdefault(id(param), name.removeprefix("module."))

    def keep(self, what, name, tensor, part, extra):
        data = tensor.detach().contiguous().reshape(-1)
        line = {"kind": what, "step": self.step, "name": name, "dtype": str(data.dtype).replace("torch.", ""),
                "first": part, "elements": data.numel(), "at": self.bytes, **extra}
        if data.dtype not in kept_dtypes():
            return self.stop("gradients are neither float32 nor float64")
        self.numbers.write(memoryview(data.numpy()).cast("B"))
        self.bytes += data.numel() * data.element_size()
        self.write(line)

    def stop(self, why):
        if not self.why:
            self.why = why
            self.forget()

    def snapshot(self):
        """The reduced gradients, before clipping changes them."""
        if not self.flight.here() or self.why or self.reduced is not None:
            return
        if self.index is None:
            self.open()
        self.reduced, self.step = {}, self.step + 1
        for optimizer in self.optimizers:
            for param in params_of(optimizer):
                if param.grad is not None:
                    self.reduced[id(param)] = param.grad.detach().clone()
            self.follow(optimizer, "reduced")

    def clip(self):
        self.snapshot()
        self.clipped = True

    def before(self, optimizer):
        if self.why:
            return
        self.snapshot()
        params = params_of(optimizer)
        size = sum(3 * param.numel() * param.element_size() for param in params)
        if self.bytes + size > self.share:
            return self.stop(f"{MOST_BYTES >> 20} MiB of gradients are recorded, and no more")
        for i, param in enumerate(params):
            self.record(param, self.name_of(i, param))
        if self.followed and any(param.grad is not None and not self.followed.has(self.step, self.name_of(i, param))
                                 for i, param in enumerate(params)):
            return self.stop("the run that it follows has no such gradient")
        if self.clipped:
            self.follow(optimizer, "given")
        self.write({"kind": "rates", "step": self.step, "lr": [float(group["lr"]) for group in optimizer.param_groups]})

    def name_of(self, i, param):
        return self.names.get(id(param), f"parameter {i}")

    def record(self, param, name):
        part = Part(param, self.flight.rank)
        if part.why:
            return self.stop(part.why)
        if part.written and self.step == 1:
            self.write({"kind": "start", "name": name, "checksum": str(checksum(part.local, part.first))})
        local, reduced = self.local.get(id(param)), self.reduced.get(id(param))
        if local is not None and not self.why:
            self.keep("local", name, local, 0, {"of": param.numel(), "backwards": self.arrivals[id(param)]})
        if reduced is None or not part.written:
            return
        for what, grad in (("reduced", reduced), ("given", param.grad)):
            if not self.why and (self.clipped or what == "reduced"):
                self.keep(what, name, grad.to_local() if part.sharded else grad, part.first, {"of": param.numel()})

    def follow(self, optimizer, what):
        for i, param in enumerate(params_of(optimizer) if self.followed else []):
            if param.grad is None:
                continue
            part = Part(param.grad, self.flight.rank)
            taken = None if part.why else self.followed.part(what, self.step, self.name_of(i, param), part)
            if taken is not None:
                part.local.copy_(taken)

    def after(self, optimizer):
        if self.why:
            return
        for i, param in enumerate(params_of(optimizer)):
            part = Part(param, self.flight.rank)
            self.write({"kind": "updated" if part.written else "replica", "step": self.step,
                        "name": self.name_of(i, param), "checksum": str(checksum(part.local, part.first))})
        self.write({"kind": "step", "step": self.step})
        self.forget()

    def close(self):
        if self.index is None or self.pid != os.getpid():
            return
        self.write({"kind": "end", "steps": self.step, "bytes": self.bytes, "why": self.why})
        self.index.close()
        self.numbers.close()


class Followed:
    """The reduced gradients of another run, put together of what its ranks hold."""

    def __init__(self, folder):
        import torch
        self.parts, self.id, self.types = {}, "", {"float32": torch.float32, "float64": torch.float64}
        rank = 0
        while os.path.exists(f"{folder}/gradients-{rank}.jsonl"):
            numbers = open(f"{folder}/gradients-{rank}.bin", "rb")
            with open(f"{folder}/gradients-{rank}.jsonl", encoding="utf-8") as index:
                for text in index:
                    if not text.endswith("\n"):
                        break  # its process did not live to write it all
                    line = json.loads(text)
                    self.id = line.get("id", self.id)
                    if line["kind"] in ("reduced", "given"):
                        self.parts.setdefault((line["kind"], line["step"], line["name"]), []).append((numbers, line))
            rank += 1

    def has(self, step, name):
        return ("reduced", step, name) in self.parts

    def part(self, what, step, name, part):
        import torch
        found = self.parts.get((what, step, name), [])
        dtype = str(part.local.dtype).replace("torch.", "")
        elements = sum(line["elements"] for _, line in found)
        if elements != part.whole_elements or any(line["dtype"] != dtype for _, line in found):
            return None
        data = b"".join(read(numbers, line, part.local.element_size()) for numbers, line in sorted(found, key=begin_of))
        kind = part.local.dtype
        whole = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
        return whole[part.first:part.first + part.local.numel()].reshape(part.local.shape)


def begin_of(found):
    return found[1]["first"]


def read(numbers, line, size):
    numbers.seek(line["at"])
    return numbers.read(line["elements"] * size)


def kept_dtypes():
    import torch
    return (torch.float32, torch.float64)


def params_of(optimizer):
    return [param for group in optimizer.param_groups for param in group["params"]]


def watch_shards(gradients):
    """A leaf of fully_shard is whole only between its gathering and its gradient's reduction."""
    def imported(params):
        begin = params.FSDPParam.init_unsharded_param

        @functools.wraps(begin)
        def init(self, *args, **kwargs):
            first = not hasattr(self, "_unsharded_param")
            begin(self, *args, **kwargs)
            if first and self._unsharded_param.requires_grad:
                key = id(self.sharded_param)
                self._unsharded_param.register_hook(lambda grad: gradients.arrived(key, grad))
        params.FSDPParam.init_unsharded_param = init
    after_import("torch.distributed.fsdp._fully_shard._fsdp_param", imported)


def watch(flight):
    if "LOCKSTEP_PROGRAM_GRADIENTS" not in os.environ:
        return
    import torch
    gradients = Gradients(flight)

    def around(optimizer, step):
        if not flight.here():
            return step()
        gradients.before(optimizer)
        result = step()
        gradients.after(optimizer)
        return result
    watch_steps(around, gradients.take_optimizer)
    torch.nn.modules.module.register_module_forward_pre_hook(lambda module, _: gradients.name_parameters(module))
    watch_clipping(torch, gradients)
    watch_shards(gradients)
    at_end(gradients.close, 10)


def watch_clipping(torch, gradients):
    from torch.nn import utils

    def noted(clip):
        @functools.wraps(clip)
        def clipped(*args, **kwargs):
            gradients.clip()
            return clip(*args, **kwargs)
        return clipped
    for name in ("clip_grad_norm_", "clip_grad_value_", "get_total_norm"):
        if hasattr(utils, name):
            changed = noted(getattr(utils, name))
            setattr(utils, name, changed)
            setattr(utils.clip_grad, name, changed)
