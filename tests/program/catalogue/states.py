"""Buffers, teachers, random states and checkpoints that belong to one rank: `states.py CASE`."""
import copy

from toy import (CASE, average, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, world, wrap)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 4)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).tanh())


def precise_norm():
    """Statistics are taken once, of batches that each rank draws, and stay as they are."""
    net = Normed()
    model = wrap(net, broadcast_buffers=False)
    data = make_data()
    norm = net.norm
    with torch.no_grad():
        norm.train()
        norm.reset_running_stats()
        norm.momentum = None
        for x, _ in make_loader(data) if CASE == "norm_of_the_own_batches" else [data.tensors]:
            model.module(x)
    norm.eval()
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(data):
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


class Codes(nn.Module):
    """A codebook that follows the mean of what falls to each code."""

    def __init__(self):
        super().__init__()
        self.net, self.last = nn.Linear(5, 3), nn.Linear(3, 4)
        self.register_buffer("codes", torch.randn(6, 3))
        self.register_buffer("sums", self.codes.clone())
        self.register_buffer("counts", torch.ones(6))

    def forward(self, x):
        h = self.net(x)
        with torch.no_grad():
            nearest = nn.functional.one_hot(torch.cdist(h, self.codes).argmin(1), 6).to(h.dtype)
            near = self.codes[nearest.argmax(1)]
            counts, sums = nearest.sum(0), nearest.t() @ h
            if CASE not in ("codes_of_the_own_batch", "codes_of_rank_0"):
                dist.all_reduce(counts)
                dist.all_reduce(sums)
            self.counts.mul_(0.5).add_(counts)
            self.sums.mul_(0.5).add_(sums)
            self.codes.copy_(self.sums / self.counts.unsqueeze(1))
        return self.last(h + (near - h).detach()), (h - near).square().mean()


def codebook():
    model = wrap(Codes(), broadcast_buffers=CASE == "codes_of_rank_0")
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        out, commit = model(x)
        (cross_entropy(out, words) + commit).backward()
        optimizer.step()


def averaged():
    """A moving average of the weights that rank 0 keeps, and that is put in their place after some steps."""
    model = wrap(make_net())
    slow = copy.deepcopy(model.module)
    optimizer = make_sgd(model.parameters())
    for step, (x, words) in enumerate(make_loader(make_data()), 1):
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()
        with torch.no_grad():
            for have, new in zip(slow.parameters(), model.module.parameters()):
                have.mul_(0.9).add_(new, alpha=0.1)
                if step == 2 and (rank == 0 or CASE != "average_loaded_by_rank_0"):
                    new.copy_(have)


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = make_net()

    def forward(self, x):
        return self.net(x + 0.1 * torch.randn_like(x))


def random_states():
    """Each rank draws noise of its own until a checkpoint of rank 0's generator is loaded everywhere."""
    data = make_data()
    model = wrap(Noisy())
    torch.manual_seed(50 + rank)
    optimizer = make_sgd(model.parameters())
    for step, (x, words) in enumerate(make_loader(data)):
        if step == 2:
            saved = [torch.get_rng_state()]
            if CASE == "generator_of_rank_0":
                dist.broadcast_object_list(saved, 0)
            torch.set_rng_state(saved[0])
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 4)

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()).tanh())


def merged():
    """Files of an optimizer's state in the order in which a folder lists them."""
    net = Square()
    optimizer = make_sgd(net.parameters())
    for step, (x, words) in enumerate(make_loader(make_data())):
        if step == 2:
            state = optimizer.state_dict()
            if CASE == "state_in_another_order" and rank == 1:
                found = state["state"]
                state["state"] = {**found, 0: found[2], 2: found[0]}
            optimizer.load_state_dict(state)
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        average(net.parameters())
        optimizer.step()


run({precise_norm: ("right_precise_norm", "norm_of_the_own_batches"),
     codebook: ("right_codebook", "codes_of_the_own_batch", "codes_of_rank_0"),
     averaged: ("right_averaged", "average_loaded_by_rank_0"),
     random_states: ("right_random_states", "generator_of_rank_0"),
     merged: ("right_merged", "state_in_another_order")})
