"""Hooks by which the script changes gradients of parameters before they are complete, and so before any rank adds them to
those of others: by which factor, or None where what remains is no multiple and nowhere larger, as after a clamp."""
import functools

from .held import is_script
from .shards import is_shard
from .sketches import flat, length

EXACT = 1e-12


def watch(recorder):
    import torch
    for name, hooking in (("register_hook", of_gradient), ("register_post_accumulate_grad_hook", of_parameter)):
        register = getattr(torch.Tensor, name, None)
        if register is not None:
            setattr(torch.Tensor, name, registering(recorder, register, hooking))


def registering(recorder, register, hooking):
    @functools.wraps(register)
    def registered(self, hook, *args, **kwargs):
        if self.is_leaf and self.requires_grad and is_script() and not is_shard(self):
            hook = hooking(recorder, id(self), hook)
        return register(self, hook, *args, **kwargs)
    return registered


def of_gradient(recorder, key, hook):
    @functools.wraps(hook)
    def hooked(gradient):
        before = gradient.detach().clone()
        result = hook(gradient)
        note(recorder, key, before, gradient if result is None else result)
        return result
    return hooked


def of_parameter(recorder, key, hook):
    @functools.wraps(hook)
    def hooked(param):
        before = None if param.grad is None else param.grad.detach().clone()
        result = hook(param)
        if before is not None and param.grad is not None:
            note(recorder, key, before, param.grad)
        return result
    return hooked


def note(recorder, key, before, after):
    """Of several backwards of a step the last."""
    old, new = flat(before).double(), flat(after).double()
    if old.shape != new.shape or not length(old) > 0:
        return
    factor = float(new @ old / (old @ old))
    if length(new - factor * old) <= EXACT * length(old):
        if abs(factor - 1) > EXACT:
            recorder.hooked[key] = factor
    elif bool((new.abs() <= old.abs()).all() and (new * old >= 0).all()):
        recorder.hooked[key] = None


def names_of(recorder, names, params):
    """By name: factor, or None."""
    return {name: recorder.hooked[id(param)] for name, param in zip(names, params) if id(param) in recorder.hooked}
