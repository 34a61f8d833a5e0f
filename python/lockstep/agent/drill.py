"""Step LOCKSTEP_PROGRAM_DRILL, from 1, operator by operator: of every call of torch that makes something with a
gradient its name, module, line and a fingerprint of each output, and of the gradient that comes back to it; of
every parameter its values when the first operator used it, and the gradient before any reduction. Lines are kept
until the step has ended. It judges nothing."""
import functools
import inspect
import json
import os

from . import drill_whole
from .optimizers import user_line
from .shards import is_shard
from .sketches import drawn, sketch

MOST_BYTES = 64 << 20  # of a rank
MOST_CALLS = 50_000
MOST_OUTPUTS = 16  # of a call
MOST_ROWS = 16_384  # of a tensor, each with two numbers
MOST_IN_A_ROW = 1 << 22
MOST_USERS = 64  # of a parameter; of one that has more, no others are told
MOST_CARRIED = 2  # numbers that a tensor was made with; more are likely data


class Leaf:
    """A parameter that an operator was given."""

    def __init__(self, tensor, hook):
        self.tensor = tensor  # kept, so that its id is no other's
        self.hook = hook
        self.values = None  # the sketch of what the first operator used
        self.version = 0
        self.later, self.later_call = None, 0  # of what a later operator used, where it was written to in between, and which one
        self.gradient = None  # the sum over the backwards of the step
        self.users = []  # calls

    def used(self, call):
        if len(self.users) < MOST_USERS:
            self.users.append(call)
        if self.values is None:
            self.values, self.version = sketch(self.tensor), self.tensor._version
        elif self.later is None and self.tensor._version != self.version:
            self.later, self.later_call = sketch(self.tensor), call


