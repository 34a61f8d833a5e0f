"""Double all the way: a cast to fewer bits would make W ranks and one device differ by its rounding."""


def in_double(value):
    import torch
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(in_double(part) for part in value)
    if type(value) is dict:
        return {key: in_double(part) for key, part in value.items()}
    return value


def watch(recorder):
    import torch
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = lambda self, *args, **kwargs: self.double()
    torch.nn.Module.float = lambda self: self.double()
    for kind in (torch.Tensor, torch.nn.Module):
        kind.half = kind.bfloat16 = lambda self, *args, **kwargs: self.double()
    begin = torch.autocast.__init__

    def init(self, device_type, dtype=None, enabled=True, *args, **kwargs):
        begin(self, device_type, dtype, False, *args, **kwargs)
    torch.autocast.__init__ = init
