"""Models: parameters that DistributedDataParallel holds, forwards, and the samples of these."""
import functools

from . import inputs
from .shards import is_shard
from .sketches import digest, rows, sketch_of_all

MOST_CONSTANTS = 1 << 24  # elements; of more there is no hash


class Wrapped:
    """A module as it was when DistributedDataParallel took it."""

    def __init__(self, ddp, module):
        self.module, self.params = module, list(module.named_parameters())
        # Kept to the end: torch 1.13 hangs where a Reducer, freed under the GIL, is the last to hold the
        # group and joins a thread of it that waits for the GIL to free a tensor.
        self.group = ddp.process_group
        self.parts = {id(part) for part in module.modules()}
        self.frozen = {name for name, param in self.params if not param.requires_grad}
        self.all_used = not (ddp.find_unused_parameters or getattr(ddp, "static_graph", False))
        self.awaited = set()  # ids of parameters whose gradients it has yet to sum, since its last forward
        self.past = False  # the module itself was called since it had gradients
        self.entered = False  # DistributedDataParallel was called with gradients

    def replaced(self):
        now = dict(self.module.named_parameters())
        return [name for name, param in self.params if now.get(name) is not param]

    def forward_begins(self):
        self.awaited = {id(param) for _, param in self.params if param.requires_grad}

    def backward_wrote(self, written):
        """Which of these gradients it did not sum: it does so once after forwards, and then leaves them to each rank; which it
        did; and was the module called past it?"""
        own = {id(param) for _, param in self.params} & written
        late = set() if self.awaited else own
        past, self.past = self.past or not self.entered, self.past and not own
        self.awaited = self.awaited - own if self.all_used or not own else set()
        return late, own - late, past

    def has_any(self, params):
        own = {id(param) for _, param in self.params}
        return any(id(param) in own for param in params)

    def unfrozen(self, own):
        """Not to be trained when they were wrapped: no gradient of theirs is reduced. own: of an optimizer, by name, of which another
        model may have the same, as a generator and a discriminator."""
        return [name for name, param in self.params
                if param.requires_grad and name in self.frozen and own.get(name, param) is param]

    def refrozen(self, own):
        """Trained when they were wrapped, and no longer: another rank that waits for their gradients waits in vain."""
        return [name for name, param in self.params
                if not param.requires_grad and name not in self.frozen and own.get(name, param) is param]

    def unused(self, unsynced):
        """Without a gradient, or with one of micro-batches under no_sync() alone (their ids), although each was promised one."""
        return [name for name, param in self.params
                if self.all_used and param.requires_grad and (param.grad is None or id(param) in unsynced)]


def unheld(recorder, names, params):
    """Trained, although no DistributedDataParallel took them, where there is any."""
    held = {id(param) for model in recorder.models for _, param in model.params}
    return [name for name, param in zip(names, params) if recorder.models and id(param) not in held]


def buffers(recorder):
    """Of all that DistributedDataParallel holds, and of what else was called in this step, as a loss that keeps a mean."""
    modules = [model.module for model in recorder.models] + list(recorder.computed.values())
    own = {id(buffer): buffer for module in modules for buffer in module.buffers() if not is_shard(buffer)}
    return list(own.values())


def note_model(recorder, module):
    """Its constants before its first forward, which may leave results in such places; how many BatchNorms it has."""
    import torch
    if id(module) in recorder.seen:
        return
    recorder.seen.add(id(module))
    recorder.end["batch_norms"] += sum(isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
                                       and not isinstance(part, torch.nn.SyncBatchNorm) for part in module.modules())
    tensors = [value for part in module.modules() for name, value in sorted(vars(part).items())
               if isinstance(value, torch.Tensor) and value.is_floating_point() and value.device.type == "cpu"
               and not is_shard(value)]
    if tensors and sum(tensor.numel() for tensor in tensors) <= MOST_CONSTANTS:
        recorder.end["constants"] += digest(tensors)


def untrained(recorder):
    """Hash and sketch of parameters that forwards of the step computed with, and that no optimizer updates and no
    DistributedDataParallel holds: of a teacher, a target network, a frozen part."""
    known = {id(param) for param in recorder.optimized()}
    known |= {id(param) for model in recorder.models for _, param in model.params}
    params = [param for module in recorder.called.values() for param in module.parameters()
              if id(param) not in known and not is_shard(param) and param.device.type == "cpu"]
    few = 0 < sum(param.numel() for param in params) <= MOST_CONSTANTS
    own = digest(params) if few else ""
    if own != recorder.untrained[0]:  # most of them stay as they are
        recorder.untrained = own, sketch_of_all(params) if few else None
    return {"untrained": own, "untrained_sketch": recorder.untrained[1]}


