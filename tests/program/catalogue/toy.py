"""What the cases share: ranks, data, a net, a sum by hand. Odd sizes, other samples on each rank and SGD, so that no mistake hides."""
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CASE = sys.argv[1]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(7)
cross_entropy = nn.functional.cross_entropy
IGNORED = -100


def make_data(count=48, masked=0.0):
    x, words = torch.randn(count, 5), torch.randint(0, 4, (count,))
    words[torch.rand(count) < masked] = IGNORED
    return TensorDataset(x, words)


def make_loader(data, size=4, **options):
    return DataLoader(data, size, sampler=DistributedSampler(data, **{"shuffle": False, **options}))


def make_net():
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4))


def make_sgd(params):
    return torch.optim.SGD(params, lr=0.1, momentum=0.9)


def wrap(net, **options):
    return DistributedDataParallel(net, **options)


def total(number):
    """Over all ranks, of a number."""
    summed = torch.tensor(float(number))
    dist.all_reduce(summed)
    return summed.item()


def average(params):
    for param in params:
        dist.all_reduce(param.grad)
        param.grad /= world


def run(programs):
    """The program that has the case; a case that starts with `right` is one without a mistake."""
    for program, cases in programs.items():
        if CASE in cases:
            program()
            dist.destroy_process_group()
            return
    sys.exit(f"no such case: {CASE}; there are {' '.join(case for cases in programs.values() for case in cases)}")
