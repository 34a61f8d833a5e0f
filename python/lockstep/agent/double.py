"""Double all the way: a cast to fewer bits would make W ranks and one device differ by its rounding."""
import functools

from . import arguments
from .imports import after_import


def in_double(value):
    import torch
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(in_double(part) for part in value)
    if type(value) is dict:
        return {key: in_double(part) for key, part in value.items()}
    return value


def made_in_double(tensor):
    double = in_double(tensor)
    return double if double is tensor or not tensor.is_leaf else double.detach().requires_grad_(tensor.requires_grad)


def dtype_in_double(dtype):
    import torch
    fewer = isinstance(dtype, torch.dtype) and dtype in (torch.float32, torch.float16, torch.bfloat16)
    return torch.float64 if fewer else dtype


def watch(recorder):
    import torch
    set_default, from_numpy = torch.set_default_dtype, torch.from_numpy
    set_default(torch.float64)
    torch.set_default_dtype = functools.wraps(set_default)(lambda d: set_default(dtype_in_double(d)))
    torch.from_numpy = lambda array: in_double(from_numpy(array))
    torch.FloatTensor = torch.HalfTensor = torch.BFloat16Tensor = torch.DoubleTensor
    torch.Tensor.float = lambda self, *args, **kwargs: self.double()
    torch.nn.Module.float = functools.wraps(torch.nn.Module.float)(lambda self: self.double())
    for kind in (torch.Tensor, torch.nn.Module):
        kind.half = kind.bfloat16 = lambda self, *args, **kwargs: self.double()
    arguments.replace("dtype", dtype_in_double)
    for name in ("tensor", "as_tensor", "asarray"):  # of an array, whose dtype theirs is
        if hasattr(torch, name):
            arguments.results[getattr(torch, name)] = made_in_double
    without_autocast()
    after_import("torch.distributed.fsdp._fully_shard._fsdp_api", without_mixed_precision)


def without_mixed_precision(api):
    """Of fully_shard, whose parameters are cast when they are gathered, and gradients when they are reduced."""
    begin = api.MixedPrecisionPolicy.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        begin(self, *map(dtype_in_double, args), **{key: dtype_in_double(value) for key, value in kwargs.items()})
    api.MixedPrecisionPolicy.__init__ = init


def without_autocast():
    import torch
    begin = torch.autocast.__init__

    @functools.wraps(begin)
    def init(self, device_type, dtype=None, enabled=True, *args, **kwargs):
        begin(self, device_type, dtype, False, *args, **kwargs)
    torch.autocast.__init__ = init
