"""Gradients as backward left them, beside what the script makes of them before ranks add theirs to each other's, or before
the one device steps. Where DistributedDataParallel adds them within backward there is nothing between."""
from .hooked import EXACT, note
from .shards import is_shard
from .sketches import digest, flat, length

MOST_KEPT = 1 << 24  # elements; of more none are


def trained_ones(recorder):
    return [param for param in recorder.optimized() if param.grad is not None and not is_shard(param) and not param.grad.is_sparse]


def copied(recorder, param, held):
    """In the memory of an earlier step's copy, which the system need not find anew, where nobody holds that any more."""
    gradient, spare = param.grad.detach(), recorder.spare.get(id(param))
    if spare is None or id(spare) in held or (spare.shape, spare.dtype) != (gradient.shape, gradient.dtype):
        recorder.spare[id(param)] = gradient.clone()
    else:
        spare.copy_(gradient)
    return recorder.spare[id(param)]


def copies(recorder, params):
    held = {id(copy) for _, _, copy in recorder.last[1]["untouched"]} if recorder.last else set()
    return [(id(param), param.grad.data_ptr(), copied(recorder, param, held)) for param in params]


def backward_begins(recorder):
    recorder.untouched, recorder.left_by_sums = [], {}


def backward_ended(recorder):
    recorder.reduces = not recorder.models or recorder.unsynced  # the script itself
    params = trained_ones(recorder)
    if sum(param.numel() for param in params) <= MOST_KEPT:
        recorder.untouched = copies(recorder, params)
    if not recorder.reduces and recorder.world > 1:
        recorder.left_by_sums = {key: digest([gradient]) for key, _, gradient in recorder.untouched}


def sum_ended(recorder, tensor):
    """What a sum over all ranks left of a gradient: the same everywhere."""
    if recorder.world == 1 or not tensor.is_floating_point() or is_shard(tensor) or tensor.is_sparse:
        return
    for key, place, before in recorder.untouched:
        if place == tensor.data_ptr() and tensor.shape == before.shape:
            recorder.left_by_sums[key] = digest([tensor])


def given_to_sum(recorder, tensor):
    """A gradient itself, or all of them as one flat tensor, whatever their order in it."""
    if recorder.world == 1 or not recorder.reduces or not tensor.is_floating_point() or is_shard(tensor) or tensor.is_sparse:
        return
    for key, place, before in recorder.untouched:
        if place == tensor.data_ptr() and tensor.shape == before.shape:
            note_change(recorder, key, before, tensor)
            return
    if len(recorder.untouched) > 1 and tensor.numel() == sum(before.numel() for _, _, before in recorder.untouched):
        import torch
        note_of_all(recorder, torch.cat([flat(before) for _, _, before in recorder.untouched]), flat(tensor))


def is_gradient(recorder, tensor):
    return any(place == tensor.data_ptr() for _, place, _ in recorder.untouched)


def note_change(recorder, key, before, after):
    """By a factor it is no change: each rank's own would show in the gradients."""
    old, new = flat(before).double(), flat(after).double()
    square = float(old @ old)
    if square == 0 or length(new - float(new @ old) / square * old) <= EXACT * square ** 0.5:
        return
    note(recorder, key, before, after)
    if key not in recorder.hooked:
        recorder.changed.add(key)


def note_of_all(recorder, before, after):
    """What is a clamp, or a sign, whatever the order."""
    old, new = before.double().sort().values, after.double().sort().values
    signs = bool((new.abs() == new.abs().max()).all()) and not bool((old.abs() == old.abs().max()).all())
    clamped = 0 < float(new.abs().max()) < float(old.abs().max()) and bool(
        (new == old.clamp(float(new.min()), float(new.max()))).all())
    for key, _, _ in recorder.untouched:
        if clamped and not signs:
            recorder.hooked[key] = None
        elif signs:
            recorder.changed.add(key)


def names_of(recorder, names, params):
    """Which ones were changed before a sum; and by which factor since backward, where no sum of the script's came between."""
    keys, multiplied = [id(param) for param in params], {}
    if recorder.world == 1 or not recorder.reduces:
        now = {id(param): (name, param.grad) for name, param in zip(names, params) if param.grad is not None}
        for key, _, before in recorder.untouched:
            if key in now:
                multiplied[now[key][0]] = factor_of(before, now[key][1])
    return {"changed": [name for name, key in zip(names, keys) if key in recorder.changed],
            "misplaced": misplaced(recorder, names, params),
            "left_by_sums": {name: recorder.left_by_sums[key] for name, key in zip(names, keys) if key in recorder.left_by_sums},
            "multiplied": {name: factor for name, factor in multiplied.items() if factor}}


def misplaced(recorder, names, params):
    """On one device: names of those whose gradient holds numbers of another's, while all of them are there, as where what was
    summed as one flat tensor is cut up otherwise than it was put together."""
    import torch
    now = {id(param): param.grad for param in params if param.grad is not None and not is_shard(param)}
    both = [(key, before, now[key]) for key, _, before in recorder.untouched if key in now]
    if recorder.world > 1 or len(both) < 2 or all(is_same(before, after) for _, before, after in both):
        return []
    pairs = [(key, flat(before).double(), flat(after).double()) for key, before, after in both]
    old, new = (torch.cat([pair[place] for pair in pairs]) for place in (1, 2))
    if old.shape != new.shape or not old.norm() > 0:
        return []
    old, bound = old * (new.norm() / old.norm()), EXACT * float(new.norm())
    if not float((old.sort().values - new.sort().values).norm()) <= bound:
        return []
    moved = {key for (key, _, own), was in zip(pairs, old.split([len(pair[1]) for pair in pairs]))
             if not float((own - was).norm()) <= bound}
    return [name for name, param in zip(names, params) if id(param) in moved]


def is_same(before, after):
    """Most are, and to say so is quick."""
    import torch
    return (before.layout, before.dtype) == (after.layout, after.dtype) and torch.equal(before, after)


def factor_of(before, after):
    """0: they are no multiples, or alike."""
    if is_shard(after) or after.is_sparse or is_same(before, after):
        return 0
    old, new = flat(before).double(), flat(after).double()
    if old.shape != new.shape or not length(old) > 0:
        return 0
    factor = float(new @ old / (old @ old))
    apart = length(new - factor * old) > EXACT * length(old)
    return 0 if apart or abs(factor - 1) <= EXACT else factor
