"""What is recorded of a tensor: a few projections, or a hash of its bytes."""
import hashlib

_signs = {}  # by number of elements


def sketch(tensor):
    """Four projections on signs, and the norm: enough for a distance and a ratio."""
    import torch
    if tensor is None:
        return None
    flat = tensor.detach().double().reshape(-1)
    signs = _signs.get(flat.numel())
    if signs is None:
        generator = torch.Generator().manual_seed(flat.numel())
        signs = torch.randint(0, 2, (4, flat.numel()), generator=generator).to(torch.float64) * 2 - 1
        _signs[flat.numel()] = signs
    values = [float(value) for value in signs @ flat] + [float(flat.norm())]
    return [value if abs(value) < float("inf") else None for value in values]


def bytes_of(tensor):
    """Of any dtype; NumPy knows no bfloat16."""
    import torch
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def digest(tensors):
    code = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        code.update(b"-" if tensor is None else bytes_of(tensor))
    return code.hexdigest()


def rows(batch):
    """A number for each sample of a batch, by its first tensor."""
    import torch
    while isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    if not isinstance(batch, torch.Tensor) or batch.dim() == 0:
        return []
    return [digest([row]) for row in batch]
