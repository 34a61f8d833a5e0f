"""The steps of optimizers. One within another's, as in ZeroRedundancyOptimizer, is part of that. Where a script makes no optimizer and
updates its weights itself, its updates are steps."""
import functools
import types

from .writes import WATCHED, is_changed, is_weight


class ByHand:
    """Updates without an optimizer: one is over when the next batch, forward or backward begins, and is told then."""

    def __init__(self, around):
        self.around = around
        self.open = self.busy = self.over = False  # open: a backward came since the last step
        self.inside = False  # a backward is under way
        self.seen = None  # a weight as it was, before the script wrote to it or only looked at it

    def wrote(self, tensor):
        if self.busy or not self.open or not is_weight(tensor):
            return
        self.busy = True
        try:
            if self.seen is None or not is_changed(*self.seen):
                self.seen = tensor, tensor.detach().clone()
        finally:
            self.busy = False

    def settle(self):
        if self.seen is None or self.busy or not is_changed(*self.seen):
            return
        self.seen, self.open = None, False
        self.around(self, lambda: None)

    def backward_begins(self):
        self.settle()
        if not self.over:
            self.open = True
            WATCHED.add(self.wrote)

    def optimizer_made(self):
        self.settle()
        self.seen, self.over = None, True
        WATCHED.remove(self.wrote)


def watch_steps(around, made=lambda optimizer: None):
    """`made(optimizer)` for each that is made; instead of its outermost step, `around(optimizer, step)`. Returns what is told where
    a step without an optimizer is over."""
    import torch
    begin, backward = torch.optim.Optimizer.__init__, torch.autograd.backward
    under_way, by_hand = [], ByHand(around)

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        by_hand.optimizer_made()
        begin(self, *args, **kwargs)
        step = self.step.__func__

        def stepped(self, *args, **kwargs):
            if under_way:
                return step(self, *args, **kwargs)
            under_way.append(self)
            try:
                return around(self, lambda: step(self, *args, **kwargs))
            finally:
                under_way.pop()
        self.step = types.MethodType(stepped, self)  # a method: schedulers look for its __func__
        made(self)

    @functools.wraps(backward)
    def begun(*args, **kwargs):
        if by_hand.inside:  # a checkpoint's
            return backward(*args, **kwargs)
        by_hand.backward_begins()
        by_hand.inside = True
        try:
            return backward(*args, **kwargs)
        finally:
            by_hand.inside = False
    torch.optim.Optimizer.__init__, torch.autograd.backward = init, begun
    return by_hand
