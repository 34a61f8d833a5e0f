"""When a rank enters a collective of all ranks, and when it has its result: by PyTorch's own hooks where it has them
(2.14 on), else by torch.distributed's functions; the sums of DistributedDataParallel's reducer are then seen as one,
which begins when the last gradient is there. Those of a group of some of the ranks are counted apart."""
import contextlib
import functools
import inspect
import threading

from ..tap import FUNCTIONS, HOOK, PEERS, GroupHooks, has_hooks, name_of, of_reducer, watch_groups
from .ends import noting_breaks
from .flight import ARRIVAL, END, GROUP_ARRIVAL, GROUP_END

# reducer/probe.h; the first name that is within a call's
OPERATIONS = (("allreduce", 1), ("all_reduce", 1), ("broadcast", 2), ("allgather", 3), ("all_gather", 3),
              ("reduce_scatter", 4), ("scatter", 5), ("gather", 6), ("barrier", 7), ("alltoall", 8), ("all_to_all", 8),
              ("reduce", 9))
MOST_GROUPS = 256  # of some ranks, whose collectives are recorded; those of groups that are made later are not
# What a rank gives, where it gets another tensor; a hook knows it.
INPUTS = {"all_gather": "tensor", "all_gather_into_tensor": "input_tensor", "gather": "tensor",
          "scatter": "scatter_list", "reduce_scatter": "input_list", "reduce_scatter_tensor": "input", "all_to_all": "input_tensor_list",
          "all_to_all_single": "input"}
MOST_OF_TEXT = 100  # of a group's description
ROOTS = ("src", "group_src", "dst", "group_dst")
ROOT = -2  # sim/judge/rank_view.h: where a bucket would stand, less the rank that a broadcast, scatter or gather names
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32", "complex64",
          "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16")  # c10::ScalarType


def operation_of(name):
    return next((number for word, number in OPERATIONS if word in name), 0)


def root_of(name, given):
    """As a bucket, which such a call is none of: -1 where no rank is named."""
    rank = next((given[key] for key in ROOTS if isinstance(given.get(key), int)), None)
    return ROOT - rank if rank is not None and operation_of(name) in (2, 5, 6) else -1


def tensors_in(values):
    import torch
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def packed(operation, tensors):
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    word = str(tensors[0].dtype).replace("torch.", "") if tensors else ""
    dtype = DTYPES.index(word) if word in DTYPES else 255
    return operation << 56 | dtype << 48 | size & (1 << 48) - 1


def given_to(name, given):
    """The tensors that a rank gives."""
    return list(tensors_in([given.get(INPUTS[name])] if name in INPUTS else given.values()))


class Group:
    def __init__(self, index, name, ranks, description, timeout_ms):
        self.index, self.calls = index, 0
        self.facts = {"name": name, "ranks": ranks, "description": description, "timeout_ms": timeout_ms}


