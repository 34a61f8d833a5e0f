"""Several micro-batches a step: `accumulating.py CASE`."""
from toy import CASE, IGNORED, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, run, torch, total, world, wrap

PARTS = 2  # micro-batches of a step


def windows(loader):
    held = []
    for batch in loader:
        held.append(batch)
        if len(held) == PARTS:
            yield held
            held = []


def count_of(words):
    return int((words != IGNORED).sum())


def weights():
    """What each micro-batch counts."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for parts in windows(make_loader(make_data(masked=0.3))):
        optimizer.zero_grad()
        own = sum(count_of(words) for _, words in parts)
        everywhere = total(own)
        for x, words in parts:
            loss = cross_entropy(model(x), words, reduction="sum")
            if CASE == "weighted_by_samples":
                loss = loss / count_of(words) * len(x) / sum(len(x) for x, _ in parts)
            elif CASE == "items_of_the_own_rank":
                loss = loss / own
            elif CASE == "items_of_the_micro_batch":
                loss = loss / count_of(words) / PARTS
            elif CASE == "items_gathered_and_cut":
                loss = loss * world / (everywhere - world + 1)
            else:
                loss = loss * world / everywhere
            loss.backward()
        optimizer.step()


class Shard:
    """Sums each micro-batch's gradients at once into a store of its own, as sharded optimizers do."""

    def __init__(self, net):
        self.net, self.store = net, None

    def take(self):
        grads = [param.grad.clone() for param in self.net.parameters()]
        for grad in grads:
            dist.all_reduce(grad)
            grad /= world
        overwrites = CASE == "store_overwritten" and world > 1 or CASE == "store_of_one_overwritten" and world == 1
        if self.store is None or overwrites:
            self.store = grads
        else:
            self.store = [have + grad for have, grad in zip(self.store, grads)]
        self.net.zero_grad()

    def give(self):
        for param, grad in zip(self.net.parameters(), self.store):
            param.grad = grad
        self.store = None


def stored():
    net = make_net()
    shard, optimizer = Shard(net), make_sgd(net.parameters())
    for parts in windows(make_loader(make_data())):
        for x, words in parts:
            (cross_entropy(net(x), words) / PARTS).backward()
            shard.take()
        shard.give()
        optimizer.step()
        optimizer.zero_grad()


def alike():
    """What any number of ranks does alike is no matter of ranks, wrong as it may be."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for parts in windows(make_loader(make_data())):
        optimizer.zero_grad()
        for x, words in parts:
            factor = {"summed_alike": 1, "divided_twice_alike": PARTS**2}.get(CASE, PARTS)
            (cross_entropy(model(x), words) / factor).backward()
        optimizer.step()


def delayed():
    """Within a replica at once, over replicas with the last micro-batch."""
    net = make_net()
    optimizer = make_sgd(net.parameters())
    for parts in windows(make_loader(make_data())):
        earlier = [torch.zeros_like(param) for param in net.parameters()]
        for x, words in parts:
            net.zero_grad()
            (cross_entropy(net(x), words) / PARTS).backward()
            if x is not parts[-1][0]:
                earlier = [have + param.grad for have, param in zip(earlier, net.parameters())]
        for param, have in zip(net.parameters(), earlier):
            if CASE != "added_after_the_sum":
                param.grad += have
            dist.all_reduce(param.grad)
            param.grad /= world
            if CASE == "added_after_the_sum":
                param.grad += have
        optimizer.step()


def ahead():
    """Forwards of the wrapped model for all parts of a step, and a backward of each."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for parts in windows(make_loader(make_data())):
        optimizer.zero_grad()
        losses = [cross_entropy(model(x), words) / PARTS for x, words in parts]
        if CASE == "backwards_after_all_forwards":
            for loss in losses:
                loss.backward()
        else:
            sum(losses).backward()
        optimizer.step()


run({weights: ("right_weights", "weighted_by_samples", "items_of_the_own_rank", "items_of_the_micro_batch", "items_gathered_and_cut"),
     stored: ("right_stored", "store_overwritten", "store_of_one_overwritten"),
     alike: ("right_alike", "summed_alike", "divided_twice_alike"),
     delayed: ("right_delayed", "added_after_the_sum"),
     ahead: ("right_ahead", "backwards_after_all_forwards")})
