"""Every collective, as it is called: by PyTorch's own hooks on process groups where it has them (2.14 on), else by
torch.distributed's functions, which sees what the script calls and not what the reducer of DistributedDataParallel
does. Of sums over Gloo the contribution and the result are kept, within a bound, for the lane replay.

A hook sees no ReduceOp: the functions note theirs, and the reducer, which only sums, calls from no Python but the
engine's. Any other is kept by its name alone. To see a result before anybody can change it, the hook waits for it."""
import functools
import inspect
import json
import os
import threading
import time

from .at_end import at_end
from .imports import replace
from .recorder import open_own
from .sketches import bytes_of

MOST_LINES = 65536  # of a rank; what comes later is counted
MOST_BYTES = 512 << 20  # of all ranks' contributions and results together
MOST_OF_ONE = 128 << 20  # of all ranks' contributions to one sum
PATIENCE_S = 30  # for a result; then the group keeps none any more
HOOK = 7001  # any numbers that are no other hook's; that of run/arrivals.py is the next one
SUMS = {"all_reduce": "tensor", "reduce_scatter_tensor": "input"}
FUNCTIONS = (*SUMS, "reduce_scatter_single", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather",
             "scatter", "reduce_scatter", "all_to_all", "all_to_all_single", "barrier")
NAMES = {"allreduce": "all_reduce", "reduce_scatter_base": "reduce_scatter_tensor",
         "_reduce_scatter_base": "reduce_scatter_tensor"}  # of a hook's operation
PEERS = ("send", "recv", "recv_any_source")  # not the same on all ranks, so without a number


class Group:
    def __init__(self, key, ranks, gloo):
        self.key, self.ranks, self.gloo, self.calls = key, ranks, gloo, 0


class Tap:
    def __init__(self, recorder, kind):
        self.recorder, self.kind = recorder, kind
        self.share = MOST_BYTES // recorder.world
        self.lines = self.bytes = self.calls = 0
        self.file = self.kept = None
        self.groups = {}
        self.lock = threading.Lock()

    def open(self, rank):
        import torch
        self.pid = os.getpid()
        self.file = open_own(self.recorder.folder, f"collectives-{rank}.jsonl", "x")
        self.kept = open(f"{self.recorder.folder}/contributions-{rank}.bin", "xb")
        self.write({"kind": "head", "tap": self.kind, "rank": rank, "torch": str(torch.__version__)})

    def write(self, line):
        self.file.write(json.dumps(line) + "\n")

    def group(self, key, ranks, gloo):
        """Known by its name and its ranks, which are the same on all of them."""
        found = self.groups.get(key)
        if found is None:
            found = self.groups[key] = Group(key, ranks, gloo)
        return found

    def wants(self, group, name, op, tensors):
        """Is the contribution kept? By sizes and steps alone, so that all ranks decide the same."""
        import torch
        if not group.gloo or op != "sum" or name not in SUMS or len(tensors) != 1 or len(group.ranks) < 2:
            return False
        tensor = tensors[0]
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.is_contiguous():
            return False
        if tensor.dtype not in (torch.float32, torch.float64) or tensor.numel() == 0:
            return False
        left = self.share - self.bytes
        size = tensor.numel() * tensor.element_size()
        if 2 * size > left or size * len(group.ranks) > MOST_OF_ONE:
            return False
        every = 1  # half of the room is for every step, a quarter for every second, ...
        while left * 2 * every < self.share:
            every *= 2
        return self.recorder.steps % every == 0

    def keep(self, tensor):
        data = bytes_of(tensor)
        offset = self.bytes
        self.kept.write(data)
        self.bytes += len(data)
        return offset

    def begin(self, group, name, op, tensors):
        """What is known of a call before it is made."""
        if self.recorder.quiet:
            return None
        if self.file is None:
            import torch.distributed as dist
            self.open(dist.get_rank())
        if self.pid != os.getpid():
            return None
        self.calls += 1
        if group.calls == 0:
            self.write({"kind": "group", "group": group.key, "ranks": group.ranks})
        group.calls += 1
        line = {"kind": "collective", "group": group.key, "call": group.calls, "name": name,
                "op": op, "step": self.recorder.steps + 1, "elements": sum(tensor.numel() for tensor in tensors),
                "dtype": str(tensors[0].dtype).replace("torch.", "") if tensors else "", "at_us": time.time_ns() // 1000,
                "input": -1, "result": -1}
        if self.lines < MOST_LINES and self.wants(group, name, op, tensors):
            line["input"] = self.keep(tensors[0])
        return line

    def end(self, line, result):
        if line is None:
            return
        if line["input"] >= 0 and result is not None:
            line["result"] = self.keep(result)
        self.lines += 1
        if self.lines <= MOST_LINES:
            self.write(line)

    def close(self):
        if self.recorder.is_forked():
            return
        if self.file is None and self.recorder.file is not None:
            self.open(self.recorder.rank)  # no collective was seen: that is a fact as well
        if self.file is None or self.pid != os.getpid():
            return
        self.write({"kind": "end", "collectives": self.calls, "bytes": self.bytes})
        self.file.close()
        self.kept.close()


