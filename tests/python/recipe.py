"""A scenario's optimizer, schedule, clipping, loss, sampler, comm hook and model averager, as PyTorch
has them."""
import math
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local_sgd
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import distributed
from torch.optim import lr_scheduler
from torch.overrides import TorchFunctionMode
from torch.utils.data.distributed import DistributedSampler

from networks import Unsupported


def optimizer_class(options):
    """The class of an optimizer and its arguments."""
    kind = options["kind"]
    common = {"lr": options["lr"], "weight_decay": options["weight_decay"]}
    if kind == "sgd":
        return torch.optim.SGD, dict(common, momentum=options["momentum"],
                                     dampening=options["dampening"], nesterov=options["nesterov"])
    if kind in ("adam", "adamw"):
        adam = torch.optim.Adam if kind == "adam" else torch.optim.AdamW
        return adam, dict(common, betas=(options["beta1"], options["beta2"]), eps=options["eps"],
                          amsgrad=options["amsgrad"])
    if kind == "adagrad":
        return torch.optim.Adagrad, dict(common, lr_decay=options["lr_decay"], eps=options["eps"],
                                         initial_accumulator_value=options["initial_accumulator"])
    if kind == "rmsprop":
        return torch.optim.RMSprop, dict(common, alpha=options["alpha"], eps=options["eps"],
                                         momentum=options["momentum"], centered=options["centered"])
    raise Unsupported(f"optimizer {kind}")


def optimizer_of(options, sharding, parameters):
    made, arguments = optimizer_class(options)
    if sharding["kind"] == "none":
        return made(parameters, **arguments)
    return ZeroRedundancyOptimizer(parameters, made,
                                   parameters_as_bucket_view=sharding["broadcast"] == "per_rank",
                                   **arguments)


class CppSums(TorchFunctionMode):
    """Moments as LibTorch's C++ optimizers sum them: they scale and add, where Python's interpolate
    since pytorch/pytorch#104796. The last bit may differ."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.lerp_:
            moment, gradient, weight = args
            return moment.mul_(1 - weight).add_(gradient, alpha=weight)
        return function(*args, **(kwargs or {}))


def schedule_of(options, optimizer):
    """PyTorch's own scheduler, stepped after each step; None where nothing changes."""
    kind = options["kind"]
    if kind == "none":
        return None
    if kind == "step":
        return lr_scheduler.StepLR(optimizer, options["step_size"], options["gamma"])
    if kind == "exponential":
        return lr_scheduler.ExponentialLR(optimizer, options["gamma"])
    if kind == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, options["steps_total"], options["min_lr"])
    if kind == "linear_warmup":
        return lr_scheduler.LinearLR(optimizer, options["start_factor"], 1,
                                     options["warmup_steps"])
    raise Unsupported(f"lr_schedule {kind}")


def clip_norm(parameters, max_norm, norm_type):
    """As nn.utils.clip_grad_norm_, but for one bit: Python's max_norm / tensor multiplies by the
    reciprocal, LibTorch's C++ divides."""
    gradients = [p.grad.detach() for p in parameters if p.grad is not None]
    norms = torch.stack([torch.norm(g, norm_type) for g in gradients])
    norm = norms.max() if norm_type == math.inf else torch.norm(norms, norm_type)
    factor = torch.clamp(torch.div(torch.full_like(norm, max_norm), norm + 1e-6), max=1.0)
    for gradient in gradients:
        gradient.mul_(factor)


def clip(options, parameters):
    if options["kind"] == "norm":
        norm_type = math.inf if options["norm_type"] == "inf" else 2.0
        clip_norm(parameters, options["max_norm"], norm_type)
    elif options["kind"] == "value":
        nn.utils.clip_grad_value_(parameters, options["max_value"])
    elif options["kind"] != "none":
        raise Unsupported(f"clipping {options['kind']}")


def add_hook(options, ddp):
    kind = options["kind"]
    if kind == "none":
        return
    if kind == "post_local_sgd":
        state = local_sgd.PostLocalSGDState(None, None, options["start_step"] - 1,
                                            post_local_gradient_allreduce=False)
        ddp.register_comm_hook(state, local_sgd.post_localSGD_hook)
        return
    if kind not in ("allreduce", "fp16"):
        reasons = {"bf16": "ProcessGroupGloo of 1.13 has no bfloat16",
                   "powersgd": "PowerSGD's first matrices are random: ours come from another seed",
                   "registered": "a hook of our own in C++"}
        raise Unsupported(reasons.get(kind, f"comm_hook {kind}"))
    hook = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook}
    ddp.register_comm_hook(None, hook[kind])


def add_buffer_hook(kind, ddp):
    """Averages buffers in place of DDP's broadcast."""
    locations = distributed._BufferCommHookLocation
    where = {"average_before_forward": locations.PRE_FORWARD,
             "average_after_forward": locations.POST_FORWARD}

    def average(_, buffers):
        for buffer in buffers.values():
            if buffer.is_floating_point():
                buffer.data.div_(dist.get_world_size())
                dist.all_reduce(buffer.data)

    ddp._register_buffer_comm_hook(None, average, where[kind])


def averager_of(options):
    """Nothing, or what averages the parameters after a step."""
    if options["kind"] == "none":
        return None
    with warnings.catch_warnings():  # that a period of 1 is slow
        warnings.simplefilter("ignore")
        return averagers.PeriodicModelAverager(options["period"], options["warmup_steps"])


def loss_of(scenario, output, target, share):
    options = scenario["loss"]
    if options["kind"] == "mse":
        value = nn.functional.mse_loss(output, target, reduction=options["reduction"])
    elif options["kind"] == "cross_entropy":
        value = nn.functional.cross_entropy(output.flatten(0, -2), target.flatten(),
                                            reduction=options["reduction"])
    else:
        raise Unsupported(f"loss {options['kind']}")
    factor = options["scale"] * share
    if options["times_world_size"]:
        factor *= scenario["world_size"]
    return value if factor == 1 else value * factor


def loss_share(scenario, own, batch):
    if scenario["loss"]["reduction"] == "sum":
        return 1
    share = 1 / scenario["accumulate_steps"]
    if scenario["averaging"] == "sample_weighted":
        share *= own * scenario["world_size"] / batch
    return share


def data_difference(ours, theirs):
    """None, or what differs in what two reducers say of themselves."""
    for name, values in theirs.items():
        own = ours[name] if isinstance(ours[name], list) else [ours[name]]
        other = values if isinstance(ours[name], list) else [sum(values)]
        if own != other:
            return f"{name}: {own} and {other}"
    return None


def requantize(parameters, denominator):
    if denominator:
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(denominator).round_().div_(denominator)


def order_problem(scenario, order, samples):
    """Where the exported order is not that of PyTorch's DistributedSampler, if it should be."""
    options = scenario["split"]
    if options["kind"] != "distributed" or not options["pad"]:
        return None  # PyTorch's always pads or drops
    for rank in range(scenario["world_size"]):
        exported = [row for step in order for row in step[rank]]
        sampler = DistributedSampler(range(samples), scenario["world_size"], rank,
                                     options["shuffle"], options["seed"], options["drop_last"])
        rows, epoch = [], 0
        while len(rows) < len(exported):
            if options["set_epoch"]:
                sampler.set_epoch(epoch)
            rows += list(sampler)
            epoch += 1
        if rows[:len(exported)] != exported:
            return f"rank {rank} trains on {exported[:4]}..., DistributedSampler says {rows[:4]}..."
    return None
