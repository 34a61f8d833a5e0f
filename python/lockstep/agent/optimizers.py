"""Every step of every optimizer: gradients before it, parameters and state after it."""
import contextlib
import functools
import hashlib
import os
import sys
import types
import weakref

from .collectives import clipped_early, own_in_part, reduced_oddly, unreduced
from . import inputs, stale, untouched
from .hooked import names_of
from .losses import MOST_TARGETS
from .models import buffers, name_parameters, unheld, untrained
from .shards import Gathering, copy_of, is_own_shard, is_shard, own_part, whole
from .sketches import MOST_SAMPLES, digest, sketch, sketch_part


def user_line():
    """The innermost line that is of no library, else of none but torch."""
    frame, of_library = sys._getframe(1), ""
    while frame:
        name = frame.f_code.co_filename
        if "/torch/" not in name and not name.startswith(("<", os.path.dirname(__file__))):
            line = f"{os.path.basename(name)}:{frame.f_lineno}".encode("utf-8", "replace").decode()
            if "-packages/" not in name:
                return line
            of_library = of_library or line
        frame = frame.f_back
    return of_library


def state_tensors(optimizer, params):
    import torch
    return [value for param in params for _, value in sorted(optimizer.state.get(param, {}).items())
            if isinstance(value, torch.Tensor)]


def state_keys(optimizer, params):
    """Of which parameters a rank has state, and which: an optimizer may have each rank keep its own."""
    return joined(f"{place}{sorted(optimizer.state[param], key=str)}" for place, param in enumerate(params)
                  if optimizer.state.get(param))


def state_before(recorder, optimizer, params):
    """Empty where nothing was left yet, it would cost too much, or each rank has its share alone."""
    if recorder.steps == 0 or is_sharded(optimizer) or sum(param.numel() for param in params) > MOST_STATES:
        return ""
    state = state_tensors(optimizer, params)
    return "" if any(is_shard(one) for one in state) else digest(state)


def is_sharded(optimizer):
    """Each rank holds the state of its share alone."""
    return any(kind.__name__ == "ZeroRedundancyOptimizer" for kind in type(optimizer).__mro__)


MOST_STATES = 1 << 22  # elements of parameters
MOST_HASHED = 1 << 24  # elements; of more parameters there is no hash before each step


def before_hash(params):
    """Empty where it would cost too much, or each rank has its share alone."""
    if any(is_shard(param) for param in params) or sum(param.numel() for param in params) > MOST_HASHED:
        return ""
    return joined(digest([param]) for param in params)


def joined(hashes):
    """As few characters as one of them."""
    return hashlib.blake2b("".join(hashes).encode(), digest_size=8).hexdigest()


def moved(recorder, number, params, before):
    """Their sketches, where something else than this optimizer's steps changed them since the last one."""
    left = recorder.left.get(number)
    return [] if not before or left in (None, before) else recorded(recorder, params, [False] * len(params))[0]


def hashes_before(recorder, params):
    """Of what this optimizer updates, and of all that DistributedDataParallel holds."""
    held, own = [param for model in recorder.models for _, param in model.params], before_hash(params)
    if len(held) == len(params) and all(one is other for one, other in zip(held, params)):
        return {"before_hash": own, "models_hash": own}
    return {"before_hash": own, "models_hash": before_hash(held) if held else ""}


def options_of(optimizer):
    """Of each group, "0 lr=0.1": what an update depends on beside gradients."""
    return [f"{number} {name}={value!r}"[:200] for number, group in enumerate(optimizer.param_groups)
            for name, value in sorted(group.items()) if name == "lr" or isinstance(value, (bool, int, float, tuple))]


def groups_of(optimizer, params):
    """Of each parameter, which group it is in; empty where there is one alone."""
    numbers = {id(param): number for number, group in enumerate(optimizer.param_groups) for param in group["params"]}
    return [numbers[id(param)] for param in params] if len(optimizer.param_groups) > 1 else []


def shards_of(recorder, params):
    """Of each parameter, is its shard, and that of its gradient, this rank's own?"""
    return [is_own_shard(recorder, param) and (param.grad is None or is_own_shard(recorder, param.grad)) for param in params]


