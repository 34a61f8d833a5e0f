"""What a rank is doing: loading, forward, backward, the optimizer's step. A step is one of an optimizer."""
import functools

from ..steps import watch_steps
from .ends import noting_breaks
from .flight import BACKWARD, CONSTRUCTION, FORWARD, LOAD, OPTIMIZER, TEARDOWN


class Steps:
    def __init__(self, flight):
        self.flight, self.depth, self.buckets = flight, 0, 0
        self.by_hand = None  # of ..steps: steps without an optimizer

    def enter(self, phase):
        """The fault of a phase acts at its beginning, and its time is the phase's."""
        flight = self.flight
        if phase != OPTIMIZER and self.by_hand is not None:
            self.by_hand.settle()
        if flight.step == 0:
            flight.step = 1
        if flight.phase != phase:
            flight.arrivals.look()
            flight.enter(phase)
            flight.faults.at_phase(phase)

    def end(self):
        flight = self.flight
        flight.end_step()
        flight.step += 1
        flight.phase = 0
        self.enter(LOAD)  # what the loop does until the next forward


def watch(flight):
    import torch
    steps = flight.steps = Steps(flight)
    watch_forwards(torch, steps)
    watch_backwards(torch, steps)
    watch_optimizers(steps)
    watch_loaders(torch, steps)
    if torch.distributed.is_available():
        watch_construction(torch, flight)


def watch_forwards(torch, steps):
    call = torch.nn.Module.__call__

    @functools.wraps(call)
    def called(self, *args, **kwargs):
        steps.flight.arrivals.forward_begins(self)
        if steps.depth or not steps.flight.here():
            return call(self, *args, **kwargs)
        if not torch.is_grad_enabled() or not self.training:
            steps.flight.alive()
            return call(self, *args, **kwargs)
        if not any(param.requires_grad for param in self.parameters()):
            return call(self, *args, **kwargs)  # a loss
        with noting_breaks(steps.flight):
            steps.enter(FORWARD)
        steps.depth += 1
        try:
            with noting_breaks(steps.flight):
                return steps.flight.faults.slowed(lambda: call(self, *args, **kwargs))
        finally:
            steps.depth -= 1
    torch.nn.Module.__call__ = called


def watch_backwards(torch, steps):
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def counted(*args, **kwargs):
        if steps.depth or not steps.flight.here():
            return backward(*args, **kwargs)
        with noting_breaks(steps.flight):
            steps.enter(BACKWARD)
            return summed(*args, **kwargs)

    def summed(*args, **kwargs):
        steps.buckets = 0
        if steps.flight.faults.skips_backward():
            return None
        result = steps.flight.faults.slowed_backward(lambda: backward(*args, **kwargs))
        steps.flight.arrivals.backward_ended()
        if steps.buckets:  # DistributedDataParallel waits for its buckets before backward returns
            steps.enter(OPTIMIZER)  # clipping and the like included
        return result
    torch.autograd.backward = counted


def watch_optimizers(steps):
    def around(_, step):
        if not steps.flight.here():
            return step()
        steps.enter(OPTIMIZER)
        result = step()
        steps.flight.arrivals.look()
        steps.end()
        return result
    steps.by_hand = watch_steps(around)


def watch_loaders(torch, steps):
    from torch.utils import data
    iterate = data.DataLoader.__iter__

    @functools.wraps(iterate)
    def iterated(self):
        number, batches = 0, iterate(self)
        while True:
            if torch.is_grad_enabled() and steps.flight.here():
                steps.enter(LOAD)
                if steps.flight.faults.ends_loader(self, number):
                    return
            else:
                steps.flight.alive()
            try:
                batch = next(batches)
            except StopIteration:
                return
            number += 1
            yield batch
    data.DataLoader.__iter__ = iterated


def watch_construction(torch, flight):
    """DistributedDataParallel's constructor; the end of the group."""
    dist, DDP = torch.distributed, torch.nn.parallel.DistributedDataParallel
    begin, destroy = DDP.__init__, dist.distributed_c10d.destroy_process_group

    @functools.wraps(begin)
    def init(self, module, *args, **kwargs):
        phase = flight.phase
        flight.enter(CONSTRUCTION)
        flight.faults.at_phase(CONSTRUCTION)
        flight.faults.change_construction(kwargs)
        with flight.arrivals.of_construction(module):
            begin(self, module, *args, **kwargs)
        flight.arrivals.take(self)
        if flight.step > 0:
            flight.enter(phase)

    @functools.wraps(destroy)
    def destroyed(*args, **kwargs):
        if flight.phase != TEARDOWN:
            flight.steps.by_hand.settle()
            flight.enter(TEARDOWN)
            flight.faults.at_phase(TEARDOWN)
        return destroy(*args, **kwargs)
    DDP.__init__ = init
    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroyed
