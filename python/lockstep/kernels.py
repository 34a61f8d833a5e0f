"""Which operators of a model give a sample other bits in another batch, on another number of threads, or when run again.

    from lockstep import kernels

    print(kernels.look(model, inputs))

The model goes forward and backward over `inputs` (its arguments, samples in the first dimension) as a whole, then again, then
on another number of threads, then over some of the samples. Every operator's output is compared bit for bit with that of
the first pass, a sample's rows with the same sample's, and the first operator that differs is named, with its module:

    the same samples again:      the same bits
    2 threads, not 1:            the same bits
    8 of 16 samples (0 to 7):    the same bits
    1 of 16 samples (0):         aten.addmm in 0 (Linear), forward: other bits for this sample, at most 1 ulp

* Who differs when run again, or on other threads, breaks lockstep.invariant: a shard's gradient is not the same
  wherever it is computed.
* Whose bits depend on the batch does not: a shard is the same batch on every rank. It is one reason why accumulation and
  plain DistributedDataParallel have other bits than one device with the whole batch, and why the size of shards decides
  bits. The other reason, that gradients are sums over samples, which round in another order, always holds, and is not looked at.
* An operator for which samples are not independent (batch statistics, a loss over pairs) is told from a kernel's rounding
  by its name where it is known, else by how much it differs.

Not seen: what happens within one operator; operators of other libraries that PyTorch is not told of; after the
first difference, what follows from it. The backward starts from the same numbers for each sample, not from a loss. Gradients,
buffers and random streams are as before afterwards.
"""
import contextlib
import dataclasses

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Finding", "Report", "look"]

OVER_THE_BATCH = ("batch_norm",)
NO_ARITHMETIC = ("empty", "aten.clone", "aten.copy_", "aten._unsafe_view", "is_same_size")  # and not called for every shape
DRAWS = ("bernoulli", "dropout", "rand", "normal", "uniform", "multinomial", "exponential", "rrelu")
ROUNDING = 1e-3  # of the largest number, or some last places: beyond it, no order of additions alone
LAST_PLACES = 16


@dataclasses.dataclass(frozen=True)
class Finding:
    """The first operator that differs. `why`: kernel, draws, over_the_batch, other_operators or refused."""
    operator: str
    module: str  # "layer1.0 (Conv2d)"; empty outside of modules, and of a model that is none
    phase: str  # forward or backward
    why: str
    samples: int = 0  # that differ
    worst: str = ""

    def __str__(self):
        where = f"{self.operator}{f' in {self.module}' if self.module else ''}, {self.phase}"
        if self.why == "refused":
            return f"not looked at: the model refuses these samples alone ({self.worst})"
        if self.why == "other_operators":
            return f"{where}: the model calls other operators, and what follows was not compared"
        if self.why == "draws":
            return f"{where}: draws random numbers, another order of them; look without (p = 0) for what follows"
        if self.why == "over_the_batch":
            return f"{where}: a sample's result depends on the others', by {self.worst}: another function, not a kernel's rounding"
        whose = f" for {self.samples} samples" if self.samples > 1 else " for this sample" if self.samples else ""
        return f"{where}: other bits{whose}, at most {self.worst}"


@dataclasses.dataclass(frozen=True)
class Report:
    """Pairs of what was changed and the Finding, or None: the same bits."""
    again: Finding
    threads: tuple  # of pairs
    parts: tuple  # of pairs
    operators: int  # that were compared

    @property
    def repeats(self):
        """Whether a shard is the same wherever it is computed, as far as this machine can tell."""
        return self.again is None and all(found is None for _, found in self.threads)

    @property
    def depends_on_batch(self):
        """None: some part could not be compared to its end, and nothing differs up to there."""
        whys = {found.why for _, found in self.parts if found is not None}
        return True if whys & {"kernel", "over_the_batch"} else None if whys else False

    def __str__(self):
        rows = [("the same samples again", self.again), *self.threads, *self.parts]
        width = max(len(what) for what, _ in rows) + 1
        lines = [f"{what + ':':{width}}  {found or 'the same bits'}" for what, found in rows]
        return "\n".join([*lines, f"Compared: {self.operators} operators. {self._conclusion()}"])

    def _conclusion(self):
        if self.again is not None:
            return "A shard has other bits each time: virtual shards do not help."
        threads = ", with as many threads" if any(found for _, found in self.threads) else ""
        shard = f"A shard of these sizes has the same bits wherever it is computed{threads}"
        return {True: f"{shard}; in shards of other sizes, samples have other bits.",
                False: f"{shard}, and so has each sample in shards of other sizes.",
                None: f"{shard}; shards of other sizes were not compared to the end."}[self.depends_on_batch]


