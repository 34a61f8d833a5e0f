"""Buckets of a reducer of one's own, summed while backward goes on: `buckets.py CASE`."""
from toy import CASE, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, world

SIZE = 36  # numbers of a bucket; the largest gradient has 35


class Buckets:
    """Two buffers by turns: one is filled by hooks of the parameters while the other is summed."""

    def __init__(self, net):
        self.params = list(net.parameters())
        self.buffers = [torch.zeros(SIZE) for _ in range(2)]
        self.turn, self.held, self.used, self.works, self.begun = 0, [], 0, [], False
        for param in self.params:
            param.register_hook(lambda grad, param=param: self.add(param, grad))

    def add(self, param, grad):
        if self.used + grad.numel() > SIZE or CASE == "size_never_reset" and self.held:
            self.flush()
        start, self.used = self.used, self.used + grad.numel()
        self.held.append((param, start))
        if CASE == "summed_before_the_copy":
            self.begin()
        self.buffers[self.turn][start:self.used] = grad.flatten() / world
        return grad

    def begin(self):
        if not self.begun:
            buffer = self.buffers[self.turn]
            self.works.append((dist.all_reduce(buffer, async_op=True), self.held, buffer))
            self.begun = True

    def flush(self):
        self.begin()
        self.turn, self.held, self.used, self.begun = 1 - self.turn, [], 0, False
        if CASE != "buffer_reused_in_flight":
            self.finish(self.buffers[self.turn])

    def finish(self, wanted):
        for work, held, buffer in [one for one in self.works if one[2] is wanted]:
            work.wait()
            self.sums.extend((param, buffer[start:start + param.numel()].view_as(param).clone()) for param, start in held)
        self.works = [one for one in self.works if one[2] is not wanted]

    def start(self):
        self.sums = []

    def end(self):
        self.flush()
        for buffer in self.buffers:
            self.finish(buffer)
        for param, grad in self.sums:
            param.grad.copy_(grad)


def overlapped():
    net = make_net()
    buckets, optimizer = Buckets(net), make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        buckets.start()
        cross_entropy(net(x), words).backward()
        buckets.end()
        optimizer.step()


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(3))
        self.head = nn.Linear(5, 4)

    def forward(self, x, fetch=lambda layer: None):
        for layer in self.layers:
            fetch(layer)
            x = x + layer(x).tanh()
        fetch(self.head)
        return self.head(x)


def gathered():
    """Each rank updates the layers that it owns; the others' come by broadcasts, which forward waits for."""
    net = Deep()
    layers = [*net.layers, net.head]
    optimizer = make_sgd(net.parameters())
    on_the_way = {}

    def fetch(layer):
        for work in on_the_way.pop(layer, []):
            work.wait()

    def late(layer):
        if layer is not net.layers[1]:
            fetch(layer)

    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        loss = cross_entropy(net(x, late if CASE == "used_before_it_was_gathered" else fetch), words)
        for layer in layers:
            fetch(layer)
        loss.backward()
        for param in net.parameters():
            dist.all_reduce(param.grad)
            param.grad /= world
        for index, layer in enumerate(layers):
            for param in layer.parameters() if index % world != rank else ():
                param.grad = None
        optimizer.step()
        for index, layer in enumerate(layers):
            on_the_way[layer] = [dist.broadcast(param.data, index % world, async_op=True) for param in layer.parameters()]
    for layer in layers:
        fetch(layer)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.body = nn.Linear(5, 4, bias=False), nn.Linear(4, 5)
        self.head = nn.Linear(5, 4, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(self.body(self.words(x)).tanh())


def tied():
    """A flat copy of the parameters, or storage made anew, is no longer the one that two layers share."""
    net = Tied()
    if CASE == "untied_where_it_is_flat" and world > 1 or CASE == "untied_on_other_ranks" and rank > 0:
        net.head.weight = nn.Parameter(net.words.weight.detach().clone())
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        for param in [net.words.weight, *net.body.parameters()] + ([net.head.weight] if CASE == "untied_where_it_is_flat" and world > 1 else []):
            dist.all_reduce(param.grad)
            param.grad /= world
        optimizer.step()


run({overlapped: ("right_overlapped", "buffer_reused_in_flight", "summed_before_the_copy", "size_never_reset"),
     gathered: ("right_gathered", "used_before_it_was_gathered"),
     tied: ("right_tied", "untied_where_it_is_flat", "untied_on_other_ranks")})
