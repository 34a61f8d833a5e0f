"""An auto-encoder with Adam. A second head takes part in every other step, hence
find_unused_parameters. --bug plants one classic mistake."""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BUGS = ("unused_parameter", "decoder_outside", "lr_scaled", "decoder_past_ddp", "summed_loss", "decoder_replaced")


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 6), nn.Tanh())
        self.decoder = nn.Linear(6, 12)
        self.mean = nn.Linear(6, 1)

    def forward(self, x, with_mean=False):
        code = self.encoder(x)
        out = self.decoder(code)
        return out + self.mean(code) if with_mean else out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bug", choices=BUGS)
    bug = parser.parse_args().bug
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    torch.manual_seed(2)
    data = TensorDataset(torch.randn(48, 12))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=6, sampler=sampler)
    net = AutoEncoder()
    decoder = net.decoder
    if bug == "decoder_outside":
        net.decoder = nn.Identity()
    model = DistributedDataParallel(net, find_unused_parameters=bug != "unused_parameter")
    if bug == "decoder_replaced":
        net.decoder = decoder = nn.Linear(6, 12)
        dist.broadcast(decoder.weight.data, 0)
        dist.broadcast(decoder.bias.data, 0)
    params = list(net.parameters()) + (list(decoder.parameters()) if bug == "decoder_outside" else [])
    optimizer = torch.optim.Adam(params, lr=1e-2 * (world if bug == "lr_scaled" else 1))
    loss_of = nn.MSELoss(reduction="sum" if bug == "summed_loss" else "mean")
    for batch, (x,) in enumerate(loader):
        optimizer.zero_grad()
        if bug == "decoder_past_ddp" and batch == 2:
            out = model.module.decoder(model.module.encoder(x))
        elif bug == "decoder_outside":
            out = decoder(model(x))
        else:
            out = model(x, with_mean=batch % 2 == 1)
        loss_of(out, x).backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