def look(model, *inputs, parts=None, threads=None):
    """See the module. `model`: a module, or a function that gives tensors with a row (or several) for each sample.

    parts:    ranges of samples to compute without the others; by default the first half, the rest but one, and one
    threads:  numbers of threads to compute with; by default 1 and 2, but the one in use
    """
    samples = _samples_of(inputs)
    if parts is None:
        half = (samples + 1) // 2
        parts = [range(half), range(samples - 1), range(1)] if samples > 1 else []
        parts = [part for place, part in enumerate(parts) if part and part not in parts[:place]]
    for part in parts:
        if not 0 <= part.start < part.stop <= samples or part.step != 1:
            raise ValueError(f"{part} of {samples} samples: a range of some of them")
    found_threads = torch.get_num_threads()
    threads = [count for count in (1, 2) if count != found_threads] if threads is None else threads
    first = _Tape()
    with _left_as_it_was(model):
        _run(model, inputs, range(samples), samples, first)
        again = _compared(model, inputs, range(samples), samples, first)
        on_threads = []
        for count in threads:
            torch.set_num_threads(count)
            found = _compared(model, inputs, range(samples), samples, first)
            on_threads.append((f"{count} thread{'s' if count > 1 else ''}, not {found_threads}", found))
            torch.set_num_threads(found_threads)
        of_parts = [(_part_text(part, samples), _compared(model, inputs, part, samples, first)) for part in parts]
    return Report(again, tuple(on_threads), tuple(of_parts), len(first.calls))


def _samples_of(inputs):
    counts = {one.shape[0] for one in inputs if isinstance(one, torch.Tensor) and one.dim()}
    if any(isinstance(one, torch.Tensor) and one.device.type != "cpu" for one in inputs):
        raise ValueError("operators are looked at on the CPU: a GPU's backward runs where they are not seen")
    if len(counts) != 1:
        raise ValueError("inputs: tensors that have the samples as their first dimension, all as many")
    return counts.pop()


def _part_text(part, samples):
    span = f"{part.start} to {part.stop - 1}" if len(part) > 1 else f"{part.start}"
    return f"{len(part)} of {samples} samples ({span})"


@contextlib.contextmanager
def _left_as_it_was(model):
    threads = torch.get_num_threads()
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    values = [buffer.detach().clone() for buffer in buffers]
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)
        _restore(buffers, values)


def _restore(buffers, values):
    with torch.no_grad():
        for buffer, value in zip(buffers, values):
            buffer.copy_(value)


class _Names:
    """Which module is under way, by hooks on all of them."""

    def __init__(self, model):
        self.path, self.hooks = [], []
        if not isinstance(model, torch.nn.Module):
            return
        inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
        for name, module in inner.named_modules():
            text = f"{name} ({type(module).__name__})" if name else type(module).__name__
            self.hooks += [module.register_forward_pre_hook(lambda *_, text=text: self.path.append(text)),
                           module.register_forward_hook(lambda *_: self.path.pop() and None)]

    def now(self):
        return self.path[-1] if self.path else ""

    def remove(self):
        for hook in self.hooks:
            hook.remove()


class _Tape(TorchDispatchMode):
    """What every operator of the first pass gave, copied."""

    def __init__(self):
        super().__init__()
        self.calls, self.names, self.phase, self.quiet = [], None, "forward", False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not self.quiet and not _is_view(func) and not any(word in str(func) for word in NO_ARITHMETIC):
            self.took(func, _tensors(result))
        return result

    def took(self, func, outputs):
        self.calls.append((str(func), [one.clone() for one in outputs], self.names.now()))


class _Comparison(_Tape):
    """Another pass, beside the first one."""

    def __init__(self, first, part, samples):
        super().__init__()
        self.first, self.part, self.samples = first, part, samples
        self.place, self.found = 0, None

    def took(self, func, outputs):
        if self.found is not None:
            return
        place, self.place = self.place, self.place + 1
        name, whole, module = self.first.calls[place] if place < len(self.first.calls) else ("", [], "")
        if name != str(func) or len(whole) != len(outputs):
            self.found = self.finding(str(func), self.names.now(), "other_operators")
            return
        for one, own in zip(whole, outputs):
            rows = _rows(one, own, self.part, self.samples)
            if rows is not None and self.found is None:
                self.found = self.difference(name, module, rows, own)

    def difference(self, name, module, expected, own):
        pairs = [pair for pair in expected if not _same(*pair)] if len(expected) > 0 else []
        if not pairs or len(pairs) < len(expected):
            return None  # of two ways to find a sample's rows one has the same bits
        one, own = min(pairs, key=lambda pair: _relative(*pair))
        far = _relative(one, own)
        why = ("draws" if any(word in name for word in DRAWS) else
               "over_the_batch" if any(word in name for word in OVER_THE_BATCH) or far > _rounding(own) else "kernel")
        whole = len(self.part) == self.samples
        return self.finding(name, module, "kernel" if whole and why == "over_the_batch" else why,
                            0 if whole else _differing_samples(one, own, len(self.part)), _worst(one, own, far))

    def finding(self, name, module, why, samples=0, worst=""):
        words = name.split(".")
        return Finding(".".join(words[:2]), module if self.phase == "forward" else "", self.phase, why, samples, worst)


