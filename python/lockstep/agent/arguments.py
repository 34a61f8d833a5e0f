"""What a program asks torch for by an argument, `dtype=` or `device=`, and is given instead."""
import functools

replacements = {}  # by name of the argument: a function of what was asked for
results = {}  # by function of torch: of what it made


def replace(name, function):
    replacements[name] = function


def replaced(args, kwargs):
    """Of `.to()`, which takes either without its name."""
    for function in replacements.values():
        args = tuple(function(arg) for arg in args)
    return args, named(kwargs)


def named(kwargs):
    for name, function in replacements.items():
        if kwargs.get(name) is not None:
            kwargs = {**kwargs, name: function(kwargs[name])}
    return kwargs


def watch(recorder):
    """After those that replace something."""
    import torch
    from torch.overrides import TorchFunctionMode

    run = getattr(torch.autograd, "_engine_run_backward", None)

    class Replacing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.Tensor.backward and run is None:
                return backward(*args, **(kwargs or {}))
            made = func(*args, **named(kwargs)) if kwargs else func(*args)
            return results[func](made) if func in results else made

    def backward(loss, gradient=None, retain_graph=None, create_graph=False, inputs=None):
        """Before PyTorch 2.2."""
        with Replacing():
            torch.autograd.backward(loss, gradient, retain_graph, create_graph, inputs=inputs)

    def ran(*args, **kwargs):
        """A mode is off within a function that it sees, as a backward is, and within that may be the script's own."""
        with Replacing():
            return run(*args, **kwargs)
    if run is not None:
        torch.autograd._engine_run_backward = ran
    Replacing().__enter__()
    for kind in (torch.Tensor, torch.nn.Module):
        kind.to = with_replaced(kind.to)
    torch.nn.Module.to_empty = with_replaced(torch.nn.Module.to_empty)


def with_replaced(to):
    @functools.wraps(to)
    def converted(self, *args, **kwargs):
        args, kwargs = replaced(args, kwargs)
        return to(self, *args, **kwargs)
    return converted
