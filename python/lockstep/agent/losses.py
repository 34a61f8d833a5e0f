"""Backwards are counted; whether a loss was summed is noted."""
import contextlib
import functools
import inspect
import types

from . import inputs, untouched
from .shards import is_shard

MOST_TARGETS = 4096  # numbers of a step; of more there are none
LOSSES = ("cross_entropy", "mse_loss", "nll_loss", "l1_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits", "smooth_l1_loss", "huber_loss", "kl_div")


def counted_targets(recorder, name, args, kwargs):
    """How many targets a mean is of, where some may be ignored: the sum of their weights."""
    import torch
    target = args[1] if len(args) > 1 else kwargs.get("target")
    if name not in ("cross_entropy", "nll_loss") or kwargs.get("reduction", "mean") != "mean":
        return
    if isinstance(target, torch.Tensor) and not target.is_floating_point() and torch.is_grad_enabled():
        counted = target[target != kwargs.get("ignore_index", -100)]
        weight = args[2] if len(args) > 2 else kwargs.get("weight")
        recorder.targets.append(float(counted.numel() if weight is None else weight.detach()[counted].sum()))


def is_sum(node):
    """Is a loss a sum, or several of them, that nothing divides?"""
    name, sizes = type(node).__name__, getattr(node, "_saved_self_sizes", getattr(node, "_saved_self_sym_sizes", (1,)))
    of_one = name == "SumBackward0" and len(sizes) == 0  # loss.sum() of a number
    if not of_one and name in ("SumBackward0", "SumBackward1"):
        return True
    inner = [one for one, _ in node.next_functions if one is not None] if of_one or name in ("NegBackward0", "AddBackward0") else []
    return bool(inner) and all(is_sum(one) for one in inner)


def scale_of_sum(node):
    """By what a loss that is a sum over samples is multiplied; 0: it is none, or by what is not known."""
    scale = 1.0
    while type(node).__name__ in ("DivBackward0", "MulBackward0"):
        other = getattr(node, "_saved_other", None)
        if other is None or other.numel() != 1 or other.requires_grad or not float(other):
            return 0.0
        scale = scale / float(other) if type(node).__name__ == "DivBackward0" else scale * float(other)
        node = node.next_functions[0][0]
    return scale if getattr(node, "_saved_reduction", 0) == 2 or is_sum(node) else 0.0


def carries(recorder):
    """Does any parameter that is trained have a gradient of a step before?"""
    return any(values(param.grad).any().item() for param in recorder.optimized() if param.grad is not None)


def written(recorder):
    """By parameter that DistributedDataParallel holds: which tensor its gradient is, and how often that was written to."""
    return {id(param): (id(param.grad), param.grad._version) for model in recorder.models for _, param in model.params
            if param.grad is not None and not is_shard(param)}


def note_written(recorder, before):
    """What a backward left as it was took no part in it, nor in what DistributedDataParallel summed at its end."""
    to = recorder.written_unsynced if recorder.unsynced else recorder.written_synced
    own = {key for key, now in written(recorder).items() if before.get(key) != now}
    to |= own
    for model in recorder.models:
        late, summed, past = model.backward_wrote(own)
        recorder.written_late = (recorder.written_late | late) - summed
        recorder.written_past = (recorder.written_past | (late if past else set())) - summed


def values(tensor):
    """Of any layout, and of this rank's share alone."""
    own = tensor.to_local() if is_shard(tensor) else tensor
    return own._values() if own.is_sparse else own


def with_target(hands, *args, **kwargs):
    """Arguments of a loss of an output, with the target that it shall have."""
    if args and len(args) > 1 and getattr(args[0], "requires_grad", False):
        return (args[0], hands.target(args[1], args[0]), *args[2:]), kwargs
    output = args[0] if args else kwargs.get("input")
    if "target" in kwargs and getattr(output, "requires_grad", False):
        kwargs = {**kwargs, "target": hands.target(kwargs["target"], output)}
    return args, kwargs