def name_parameters(recorder, module):
    recorder.names.update({id(param): name for name, param in module.named_parameters()})


def trained(module):
    return any(param.requires_grad for param in module.parameters())


def take_samples(recorder, module, given):
    """Of a forward that no other surrounds. What has a gradient is no sample."""
    import torch
    if recorder.models:
        recorder.forwards += any(id(module) in model.parts for model in recorder.models)
    elif trained(module) and not any(isinstance(i, torch.Tensor) and i.requires_grad for i in given):
        name_parameters(recorder, module)
        note_model(recorder, module)
        inputs.given(recorder, given)


def of_module(recorder, module):
    """What DistributedDataParallel made of it; most parts of models are none."""
    return [model for model in recorder.models if model.module is module]


def take_wrapped(recorder, module, args, kwargs):
    """Before the forward of one that DistributedDataParallel holds: no hook of the module, which would be saved and copied with it."""
    import torch
    models = of_module(recorder, module)
    if not models or not torch.is_grad_enabled():
        return
    recorder.forwards += 1
    for model in models:
        model.past |= not recorder.within_ddp
    recorder.unsynced &= recorder.within_ddp  # else it goes past no_sync() as well
    inputs.given(recorder, args or tuple(kwargs.values()))


def transforming():
    """Asked at every call: is it traced, or made of batches of tensors (vmap), so that nothing may be computed of what it is given?"""
    import torch
    traced = torch._C._get_tracing_state
    mapped = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: None)  # from 2.0 on
    return lambda: traced() is not None or mapped() is not None


def watch_calls(recorder):
    import torch
    call, is_transformed = torch.nn.Module.__call__, transforming()

    @functools.wraps(call)
    def called(self, *args, **kwargs):
        if is_transformed():
            return call(self, *args, **kwargs)
        if not recorder.depth:
            if torch.is_grad_enabled():
                recorder.by_hand.settle()
                recorder.by_hand.given((*args, *kwargs.values()))
            recorder.called[id(self)] = self
            recorder.calls += 1
        if recorder.depth or not torch.is_grad_enabled():
            take_wrapped(recorder, self, args, kwargs)
            return call(self, *args, **kwargs)
        recorder.computed[id(self)] = self
        if recorder.hands is not None:
            if trained(self):
                recorder.drawn += rows(args or tuple(kwargs.values()))
            args, kwargs = recorder.hands.call(self, args, kwargs)
        take_samples(recorder, self, args or tuple(kwargs.values()))
        states = recorder.generators.states()
        recorder.depth += 1
        try:
            take_wrapped(recorder, self, args, kwargs)
            result = call(self, *args, **kwargs)
            if recorder.hands is not None:
                recorder.hands.made(result)
            return result
        finally:
            recorder.depth -= 1
            if trained(self):
                states_now = recorder.generators.states()
                recorder.end["draws"] |= states != states_now
                inputs.forward_ended(recorder, states_now)
    torch.nn.Module.__call__ = called


def watch(recorder):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    begin, forward = DDP.__init__, DDP.forward

    @functools.wraps(begin)
    def init(self, module, *args, **kwargs):
        begin(self, module, *args, **kwargs)
        recorder.models.append(Wrapped(self, module))
        name_parameters(recorder, module)
        note_model(recorder, module)

    @functools.wraps(forward)
    def counted(self, *args, **kwargs):
        recorder.ddp_forwards += torch.is_grad_enabled()
        recorder.unsynced = not self.require_backward_grad_sync
        if torch.is_grad_enabled():
            for model in of_module(recorder, self.module):
                model.entered = True
                if self.require_backward_grad_sync:
                    model.forward_begins()
        recorder.within_ddp = True
        try:
            return forward(self, *args, **kwargs)
        except RuntimeError:
            recorder.end["refused"] = True
            raise
        finally:
            recorder.within_ddp = False
    DDP.__init__, DDP.forward = init, counted
    watch_calls(recorder)