def _compared(model, inputs, part, samples, first):
    comparison = _Comparison(first, part, samples)
    try:
        _run(model, inputs, part, samples, comparison)
    except (RuntimeError, ValueError) as error:
        if len(part) == samples:
            raise
        return comparison.found or Finding("", "", "", "refused", worst=str(error).splitlines()[0])
    return comparison.found


def _run(model, inputs, part, samples, tape):
    """The same samples have the same gradient of their outputs, whatever batch they are in."""
    is_module = isinstance(model, torch.nn.Module)
    buffers = list(model.buffers()) if is_module else []
    values = [buffer.detach().clone() for buffer in buffers]
    given = [one[part.start:part.stop].clone() if isinstance(one, torch.Tensor) and one.dim() else one for one in inputs]
    torch.manual_seed(1)
    tape.names = _Names(model)
    inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
    try:
        with tape:
            outputs = [one for one in _tensors(inner(*given)) if one.requires_grad]
            trained = [p for p in model.parameters() if p.requires_grad] if is_module else []
            if outputs and trained:
                tape.quiet = True
                slopes = [_slope(one, part, samples) for one in outputs]
                tape.phase, tape.quiet = "backward", False
                torch.autograd.grad(outputs, trained, slopes, allow_unused=True)
    finally:
        tape.names.remove()
        _restore(buffers, values)


def _slope(output, part, samples):
    """Random numbers that belong to a sample."""
    if not output.dim() or output.shape[0] % len(part):
        raise ValueError("the model's outputs must have the samples as their first dimension (no loss)")
    shape = (output.shape[0] // len(part) * samples, *output.shape[1:])
    draws = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    each = shape[0] // samples
    return draws[part.start * each:part.stop * each].to(output.device, output.dtype)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.layout == torch.strided else []
    if isinstance(value, dict):
        value = value.values()
    return [one for part in value for one in _tensors(part)] if hasattr(value, "__iter__") and not isinstance(value, str) else []


def _is_view(func):
    """Its result is memory that it was given, unchanged."""
    returns = func._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _rows(whole, own, part, samples):
    """[(the same rows of the first pass, those of this one)], in as many ways as they may lie; None: no rows of samples."""
    if whole.shape == own.shape and len(part) == samples:
        return [(whole, own)]
    if whole.dim() != own.dim():
        return None
    dims = [dim for dim in range(own.dim()) if whole.shape[dim] != own.shape[dim]]
    if len(dims) != 1 or whole.shape[dims[0]] % samples or own.shape[dims[0]] * samples != whole.shape[dims[0]] * len(part):
        return None
    (dim,) = dims
    each = whole.shape[dim] // samples
    ways = [(whole.narrow(dim, part.start * each, len(part) * each), own)]
    if each > 1:
        samples_last = whole.unflatten(dim, (each, samples)).narrow(dim + 1, part.start, len(part))
        ways.append((samples_last.reshape(own.shape), own))
    return ways


def _bits(tensor):
    values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return values.detach().contiguous().view(-1).view(kinds[values.element_size()]).clone()


def _same(one, other):
    return torch.equal(_bits(one), _bits(other))


def _relative(one, other):
    if not one.is_floating_point():
        return float("inf")
    one, other = one.detach().double(), other.detach().double()
    largest = float(one.abs().max())
    return float((one - other).abs().max()) / largest if largest > 0 else float("inf")


def _rounding(tensor):
    return max(ROUNDING, LAST_PLACES * torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() else ROUNDING


def _worst(one, other, far):
    return f"{far:.1e} of the largest number" if far < float("inf") else "a number that is none"


def _differing_samples(one, own, count):
    """Rows lie in the dimension that has as many as samples, or a multiple."""
    differing = (one != own) & ~((one != one) & (own != own))
    for dim in range(own.dim()):
        if own.shape[dim] % count == 0:
            rows = differing.movedim(dim, 0).reshape(count, -1)
            return int(rows.any(1).sum())
    return 0
