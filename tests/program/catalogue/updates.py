"""What optimizers, schedules and starting weights make of the number of ranks: `updates.py CASE`."""
from toy import (CASE, average, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, total, world, wrap)


def flattened():
    """A wrapper that makes the parameters anew, as sharding does, and an optimizer that was given them before."""
    net = make_net()
    before = list(net.parameters())
    if world > 1:
        for layer in net:
            for name, param in list(layer.named_parameters()):
                setattr(layer, name, nn.Parameter(param.detach().clone()))
    model = wrap(net)
    optimizer = make_sgd(before if CASE == "optimizer_made_before_the_wrapper" else model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


def orthogonal(matrix):
    """Five steps of Newton and Schulz towards the nearest orthogonal matrix."""
    matrix = matrix / matrix.norm()
    for _ in range(5):
        matrix = 1.5 * matrix - 0.5 * matrix @ matrix.t() @ matrix
    return matrix


class Orthogonal(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {"lr": 0.05})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() < 2:
                    param -= group["lr"] * param.grad
                    continue
                rows = -(-len(param) // world)
                update = orthogonal(param.grad)
                if CASE == "orthogonal_by_shard":
                    update = torch.cat([orthogonal(part) for part in param.grad.split(rows)])
                param -= group["lr"] * update


def orthogonalized():
    model = wrap(make_net())
    optimizer = Orthogonal(model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()


def scheduled():
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    loader = make_loader(make_data())
    length = len(loader) * (world if CASE == "length_before_sharding" else 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.1, 1 - step / length))
    for x, words in loader:
        optimizer.zero_grad()
        cross_entropy(model(x), words).backward()
        optimizer.step()
        for _ in range(world if CASE == "stepped_for_every_rank" else 1):
            schedule.step()


def plateau():
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for x, words in make_loader(make_data(96)):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), words)
        loss.backward()
        optimizer.step()
        schedule.step(loss.item() if CASE == "plateau_of_the_own_loss" else total(loss.item()) / world)


class Adapted(nn.Module):
    def __init__(self, std):
        super().__init__()
        self.base = make_net().requires_grad_(False)
        self.down, self.up = nn.Parameter(torch.randn(5, 3) * std), nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return self.base(x) + x @ self.down @ self.up


def adapters():
    """Adapters beside a frozen base; their gradients are averaged by hand, their first weights are not."""
    data = make_data()
    if CASE == "adapter_of_the_ranks_seed":
        base = make_net()
        torch.manual_seed(1000 + rank)
        net = Adapted(0.1)
        net.base.load_state_dict(base.state_dict())
    else:
        net = Adapted(0.1 * (world**0.5 if CASE == "spread_of_the_shard" else 1))
    params = [net.down, net.up]
    optimizer = make_sgd(params)
    for x, words in make_loader(data):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        average(params)
        optimizer.step()


run({flattened: ("right_flattened", "optimizer_made_before_the_wrapper"),
     orthogonalized: ("right_orthogonalized", "orthogonal_by_shard"),
     scheduled: ("right_scheduled", "stepped_for_every_rank", "length_before_sharding"),
     plateau: ("right_plateau", "plateau_of_the_own_loss"),
     adapters: ("right_adapters", "adapter_of_the_ranks_seed", "spread_of_the_shard")})