class Arrivals:
    def __init__(self, flight, kind):
        self.flight, self.kind, self.sequence = flight, kind, 0
        self.open = {}  # sequence -> (bucket, work, when), as long as its end was not recorded
        self.groups, self.open_in = {}, {}  # of some ranks: (name, *ranks) -> Group; (group, call) -> work
        self.lock, self.here = threading.RLock(), threading.local()
        self.models, self.ahead = [], (None, [])  # a module, and what is broadcast before its forward

    def arrive(self, name, tensors, bucket=-1):
        self.look()
        with self.lock:
            self.sequence += 1
            sequence = self.sequence
        self.flight.faults.at_collective(sequence, name, bucket)
        self.flight.append(ARRIVAL, bucket, packed(operation_of(name), tensors), sequence)
        with self.lock:
            self.open[sequence] = (bucket, None, self.flight.newest_ns)
        return sequence

    def end(self, sequence):
        with self.lock:
            bucket, _, _ = self.open.pop(sequence, (None, None, None))
        if bucket is not None:
            self.flight.append(END, bucket, 0, sequence)

    def follow(self, sequence, work):
        with self.lock:
            if sequence in self.open:
                bucket, _, when = self.open[sequence]
                self.open[sequence] = bucket, work, when

    def arrive_in(self, name, tensors, process_group, ranks):
        """In a group of some of the ranks; None in one too many."""
        self.look()
        known_as = name_of_group(process_group)
        with self.lock:
            group = self.groups.get((known_as, *ranks)) or self.take_group(process_group, known_as, ranks)
            if group is None:
                return None
            group.calls += 1
            call = group.index, group.calls
            self.open_in[call] = None
        self.flight.append(GROUP_ARRIVAL, call[0], packed(operation_of(name), tensors), call[1])
        return call

    def take_group(self, process_group, name, ranks):
        if len(self.groups) == MOST_GROUPS:
            return None
        group = Group(len(self.groups), name, ranks, description_of(process_group),
                      self.flight.group_timeouts_ms.get(name, -1))
        self.groups[(name, *ranks)] = group
        self.flight.note("groups", [known.facts for known in self.groups.values()])
        return group

    def end_in(self, call):
        with self.lock:
            known = call in self.open_in
            self.open_in.pop(call, None)
        if known:
            self.flight.append(GROUP_END, call[0], 0, call[1])

    def follow_in(self, call, work):
        with self.lock:
            if call in self.open_in:
                self.open_in[call] = work

    def look(self):
        """Those of which the result is there by now."""
        for call, work in sorted(self.open_in.items()):
            if work is not None and work.is_completed():
                self.end_in(call)
        for sequence, (_, work, _) in sorted(self.open.items()):
            if work is not None and work.is_completed():
                self.end(sequence)

    def end_since(self, sequence):
        """Those that one call, which has returned, began after that one: a reduce_scatter's work never says that it is
        complete."""
        for later in sorted(self.open):
            if later > sequence:
                self.end(later)

    def backward_ended(self):
        self.look()
        if self.kind == "functions":
            for model in self.models:
                model.backward_ended()
        for sequence, (bucket, _, _) in sorted(self.open.items()):
            if bucket >= 0:
                self.end(sequence)

    def oldest(self):
        """What this rank waits for, if for anything: (sequence, bucket, since)."""
        with self.lock:
            found = min(self.open.items(), default=None)
        return None if found is None else (found[0], found[1][0], found[1][2])

    def next_bucket(self):
        self.flight.steps.buckets += 1
        return self.flight.steps.buckets - 1

    @contextlib.contextmanager
    def of_construction(self, module):
        """The constructor compares shapes and broadcasts parameters, in C++."""
        if self.kind == "hooks":
            yield
            return
        self.here.within = True
        try:
            sequence = self.arrive("broadcast", list(module.parameters()))
            yield
            self.end(sequence)
        finally:
            self.here.within = False

    def take(self, ddp):
        self.models.append(Reducer(self, ddp) if self.kind == "functions" else ddp)

    def before_forward(self, ddp):
        """Rank 0's new layout of buckets, once, and its buffers are broadcast, in C++, before the module's own forward."""
        if self.kind != "functions":
            return
        ahead = []
        if any(model.ddp is ddp and model.lays_out_anew() for model in self.models):
            ahead.append(self.arrive("broadcast", []))
        if ddp.will_sync_module_buffers():
            ahead.append(self.arrive("broadcast", list(ddp.modules_buffers)))
        self.ahead = ddp.module, ahead

    def forward_begins(self, module):
        if self.open or self.open_in:
            self.look()
        if self.ahead[0] is module:
            for sequence in self.ahead[1]:
                self.end(sequence)
            self.ahead = None, []


def is_whole(group):
    import torch.distributed as dist
    return dist.is_initialized() and dist.get_rank(group) >= 0 and dist.get_world_size(group) == dist.get_world_size()


def ranks_of(group):
    """In the numbers of the group of all."""
    import torch.distributed as dist
    ranks = dist.distributed_c10d._pg_group_ranks.get(group)
    return sorted(ranks) if ranks else []


def name_of_group(group):
    import torch.distributed as dist
    return str(dist.distributed_c10d._pg_names.get(group, ""))


def description_of(group):
    """PyTorch 2.4 on; "undefined" where nobody gave one."""
    text = str(getattr(group, "group_desc", ""))
    return "" if text == "undefined" else text[:MOST_OF_TEXT]


def watch_functions(arrivals):
    import torch.distributed as dist
    for name in FUNCTIONS:
        function = getattr(dist, name, None)
        if function is not None:
            noted = noting(arrivals, name, function)
            setattr(dist, name, noted)
            setattr(dist.distributed_c10d, name, noted)


def noting(arrivals, name, function):
    signature = inspect.signature(function)

    def call(*args, **kwargs):
        if getattr(arrivals.here, "within", False) or not arrivals.flight.here():
            return function(*args, **kwargs)
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # raises what a caller expects
        with noting_breaks(arrivals.flight):
            if not is_whole(given.get("group")):
                return entered_group(arrivals, name, given, lambda: function(*args, **kwargs))
            return entered(arrivals, name, given, lambda: function(*args, **kwargs))
    call.__name__, call.__doc__, call.__signature__ = name, function.__doc__, signature
    return call


def entered_group(arrivals, name, given, call):
    import torch.distributed as dist
    ranks = ranks_of(given.get("group"))
    arrivals.look()
    if arrivals.kind == "hooks" or dist.get_rank() not in ranks:
        arrivals.flight.alive()
        result = call()
        arrivals.look()
        return result
    entry = arrivals.arrive_in(name, given_to(name, given), given["group"], ranks)
    return followed(arrivals, given, call, entry, arrivals.end_in, arrivals.follow_in)


