"""A training without an optimizer: weights that the script updates itself, as by `p -= lr * p.grad`. Such a step begins with the
first write to a parameter after a backward, and is over where the next batch, forward or backward begins, or the process ends.
Writes are watched from the first backward on, as long as no optimizer was made."""
import contextlib
import functools
import weakref

from .imports import replace
from .optimizers import after_step, before_step, in_model_order, user_line
from .shards import is_shard
from .sketches import sketch
from .writes import Writes, is_changed, is_weight

RATE_NEAR = 1e-6  # of the update's norm: what a step along the gradient leaves over


class Touched:
    """A parameter as the script found it before it wrote to it, and its gradient."""

    def __init__(self, param):
        self.param, self.line = param, user_line()
        self.before = param.detach().clone()
        self.grad = param.grad
        self.gradient = None if self.grad is None else self.grad.detach().clone()

    def is_written(self):
        return is_changed(self.param, self.before)


class ByHand:
    """Stands where an optimizer would, with all parameters that backwards reached."""

    def __init__(self, recorder):
        self.recorder, self.number = recorder, None
        self.state, self.param_groups = {}, [{"params": [], "lr": 0.0}]
        self.touched = {}  # by id, in the order of the script
        self.exchanged = 0  # collectives of parameters themselves, since the first was written to
        self.writes = Writes(self.touch)
        self.over = self.busy = False  # over: an optimizer was made; busy: the agent itself writes

    # What the others tell.

    def backward_begins(self, loss):
        """loss: or several, of torch.autograd."""
        self.settle()
        self.over = self.over or bool(self.recorder.made) and not self.writes.begun
        if self.over:
            return
        self.writes.begin()
        if self.recorder.steps == 0:
            for param in leaves_of([loss] if hasattr(loss, "grad_fn") else loss):
                self.know(param)

    def optimizer_made(self):
        if not self.over:
            self.settle()
            self.over = True
            self.writes.end()
            self.recorder.made = [made for made in self.recorder.made if made() is not self]

    def collective(self, tensor):
        """Of parameters, as where weights are averaged: what they leave tells, and not the gradients that they came of."""
        if tensor.is_sparse or is_shard(tensor) or not any(one.is_written() for one in self.touched.values()):
            return
        params = self.param_groups[0]["params"]
        self.exchanged += (tensor.numel() >= sum(param.numel() for param in params)
                           or any(tensor.data_ptr() == param.data_ptr() for param in params))

    # What the script does.

    def know(self, param):
        params = self.param_groups[0]["params"]
        if is_shard(param) or any(one is param for one in params):
            return
        if not params:
            self.recorder.made.append(weakref.ref(self))
        params.append(param)

    def touch(self, tensor):
        if self.busy or not is_weight(tensor) or is_shard(tensor):
            return
        if not self.recorder.backwards and id(tensor) not in self.recorder.by_grad:
            return
        known = self.touched.get(id(tensor))
        if known is None or not known.is_written():
            self.busy = True
            try:
                self.touched[id(tensor)] = Touched(tensor)
            finally:
                self.busy = False

    def settle(self):
        """Is a step over, it is recorded."""
        if self.busy or not self.touched:
            return
        self.busy = True
        try:
            written = [one for one in self.touched.values() if one.is_written()]
            if written:
                self.record(written)
            self.touched, self.exchanged = {}, 0
        finally:
            self.busy = False

    def record(self, written):
        recorder = self.recorder
        for one in written:
            self.know(one.param)
        if self.number is None:
            self.number, recorder.optimizers = recorder.optimizers, recorder.optimizers + 1
        params = in_model_order(recorder, self.param_groups[0]["params"])
        rate, updates = rate_of(written), self.updates(params)
        with as_found(self.touched.values()):
            line = before_step(recorder, self.number, self, params)
        if rate is None:  # by another gradient than the one that is there
            line.update({"unreduced": [], "own_in_part": []})
        recorder.within_step += self.exchanged
        recorder.steps += 1
        recorder.write({"optimizer": self.number, "by_hand": True, "updates": updates, "options": [], "groups": [], **line,
                        "line": written[0].line, "drew_in_step": False, **after_step(recorder, self.number, self, params),
                        "lr": [] if rate is None else [rate]})
        recorder.step_ended(self.number, params)
        if recorder.drill is not None:
            recorder.drill.step_ended()

    def updates(self, params):
        import torch
        taken = {key: one.before - one.param.detach() for key, one in self.touched.items()
                 if one.before.shape == one.param.shape}
        return [sketch(taken[id(param)] if id(param) in taken else torch.zeros_like(param)) for param in params]


def leaves_of(losses):
    """Of their graphs, each once, nearest first."""
    found, seen, waiting = [], set(), [getattr(loss, "grad_fn", None) for loss in losses]
    while waiting:
        one = waiting.pop(0)
        if one is None or one in seen:
            continue
        seen.add(one)
        if hasattr(one, "variable"):
            found.append(one.variable)
        waiting += [following for following, _ in one.next_functions]
    return found


def rate_of(written):
    """The learning rate, where all that was written is a step along the gradients by one factor; to six digits, since more are
    the rounding's. None: it is no such step."""
    import torch
    if any(one.gradient is None or one.gradient.is_sparse or one.param.shape != one.before.shape for one in written):
        return None
    update = torch.cat([(one.before - one.param.detach()).reshape(-1) for one in written]).double()
    gradient = torch.cat([one.gradient.reshape(-1) for one in written]).double()
    square = float(gradient @ gradient)
    rate = float(update @ gradient) / square if square > 0 else 0.0
    left = float((update - rate * gradient).norm())
    return float(f"{rate:.6g}") if rate != 0 and left <= RATE_NEAR * float(update.norm()) else None


@contextlib.contextmanager
def as_found(touched):
    """Parameters and gradients as they were before the script wrote to them."""
    touched = list(touched)
    now = [(one, one.param.detach().clone(), one.param.grad, None if one.grad is None else one.grad.detach().clone())
           for one in touched]
    for one in touched:
        put_back(one.param, one.before, one.grad, one.grad, one.gradient)
    try:
        yield
    finally:
        for one, value, grad, gradient in now:
            put_back(one.param, value, one.grad, grad, gradient)


def put_back(param, value, written, grad, gradient):
    """A parameter's value, and what it has for a gradient; `gradient`: the numbers of `written`."""
    if param.shape == value.shape:
        param.detach().copy_(value)
    if written is not None:
        written.detach().copy_(gradient)
    param.grad = grad


def watch(recorder):
    import torch
    import torch.distributed as dist
    begin = torch.optim.Optimizer.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        recorder.by_hand.optimizer_made()
        begin(self, *args, **kwargs)
    torch.optim.Optimizer.__init__ = init
    if dist.is_available():
        end = dist.destroy_process_group

        @functools.wraps(end)
        def destroyed(*args, **kwargs):
            recorder.by_hand.settle()  # while its groups are there
            return end(*args, **kwargs)
        replace("destroy_process_group", end, destroyed)