def is_gloo(group):
    """Of a group as torch.distributed knows it."""
    import torch
    try:
        if hasattr(group, "_get_backend"):
            return group._get_backend(torch.device("cpu")).name() == "gloo"
        return torch.distributed.get_backend(group) == "gloo"
    except (RuntimeError, ValueError):
        return False


def ranks_of(group):
    import torch.distributed as dist
    if group is None or group is dist.group.WORLD:
        return list(range(dist.get_world_size()))
    of = getattr(dist, "get_process_group_ranks", None)
    if of is not None:
        return list(of(group))
    return sorted(dist.distributed_c10d._pg_group_ranks[group])


def op_word(op):
    import torch
    return "sum" if op == torch.distributed.ReduceOp.SUM else "other"


class Calls:
    """torch.distributed's functions, and in this thread the ReduceOp of the one under way."""

    def __init__(self, tap):
        self.tap, self.here = tap, threading.local()

    def noted(self, name, function):
        signature = inspect.signature(function)

        def call(*args, **kwargs):
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # raises what a caller expects
            given.apply_defaults()
            op, outer = given.arguments.get("op"), getattr(self.here, "op", None)
            word = op_word(op) if op is not None else ""
            self.here.op = word
            try:
                if self.tap.kind == "hooks" or outer is not None:
                    return function(*args, **kwargs)
                return self.seen(name, word, given.arguments, lambda: function(*args, **kwargs))
            finally:
                self.here.op = outer
        call.__name__, call.__doc__, call.__signature__ = name, function.__doc__, signature
        return call

    def seen(self, name, word, arguments, call):
        import torch
        import torch.distributed as dist
        group = arguments.get("group")
        if not dist.is_initialized() or dist.get_rank(group) < 0:
            return call()
        tensor = arguments.get(SUMS.get(name, "tensor"))
        tensors = [tensor] if isinstance(tensor, torch.Tensor) else []
        ranks = ranks_of(group)
        key = ",".join(map(str, ranks))
        line = self.tap.begin(self.tap.group(key, ranks, is_gloo(group or dist.group.WORLD)), name, word, tensors)
        result = call()
        output = arguments.get("output") if name == "reduce_scatter_tensor" else tensor
        self.tap.end(line, output if tensors and not arguments.get("async_op") else None)
        return result


def watch_functions(tap):
    import torch.distributed as dist
    calls = Calls(tap)
    for name in FUNCTIONS:
        function = getattr(dist, name, None)
        if function is not None:
            replace(name, function, calls.noted(name, function))
    return calls


def of_reducer(owner):
    """Of a hook whose owner knows the models of DistributedDataParallel. Does C++ call, out of the engine? Then no frame of Python stands between."""
    frame = inspect.currentframe().f_back.f_back
    return bool(owner.models) and (frame is None or "/torch/autograd/" in frame.f_code.co_filename)