class Drill:
    def __init__(self, recorder, step):
        self.recorder, self.step = recorder, step
        self.lines, self.bytes, self.calls, self.why = [], 0, 0, ""
        self.quiet = False  # the agent itself calls torch, or a call is under way
        self.roots, self.path = {}, []  # names of modules by the outermost one; the calls of modules under way
        self.leaves = {}  # by the id of the parameter
        self.samples = self.batch = 0  # all of the step so far; those of the last forward

    def is_under_way(self):
        """Whether or not gradients are."""
        return self.recorder.steps == self.step - 1 and not self.quiet and not self.why and not self.recorder.stepping

    def is_before(self):
        """In an earlier step, whose means and counts a later one may be given. Not before the first batch or forward: what is made
        of the data set is no batch's."""
        begun = self.recorder.steps or self.recorder.position or self.recorder.calls
        return bool(begun) and self.recorder.steps < self.step - 1 and not self.quiet and not self.recorder.stepping

    def before_training(self):
        """Which iteration of a loader is under way, before the first forward of a model; else 0: what is made then is of a batch."""
        return self.recorder.deals.iterations if self.recorder.steps == 0 and not self.recorder.calls else 0

    def is_on(self):
        import torch
        return self.is_under_way() and torch.is_grad_enabled()

    def add(self, line):
        text = json.dumps(line)
        self.bytes += len(text)
        if self.bytes > MOST_BYTES or self.calls > MOST_CALLS:
            self.why, self.lines = "the step has too many operators, or too large ones", []
        elif not self.why:
            self.lines.append(text)

    def refuse(self, why):
        if self.recorder.steps == self.step - 1:
            self.why = self.why or why

    def took(self, name, given, result):
        """A call is over: notes it if it made something with a gradient. `given`: of inputs()."""
        outputs = [tensor for tensor in tensors_of(result) if has_history(tensor)][:MOST_OUTPUTS]
        if not outputs or not self.is_on():
            return
        self.quiet = True
        self.count_samples()
        inputs, leaves, wholes, numbers, indices = given
        try:
            for leaf in leaves:
                leaf.used(self.calls)
            module, kind = self.path[-1][:2] if self.path else ("", "")
            self.add({"kind": "call", "name": name, "module": module, "class": kind, "line": user_line(),
                      "samples": self.samples, "inputs": inputs, "wholes": self.wholes(wholes),
                      "numbers": numbers, "indices": [[len(one), *norms(one.double())] for one in indices],
                      "outputs": [fingerprint(tensor, self.batch) for tensor in outputs]})
            for number, tensor in enumerate(outputs):
                tensor._lockstep_call = self.calls
                tensor.register_hook(functools.partial(self.came_back, self.calls, number, self.batch))
            self.calls += 1
        finally:
            self.quiet = False

    def made(self, func, given, result):
        """A call is over that made nothing with a gradient."""
        self.quiet = True
        try:
            drill_whole.take((name_of(func), user_line, self.before_training()), given, tensors_of(given), tensors_of(result))
            numbers = given_numbers(given)
            for tensor in tensors_of(result) if 0 < len(numbers) <= MOST_CARRIED else ():
                tensor._lockstep_numbers = numbers
        finally:
            self.quiet = False

    def count_samples(self):
        now = len(self.recorder.samples)
        if now != self.samples:
            self.samples, self.batch = now, now - self.samples

    def came_back(self, call, output, batch, gradient):
        """From the backward."""
        if self.recorder.steps != self.step - 1 or self.why:
            return
        quiet, self.quiet = self.quiet, True
        try:
            if gradient is not None and not is_shard(gradient):
                self.add({"kind": "gradient", "call": call, "output": output, **fingerprint(gradient, batch)})
        finally:
            self.quiet = quiet

    def inputs(self, args, kwargs):
        """Which calls made them, which parameters are among them, what has no gradient, numbers of Python's, and lists of whole
        numbers, such as labels."""
        import torch
        made, leaves, wholes, indices = [], [], [], []
        for tensor in tensors_of((args, kwargs)):
            call = getattr(tensor, "_lockstep_call", None)
            if call is not None:
                if call not in made:
                    made.append(call)
            elif tensor.requires_grad and tensor.is_leaf and not is_shard(tensor):
                leaves.append(self.leaf_of(tensor))
            elif is_constant(tensor) and len(wholes) < MOST_OUTPUTS:
                wholes.append(tensor)
            elif tensor.dtype == torch.int64 and tensor.dim() == 1 and len(indices) < MOST_OUTPUTS:
                indices.append(tensor)
        return made, leaves, wholes, given_numbers((args, kwargs)), indices

    def wholes(self, tensors):
        """Name: what made it of a batch as a whole; empty: nothing did. Kept: while a loader gave batches before the training."""
        return [{"name": name, "line": line, "kept": 0 < iteration < self.recorder.deals.iterations, **fingerprint(tensor, self.batch)}
                for tensor in tensors for name, line, iteration in [drill_whole.made_of(tensor) or ("", "", 0)]]

    def leaf_of(self, tensor):
        key = id(tensor)
        if key not in self.leaves:
            self.leaves[key] = Leaf(tensor, tensor.register_hook(functools.partial(self.summed, key)))
        return self.leaves[key]

    def summed(self, key, gradient):
        """Of one backward: of several, the sum is kept."""
        if gradient is None or self.recorder.steps != self.step - 1 or is_shard(gradient):
            return
        quiet, self.quiet = self.quiet, True
        try:
            leaf = self.leaves[key]
            leaf.gradient = gradient.detach().clone() if leaf.gradient is None else leaf.gradient + gradient
        finally:
            self.quiet = quiet

    def step_ended(self, params):
        """recorder.steps counts it already. Of another model's parameters with the names of those that were updated, nothing is told."""
        if self.recorder.steps != self.step:
            return
        self.quiet = True
        own = {id(param) for param in params}
        taken = {self.recorder.names.get(key) for key in own}
        for key, leaf in self.leaves.items():
            leaf.hook.remove()
            if leaf.values and key in self.recorder.names and (key in own or self.recorder.names[key] not in taken):
                self.add({"kind": "parameter", "name": self.recorder.names[key], "values": leaf.values,
                          "gradient": sketch(leaf.gradient), "later": leaf.later, "later_call": leaf.later_call,
                          "users": leaf.users if len(leaf.users) < MOST_USERS else []})
        self.leaves = {}
        end = {"kind": "end", "calls": self.calls, "why": self.why}
        with open(f"{self.recorder.folder}/drill-{self.recorder.rank}.jsonl", "x", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in [*self.lines, json.dumps(end)]))
        self.lines = []

    def names_in(self, root):
        if id(root) not in self.roots:
            import torch
            inner = root.module if isinstance(root, torch.nn.parallel.DistributedDataParallel) else root
            self.roots[id(root)] = root, {id(part): name for name, part in inner.named_modules()}
        return self.roots[id(root)][1]


def tensors_of(value):
    import torch
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for part in value for tensor in tensors_of(part)]


def numbers_of(value):
    """Fractions alone: whole numbers are mostly sizes and dimensions."""
    if isinstance(value, float):
        return [value] if abs(value) < float("inf") else []
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [number for part in value for number in numbers_of(part)][:MOST_OUTPUTS]


def given_numbers(value):
    """And those with which tensors without a gradient were made, as a mask by a threshold."""
    carried = [number for tensor in tensors_of(value) for number in getattr(tensor, "_lockstep_numbers", ())]
    return (numbers_of(value) + carried)[:MOST_OUTPUTS]


def is_constant(tensor):
    """Without a gradient; or a mask that was made of a batch as a whole."""
    import torch
    is_mask = tensor.dtype == torch.bool and drill_whole.made_of(tensor) is not None
    return not tensor.requires_grad and (tensor.is_floating_point() or is_mask) and not is_shard(tensor)


def has_history(tensor):
    try:
        return tensor.requires_grad and not tensor.is_leaf and tensor.is_floating_point() and not is_shard(tensor)
    except RuntimeError:  # a row of a parameter, written to under no_grad(), which has none to show: Embedding's padding
        return False


