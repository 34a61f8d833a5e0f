"""What is recorded of a tensor: a few projections, or a hash of its bytes."""
import functools
import hashlib

_signs = {}  # by number of elements
MOST_SAMPLES = 65536  # of a step; beyond, the step has none
MOST_HASHED_WHOLE = 1 << 20  # bytes
AT_ONCE = 1 << 16  # elements; signs of more are kept as bytes: in double they would take four times the tensor's memory
drawing = False  # by the agent itself, and not by the script


def flat(tensor):
    """All numbers, of any layout: an Embedding(sparse=True) has sparse gradients."""
    import torch
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1)


def drawn(seed, draw):
    """`draw(generator)`, with one of that seed."""
    global drawing
    import torch
    drawing = True
    try:
        return draw(torch.Generator().manual_seed(seed))
    finally:
        drawing = False


def signs_of(count):
    import torch
    signs = _signs.get(count)
    if signs is None:
        signs = drawn(count, lambda own: torch.randint(0, 2, (4, count), dtype=torch.int8, generator=own)) * 2 - 1
        signs = _signs[count] = signs if count > AT_ONCE else signs.double()
    return signs


def sketch(tensor):
    """Four projections on signs, and the norm: enough for a distance and a ratio."""
    if tensor is None:
        return None
    values = flat(tensor).double()
    return projections(signs_of(values.numel()), values)


def sketch_of_all(tensors):
    """Of several as of one, without the memory for it: what their sketches add up to."""
    sketches = [sketch(tensor) for tensor in tensors]
    if any(value is None for own in sketches for value in own):
        return None
    return [sum(own[i] for own in sketches) for i in range(4)] + [sum(own[4] ** 2 for own in sketches) ** 0.5]


def sketch_part(part, shape, dim, start):
    """Of a tensor of that shape, of which `part` begins at `start` of a dimension: what it adds to the sketch of all."""
    signs = signs_of(shape.numel()).reshape(4, *shape).narrow(dim + 1, start, part.shape[dim])
    return projections(signs.reshape(4, -1), flat(part).double())


def length(values):
    """Of a vector of doubles; three times as fast as its norm()."""
    return float(values @ values) ** 0.5


def projections(signs, values):
    """A piece at a time, which a CPU's cache holds."""
    sums = sum(part.double() @ own for part, own in zip(signs.split(AT_ONCE, 1), values.split(AT_ONCE)))
    sketched = [float(value) for value in sums] + [length(values)]
    return [value if abs(value) < float("inf") else None for value in sketched]


def bytes_of(tensor):
    """Of any dtype; NumPy knows no bfloat16. They are the tensor's own where those lie together: for reading at once."""
    import torch
    values = flat(tensor).cpu().contiguous()
    return memoryview(values.view(torch.uint8).numpy()) if values.numel() else b""


@functools.lru_cache(maxsize=1)
def weights():
    """Odd numbers that look random, of no generator that a script may draw from."""
    import numpy
    numbers = numpy.arange(1, AT_ONCE + 1, dtype=numpy.uint64) * numpy.uint64(0x9E3779B97F4A7C15)
    numbers = (numbers ^ (numbers >> numpy.uint64(29))) * numpy.uint64(0xBF58476D1CE4E5B9)
    return (numbers ^ (numbers >> numpy.uint64(32)) | numpy.uint64(1)).view(numpy.int64)


def folded(data):
    """Of many bytes few, ten times as fast as they are hashed: sums of 64-bit words times weights, modulo 2^64, a piece at a
    time. Those of the words' upper halves beside them, for flipped signs of two numbers would cancel."""
    import numpy
    whole = len(data) // 8 * 8
    words = numpy.frombuffer(data[:whole], dtype=numpy.int64)
    pieces = [words[at:at + AT_ONCE] for at in range(0, len(words), AT_ONCE)]
    sums = [numpy.dot(part, weights()[:len(part)]) for piece in pieces for part in (piece, piece >> 32)]
    return numpy.array(sums).tobytes() + bytes(data[whole:])


def digest(tensors):
    """The same for the same bits; for others, all but certainly, another one."""
    code = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        data = b"-" if tensor is None else bytes_of(tensor)
        code.update(folded(data) if len(data) > MOST_HASHED_WHOLE else data)
    return code.hexdigest()


def rows(batch):
    """A hash for each sample of a batch, by its first tensor; where that has one number for each, such as a label, by the first
    that has more."""
    import torch
    beside = ()
    while isinstance(batch, (list, tuple)) and batch:
        batch, *beside = batch
    if not isinstance(batch, torch.Tensor) or batch.dim() == 0:
        return []
    if batch.numel() == len(batch):
        batch = next((other for other in beside if isinstance(other, torch.Tensor) and other.dim() > 0
                      and len(other) == len(batch) < other.numel() and not other.requires_grad), batch)
    return [digest([row]) for row in batch]
