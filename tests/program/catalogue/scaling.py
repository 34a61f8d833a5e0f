"""What gradients are divided by, and over which ranks they are summed: `scaling.py CASE`."""
from toy import (CASE, IGNORED, average, cross_entropy, dist, make_data, make_loader, make_net, make_sgd, nn, rank, run, torch, total,
                 world, wrap)


def count_of(words):
    return int((words != IGNORED).sum())


def tokens():
    """A sum over words, divided by how many all ranks have; DistributedDataParallel averages, so that it counts W times."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(make_data(masked=0.3)):
        optimizer.zero_grad()
        loss, count = cross_entropy(model(x), words, reduction="sum"), total(count_of(words))
        if CASE == "scaled_after_the_average":
            loss.backward()
            for param in model.parameters():
                param.grad /= count
        elif CASE == "global_mean_averaged_again":
            (loss / count).backward()
        else:
            (loss * world / count).backward()
        optimizer.step()


def logged_loss():
    """What is meant for the log is what backward is called on."""
    model = wrap(make_net())
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        loss = cross_entropy(model(x), words)
        shown = loss / world if CASE == "backward_of_the_logged_loss" else loss.detach() / world
        dist.all_reduce(shown.detach())
        (shown if CASE == "backward_of_the_logged_loss" else loss).backward()
        optimizer.step()


def levels():
    """Four ranks as two replicas of two context ranks each: a sum within the replica, and one over replicas."""
    size = 2 if world == 4 else 1
    within = [dist.new_group(list(range(first, first + size))) for first in range(0, world, size)][rank // size]
    across = [dist.new_group(list(range(first, world, size))) for first in range(size)][rank % size]
    net = make_net()
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        (cross_entropy(net(x), words) * (size if CASE == "loss_times_context" else 1)).backward()
        for param in net.parameters():
            dist.all_reduce(param.grad, group=within)
            if CASE != "replicas_forgotten":
                dist.all_reduce(param.grad, group=across)
            param.grad /= {"divided_by_factor_and_replicas": world * (world // size), "divided_by_context_again": world * size,
                           "replicas_forgotten": size, "context_not_divided": world // size}.get(CASE, world)
        optimizer.step()


class Mixture(nn.Module):
    """A dense layer, a norm of what it makes, and experts."""

    def __init__(self):
        super().__init__()
        self.dense, self.norm, self.expert = nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 4)

    def forward(self, x):
        return self.expert(self.norm(self.dense(x)).tanh())


def mixture():
    """Some parameters are reduced by another way than the others, and it is forgotten what that way owes."""
    net = Mixture()
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        for name, param in net.named_parameters():
            if CASE == "norm_unsummed" and name.startswith("norm"):
                continue
            dist.all_reduce(param.grad)
            param.grad /= 1 if CASE == "expert_undivided" and name.startswith("expert") else world
        optimizer.step()


class Transposed(nn.Module):
    """A weight whose gradient comes transposed, so that it is not contiguous."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(5, 7), nn.Parameter(torch.randn(7, 4))

    def forward(self, x):
        return self.body(x).tanh() @ self.head


def copies():
    net = Transposed()
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        for param in net.parameters():
            grad = param.grad.t() if param.dim() == 2 else param.grad
            summed = grad.contiguous()
            dist.all_reduce(summed)
            if CASE != "copy_summed" or summed.data_ptr() == grad.data_ptr():
                grad.copy_(summed)
            grad /= world
        optimizer.step()


class Reducing:
    """Sums gradients once it is told that the last backward is over."""

    def __init__(self, net):
        self.net = net

    def finish(self):
        average(self.net.parameters())


def finished():
    net = make_net()
    reducing, optimizer = Reducing(net), make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        if CASE != "never_finished":
            reducing.finish()
        optimizer.step()


class Language(nn.Module):
    """With a loss of its own, which forward() is not."""

    def __init__(self):
        super().__init__()
        self.net = make_net()

    def compute_loss(self, x, words):
        return cross_entropy(self.net(x), words)

    forward = compute_loss


def groups():
    """Data-parallel groups by the sizes of a mesh."""
    alone = [dist.new_group([one]) for one in range(world)][rank]
    model = wrap(Language(), process_group=alone if CASE == "group_without_sequence_ranks" else None)
    optimizer = make_sgd(model.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        loss_of = model.module.compute_loss if CASE == "loss_of_the_unwrapped" else model
        loss_of(x, words).backward()
        optimizer.step()


def sharded():
    """A mesh of all ranks, of which one dimension is given away."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replicate", "shard"))
    net = fully_shard(make_net(), mesh=mesh["shard"] if CASE == "sharded_over_one_rank" else mesh)
    optimizer = make_sgd(net.parameters())
    for x, words in make_loader(make_data()):
        optimizer.zero_grad()
        cross_entropy(net(x), words).backward()
        optimizer.step()


run({tokens: ("right_tokens", "scaled_after_the_average", "global_mean_averaged_again"),
     logged_loss: ("right_logged_loss", "backward_of_the_logged_loss"),
     levels: ("right_levels", "loss_times_context", "divided_by_factor_and_replicas", "divided_by_context_again", "replicas_forgotten",
              "context_not_divided"),
     mixture: ("right_mixture", "norm_unsummed", "expert_undivided"),
     copies: ("right_copies", "copy_summed"),
     finished: ("right_finished", "never_finished"),
     groups: ("right_groups", "group_without_sequence_ranks", "loss_of_the_unwrapped"),
     sharded: ("right_sharded", "sharded_over_one_rank")})
