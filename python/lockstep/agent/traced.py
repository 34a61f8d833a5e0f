"""When within a step each gradient is there and each bucket's collective begins and ends, for `lockstep sweep --predict
-- COMMAND`: in runs of their own, of which no step time is taken. A comm hook in place of DistributedDataParallel's own
sum does the same sum; one of the script's is called as it would be. It judges nothing."""
import time

from .comm_hooks import python_hook


def watch(trace):
    import torch
    watch_backwards(torch, trace)
    watch_forwards(torch, trace)
    watch_hooks(torch, trace)


class Trace:
    """Of the first DistributedDataParallel. Times are of CLOCK_MONOTONIC, which ranks of a host share."""

    def __init__(self):
        self.models, self.facts, self.steps, self.order = [], {}, [], []
        self.order_is_known = False  # once a step with gradients has ended
        self.gradients = 0  # that were there since the begin
        self.hooks = {}  # by the model whose hook it is
        self.begin_step()

    def begin_step(self):
        self.forward = self.backward = self.backwards = 0
        self.ready, self.buckets = [0] * len(self.facts.get("elements", ())), []

    def end_step(self, end_ns, counts):
        self.order_is_known = self.order_is_known or bool(self.order)
        if counts:
            self.steps.append({"forward_ns": self.forward, "backward_ns": self.backward, "backwards": self.backwards,
                               "ready_ns": self.ready, "buckets": self.buckets, "end_ns": end_ns})
        self.begin_step()

    def take(self, ddp):
        import torch
        import torch.distributed as dist
        self.models.append(ddp)
        self.sum_by(ddp)
        if len(self.models) > 1:
            return
        ignored = set(getattr(ddp, "parameters_to_ignore", ()))
        parameters = [parameter for name, parameter in ddp.module.named_parameters()
                      if parameter.requires_grad and name not in ignored]
        # Until PyTorch 2 the first bucket is small whatever the cap is, from there on only at the default.
        small = getattr(ddp, "bucket_bytes_cap_default", True)
        self.facts = {"elements": [parameter.numel() for parameter in parameters],
                      "dtypes": [str(parameter.dtype).replace("torch.", "") for parameter in parameters],
                      "rebuilds": not ddp.find_unused_parameters or bool(getattr(ddp, "static_graph", False)),
                      "first_follows_cap": hasattr(ddp, "bucket_bytes_cap_default"),
                      "first_bucket_bytes": dist._DEFAULT_FIRST_BUCKET_BYTES if small else ddp.bucket_bytes_cap}
        self.begin_step()
        for place, parameter in enumerate(parameters):
            parameter.register_hook(torch.utils.hooks.unserializable_hook(self.noting(place)))

    def noting(self, place):
        def ready(_):
            self.ready[place] = time.perf_counter_ns()
            self.gradients += 1
            if not self.order_is_known:
                self.order.append(place)
        return ready

    def sum_by(self, ddp):
        """Unless its constructor has registered a hook itself."""
        if id(ddp) in self.hooks:
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        self.hooks[id(ddp)] = ddp.process_group, default_hooks.allreduce_hook
        self.register(ddp, None, self.timed(lambda _, bucket: self.call_hook(ddp, bucket)))

    def call_hook(self, ddp, bucket):
        state, hook = self.hooks[id(ddp)]
        return hook(state, bucket)

    def timed(self, hook):
        def hooked(state, bucket):
            buffer = bucket.buffer()
            times = [time.perf_counter_ns(), 0, buffer.numel() * buffer.element_size()]
            self.buckets.append(times)

            def done(future):
                times[1] = time.perf_counter_ns()
                return future.value()
            return hook(state, bucket).then(done)
        return hooked

    def written(self):
        return {"models": len(self.models), **self.facts, "order": self.order, "steps": self.steps}


def watch_backwards(torch, trace):
    backward = torch.autograd.backward

    def counted(*args, **kwargs):
        began, before = time.perf_counter_ns(), trace.gradients
        result = backward(*args, **kwargs)
        if trace.gradients != before:
            trace.backwards += 1
            trace.backward = trace.backward or began
        return result
    torch.autograd.backward = counted


def watch_forwards(torch, trace):
    DDP = torch.nn.parallel.DistributedDataParallel
    forward = DDP.forward

    def forwarded(self, *args, **kwargs):
        if torch.is_grad_enabled() and self.training:
            trace.forward = trace.forward or time.perf_counter_ns()
        return forward(self, *args, **kwargs)
    DDP.forward = forwarded


def watch_hooks(torch, trace):
    DDP = torch.nn.parallel.DistributedDataParallel
    trace.register, built_in = DDP.register_comm_hook, DDP._register_builtin_comm_hook

    def register(self, state, hook):
        if id(self) in trace.hooks:
            trace.hooks[id(self)] = state, hook
            return
        trace.hooks[id(self)] = state, hook
        trace.register(self, state, trace.timed(hook))

    def register_built_in(self, kind):
        hook = id(self) in trace.hooks and python_hook(self, kind)
        if hook:
            trace.hooks[id(self)] = hook
            return
        built_in(self, kind)
    DDP.register_comm_hook, DDP._register_builtin_comm_hook = register, register_built_in
