"""Which samples a rank is dealt, in which epoch and after a resume: `dealing.py CASE`."""
import io
import itertools
import random

from toy import (CASE, DataLoader, DistributedSampler, cross_entropy, make_data, make_loader, make_net, make_sgd, rank,
                 run, torch, world, wrap)
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, random_split

BATCH = 4 if world > 1 else 12  # where no loader of PyTorch's own makes batches


def train(model, optimizer, batches):
    for x, words in batches:
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


def begin():
    model = wrap(make_net())
    return model, make_sgd(model.parameters())


def sampled():
    model, optimizer = begin()
    data = make_data()
    seed = 7 * rank if CASE == "seed_of_the_rank" else 7
    sampler = DistributedSampler(data, shuffle=True, seed=seed)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        train(model, optimizer, DataLoader(data, 4, sampler=sampler))


def listed():
    """A list that is shuffled when it is read, before it is dealt."""
    model, optimizer = begin()
    rows = list(zip(*make_data().tensors))
    (random.Random(rank) if CASE == "list_shuffled_by_each_rank" else random.Random(7)).shuffle(rows)
    train(model, optimizer, make_loader(rows))


class Shard:
    """Every W-th batch of a sampler, as trainers that prepare a loader deal."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        for index, batch in enumerate(self.sampler):
            if index % world == rank:
                yield batch


def prepared():
    model, optimizer = begin()
    data = make_data()
    seed = torch.Generator().manual_seed(rank if CASE == "generator_of_the_rank" else 7)
    whole = BatchSampler(RandomSampler(data, generator=seed), BATCH, False)
    train(model, optimizer, DataLoader(data, batch_sampler=Shard(whole)))


class Stream(IterableDataset):
    """Dealt by a rule: every W-th sample."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        start, stride = (rank, world) if CASE != "split_twice" else (rank * world + rank, world * world)
        for index in range(start, len(self.data) - len(self.data) % stride, stride):
            yield self.data[index]


def streamed():
    model, optimizer = begin()
    train(model, optimizer, DataLoader(Stream(make_data(72)), 4))


def resumed():
    """Interrupted in epoch 1 after two batches; the loader is made anew, and skips them."""
    model, optimizer = begin()
    data = make_data()

    def loader(epoch):
        sampler = DistributedSampler(data, shuffle=True, seed=7)
        sampler.set_epoch(epoch)
        return DataLoader(data, 4, sampler=sampler)

    train(model, optimizer, loader(0))
    train(model, optimizer, itertools.islice(loader(1), 2))
    kept = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, kept)
    kept.seek(0)
    state = torch.load(kept)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, itertools.islice(loader(0 if CASE == "epoch_reset_by_resume" else 1),
                                             0 if CASE == "nothing_skipped" else 2, None))
    train(model, optimizer, loader(1 if CASE == "order_repeated_after_resume" else 2))


def anew():
    """A function that gives a loader, called for each epoch."""
    model, optimizer = begin()
    data = make_data()
    for epoch in range(2):
        loader = make_loader(data, shuffle=True)
        if CASE != "loader_made_anew":
            loader.sampler.set_epoch(epoch)
        train(model, optimizer, loader)


class Batches:
    """A batch sampler with a sampler within, which set_epoch() must reach."""

    def __init__(self, data):
        self.sampler = DistributedSampler(data, shuffle=True, seed=7)

    def __iter__(self):
        return iter(BatchSampler(self.sampler, BATCH, True))

    def __len__(self):
        return len(self.sampler) // BATCH


def epochs():
    model, optimizer = begin()
    data = make_data()
    batches = Batches(data)
    loader = DataLoader(data, batch_sampler=batches)
    for epoch in range(2):
        sampler = loader.sampler if CASE == "epoch_set_on_another_sampler" else batches.sampler
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        train(model, optimizer, loader)


def split():
    model, optimizer = begin()
    data = make_data()
    torch.manual_seed(7 + (12345 * rank if CASE == "split_by_the_ranks_seed" else 0))
    train(model, optimizer, make_loader(random_split(data, [36, 12])[0]))


run({sampled: ("right_sampled", "seed_of_the_rank"),
     listed: ("right_listed", "list_shuffled_by_each_rank"),
     prepared: ("right_prepared", "generator_of_the_rank"),
     streamed: ("right_streamed", "split_twice"),
     resumed: ("right_resumed", "epoch_reset_by_resume", "nothing_skipped", "order_repeated_after_resume"),
     anew: ("right_anew", "loader_made_anew"),
     epochs: ("right_epochs", "epoch_set_on_another_sampler"),
     split: ("right_split", "split_by_the_ranks_seed")})