def recorded(recorder, tensors, shards):
    """Sketches and hashes: of shards this rank's own, else of the whole."""
    sketches, hashes = [], []
    for tensor, shard in zip(tensors, shards):
        if tensor is not None and shard:
            part, dim, start = own_part(tensor)
            sketches.append(sketch_part(part, tensor.shape, dim, start))
            hashes.append(digest([part]))
        else:
            tensor = whole(recorder, tensor)
            sketches.append(sketch(tensor))
            hashes.append(digest([tensor]))
    return sketches, hashes


def in_model_order(recorder, params):
    """A script may collect those of a group in a set, whose order is each process's own."""
    places = {key: place for place, key in enumerate(recorder.names)}
    known = all(id(param) in places for param in params)
    return sorted(params, key=lambda param: places[id(param)]) if known else params


def before_step(recorder, number, optimizer, params):
    for model in recorder.models:
        name_parameters(recorder, model.module)
    names = [recorder.names.get(id(param), f"parameter {i}") for i, param in enumerate(params)]
    own = dict(zip(names, params))
    stale.found(recorder, params)
    grads, shards = [param.grad for param in params], shards_of(recorder, params)
    sketches, hashes = recorded(recorder, grads, shards)
    whole_hashes = hashes_before(recorder, params)
    alone = set() if recorder.unsynced else recorder.written_unsynced - recorder.written_synced
    return {"kind": "step", "line": user_line(), "names": names,
            "before": recorded(recorder, params, shards)[0] if recorder.steps == 0 else [],
            "elements": 0 if number in recorder.left else sum(param.numel() for param in params),
            "grads": sketches, "grad_hashes": hashes, "shards": [name for name, shard in zip(names, shards) if shard],
            "copy": copy_of(next((param for param, shard in zip(params, shards) if shard), None)),
            "replaced": [name for model in recorder.models for name in model.replaced()],
            "unused": [name for model in recorder.models if model.has_any(params) and not recorder.in_backward for name in model.unused(alone)],
            "unfrozen": [name for model in recorder.models for name in model.unfrozen(own)],
            "refrozen": [name for model in recorder.models for name in model.refrozen(own)],
            "unheld": unheld(recorder, names, params), **untrained(recorder),
            **reduced_oddly(recorder, names, params),
            "hooked": names_of(recorder, names, params), **untouched.names_of(recorder, names, params),
            **whole_hashes, "state_before": state_before(recorder, optimizer, params),
            "moved": moved(recorder, number, params, whole_hashes["before_hash"]), "carried": recorder.carried, "gathered": recorder.gathered,
            "gathered_inside": recorder.gathered_inside and not recorder.summed_back,
            "norms": recorder.norms, "by_grad": [name for name, param in zip(names, params) if id(param) in recorder.by_grad],
            "unsynced_alone": [name for name, param in zip(names, params) if id(param) in alone],
            "written_past": [name for name, param in zip(names, params) if id(param) in recorder.written_past],
            "written_late": [name for name, param in zip(names, params) if id(param) in recorder.written_late],
            "not_waited": bool(recorder.held and recorder.held.has(grads)), "written_in_flight": recorder.written_in_flight,
            "unreduced": unreduced(recorder, names, params), "own_in_part": own_in_part(recorder, names, params), "clipped_early": clipped_early(recorder, grads)}


def after_step(recorder, number, optimizer, params):
    sketches, hashes = recorded(recorder, params, shards_of(recorder, params))
    recorder.left[number] = joined(hashes)
    state = [] if is_sharded(optimizer) else [whole(recorder, one) for one in state_tensors(optimizer, params)
                                              if not is_own_shard(recorder, one)]  # of which nobody else holds any
    samples = recorder.samples if len(recorder.samples) <= MOST_SAMPLES else []
    return {"step": recorder.steps, "lr": [float(group["lr"]) for group in optimizer.param_groups],
            "params": sketches, "samples": samples, **inputs.names_of(recorder),
            "param_hashes": hashes, "buffer_hash": digest(buffers(recorder)),
            "state_hash": "" if is_sharded(optimizer) else digest(state), "state_keys": state_keys(optimizer, params),
            "ddp_forwards": recorder.ddp_forwards, "forwards": recorder.forwards,
            "targets": recorder.targets if len(recorder.targets) <= MOST_TARGETS else [],
            "sum_scale": recorder.sum_scale, "exchanges": recorder.exchanges, "dealt_out": recorder.dealt_out, "within_step": recorder.within_step,
            "unsynced": recorder.unsynced or recorder.shards_unsynced, "dropouts": recorder.dropouts, "backwards": recorder.backwards,
            "model_loads": recorder.loads["model"],
            "optimizer_loads": recorder.loads["optimizer"], "position": recorder.position,
            "batches": recorder.batches, **(recorder.lossy.take_step() if recorder.lossy else {})}


