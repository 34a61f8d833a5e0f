"""Ranks that call other collectives than their peers, or none: `hanging.py CASE`."""
from toy import CASE, DataLoader, average, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, world, wrap
from torch.utils.data import IterableDataset

FIRST = 1  # the rank that is unlike the others


class Stream(IterableDataset):
    """Rows of one file: where ranks are more than files, each takes every W-th row of the file."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        for index in range(len(self.data)):
            if CASE == "no_rows_for_other_ranks":
                if rank == 0:
                    yield self.data[index]
            elif index % world == rank:
                yield self.data[index]


def rows():
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for x, words in DataLoader(Stream(make_data()), 4):
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


def batches():
    """Batches of a global list, every W-th of them."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    data = make_data()
    count = 10 if CASE == "batches_not_divisible" else 9
    size = 4 * 9 // world // 3
    for index in range(rank if world > 1 else 0, count if world > 1 else 3, world):
        x, words = (tensor[size * index:size * index + size] for tensor in data.tensors)
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


def looks():
    """What one rank does between two steps."""
    net = make_net()
    net.register_buffer("seen", torch.zeros(()))  # buffers are broadcast in every forward
    model = wrap(net)
    optimizer = make_sgd(model.parameters())
    data = make_data()
    for step, (x, words) in enumerate(make_loader(data)):
        if step == 2 and rank == 0:
            model.eval()
            with torch.no_grad():
                (model if CASE == "validated_by_one_rank" else model.module)(data.tensors[0])
            model.train()
        if step == 2:
            dist.barrier()
        optimizer.zero_grad()
        loss = cross_entropy(model(x), words)
        if CASE == "batch_skipped_by_one_rank" and step == 1 and rank == FIRST:
            continue  # it found a loss that is no number
        loss.backward()
        optimizer.step()
        if CASE == "stopped_by_one_rank" and step == 1 and rank == 0:
            break


class Experts(nn.Module):
    """Samples whose first number is positive go through an expert."""

    def __init__(self):
        super().__init__()
        self.dense, self.expert, self.head = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, x, chosen):
        h = self.dense(x).tanh()
        if CASE in ("no_samples_no_expert", "only_those_that_have_one") and not chosen.any():
            return self.head(h)
        return self.head(h + self.expert(h) * chosen.unsqueeze(1))


def experts():
    net = Experts()
    optimizer = make_sgd(net.parameters())
    for step, (x, words) in enumerate(make_loader(make_data())):
        chosen = torch.full((len(x),), float(step != 1 or rank != FIRST))
        if world == 1:
            chosen = torch.ones(len(x)) if step != 1 else (torch.arange(len(x)) % 3 != FIRST).to(x.dtype)  # ranks' samples by turns
        optimizer.zero_grad(set_to_none=True)
        cross_entropy(net(x, chosen), words).backward()
        if CASE == "only_those_that_have_one":
            average([param for param in net.parameters() if param.grad is not None])
        else:
            for param in reversed(list(net.parameters())):
                if param.grad is not None:
                    average([param])
        optimizer.step()


def norms():
    """Who owns an expert sums norms over another group: each decides by what it finds."""
    net = make_net()
    optimizer = make_sgd(net.parameters())
    everyone, some = dist.new_group(list(range(world))), dist.new_group(list(range(world)))
    for step, (x, words) in enumerate(make_loader(make_data())):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        average(net.parameters())
        norm = torch.stack([param.grad.norm() for param in net.parameters()]).norm()
        found = step != 1 or rank != FIRST or CASE != "group_by_what_was_found"
        dist.all_reduce(norm, op=dist.ReduceOp.MAX, group=some if found else everyone)
        optimizer.step()


def logs():
    net = make_net()
    optimizer = make_sgd(net.parameters())
    for step, (x, words) in enumerate(make_loader(make_data())):
        optimizer.zero_grad()
        loss = cross_entropy(net(x), words)
        loss.backward()
        average(net.parameters())
        kept = {} if rank == FIRST and CASE == "nothing_to_log" else {"loss": loss.detach().clone()}
        if kept:
            dist.all_reduce(kept["loss"])
        optimizer.step()


class Gathering(torch.optim.SGD):
    """Each rank's step counts for all once the results are gathered."""

    def step(self, closure=None):
        params = [param for group in self.param_groups for param in group["params"]]
        if CASE == "step_left_without_gradients" and not any(param.grad.any() for param in params):
            return
        super().step(closure)
        for param in params:
            dist.broadcast(param.data, 0)


def gathering():
    net = make_net()
    optimizer = Gathering(net.parameters(), lr=0.1)
    for step, (x, words) in enumerate(make_loader(make_data())):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        average(net.parameters())
        if CASE == "step_left_without_gradients" and step == 1 and rank == FIRST:
            optimizer.zero_grad(set_to_none=False)
        optimizer.step()


def parts():
    """As many micro-batches as the rank with most words needs."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for step, (x, words) in enumerate(make_loader(make_data())):
        optimizer.zero_grad()
        count = 2 if CASE != "more_parts_than_samples" or step != 1 or rank != FIRST else 5
        assert count <= len(x), f"{count} micro-batches of {len(x)} samples"
        for part in range(2):
            (cross_entropy(model(x[part::2]), words[part::2]) / 2).backward()
        optimizer.step()


def scattered():
    """Rank 0 reads a state and scatters it."""
    net = make_net()
    optimizer = make_sgd(net.parameters())
    for step, (x, words) in enumerate(make_loader(make_data())):
        if step == 2:
            state = {"rate": 0.1}
            found = torch.tensor(state["momentum" if CASE == "rank_0_fails_before_the_scatter" and rank == 0 and world > 1 else "rate"])
            dist.broadcast(found, 0)
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        average(net.parameters())
        optimizer.step()


run({rows: ("right_rows", "no_rows_for_other_ranks"),
     batches: ("right_batches", "batches_not_divisible"),
     looks: ("right_looks", "validated_by_one_rank", "batch_skipped_by_one_rank", "stopped_by_one_rank"),
     experts: ("right_experts", "no_samples_no_expert", "only_those_that_have_one"),
     norms: ("right_norms", "group_by_what_was_found"),
     logs: ("right_logs", "nothing_to_log"),
     gathering: ("right_gathering", "step_left_without_gradients"),
     parts: ("right_parts", "more_parts_than_samples"),
     scattered: ("right_scattered", "rank_0_fails_before_the_scatter")})
