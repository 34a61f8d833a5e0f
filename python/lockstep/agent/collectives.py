"""Gradients that the program reduces itself, and clipping: what came first."""
import functools
import math
import threading

from . import untouched
from .held import is_script
from .imports import replace
from .shards import is_shard


EXCHANGES = ("all_gather", "all_gather_into_tensor", "all_to_all", "all_to_all_single", "reduce_scatter", "reduce_scatter_tensor",
             "send", "recv", "isend", "irecv", "broadcast", "scatter")
DEALS = ("all_to_all", "all_to_all_single", "scatter")  # by which each rank is given a part of its own


MOST_NORMS = 4096  # of a step


def place_of(tensor):
    """Where its numbers are."""
    return (tensor._values() if tensor.is_sparse else tensor).data_ptr()


def once(plain, noting):
    """A call of `plain` by the script is noted once. PyTorch calls it again by its name where a TorchFunctionMode is on."""
    here = threading.local()

    @functools.wraps(plain)
    def called(*args, **kwargs):
        if getattr(here, "within", False):
            return plain(*args, **kwargs)
        here.within = True
        try:
            return noting(*args, **kwargs)
        finally:
            here.within = False
    return called


def watch(recorder):
    import torch.distributed as dist
    from torch.nn import utils
    if dist.is_available():
        reduce = dist.all_reduce

        @functools.wraps(reduce)
        def reduced(tensor, *args, **kwargs):
            place = place_of(tensor)
            recorder.reduced[place] = recorder.reduced.get(place, 0) + 1
            if is_no_sum(args[0] if args else kwargs.get("op")):
                recorder.no_sums.add(place)
            note_group(recorder, place, args[1] if len(args) > 1 else kwargs.get("group"))
            if recorder.clipped:
                recorder.reduced_late.add(place)
                recorder.elements_late.add(tensor.numel())
            recorder.summed_back |= recorder.in_backward
            recorder.by_hand.collective(tensor)
            if recorder.reduced[place] == 1:
                untouched.given_to_sum(recorder, tensor)
            work = reduce(tensor, *args, **kwargs)
            if work is None:
                untouched.sum_ended(recorder, tensor)
            return work
        dist.all_reduce = dist.distributed_c10d.all_reduce = once(reduce, noting_exchange(recorder, reduced))
        def note(name, noting):
            if hasattr(dist, name):
                plain = getattr(dist, name)
                replace(name, plain, once(plain, noting(recorder, plain)))
        for name, noting in (("broadcast", noting_broadcast), ("all_gather", noting_gather),
                             ("all_gather_into_tensor", noting_gather)):
            note(name, noting)
        for name in EXCHANGES:
            note(name, functools.partial(noting_exchange, deals=name in DEALS))
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        setattr(utils, name, noting_clip(recorder, getattr(utils, name)))
        setattr(utils.clip_grad, name, getattr(utils, name))


def noting_exchange(recorder, call, deals=False):
    """Within a forward that is trained, as parts of one model call it that ranks hold, or within an optimizer's step."""
    @functools.wraps(call)
    def called(*args, **kwargs):
        if (recorder.depth > 0 or recorder.counts_exchanges) and not recorder.quiet and is_script():
            recorder.exchanges += recorder.depth > 0
            recorder.dealt_out += deals and recorder.depth > 0
            recorder.within_step += recorder.counts_exchanges
        return call(*args, **kwargs)
    return called


def is_no_sum(op):
    """A mean is one, and so is what scales before it adds."""
    import torch.distributed as dist
    if op is None:  # of most calls
        return False
    kinds = [getattr(dist.ReduceOp, name, None) for name in ("MAX", "MIN", "PRODUCT", "BAND", "BOR", "BXOR")]
    return any(kind is not None and op == kind for kind in kinds)


def note_group(recorder, place, group):
    """Sums over the groups of each dimension of a mesh, one after another, are a sum over all ranks: none adds again what
    another one had added."""
    import torch.distributed as dist
    size, groups = dist.get_world_size(group), recorder.groups.setdefault(place, [])
    if group is not None and size < 2:  # of this rank alone, or of others (-1)
        return
    whole = size * math.prod(other for _, other in groups)
    if recorder.world % whole or any(other is group for other, _ in groups):
        recorder.again.add(place)
    groups.append((group, size))
    if whole % recorder.world:
        recorder.partly.add(place)
    else:
        recorder.partly.discard(place)


def reduced_oddly(recorder, names, params):
    """Names of those whose gradient was reduced more than once in this step, and by what is no sum."""
    places = [(name, place_of(param.grad)) for name, param in zip(names, params)
              if param.grad is not None and not is_shard(param)]
    return {"reduced_again": [name for name, place in places if place in recorder.again],
            "sum_order": order_of_sums(recorder, [place for _, place in places]),
            "no_sums": [name for name, place in places if place in recorder.no_sums],
            "summed_early": [name for name, place in places if place in recorder.early and recorder.reduced[place] == 1],
            "partly": [name for name, place in places if place in recorder.partly] + held_by_some(recorder, names, params)}


