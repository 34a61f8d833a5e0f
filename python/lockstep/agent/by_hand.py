"""Weights that the script updates itself, as by `p -= lr * p.grad`, in a training without an optimizer or beside one. Such a step
begins with the first write to a parameter after a backward, and is over where the next batch, forward, backward or step of an
optimizer begins, or the process ends. Writes are watched from the first backward on that reaches what no optimizer has."""
import collections
import contextlib
import functools
import weakref

from .imports import replace
from .optimizers import after_step, before_step, in_model_order, user_line
from .shards import is_shard
from .sketches import sketch
from .writes import WATCHED, is_changed, is_weight

MOST_LOOKED = 16  # steps that look for parameters that backwards reach
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


class Trained:
    """Stands where an optimizer would: of parameters that are updated together, as those of one model."""

    def __init__(self):
        self.number, self.state, self.param_groups = None, {}, [{"params": [], "lr": 0.0}]
        self.params = self.param_groups[0]["params"]

    def has(self, param):
        return any(one is param for one in self.params)

    def take(self, params):
        self.params += [param for param in params if not self.has(param)]


class ByHand:
    def __init__(self, recorder):
        self.recorder = recorder
        self.trained = []  # what was updated yet
        self.reached = Trained()  # what backwards of this step reached beside it
        self.inputs = {}  # by id, leaves that models are given, weakly: no weights, as examples that are made adversarial
        self.touched = {}  # by id, in the order of the script
        self.exchanged = 0  # collectives of parameters themselves, since the first was written to
        self.busy = False  # the agent itself writes

    # What the others tell.

    def backward_begins(self, loss):
        """loss: or several, of torch.autograd."""
        self.settle()
        if self.recorder.steps < MOST_LOOKED and not self.recorder.stepping:
            self.know(leaves_of([loss] if hasattr(loss, "grad_fn") else loss))
        if self.reached.params or not self.optimizers():
            WATCHED.add(self.touch)

    def optimizers(self):
        own = [self.reached, *self.trained]
        return [made for made in self.recorder.made if made() is not None and not any(made() is one for one in own)]

    def optimizer_made(self):
        """Which may have what was updated by hand until now: that begins anew where it does not."""
        self.settle()
        WATCHED.remove(self.touch)
        self.recorder.made = self.optimizers()
        self.trained, self.reached = [], Trained()

    def collective(self, tensor):
        """Of parameters, as where weights are averaged: what they leave tells, and not the gradients that they came of."""
        if tensor.is_sparse or is_shard(tensor) or not any(one.is_written() for one in self.touched.values()):
            return
        params = [param for trained in (*self.trained, self.reached) for param in trained.params
                  if any(trained.has(one.param) for one in self.touched.values())]
        self.exchanged += (tensor.numel() >= sum(param.numel() for param in params)
                           or any(tensor.data_ptr() == param.data_ptr() for param in params))

    def given(self, tensors):
        """To a model, from outside."""
        import torch
        self.inputs.update({id(one): weakref.ref(one) for one in tensors if isinstance(one, torch.Tensor) and is_weight(one)
                            and not isinstance(one, torch.nn.Parameter)})

    # What the script does.

    def is_trained(self, tensor):
        """Beside an optimizer, or a model, what is no parameter may be a part of each rank's batch, as what is added to make it
        adversarial."""
        import torch
        if is_shard(tensor) or self.inputs.get(id(tensor), lambda: None)() is tensor:
            return False
        optimizers = [made() for made in self.optimizers()]
        if not isinstance(tensor, torch.nn.Parameter) and (optimizers or self.recorder.computed):
            return False
        return not any(tensor is param for one in optimizers for group in one.param_groups for param in group["params"])

    def know(self, params):
        owned = {id(param) for param in self.recorder.optimized()}
        found = [param for param in params if id(param) not in owned and self.is_trained(param)]
        if found and not self.optimizers():  # beside one it may never be updated
            self.count(self.reached)
        self.reached.take(found)

    def count(self, trained):
        """As an optimizer."""
        if not any(made() is trained for made in self.recorder.made):
            self.recorder.made.append(weakref.ref(trained))

    def touch(self, tensor):
        if self.busy or self.recorder.stepping or not is_weight(tensor):
            return
        if not self.recorder.backwards and id(tensor) not in self.recorder.by_grad and (tensor.grad is None or not self.optimizers()):
            return
        if not self.is_trained(tensor):
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
            for trained, own in self.sorted(written):
                self.record(trained, own)
            self.touched, self.exchanged = {}, 0
            if written:
                self.reached.params.clear()
        finally:
            self.busy = False

    def sorted(self, written):
        """What is new belongs to what is written with it, else with all that was reached."""
        found = [(trained, [one for one in written if trained.has(one.param)]) for trained in self.trained]
        found = [(trained, own) for trained, own in found if own]
        new = [one for one in written if not any(trained.has(one.param) for trained in self.trained)]
        if not new:
            return found
        params = [one.param for one in new]
        if found:
            found[0][0].take(params)
            found[0][1].extend(new)
            return found
        self.know(params)
        trained, self.reached = self.reached, Trained()
        trained.number, self.recorder.optimizers = self.recorder.optimizers, self.recorder.optimizers + 1
        self.trained.append(trained)
        self.count(trained)
        return [(trained, new)]

    def record(self, trained, written):
        recorder = self.recorder
        recorder.recall(trained.number)
        params = in_model_order(recorder, trained.params)
        rate, updates = rate_of(written), self.updates(params)
        with as_found(self.touched.values()):
            line = before_step(recorder, trained.number, trained, params)
        if rate is None:  # by another gradient than the one that is there
            line.update({"unreduced": [], "own_in_part": []})
        recorder.within_step += self.exchanged
        recorder.steps += 1
        recorder.write({"optimizer": trained.number, "by_hand": True, "updates": updates, "options": [], "groups": [], **line,
                        "line": written[0].line, "drew_in_step": False, **after_step(recorder, trained.number, trained, params),
                        "lr": [] if rate is None else [rate]})
        recorder.step_ended(trained.number, params)
        if recorder.drill is not None:
            recorder.drill.step_ended(params)

    def updates(self, params):
        import torch
        taken = {key: one.before - one.param.detach() for key, one in self.touched.items()
                 if one.before.shape == one.param.shape}
        return [sketch(taken[id(param)] if id(param) in taken else torch.zeros_like(param)) for param in params]


def leaves_of(losses):
    """Of their graphs, each once, nearest first."""
    found, seen, waiting = [], set(), collections.deque(getattr(loss, "grad_fn", None) for loss in losses)
    while waiting:
        one = waiting.popleft()
        if one is None or one in seen:
            continue
        seen.add(one)
        if hasattr(one, "variable"):
            found.append(one.variable)
        waiting.extend(following for following, _ in one.next_functions)
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