OF_ENTRY = ("line", "before", "before_hash", "models_hash", "moved", "state_before")  # known where the script calls its step


def found_again(recorder, number, optimizer, params, line):
    """Gradients and options as the innermost step finds them: the script's own step, or a hook before it, may have summed
    the ones and set the others."""
    recorder.counts_exchanges, recorder.within_step = False, 0  # what follows does not change what was found
    with Gathering(recorder, params):
        line.update({name: fact for name, fact in before_step(recorder, number, optimizer, params).items() if name not in OF_ENTRY})
    line.update({"options": options_of(optimizer), "groups": groups_of(optimizer, params)})


def watch_base(recorder, kind):
    """Of an optimizer that a script derives from one of torch's: the step that it calls once gradients are as it wants them."""
    import torch
    with_step = [one for one in kind.__mro__ if "step" in vars(one) and one is not torch.optim.Optimizer]
    for base in with_step[1:]:
        step = vars(base)["step"]
        if getattr(step, "of_lockstep", False) or not callable(step):
            continue

        @functools.wraps(step)
        def entered(self, *args, __step=step, **kwargs):
            given = args[0] if args else kwargs.get("closure")
            if recorder.found_again is not None and recorder.found_again[0] is self and given is None:
                recorder.found_again[1]()
            return __step(self, *args, **kwargs)
        entered.of_lockstep = True
        base.step = entered


@contextlib.contextmanager
def within_step(recorder, optimizer, again):
    """While `optimizer` steps: `again` is called after what a script does before the innermost step."""
    from torch.optim import optimizer as module
    recorder.stepping, recorder.found_again = True, (optimizer, again)
    recorder.counts_exchanges = not type(optimizer).step.__module__.startswith("torch.")
    hooks = [*getattr(module, "_global_optimizer_pre_hooks", ()), *getattr(optimizer, "_optimizer_step_pre_hooks", ())]
    last = optimizer.register_step_pre_hook(lambda *_: again()) if hooks else None
    try:
        yield
    finally:
        recorder.stepping, recorder.found_again, recorder.counts_exchanges = False, None, False
        if last is not None:
            last.remove()


def followed(closure, action):
    """Gradients are made within the step."""
    def called():
        loss = closure()
        action()
        return loss
    return called


def watch(recorder):
    import torch
    begin = torch.optim.Optimizer.__init__

    @functools.wraps(begin)
    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        watch_base(recorder, type(self))
        step = self.step.__func__
        number = recorder.optimizers
        recorder.optimizers += 1
        recorder.made.append(weakref.ref(self))

        def stepped(self, closure=None, **kwargs):
            args = () if closure is None else (closure,)
            if recorder.stepping:  # within another's, as in ZeroRedundancyOptimizer
                return step(self, *args, **kwargs)
            recorder.by_hand.settle()
            params = in_model_order(recorder, [param for group in self.param_groups for param in group["params"]])
            line = {"optimizer": number, "by_hand": False, "updates": [], "options": options_of(self), "groups": groups_of(self, params)}

            def before():
                if "grads" not in line:  # LBFGS calls its closure again
                    recorder.recall(number)
                    with Gathering(recorder, params):
                        line.update(before_step(recorder, number, self, params))
            if closure is None:
                before()
            else:
                args = (followed(closure, before),)
                if recorder.drill is not None:
                    recorder.drill.refuse("optimizer.step() is given a closure")
            recorder.deals.trained()  # where torch.autograd made the gradients
            states = recorder.generators.states()
            with within_step(recorder, self, lambda: "grads" in line and found_again(recorder, number, self, params, line)):
                result = step(self, *args, **kwargs)
            line["drew_in_step"] = closure is None and states != recorder.generators.states()  # a closure's forward may draw
            before()  # of a closure that the optimizer never called
            recorder.steps += 1
            with Gathering(recorder, params):
                recorder.write({**line, **after_step(recorder, number, self, params)})
            recorder.step_ended(number, params)
            if recorder.drill is not None:
                recorder.drill.step_ended(params)
            return result
        self.step = types.MethodType(stepped, self)  # a method: schedulers look for its __func__
    torch.optim.Optimizer.__init__ = init
