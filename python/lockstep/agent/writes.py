"""What a script writes to its tensors itself, seen where it asks for `.data` or `.detach()` of one or calls a method that writes."""
import functools
import inspect
import types

METHODS = ("detach", "add_", "sub_", "mul_", "copy_", "addcmul_", "addcdiv_", "lerp_", "set_", "__iadd__", "__isub__", "__imul__",
           "__itruediv__", "__setitem__", "__idiv__")
OF_LISTS = ("_foreach_add_", "_foreach_sub_", "_foreach_addcdiv_", "_foreach_copy_")


class Watched:
    """Torch, while somebody listens. One for all: who is done first must leave it to the others."""

    def __init__(self):
        self.listeners = []  # functions of the tensor that may be written to
        self.replaced = []  # of torch, as it was: (holder, name, value)

    def add(self, listener):
        """Called before each such call, with its tensor, until it is removed."""
        if listener not in self.listeners:
            self.listeners.append(listener)
            if len(self.listeners) == 1:
                self.install()

    def remove(self, listener):
        if listener in self.listeners:
            self.listeners.remove(listener)
            if not self.listeners:
                self.uninstall()

    def tell(self, tensor):
        base = getattr(tensor, "_base", None)
        tensor = tensor if base is None else base  # of a part of it
        for listener in list(self.listeners):
            listener(tensor)

    def install(self):
        import torch
        for name in METHODS:
            if hasattr(torch.Tensor, name):
                self.put(torch.Tensor, name, self.telling(getattr(torch.Tensor, name)))
        for name in OF_LISTS:
            if hasattr(torch, name):
                self.put(torch, name, self.telling_all(getattr(torch, name)))
        data = inspect.getattr_static(torch.Tensor, "data")

        def get(tensor):
            self.tell(tensor)
            return data.__get__(tensor)

        def put(tensor, value):
            self.tell(tensor)
            data.__set__(tensor, value)
        self.put(torch.Tensor, "data", property(get, put))

    def put(self, holder, name, value):
        self.replaced.append((holder, name, vars(holder).get(name)))
        setattr(holder, name, value)

    def uninstall(self):
        for holder, name, value in self.replaced:
            if value is None:
                delattr(holder, name)  # of a base class
            else:
                setattr(holder, name, value)
        self.replaced = []

    def telling(self, method):
        @functools.wraps(method)
        def call(tensor, *args, **kwargs):
            self.tell(tensor)
            return method(tensor, *args, **kwargs)
        return call

    def telling_all(self, function):
        @functools.wraps(function)
        def call(tensors, *args, **kwargs):
            tensors = list(tensors) if isinstance(tensors, types.GeneratorType) else tensors
            for tensor in tensors:
                self.tell(tensor)
            return function(tensors, *args, **kwargs)
        return call


WATCHED = Watched()


def is_weight(tensor):
    """What a training updates."""
    import torch
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor.is_leaf


def is_changed(tensor, before):
    """Of what the script may only have looked at."""
    import torch
    return tensor.shape != before.shape or not torch.equal(tensor, before)
