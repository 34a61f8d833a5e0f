"""One rank of an exported run, trained by PyTorch's DistributedDataParallel."""
import contextlib
import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import models
from networks import Unsupported

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TIMEOUT = datetime.timedelta(seconds=60)
# Keys of a scenario that change what is trained, with the only value that this program follows.
PLAIN = {"lr_schedule": "none", "clipping": "none", "loss_scaling": "none", "comm_hook": "none",
         "checkpoint": "none"}


def check(scenario):
    """Raises Unsupported where the run has no counterpart in PyTorch, or none here yet."""
    if scenario["reducer"]["kind"] not in ("bucketed", "c10d"):
        raise Unsupported(f"reducer {scenario['reducer']['kind']} is not DDP")
    if scenario["communicator"]["algorithm"] != "ring":
        raise Unsupported(f"ProcessGroupGloo adds in a ring, not {scenario['communicator']['algorithm']}")
    if scenario["threads"] != 1:
        raise Unsupported("several threads a rank")
    if scenario["mutants"]:
        raise Unsupported("the run has a defect put in on purpose")
    for key, value in PLAIN.items():
        if scenario[key]["kind"] != value:
            raise Unsupported(f"{key} {scenario[key]['kind']}")


def optimizer_of(options, parameters):
    lr = options["lr"]
    if options["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=options["momentum"],
                               dampening=options["dampening"],
                               weight_decay=options["weight_decay"], nesterov=options["nesterov"])
    if options["kind"] == "adam":
        return torch.optim.Adam(parameters, lr=lr, betas=(options["beta1"], options["beta2"]),
                                eps=options["eps"], weight_decay=options["weight_decay"],
                                amsgrad=options["amsgrad"])
    raise Unsupported(f"optimizer {options['kind']}")


def wrap(model, options):
    # DDP reads the limit of the first bucket from here; everything else is an argument.
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(options["first_bucket_mb"] * 1024 * 1024)
    return DistributedDataParallel(
        model, bucket_cap_mb=options["bucket_cap_mb"],
        gradient_as_bucket_view=options["gradient_as_bucket_view"],
        find_unused_parameters=options["find_unused_parameters"],
        static_graph=options["static_graph"], broadcast_buffers=options["broadcast_buffers"])


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


def requantize(parameters, denominator):
    if denominator:
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(denominator).round_().div_(denominator)


class Rank:
    """Builds what rank `rank` needs; the group must be there already."""

    def __init__(self, run, rank):
        self.scenario = run.scenario
        self.rank = rank
        self.order = run.order
        (_, self.input), (_, self.target) = run.tensors("data")
        self.model = models.build(run.scenario["model"]).to(DTYPES[run.scenario["dtype"]])
        models.load(self.model, [t for _, t in run.tensors("initial", "parameters")],
                    [t for _, t in run.tensors("initial", "buffers")])
        self.spoil_unless_first()
        self.optimizer = optimizer_of(run.scenario["optimizer"], self.model.parameters())
        self.ddp = wrap(self.model, run.scenario["reducer"])

    def spoil_unless_first(self):
        # What DDP broadcasts at construction must mend this.
        if self.rank:
            for parameter in self.model.parameters():
                parameter.data.add_(1)

    def step(self, shards):
        scenario, parts = self.scenario, self.scenario["accumulate_steps"]
        rows = torch.tensor(shards[self.rank])
        share = loss_share(scenario, len(rows), sum(map(len, shards)))
        self.optimizer.zero_grad(set_to_none=scenario["zero_grad"] == "none")
        for number, part in enumerate(rows.split(len(rows) // parts)):
            last = number + 1 == parts
            with contextlib.nullcontext() if last else self.ddp.no_sync():
                output = self.ddp(self.input[part])
                loss_of(scenario, output, self.target[part], share).backward()
        self.optimizer.step()
        requantize(self.model.parameters(), scenario["requantize"])

    def state(self):
        parameters = dict(self.model.named_parameters())
        return {"parameters": [(n, p.detach()) for n, p in parameters.items()],
                "gradients": [(n, p.grad) for n, p in parameters.items()],
                "buffers": list(self.model.named_buffers())}


def train(run, rank, rendezvous, result):
    """Joins the group through the file `rendezvous`, trains, and leaves the state in `result`."""
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                            world_size=run.scenario["world_size"], timeout=TIMEOUT)
    trained = Rank(run, rank)
    for shards in trained.order:
        trained.step(shards)
    torch.save(trained.state(), result)
    dist.barrier()
    dist.destroy_process_group()
