"""Communication hooks of the script. One that loses a part of a gradient on purpose is measured where the user says how much
it may lose: what it leaves of a bucket is compared with the mean of what the ranks gave it. That mean goes on to the
optimizer, so that all else is judged as if nothing were lost."""
import functools
import os

from .optimizers import joined
from .sketches import digest


class Measured:
    """All steps so far. Of a bucket and a step: `error`, the distance of the hook's result from the mean of the ranks'
    gradients, over that mean's norm; `owed`, the norm of the sum of these differences up to now, over the largest such norm
    up to now: a hook with error feedback makes up later for what it leaves out. The same with the part of the last rank
    taken out of the result, as the control."""

    def __init__(self, recorder):
        self.recorder = recorder
        self.sums, self.largest = {}, {}  # by bucket: of the differences, of both kinds; of the norms
        self.used = []  # tensors that a thread of Gloo may still hold, which then needs no GIL to let go of them
        self.begin_step()

    def begin_step(self):
        self.worst, self.buckets, self.digests = [0.0] * 4, 0, []

    def around(self, ddp, hook):
        @functools.wraps(hook)
        def measured(state, bucket):
            import torch
            given = bucket.buffer().detach().to(torch.float64, copy=True)
            result = hook(state, bucket).wait()
            result = result[0] if isinstance(result, (list, tuple)) else result
            mean, without_last = self.means(ddp.process_group, given)
            self.used.append(result)
            if ddp.process_group.size() > 1:
                self.note(tuple(map(id, bucket.parameters())), result, mean, without_last)
            done = torch.futures.Future()
            done.set_result(mean.to(result.dtype))
            return done
        return measured

    def means(self, group, given):
        """Of all ranks, and of all but the last, both over the number of all."""
        import torch
        last = group.rank() == group.size() - 1
        both = torch.stack([given, torch.zeros_like(given) if last else given])
        self.recorder.quiet = True
        try:
            group.allreduce([both]).wait()
        finally:
            self.recorder.quiet = False
        self.used = [both]
        return both / group.size()

    def note(self, bucket, result, mean, without_last):
        difference = result.detach().double().reshape(-1) - mean
        spoiled = difference - (mean - without_last)
        sums = self.sums.get(bucket, (0, 0))
        self.sums[bucket] = sums = (sums[0] + difference, sums[1] + spoiled)
        norm = float(mean.norm())
        largest = self.largest[bucket] = max(self.largest.get(bucket, 0), norm)
        found = (over(difference, norm), over(sums[0], largest), over(spoiled, norm), over(sums[1], largest))
        self.worst = [larger(one, other) for one, other in zip(self.worst, found)]
        self.buckets += 1
        self.digests.append(digest([result]))

    def take_step(self):
        """What was noted since the step before; empty where no hook was called."""
        if not self.buckets:
            return {}
        values = [value if value < float("inf") else None for value in self.worst]
        facts = dict(zip(("error", "owed", "control_error", "control_owed"), values))
        facts.update(buckets=self.buckets, hash=joined(self.digests))
        self.begin_step()
        return {"comm_hook": facts}


def over(vector, norm):
    length = float(vector.norm())
    return length / norm if norm > 0 else 0.0 if length == 0 else float("inf")


def larger(one, other):
    """No number is larger than any."""
    return one if one >= other else other if other == other else float("inf")


def name_of(hook):
    while isinstance(hook, functools.partial):
        hook = hook.func
    return str(getattr(hook, "__name__", type(hook).__name__))[:100]


def python_hook(ddp, kind):
    """State and function in place of one of the reducer's own, which runs in C++; None where there is no such."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    hooks = {"ALLREDUCE": default_hooks.allreduce_hook, "FP16_COMPRESS": default_hooks.fp16_compress_hook}
    return (ddp.process_group, hooks[kind.name]) if kind.name in hooks else None


def watch(recorder):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    register, built_in = DDP.register_comm_hook, DDP._register_builtin_comm_hook
    if os.environ.get("LOCKSTEP_PROGRAM_LOSSY_HOOK"):
        recorder.lossy = Measured(recorder)

    @functools.wraps(register)
    def registered(self, state, hook):
        recorder.end["comm_hook"] = recorder.end["comm_hook"] or name_of(hook)
        register(self, state, recorder.lossy.around(self, hook) if recorder.lossy else hook)

    @functools.wraps(built_in)
    def registered_built_in(self, kind):
        hook = recorder.lossy and python_hook(self, kind)
        if hook:
            return registered(self, *hook)
        recorder.end["comm_hook"] = recorder.end["comm_hook"] or kind.name.lower()
        return built_in(self, kind)
    DDP.register_comm_hook, DDP._register_builtin_comm_hook = registered, registered_built_in