def held_by_some(recorder, names, params):
    """By a DistributedDataParallel, or a fully_shard, that was given a group of some ranks, or of this one alone."""
    import torch.distributed as dist
    some = [model for model in recorder.models if recorder.world > 1 and 0 < dist.get_world_size(model.group) < recorder.world]
    own = {id(param) for model in some for _, param in model.params}
    return [name for name, param in zip(names, params)
            if id(param) in own or is_shard(param) and param.device_mesh.size() < recorder.world]


def order_of_sums(recorder, places):
    """Numbers of parameters as their gradients were first given to all_reduce; nothing where these are in order."""
    numbers = {place: number for number, place in enumerate(places)}
    order = [numbers[place] for place in recorder.reduced if place in numbers]
    return [] if order == sorted(order) else order


def noting_broadcast(recorder, broadcast):
    @functools.wraps(broadcast)
    def broadcasted(*args, **kwargs):
        tensor = args[0] if args else kwargs.get("tensor")
        recorder.end["broadcasts"] += bool(tensor is not None and tensor.is_floating_point())
        if tensor is not None:
            recorder.by_hand.collective(tensor)
        return broadcast(*args, **kwargs)
    return broadcasted


def noting_gather(recorder, gather):
    """Of what a forward has made, as features are for a loss over all of them; no gradient comes back through it."""
    import torch

    @functools.wraps(gather)
    def gathered(*args, **kwargs):
        given = args[1] if len(args) > 1 else kwargs.get("tensor", kwargs.get("input_tensor"))
        if (isinstance(given, torch.Tensor) and recorder.samples and not recorder.quiet
                and given.is_floating_point() and given.dim() > 1 and not untouched.is_gradient(recorder, given)):
            recorder.gathered |= torch.is_grad_enabled()
            recorder.gathered_inside |= given.requires_grad and not torch.is_grad_enabled()  # in the forward of a Function
        return gather(*args, **kwargs)
    return gathered


def noting_clip(recorder, clip):
    @functools.wraps(clip)
    def clipped(*args, **kwargs):
        recorder.clipped = True
        norm = clip(*args, **kwargs)
        if norm is not None and len(recorder.norms) < MOST_NORMS and not is_shard(norm):
            recorder.norms.append(float(norm))
        return norm
    return clipped


def unreduced(recorder, names, params):
    """Those whose gradient no all_reduce was given, where neither DistributedDataParallel nor fully_shard does it: the former does
    at the end of a backward, later than an optimizer that steps within it."""
    if recorder.world == 1:
        return []
    held = {id(param) for model in recorder.models for _, param in model.params if not recorder.in_backward}
    return [name for name, param in zip(names, params) if param.grad is not None and id(param) not in held
            and not is_shard(param) and place_of(param.grad) not in recorder.reduced and is_own(recorder, param)]


def is_own(recorder, param):
    """Does it hold what backward left, perhaps times a number? Where other tensors were summed it may have been one of them."""
    left = {key: before for key, _, before in recorder.untouched}.get(id(param))
    if left is None and recorder.reduced and id(param) in recorder.by_grad:
        return False  # it may be a copy of a part of what was summed
    if left is None or not recorder.reduced or param.grad.is_sparse or left.shape != param.grad.shape:
        return True
    return left.equal(param.grad.detach()) or untouched.factor_of(left, param.grad) != 0


def own_in_part(recorder, names, params):
    """Those of which some elements are what backward left, or that divided by the number of ranks, and others are not, as where
    a flat tensor was summed up to its last elements."""
    if recorder.world == 1 or not recorder.reduced:
        return []
    left = {key: before for key, _, before in recorder.untouched}
    return [name for name, param in zip(names, params) if id(param) in left and param.grad is not None and not param.grad.is_sparse
            and not is_shard(param) and is_left_in_part(recorder, left[id(param)], param.grad.detach())]


def is_left_in_part(recorder, before, after):
    if before.shape != after.shape:
        return False
    given = before != 0
    left = given & ((after == before) | (after == before / recorder.world))
    return bool(left.any()) and not bool(left.equal(given))


def clipped_early(recorder, grads):
    """Before the last backward, or before an all_reduce of a gradient itself, or of all of them as one flat tensor."""
    own = [grad for grad in grads if grad is not None and not is_shard(grad)]
    flat = len(own) > 1 and sum(grad.numel() for grad in own) in recorder.elements_late
    return recorder.backward_after_clip or flat or any(place_of(grad) in recorder.reduced_late for grad in own)