@contextlib.contextmanager
def multiplied(losses, factor):
    """Whatever their backward makes is multiplied by it."""
    hooks = [loss.register_hook(lambda gradient: gradient * factor) for loss in losses if factor != 1 and loss.requires_grad]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def watch_grad(recorder, autograd):
    """By which no hook of a parameter is called."""
    grad = autograd.grad

    @functools.wraps(grad)
    def asked(outputs, inputs, *args, **kwargs):
        recorder.by_hand.backward_begins(outputs)
        given = [inputs] if hasattr(inputs, "requires_grad") else list(inputs)
        recorder.by_grad |= {id(one) for one in given if getattr(one, "is_leaf", False)}
        of_weights = bool(given) and all(getattr(one, "is_leaf", False) for one in given)
        with multiplied([outputs] if hasattr(outputs, "requires_grad") else outputs, recorder.times if of_weights else 1):
            return grad(outputs, inputs if hasattr(inputs, "requires_grad") else given, *args, **kwargs)
    autograd.grad = asked


def backward_begins(recorder, losses):
    recorder.by_hand.backward_begins(losses)
    inputs.note_loss_draws(recorder)
    if recorder.hands is not None:
        for loss in losses:
            recorder.hands.begin_backward(loss)
    if recorder.backwards == 0:
        recorder.carried = carries(recorder)
    recorder.end["backwards"] += 1
    recorder.backwards += 1
    recorder.end["summed"] |= any(is_sum(loss.grad_fn) for loss in losses)
    recorder.sum_scale = scale_of_sum(losses[0].grad_fn) if len(losses) == 1 else 0.0
    recorder.deals.trained()
    recorder.backward_after_clip |= recorder.clipped
    if recorder.file is None:  # while the group still says which rank this is
        recorder.write({"kind": "begin"})


def watch_backwards(recorder, torch):
    """That of a tensor calls the other one, by its name, and itself again where a TorchFunctionMode is on."""
    inside = False

    def counting(backward, name):
        @functools.wraps(backward)
        def counted(*args, **kwargs):
            nonlocal inside
            if inside:
                return backward(*args, **kwargs)
            given = args[0] if args else kwargs[name]
            losses = [given] if isinstance(given, torch.Tensor) else list(given)
            backward_begins(recorder, losses)
            untouched.backward_begins(recorder)
            before = written(recorder)
            recorder.early = set(recorder.reduced)
            inside = recorder.in_backward = True
            try:
                with multiplied(losses, recorder.times):
                    result = backward(*args, **kwargs)
            finally:
                inside = recorder.in_backward = False
            untouched.backward_ended(recorder)
            note_written(recorder, before)
            return result
        return counted
    torch.Tensor.backward = counting(torch.Tensor.backward, "self")
    torch.autograd.backward = counting(torch.autograd.backward, "tensors")


def watch(recorder):
    import torch
    functional = torch.nn.functional
    watch_backwards(recorder, torch)
    watch_grad(recorder, torch.autograd)

    def noting(name, loss):
        @functools.wraps(loss)
        def noted(*args, **kwargs):
            counted_targets(recorder, name, args, kwargs)
            recorder.end["summed"] |= kwargs.get("reduction") == "sum" and torch.is_grad_enabled()
            if recorder.hands is None or not torch.is_grad_enabled() or recorder.depth > 0:
                return loss(*args, **kwargs)
            args, kwargs = with_target(recorder.hands, *args, **kwargs)
            result = loss(*args, **kwargs)
            recorder.hands.made(result)
            return result
        return noted
    def noting_sums(loss):
        @functools.wraps(loss)
        def noted(*args, **kwargs):
            recorder.end["summed"] |= kwargs.get("reduction") == "sum" and torch.is_grad_enabled()
            return loss(*args, **kwargs)
        return noted
    for name, loss in list(vars(functional).items()):
        if isinstance(loss, types.FunctionType) and name not in LOSSES and "reduction" in inspect.signature(loss).parameters:
            setattr(functional, name, noting_sums(loss))
    for name in LOSSES:
        setattr(functional, name, noting(name, getattr(functional, name)))
