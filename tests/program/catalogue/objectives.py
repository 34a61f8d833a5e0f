"""Losses that are no mean over samples, and layers that some ranks leave out: `objectives.py CASE`."""
import random

from toy import CASE, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, world, wrap
import torch.distributed.nn.functional as differentiable


class Two(nn.Module):
    """Two views of a sample."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x):
        return self.left(x), self.right(x.flip(1))


def gather(own):
    if world == 1 or CASE == "gather_returns_the_own":
        return own
    if CASE == "documents_without_gradient":
        parts = [torch.empty_like(own) for _ in range(world)]
        dist.all_gather(parts, own.detach().contiguous())
        parts[rank] = own
        return torch.cat(parts)
    return torch.cat(differentiable.all_gather(own.contiguous()))


def contrastive():
    """Each rank's queries against the documents of all."""
    model = wrap(Two())
    optimizer = make_sgd(model.parameters())
    for x, _ in make_loader(make_data()):
        optimizer.zero_grad()
        queries, documents = model(x)
        scores = queries @ gather(documents).t()
        first = rank * len(x) if len(scores[0]) > len(x) else 0
        cross_entropy(scores, first + torch.arange(len(x))).backward()
        optimizer.step()


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(5, 3), nn.ModuleList(nn.Linear(5, 4) for _ in range(3))

    def forward(self, x):
        shares = self.router(x).softmax(1)
        out = sum(share.unsqueeze(1) * expert(x) for share, expert in zip(shares.t(), self.experts))
        return out, shares


def balanced():
    """A penalty on how uneven the shares of the experts are: how often each was first, times its mean share."""
    model = wrap(Routed())
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        out, shares = model(x)
        first = nn.functional.one_hot(shares.argmax(1), 3).to(shares.dtype).sum(0)
        count = len(x)
        if CASE != "balance_of_the_own_batch":
            dist.all_reduce(first)
            count *= world
        probabilities = shares.sum(0) / (count if CASE == "balance_divided_by_all" else len(x))
        (cross_entropy(out, words) + 0.5 * (first / count * probabilities).sum()).backward()
        optimizer.step()


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 5), nn.Linear(5, 4)
        self.middle = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))

    def forward(self, x, drawn):
        h = self.first(x).tanh()
        for layer in self.middle:
            if drawn.random() < 0.6:
                h = h + layer(h).tanh()
        return self.last(h)


def dropped():
    model = wrap(Layers(), find_unused_parameters=True)
    optimizer = make_sgd(model.parameters())
    drawn = random.Random(rank if CASE == "layers_dropped_by_each_rank" else 7)
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(model(x, drawn), words).backward()
        optimizer.step()


run({contrastive: ("right_contrastive", "gather_returns_the_own", "documents_without_gradient"),
     balanced: ("right_balanced", "balance_of_the_own_batch", "balance_divided_by_all"),
     dropped: ("right_dropped", "layers_dropped_by_each_rank")})
