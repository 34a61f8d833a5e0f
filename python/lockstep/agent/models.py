"""Models that DistributedDataParallel holds: their names, their forwards, and the samples of these."""
from .sketches import rows


def watch_forwards(recorder, module):
    import torch
    drawn = []  # the generator's state before each forward under way

    def before(part, inputs):
        drawn.append(torch.get_rng_state() if torch.is_grad_enabled() else None)
        if torch.is_grad_enabled():
            recorder.forwards += 1
            recorder.samples += rows(inputs)

    def after(part, inputs, output):
        state = drawn.pop() if drawn else None
        if state is not None and not torch.equal(state, torch.get_rng_state()):
            recorder.end["draws"] = True
    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def watch(recorder):
    import torch
    DDP = torch.nn.parallel.DistributedDataParallel
    begin, forward = DDP.__init__, DDP.forward

    def init(self, module, *args, **kwargs):
        begin(self, module, *args, **kwargs)
        recorder.models.append(module)
        recorder.names.update({id(param): name for name, param in module.named_parameters()})
        norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)
                 and not isinstance(part, torch.nn.SyncBatchNorm)]
        recorder.end["batch_norms"] += len(norms)
        watch_forwards(recorder, module)

    def counted(self, *args, **kwargs):
        recorder.ddp_forwards += torch.is_grad_enabled()
        recorder.unsynced = not self.require_backward_grad_sync
        return forward(self, *args, **kwargs)
    DDP.__init__, DDP.forward = init, counted
