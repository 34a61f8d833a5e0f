"""Norms of gradients, and what is cut by them: `clipping.py CASE`."""
from toy import CASE, average, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, total, world, wrap

LIMIT = 0.05  # always exceeded


def scale(params, norm, epsilon=1e-6):
    for param in params:
        param.grad *= min(1.0, LIMIT / (norm + epsilon))


def norm_of(params):
    return torch.stack([param.grad.norm() for param in params]).norm().item()


def known():
    """Gradients that every rank has whole, and norms of which each rank counts what it owns."""
    net = make_net()
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        params = list(net.parameters())
        average(params)
        owned = params[rank::world]
        if CASE == "norms_averaged":
            scale(params, total(norm_of(owned)) / world)
        elif CASE == "norm_of_the_own_experts":
            scale(params, norm_of(owned))
        elif CASE == "norm_counted_by_every_rank":
            scale(params, total(norm_of(params)**2)**0.5)
        elif CASE == "share_clipped_by_its_norm":
            scale(owned, norm_of(owned))
            for place, param in enumerate(params):  # owners hand on what they made of theirs
                dist.broadcast(param.grad, place % world)
        elif CASE == "epsilon_of_every_rank":
            scale(params, total(norm_of(owned)**2)**0.5, world * 1e-6)
        else:
            scale(params, total(norm_of(owned)**2)**0.5)
        optimizer.step()


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    net = fully_shard(make_net(), mesh=init_device_mesh("cpu", (world,)))
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        if CASE == "norm_of_the_local_shard":
            local = [param.grad.to_local() for param in net.parameters()]
            norm = torch.stack([grad.norm() for grad in local]).norm()
            for grad in local:
                grad *= (LIMIT / (norm + 1e-6)).clamp(max=1.0)
        else:
            nn.utils.clip_grad_norm_(net.parameters(), LIMIT)
        optimizer.step()


def accumulated():
    """Two micro-batches a step; the norm is that of their sum."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for part, (x, words) in enumerate(make_loader(make_data()), 1):
        if part % 2:
            with model.no_sync():
                (cross_entropy(model(x), words) / 2).backward()
        else:
            (cross_entropy(model(x), words) / 2).backward()
        if part % 2 == 0 or CASE == "clipped_after_every_backward":
            nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        if part % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()


run({known: ("right_known", "norms_averaged", "norm_of_the_own_experts", "norm_counted_by_every_rank", "share_clipped_by_its_norm", "epsilon_of_every_rank"),
     sharded: ("right_sharded", "norm_of_the_local_shard"),
     accumulated: ("right_accumulated", "clipped_after_every_backward")})
