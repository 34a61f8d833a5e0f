"""The steps of optimizers. One within another's, as in ZeroRedundancyOptimizer, is part of that."""
import types


def watch_steps(around, made=lambda optimizer: None):
    """`made(optimizer)` for each that is made; instead of its outermost step, `around(optimizer, step)`."""
    import torch
    begin = torch.optim.Optimizer.__init__
    under_way = []

    def init(self, *args, **kwargs):
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
    torch.optim.Optimizer.__init__ = init