def entered(arrivals, name, given, call):
    """A hook sees the arrival itself; this one the end of what the caller waits for."""
    arrivals.look()
    if arrivals.kind == "hooks":
        before, arrivals.here.root = arrivals.sequence, root_of(name, given)
        try:
            result = call()
        finally:
            arrivals.here.root = -1
        arrivals.look()
        if result is None and not given.get("async_op"):
            arrivals.end_since(before)
        return result
    sequence = arrivals.arrive(name, given_to(name, given), root_of(name, given))
    return followed(arrivals, given, call, sequence, arrivals.end, arrivals.follow)


def followed(arrivals, given, call, entry, end, follow):
    """Calls; it has ended when the caller has its result, or once the work that it waits for is complete."""
    arrivals.here.within = True
    try:
        result = call()
    finally:
        arrivals.here.within = False
    if result is None or not given.get("async_op"):
        end(entry)
    else:
        follow(entry, result)
    return result


class Hooks(GroupHooks):
    number = HOOK + 1

    def __init__(self, arrivals, group):
        self.arrivals, self.begun = arrivals, {}
        super().__init__(group)

    def before(self, call):
        name = name_of(call)
        if name in PEERS:
            return
        bucket = self.arrivals.next_bucket() if of_reducer(self.arrivals) else getattr(self.arrivals.here, "root", -1)
        self.begun[call.op_id] = self.arrivals.arrive(name, list(call.input_tensors), bucket)

    def after(self, call):
        sequence = self.begun.pop(call.op_id, None)
        if sequence is not None:
            self.arrivals.follow(sequence, call.work)


class HooksOfSome(GroupHooks):
    number = HOOK + 1

    def __init__(self, arrivals, group, ranks):
        self.arrivals, self.ranks, self.begun = arrivals, sorted(ranks), {}
        super().__init__(group)

    def before(self, call):
        name = name_of(call)
        if name not in PEERS:
            self.begun[call.op_id] = self.arrivals.arrive_in(name, list(call.input_tensors), self.group, self.ranks)

    def after(self, call):
        self.arrivals.follow_in(self.begun.pop(call.op_id, None), call.work)


def watch_buffers(arrivals):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    forward = DDP.forward

    @functools.wraps(forward)
    def forwarded(self, *args, **kwargs):
        arrivals.before_forward(self)
        return forward(self, *args, **kwargs)
    DDP.forward = forwarded


class Reducer:
    """What gradients tell of a reducer in C++. A comm hook would tell more, but its callbacks run in Gloo's threads,
    which at exit may meet an interpreter that is gone."""

    def __init__(self, arrivals, ddp):
        import torch
        self.arrivals, self.ddp, self.seen, self.sequence = arrivals, ddp, 0, 0
        self.parameters = [parameter for parameter in ddp.parameters() if parameter.requires_grad]
        self.expected = len(self.parameters)  # of those that take part in the loss
        self.whole = is_whole(ddp.process_group)
        self.ranks = [] if self.whole else ranks_of(ddp.process_group)
        self.call = None  # in a group of some ranks
        self.summed = self.laid_out = False  # it has seen the order of gradients; has made its buckets of it
        for parameter in self.parameters:
            parameter.register_hook(torch.utils.hooks.unserializable_hook(lambda gradient: self.ready()))

    def ready(self):
        self.seen += 1
        if self.seen == self.expected:
            self.arrive()

    def arrive(self):
        if not self.ddp.require_backward_grad_sync:
            return
        if self.ranks:
            self.call = self.arrivals.arrive_in("all_reduce", self.parameters, self.ddp.process_group, self.ranks)
        if not self.whole:
            return
        self.arrivals.next_bucket()
        self.summed = True
        self.sequence = self.arrivals.arrive("all_reduce", self.parameters, 0)

    def lays_out_anew(self):
        """In the first forward with gradients after a backward that summed."""
        import torch
        known = self.ddp.static_graph or not self.ddp.find_unused_parameters
        anew = torch.is_grad_enabled() and self.summed and known and not self.laid_out
        self.laid_out |= anew
        return anew

    def backward_ended(self):
        if self.seen and self.sequence == 0 and self.call is None:
            self.arrive()  # other parameters took part than in the backward before
        self.arrivals.end_in(self.call)
        self.call = None
        self.expected, self.seen, self.sequence = self.seen or self.expected, 0, 0


def watch(flight):
    import torch.distributed as dist
    if not dist.is_available():
        flight.arrivals = Arrivals(flight, "none")
        return
    arrivals = flight.arrivals = Arrivals(flight, "hooks" if has_hooks() else "functions")
    watch_functions(arrivals)
    watch_buffers(arrivals)
    if arrivals.kind == "hooks":
        watch_groups(lambda group, ranks: Hooks(arrivals, group) if len(ranks) == flight.world
                     else HooksOfSome(arrivals, group, ranks))