class GroupHooks:
    """Of one process group, before and after each of its calls; must be gone before Python is."""
    number = HOOK

    def __init__(self, group):
        self.group = group
        group.register_pre_hook(self.number, self.before)
        group.register_post_hook(self.number, self.after)

    def remove(self):
        self.group.unregister_pre_hook(self.number)
        self.group.unregister_post_hook(self.number)


def name_of(call):
    return str(call.name).rsplit(".", 1)[-1].lower()


class Hooks(GroupHooks):
    def __init__(self, tap, calls, group, ranks):
        self.tap, self.calls, self.open = tap, calls, {}
        self.ranks, self.name, self.known = ranks, group.group_name, None
        super().__init__(group)

    def before(self, call):
        name = NAMES.get(name_of(call), name_of(call))
        if name in PEERS:
            return
        op = getattr(self.calls.here, "op", None)
        if op is None:
            op = "sum" if of_reducer(self.tap.recorder) else ""
        with self.tap.lock:
            if self.known is None:
                self.known = self.tap.group(self.name, self.ranks, is_gloo(self.group))
            line = self.tap.begin(self.known, name, op, call.input_tensors)
        outputs = call.output_tensors or call.input_tensors
        self.open[call.op_id] = line, outputs[0] if len(outputs) == 1 else None

    def after(self, call):
        line, output = self.open.pop(call.op_id, (None, None))
        done = line is not None and line["input"] >= 0 and output is not None and self.waited(call.work, line["name"])
        with self.tap.lock:
            self.tap.end(line, output if done else None)

    def waited(self, work, name):
        """Bounded: two groups may be used in another order on another rank."""
        if name == "reduce_scatter_tensor" and work is not None:
            return work.wait()  # which copies the result; before, it is never complete
        until = time.monotonic() + PATIENCE_S
        while work is not None and not work.is_completed():
            if time.monotonic() > until:
                self.known.gloo = False
                return False
            time.sleep(0.0002 if time.monotonic() < until - PATIENCE_S + 1 else 0.02)
        return work is not None


def watch_groups(hook):
    """`hook(group, ranks)` is called for each group that is made; what it returns is removed with the group."""
    import torch.distributed as dist
    c10d, hooked = dist.distributed_c10d, {}
    make, destroy = c10d._new_process_group_helper, c10d.destroy_process_group

    def remove(group=None):
        for key in list(hooked) if group is None else [id(group)]:
            if key in hooked:
                hooked.pop(key).remove()

    @functools.wraps(make)  # with its signature: another may watch as well
    def made(*args, **kwargs):
        answer = make(*args, **kwargs)
        group = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(group, dist.ProcessGroup) and id(group) not in hooked:
            given = inspect.signature(make).bind(*args, **kwargs).arguments
            ranks = list(given["global_ranks_in_group"]) or list(range(given["group_size"]))
            hooked[id(group)] = hook(group, ranks)
        return answer

    @functools.wraps(destroy)
    def destroyed(group=None):
        remove(None if group is None or group is dist.group.WORLD else group)
        return destroy(group)
    c10d._new_process_group_helper = made
    c10d.destroy_process_group = dist.destroy_process_group = destroyed
    at_end(remove, 20)


def has_hooks():
    import torch.distributed as dist
    return hasattr(dist.ProcessGroup, "register_pre_hook") and hasattr(dist.ProcessGroup, "register_post_hook")


def watch(recorder):
    import torch.distributed as dist
    if recorder.world < 2 or recorder.scale > 1 or not dist.is_available():
        return
    hooks = has_hooks()
    tap = Tap(recorder, "hooks" if hooks else "functions")
    calls = watch_functions(tap)
    if hooks:
        watch_groups(lambda group, ranks: Hooks(tap, calls, group, ranks))
    at_end(tap.close, 10)