@functools.lru_cache(maxsize=64)
def directions(count):
    """Not signs, which may be the same twice where a row is short."""
    import torch
    return drawn(count, lambda own: torch.randn(count, 2, generator=own, dtype=torch.float64))


def projected(rows):
    """Two numbers for each row."""
    count = rows.shape[0]
    rows = rows.reshape(count, -1) if rows.numel() else rows.reshape(count, 0)
    if count > MOST_ROWS or rows.shape[1] > MOST_IN_A_ROW:
        return None
    return finite((rows @ directions(rows.shape[1])).reshape(-1).tolist())


def finite(values):
    return [value if abs(value) < float("inf") else None for value in values]


def norms(values):
    """Whatever the order of the elements: their sum, and three norms."""
    return finite([float(values.sum()), *(float(values.norm(power)) for power in (1, 2, 4))])


def fingerprint(tensor, batch):
    """Linear, so that what belongs to the rows of several ranks can be told from one device's, and so can a sum or mean.
    Columns are rows of the second dimension, where it may be that of the samples."""
    import torch
    with torch.no_grad():
        values = tensor.detach()
        values = (values.to_dense() if values.layout != torch.strided else values).double().cpu()
        found = {"shape": list(values.shape), "norms": norms(values), "rows": projected(values if values.dim() else values.reshape(1))}
        if batch and values.dim() > 1 and values.shape[1] % batch == 0:
            found["columns"] = projected(values.transpose(0, 1))
        return found


def name_of(function):
    from torch.overrides import resolve_name
    name = resolve_name(function) or getattr(function, "__qualname__", None) or str(function)
    return name[:-len(".__get__")] if name.endswith(".__get__") else name


def watch(recorder):
    """After those that replace functions of torch."""
    step = os.environ.get("LOCKSTEP_PROGRAM_DRILL")
    if not step:
        return
    recorder.drill = Drill(recorder, int(step))
    watch_functions(recorder.drill)
    watch_indexing(recorder.drill)
    watch_autograd(recorder.drill)
    watch_modules(recorder.drill)


def watched(drill, func, args, kwargs):
    if not drill.is_on():
        seen = drill.is_under_way() or drill.is_before()
        return unrecorded(drill, func, args, kwargs) if seen else func(*args, **kwargs)
    inputs = drill.inputs(args, kwargs)
    drill.quiet = True
    try:
        result = func(*args, **kwargs)
    finally:
        drill.quiet = False
    if any(has_history(tensor) for tensor in tensors_of(result)):
        drill.took(name_of(func), inputs, result)
    else:
        drill.made(func, (args, kwargs), result)
    return result


def unrecorded(drill, func, args, kwargs):
    """Without gradients, or of an earlier step."""
    drill.quiet = True
    try:
        result = func(*args, **kwargs)
    finally:
        drill.quiet = False
    if not any(has_history(tensor) for tensor in tensors_of(result)):
        drill.made(func, (args, kwargs), result)
    return result


def watch_functions(drill):
    from torch.overrides import TorchFunctionMode

    class Watching(TorchFunctionMode):
        """A function of torch that others call is not seen within them: the mode is off there."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            return watched(drill, func, args, kwargs or {})
    Watching().__enter__()


def watch_indexing(drill):
    """With one index PyTorch before 2 asks no mode; with several it asks within this, where the drill is quiet."""
    import torch
    index = torch.Tensor.__getitem__

    def indexed(self, key):
        return watched(drill, index, (self, key), {})
    torch.Tensor.__getitem__ = indexed


def watch_autograd(drill):
    """Functions with a backward of their own; no mode sees them."""
    import torch
    method = inspect.getattr_static(torch.autograd.Function, "apply")

    def apply(cls, *args, **kwargs):
        call = method.__get__(None, cls)
        if not drill.is_on():
            return call(*args, **kwargs)
        inputs = drill.inputs(args, kwargs)
        result = call(*args, **kwargs)
        if cls.__name__ == "_DDPSink":  # of DistributedDataParallel itself; passes on what it is given
            for before, after in zip(tensors_of(args), tensors_of(result)):
                after._lockstep_call = getattr(before, "_lockstep_call", None)
            return result
        drill.took(f"{cls.__name__}.apply", inputs, result)
        return result
    torch.autograd.Function.apply = classmethod(apply)


def watch_modules(drill):
    import torch
    call = torch.nn.Module.__call__

    @functools.wraps(call)
    def called(self, *args, **kwargs):
        if not drill.is_on():
            return call(self, *args, **kwargs)
        root = drill.path[0][2] if drill.path else self
        name = drill.names_in(root).get(id(self), "")
        drill.path.append((name, type(self).__name__, root))
        try:
            return call(self, *args, **kwargs)
        finally:
            drill.path.pop()
    torch.nn.Module.__call__ = called
