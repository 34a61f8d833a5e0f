"""torch.nn.SyncBatchNorm, which PyTorch has for GPUs alone, where a program runs on the CPU in their place: means and deviations
over the batch of all ranks, by sums that autograd knows. One device has BatchNorm in its place, as in PyTorch."""
import functools


def watch(recorder):
    import torch
    import torch.distributed as dist
    if not dist.is_available():
        return
    kind, wrapped = torch.nn.SyncBatchNorm, torch.nn.parallel.DistributedDataParallel
    forward = kind.forward

    @functools.wraps(forward)
    def normalized(self, batch):
        if batch.device.type != "cpu":
            return forward(self, batch)
        recorder.end["on_cpu"] = True
        self._check_input_dim(batch)
        group = self.process_group or (dist.group.WORLD if dist.is_initialized() else None)
        if self.training and group is not None and dist.get_world_size(group) > 1:
            return over_all_ranks(self, batch, group)
        return of_one_device(self, batch)
    kind.forward = normalized
    if hasattr(wrapped, "_passing_sync_batchnorm_handle"):
        wrapped._passing_sync_batchnorm_handle = lambda self, module: None


def momentum_of(layer):
    """Of this step: of a cumulative average 1 / steps."""
    if not (layer.training and layer.track_running_stats):
        return layer.momentum or 0.0
    layer.num_batches_tracked.add_(1)
    return 1.0 / float(layer.num_batches_tracked) if layer.momentum is None else layer.momentum


def of_one_device(layer, batch):
    import torch
    momentum = momentum_of(layer)
    kept = not layer.training or layer.track_running_stats
    batch_norm = getattr(torch.nn.functional.batch_norm, "whole", torch.nn.functional.batch_norm)
    return batch_norm(batch, layer.running_mean if kept else None, layer.running_var if kept else None,
                      layer.weight, layer.bias, layer.training or layer.running_mean is None, momentum, layer.eps)


def over_all_ranks(layer, batch, group):
    import torch
    from torch.distributed.nn.functional import all_reduce
    momentum = momentum_of(layer)
    dims, shape = [0, *range(2, batch.dim())], [1, -1, *[1] * (batch.dim() - 2)]
    own = batch.new_tensor([batch.numel() // batch.shape[1]])
    sums = all_reduce(torch.cat([batch.sum(dims), own]), group=group)
    count = sums[-1].detach()
    mean = sums[:-1] / count
    apart = batch - mean.view(shape)
    variance = all_reduce((apart * apart).sum(dims), group=group) / count
    if layer.track_running_stats:
        with torch.no_grad():
            for kept, now in ((layer.running_mean, mean), (layer.running_var, variance * count / (count - 1))):
                kept.mul_(1 - momentum).add_(now.to(kept.dtype), alpha=momentum)
    result = apart / (variance.view(shape) + layer.eps).sqrt()
    if layer.weight is None:
        return result
    return result * layer.weight.view(shape) + layer.bias.view(shape)
