"""Tensors without a gradient that torch made of a batch as a whole, in the step that is drilled or one before: a mean, a
count, a maximum, and all that is computed of them. Each carries where it was made, until an operator of the drill is given it."""
REDUCING = {"mean", "sum", "std", "var", "std_mean", "var_mean", "max", "min", "amax", "amin", "aminmax", "median", "nanmedian",
            "quantile", "norm", "vector_norm", "logsumexp", "prod", "count_nonzero", "bincount", "histc", "unique", "nansum",
            "nanmean", "mode", "kthvalue", "topk", "cov", "corrcoef", "any", "all"}
MIXING = {"nonzero", "argwhere", "cumsum", "cumprod", "sort", "argsort"}  # along the samples, whose rows they keep
COUNTING = {"bincount", "histc", "unique"}  # whose results have no rows of samples, however many they are
IN_PLACE = {"__setitem__", "__iadd__", "__imul__", "__isub__", "__itruediv__"}


def short(name):
    return name.rsplit(".", 1)[-1]


def made_of(tensor):
    """By which function, where, and in which iteration before the training: or None."""
    return getattr(tensor, "_lockstep_whole", None)


def first_made(tensors):
    return next((made_of(tensor) for tensor in tensors if made_of(tensor) is not None), None)


def dimensions(args, kwargs):
    """Along which it reduces, where it is told."""
    told = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else ()))
    return [one for one in (told if isinstance(told, (list, tuple)) else [told]) if isinstance(one, int) and not isinstance(one, bool)]


def loses_rows(kind, given, along, result):
    """Were there samples, and are they gone?"""
    first = next((tensor for tensor in given if tensor.dim() > 0), None)
    if first is None or first.shape[0] < 2:
        return False
    if kind in COUNTING or result.dim() == 0 or result.shape[0] != first.shape[0]:
        return True
    return result.dim() < first.dim() and (0 in along or -first.dim() in along)


def mixes_rows(kind, given, along):
    first = next((tensor for tensor in given if tensor.dim() > 0), None)
    if first is None or first.shape[0] < 2:
        return False
    return kind in ("nonzero", "argwhere") or 0 in along or -first.dim() in along or not along and first.dim() == 1


def is_of_batch(kind, args, kwargs):
    """BatchNorm that normalizes by the batch that it is given."""
    return kind == "batch_norm" and bool(kwargs.get("training", args[5] if len(args) > 5 else False))


def take(function, call, given, results):
    """A call is over: `given` and `results` are tensors. Marks what it made of the whole, or of what is of the whole."""
    name, line, iteration = function
    source = first_made(given)
    kind = short(name)
    if kind in IN_PLACE and source is not None:
        mark(given[:1], source)
    for result in results:
        if source is not None:
            mark([result], source)
        elif (is_of_batch(kind, *call) or kind in REDUCING and loses_rows(kind, given, dimensions(*call), result)
              or kind in MIXING and mixes_rows(kind, given, dimensions(*call))):
            mark([result], (name, line(), iteration))


def mark(tensors, source):
    for tensor in tensors:
        if not tensor.requires_grad:
            tensor._lockstep_whole = source
