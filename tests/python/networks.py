"""Convolution, residual and token models."""
import math

import torch
from torch import nn
from torch.nn.functional import gelu, linear, max_pool2d


class Unsupported(Exception):
    """This program has no counterpart of what the scenario asks for."""


def as_rows(x):
    return x.flatten(1) if x.dim() > 2 else x


def norm_of(kind, channels, batch_norm):
    if kind == "group":
        return nn.GroupNorm(math.gcd(channels, 32), channels)
    if kind.startswith("sync"):
        raise Unsupported("PyTorch's SyncBatchNorm needs CUDA")
    layer = batch_norm(channels)
    return layer.eval() if kind == "frozen" else layer


class MnistConvnet(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, options["classes"])

    def forward(self, x):
        x = torch.relu(max_pool2d(self.conv1(x), 2))
        x = torch.relu(max_pool2d(self.conv2(x), 2))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class CifarCnn(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2 = nn.Linear(400, 120), nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, options["classes"])

    def forward(self, x):
        x = max_pool2d(torch.relu(self.conv1(x)), 2)
        x = max_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


class Stage(nn.Sequential):
    """Convolution without bias, then a norm."""

    def __init__(self, before, after, kernel, stride, norm):
        super().__init__(nn.Conv2d(before, after, kernel, stride, kernel // 2, bias=False),
                         norm_of(norm, after, nn.BatchNorm2d))


class Unit(nn.Module):
    def __init__(self, deep, before, width, stride, norm):
        super().__init__()
        after = 4 * width if deep else width
        if deep:
            stages = [(before, width, 1, 1), (width, width, 3, stride), (width, after, 1, 1)]
        else:
            stages = [(before, width, 3, stride), (width, width, 3, 1)]
        self.stages = nn.ModuleList(Stage(*stage, norm) for stage in stages)
        self.shortcut = None
        if stride != 1 or before != after:
            self.shortcut = Stage(before, after, 1, stride, norm)

    def forward(self, given):
        x = given
        for stage in self.stages[:-1]:
            x = torch.relu(stage(x))
        return torch.relu(self.stages[-1](x) + (self.shortcut(given) if self.shortcut else given))


class ResNet(nn.Module):
    def __init__(self, deep, units, options):
        super().__init__()
        before, norm = options["width"], options["norm"]
        self.stem = Stage(3, before, 7, 2, norm)
        self.units = nn.ModuleList()
        for i, count in enumerate(units):
            width = options["width"] << i
            for k in range(count):
                self.units.append(Unit(deep, before, width, 2 if i and not k else 1, norm))
                before = 4 * width if deep else width
        self.fc = nn.Linear(before, options["classes"])

    def forward(self, x):
        x = max_pool2d(torch.relu(self.stem(x)), 3, 2, 1)
        for unit in self.units:
            x = unit(x)
        return self.fc(x.mean((2, 3)))


class Bigram(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.embedding = nn.Embedding(options["vocabulary"], options["width"],
                                      sparse=options.get("sparse", False))
        self.fc = nn.Linear(options["width"], options["vocabulary"])

    def forward(self, tokens):
        return self.fc(self.embedding(tokens))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        samples, length, width = x.shape
        qkv = self.qkv(x).view(samples, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = torch.matmul(q, k.transpose(2, 3)) * (1 / math.sqrt(width // self.heads))
        seen = scores.masked_fill(later, -math.inf).softmax(-1)
        return self.out(torch.matmul(seen, v).transpose(1, 2).reshape(samples, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, given):
        x = given + self.attention(self.norm1(given))
        return x + self.fc2(gelu(self.fc1(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options["width"]
        self.tokens = nn.Embedding(options["vocabulary"], width)
        self.positions = nn.Embedding(options["context"], width)
        self.blocks = nn.ModuleList(Block(width, options["heads"]) for _ in range(options["layers"]))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return linear(self.norm(x), self.tokens.weight)
