"""One rank of an exported run, trained by PyTorch's DistributedDataParallel."""
import contextlib
import dataclasses
import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import models
import recipe
from networks import Unsupported

DTYPES = {"float32": torch.float32, "float64": torch.float64}
TIMEOUT = datetime.timedelta(seconds=60)


def check(scenario):
    """Raises Unsupported where the run has no counterpart in PyTorch, or none here yet."""
    if scenario["reducer"]["kind"] not in ("bucketed", "c10d"):
        raise Unsupported(f"reducer {scenario['reducer']['kind']} is not DDP")
    algorithm = scenario["communicator"]["algorithm"]
    if algorithm != "ring":
        raise Unsupported(f"ProcessGroupGloo adds in a ring, not by {algorithm}")
    if scenario["threads"] != 1:
        raise Unsupported("several threads a rank")
    if scenario["mutants"]:
        raise Unsupported("the run has a defect put in on purpose")
    if scenario["loss_scaling"]["kind"] != "none":
        raise Unsupported("GradScaler of 1.13 needs CUDA")
    schedule = scenario["lr_schedule"]
    if schedule["kind"] == "cosine" and scenario["steps"] > schedule["steps_total"] + 1:
        raise Unsupported("CosineAnnealingLR rises again after its last step, ours stays down")
    if scenario["dtype"] not in DTYPES:
        raise Unsupported(f"ProcessGroupGloo of 1.13 has no {scenario['dtype']}")
    if scenario["checkpoint"]["kind"] != "none":
        raise Unsupported("saving and resuming is our own")


def dense(gradient):
    return gradient.to_dense() if gradient is not None and gradient.is_sparse else gradient


class TwoLimitsDdp(DistributedDataParallel):
    """Later versions limit the first bucket on its own only where the limit of all is left at its
    default (pytorch/pytorch#121640); here both are given, as in 1.13."""

    def _ddp_init_helper(self, *args, **kwargs):
        if hasattr(self, "_bucket_config"):
            self._bucket_config = dataclasses.replace(
                self._bucket_config, first_bucket_bytes_cap=dist._DEFAULT_FIRST_BUCKET_BYTES)
        else:
            self.bucket_bytes_cap_default = True  # what those between ask; unknown to 1.13
        super()._ddp_init_helper(*args, **kwargs)


def wrap(model, options):
    # DDP reads the limit of the first bucket from here; everything else is an argument.
    dist._DEFAULT_FIRST_BUCKET_BYTES = int(options["first_bucket_mb"] * 1024 * 1024)
    ddp = TwoLimitsDdp(
        model, bucket_cap_mb=options["bucket_cap_mb"],
        gradient_as_bucket_view=options["gradient_as_bucket_view"],
        find_unused_parameters=options["find_unused_parameters"],
        static_graph=options["static_graph"], broadcast_buffers=options["broadcast_buffers"])
    if options["buffer_hook"] != "none":
        recipe.add_buffer_hook(options["buffer_hook"], ddp)
    return ddp


class WrappedModules(torch.nn.Module):
    """The model with each of its modules in a DDP of its own."""

    def __init__(self, model, names, options):
        super().__init__()
        self.model = model
        self.wrapped = [self.replace(name, options) for name in names]

    def replace(self, name, options):
        ddp = wrap(getattr(self.model, name), options)
        setattr(self.model, name, ddp)
        for number, layer in enumerate(getattr(self.model, "layers", [])):
            if layer is ddp.module:
                self.model.layers[number] = Forwarding(ddp)
        return ddp

    def forward(self, x):
        return self.model(x)

    @contextlib.contextmanager
    def no_sync(self):
        with contextlib.ExitStack() as stack:
            for ddp in self.wrapped:
                stack.enter_context(ddp.no_sync())
            yield


class Forwarding:
    """A layer's DDP, where the model asks for the layer's weight."""

    def __init__(self, ddp):
        self.ddp, self.weight = ddp, ddp.module.weight

    def __call__(self, x):
        return self.ddp(x)


