"""Gradients that the program reduces itself, and clipping: what came first."""


def watch(recorder):
    import torch.distributed as dist
    from torch.nn import utils
    if dist.is_available():
        reduce = dist.all_reduce

        def reduced(tensor, *args, **kwargs):
            recorder.reduced.add(tensor.data_ptr())
            if recorder.clipped:
                recorder.reduced_late.add(tensor.data_ptr())
            return reduce(tensor, *args, **kwargs)
        dist.all_reduce = dist.distributed_c10d.all_reduce = reduced
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        setattr(utils, name, noting_clip(recorder, getattr(utils, name)))
        setattr(utils.clip_grad, name, getattr(utils, name))


def noting_clip(recorder, clip):
    def clipped(*args, **kwargs):
        recorder.clipped = True
        return clip(*args, **kwargs)
    return clipped


def unreduced(recorder, names, params):
    """Those whose gradient no all_reduce was given, where no DistributedDataParallel does it."""
    if recorder.models or recorder.world == 1:
        return []
    return [name for name, param in zip(names, params)
            if param.grad is not None and param.grad.data_ptr() not in recorder.reduced]


def clipped_early(recorder, grads):
    """Before the last backward, or before an all_reduce of a gradient itself."""
    return recorder.backward_after_clip or any(
        grad is not None and grad.data_ptr() in recorder.reduced_late for grad in grads)