class Rank:
    """Builds what rank `rank` needs; the group must be there already."""

    def __init__(self, run, rank):
        self.scenario = run.scenario
        self.rank = rank
        (_, self.input), (_, self.target) = run.tensors("data")
        self.model = models.build(run.scenario["model"], DTYPES[run.scenario["dtype"]])
        models.freeze(self.model, [n for n, _ in run.tensors("initial", "parameters")],
                      run.scenario["frozen"])
        models.load(self.model, [t for _, t in run.tensors("initial", "parameters")],
                    [t for _, t in run.tensors("initial", "buffers")])
        models.lay_out(self.model, run.scenario["model"])
        self.names = [n for n, _ in run.tensors("initial", "parameters")]
        self.buffer_names = [n for n, _ in run.tensors("initial", "buffers")]
        self.spoil_unless_first()
        self.parameters = list(self.model.parameters())
        self.optimizer = recipe.optimizer_of(run.scenario["optimizer"],
                                             run.scenario["optimizer_sharding"], self.parameters)
        self.schedule = recipe.schedule_of(run.scenario["lr_schedule"], self.optimizer)
        self.own_parameters, self.own_buffers = self.parameters, list(self.model.buffers())
        self.ddp = self.wrapped()
        self.averager = recipe.averager_of(run.scenario["model_averaging"])

    def wrapped(self):
        scenario, options = self.scenario, self.scenario["reducer"]
        ignored = [n for n in self.names + self.buffer_names if models.is_named_in(scenario["ignored"], n)]
        if ignored:
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, ignored)
        if scenario["wrapped_modules"]:
            return WrappedModules(self.model, scenario["wrapped_modules"], options)
        ddp = wrap(self.model, options)
        recipe.add_hook(scenario["comm_hook"], ddp)
        return ddp

    def spoil_unless_first(self):
        # What DDP broadcasts at construction must mend this.
        if self.rank:
            for name, parameter in zip(self.names, self.model.parameters()):
                if not models.is_named_in(self.scenario["ignored"], name):
                    parameter.data.add_(1)

    def average_ignored(self):
        """By hand: one all-reduce each, then the division."""
        if not self.scenario["reducer"]["average_ignored"]:
            return
        for name, parameter in zip(self.names, self.parameters):
            if parameter.requires_grad and models.is_named_in(self.scenario["ignored"], name):
                dist.all_reduce(parameter.grad)
                parameter.grad.div_(self.scenario["world_size"])

    def joining(self):
        if "join" not in self.scenario:
            return contextlib.nullcontext()
        divide_by = self.scenario["join"]["divide_by"]
        return self.ddp.join(divide_by_initial_world_size=divide_by == "initial_world_size")

    def step(self, shards):
        scenario, count = self.scenario, self.scenario["accumulate_steps"]
        rows = torch.tensor(shards[self.rank])
        share = recipe.loss_share(scenario, len(rows), sum(map(len, shards)))
        self.optimizer.zero_grad(set_to_none=scenario["zero_grad"] == "none")
        for number, part in enumerate(rows.split(len(rows) // count), 1):
            synchronizes = number == count or scenario["accumulate_sync"] == "each"
            with contextlib.nullcontext() if synchronizes else self.ddp.no_sync():
                output = self.ddp(self.input[part])
                if hasattr(self.model, "taken_by_loss"):
                    output = self.model.taken_by_loss(output)
                recipe.loss_of(scenario, output, self.target[part], share).backward()
        self.average_ignored()
        recipe.clip(scenario["clipping"], self.parameters)
        with recipe.CppSums():
            self.optimizer.step()
        recipe.requantize(self.parameters, scenario["requantize"])
        if self.schedule:
            self.schedule.step()
        if self.averager:
            self.averager.average_parameters(self.parameters)

    def state_by_parameter(self):
        """The optimizer's state in order of registration; of a shared one on rank 0 alone."""
        if self.scenario["optimizer_sharding"]["kind"] == "none":
            return [self.optimizer.state.get(p, {}) for p in self.parameters]
        self.optimizer.consolidate_state_dict(to=0)
        whole = self.optimizer.state_dict()["state"] if self.rank == 0 else {}
        return [whole.get(i, {}) for i in range(len(self.parameters))]

    def optimizer_state(self, names):
        """By the exported names: "fc1.weight.exp_avg" belongs to parameter fc1.weight."""
        by_name = dict(zip([n for n, _ in names["parameters"]], self.state_by_parameter()))
        state = []
        for name, exported in names["optimizer_state"]:
            owner, word = name.rsplit(".", 1)
            value = by_name[owner].get(word)
            if word == "step" and exported is not None:
                # PyTorch counts in a float tensor or not at all (SGD), LibTorch in an integer.
                value = exported if value is None else torch.tensor([int(value)])
            state.append((name, value))
        return state

    def reducer_data(self):
        """Of the logging data what is no time; the last module's first."""
        wrapped = reversed(getattr(self.ddp, "wrapped", [self.ddp]))
        names = {"bucket_bytes": "bucket_sizes", "rebuilt_bucket_bytes": "rebuilt_bucket_sizes",
                 "parameters": "num_parameter_tensors",
                 "parameter_bytes": "total_parameter_size_bytes",
                 "unused_parameter_bytes": "unused_parameter_size"}
        found = {name: [] for name in names}
        for ddp in wrapped:
            before = ddp._get_ddp_logging_data()
            ddp._set_ddp_runtime_logging_sample_rate(1)
            ddp.logger.set_runtime_stats_and_log()  # of the last step too
            logged = ddp._get_ddp_logging_data()
            unused = "unused_parameter_size"  # which the logger adds up over the steps
            logged[unused] = logged.get(unused, 0) - before.get(unused, 0)
            for ours, theirs in names.items():
                found[ours] += [int(word) for word in str(logged.get(theirs, "")).split(",") if word]
        return found

    def state(self, exported):
        return {"parameters": [(n, p.detach()) for n, p in zip(self.names, self.own_parameters)],
                "gradients": [(n, dense(p.grad)) for n, p in zip(self.names, self.own_parameters)],
                "buffers": list(zip(self.buffer_names, self.own_buffers)),
                "reducer_data": self.reducer_data(),
                "optimizer_state": self.optimizer_state(exported)}


def epochs(order):
    """Steps of which ranks may run out: a new epoch begins where one has samples again."""
    epoch = []
    for shards in order:
        if epoch and any(now and not before for now, before in zip(shards, epoch[-1])):
            yield epoch
            epoch = []
        epoch.append(shards)
    yield epoch


def train(run, rank, rendezvous, result):
    """Joins the group through the file `rendezvous`, trains, and leaves the state in `result`."""
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank,
                            world_size=run.scenario["world_size"], timeout=TIMEOUT)
    trained = Rank(run, rank)
    for epoch in epochs(run.order):
        with trained.joining():
            for shards in epoch:
                if shards[rank]:
                    trained.step(shards)
    exported = {key: run.tensors("final", key) for key in ("parameters", "optimizer_state")}
    torch.save(trained.state(exported), result)
    dist.barrier()
    dist.destroy_process_group()
