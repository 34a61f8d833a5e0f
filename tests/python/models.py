"""The scenarios' models in torch.nn. Parameters are matched by order of registration, so names may
differ from the exported ones; shapes may not."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import networks
from networks import Unsupported

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "gelu": nn.functional.gelu,
               "softplus": nn.functional.softplus}


def run(how, segment, x):
    """segment(x), computed again in backward where the scenario says so."""
    return segment(x) if how == "none" else checkpoint(segment, x, use_reentrant=how == "reentrant")


class Linear(nn.Linear):
    def forward(self, x):
        return super().forward(networks.as_rows(x))


class Layers(nn.Module):
    """Linear layers; between them a norm, if any, and an activation."""

    def __init__(self, options):
        super().__init__()
        widths = [options["in_features"], *options["hidden"], options["out_features"]]
        self.activation = ACTIVATIONS[options["activation"]]
        self.checkpointing = options.get("checkpointing", "none")
        self.layers, self.norms = [], []
        backwards = options.get("register") == "backwards"
        for i, (before, after) in enumerate(zip(widths, widths[1:]), 1):
            self.layers.append(nn.Linear(before, after, options.get("bias", True)))
            if not backwards:
                self.add_module(f"fc{i}", self.layers[-1])
            if "norm" not in options or i + 1 == len(widths):
                continue
            self.norms.append(networks.norm_of(options["norm"], after, nn.BatchNorm1d))
            self.add_module(f"bn{i}", self.norms[-1])
        for i in range(len(self.layers) if backwards else 0, 0, -1):
            self.add_module(f"fc{i}", self.layers[i - 1])

    def forward(self, given):
        x = self.apply_layer(0, networks.as_rows(given))
        for i in range(1, len(self.layers)):
            if self.norms:
                x = self.norms[i - 1](x)
            x = run(self.checkpointing, lambda x, i=i: self.apply_layer(i, self.activation(x)), x)
        return x.to(given.dtype)

    def apply_layer(self, i, x):
        return self.layers[i](x.to(self.layers[i].weight.dtype))


class AutoEncoder(nn.Module):
    def __init__(self, options):
        super().__init__()
        hidden = options["hidden"]
        widths = [options["features"], hidden, hidden, hidden, options["features"]]
        self.layers = nn.ModuleList(map(nn.Linear, widths, widths[1:]))

    def forward(self, x):
        x = networks.as_rows(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


class Branches(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.unused, self.checkpointing = options["unused"], options["checkpointing"]
        self.trunk = nn.Linear(options["in_features"], options["hidden"])
        self.left = nn.Linear(options["hidden"], options["out_features"])
        self.right = nn.Linear(options["hidden"], options["out_features"])

    def forward(self, given):
        given = networks.as_rows(given)
        x = torch.tanh(self.trunk(given))
        if self.unused == "none":
            return self.run(self.left, x) + self.run(self.right, x)
        if self.unused == "always":
            return self.run(self.left, x)
        to_left = given[:, 0] > 0
        output = x.new_zeros(len(x), self.left.out_features)
        for branch, chosen in ((self.left, to_left), (self.right, ~to_left)):
            rows = chosen.nonzero().squeeze(1)
            if len(rows):
                output = output.index_copy(0, rows, self.run(branch, x.index_select(0, rows)))
        return output

    def run(self, branch, x):
        return run(self.checkpointing, branch, x)


class Opaque:
    """Into which DDP does not look."""

    def __init__(self, left, right):
        self.left, self.right = left, right


class TwoHeads(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.container, self.returned = options["container"], options["returned"]
        self.in_loss = options["in_loss"]
        self.trunk = nn.Linear(options["in_features"], options["hidden"])
        self.left = nn.Linear(options["hidden"], options["out_features"])
        self.right = nn.Linear(options["hidden"], options["out_features"])

    def forward(self, given):
        x = torch.tanh(self.trunk(networks.as_rows(given)))
        left = self.left(x)
        right = self.right(x) if self.returned == "both" else None
        tensors = [left] if right is None else [left, right]
        named = dict(zip(("left", "right"), tensors))
        if self.container == "object":
            return Opaque(left, right)
        if self.container == "nested":
            return [(left,)] if right is None else [(left,), {"left": right}]
        return {"tuple": tuple(tensors), "list": tensors, "dict": named}[self.container]

    def taken_by_loss(self, output):
        """Of what a forward returned."""
        if self.container == "object":
            left, right = output.left, output.right
        elif self.container == "dict":
            left, right = output["left"], output.get("right")
        elif self.container == "nested":
            left, right = output[0][0], output[1]["left"] if len(output) > 1 else None
        else:
            left, right = (*output, None)[:2]
        return left + right if self.in_loss == "both" else left


MODELS = {
    "linear": lambda o: Linear(o["in_features"], o["out_features"], o["bias"]),
    "mlp": Layers,
    "batch_norm_mlp": Layers,
    "autoencoder": AutoEncoder,
    "branches": Branches,
    "two_heads": TwoHeads,
    "mnist_convnet": networks.MnistConvnet,
    "cifar_cnn": networks.CifarCnn,
    "resnet18": lambda o: networks.ResNet(False, (2, 2, 2, 2), o),
    "resnet50": lambda o: networks.ResNet(True, (3, 4, 6, 3), o),
    "embedding": networks.Bigram,
    "gpt": networks.Gpt,
    "torchscript": lambda o: torch.jit.load(o["file"]),
}


def build(options, dtype):
    if options["kind"] not in MODELS:
        raise Unsupported(f"model {options['kind']}")
    if options.get("dropout", 0) > 0:
        raise Unsupported("dropout from generators of PyTorch's own")
    model = MODELS[options["kind"]](options).to(dtype)
    for number in options.get("float64_layers", []):
        model.layers[number - 1].double()
    return model


def is_named_in(names, tensor):
    return any(tensor == one or tensor.startswith(one + ".") for one in names)


def freeze(model, names, frozen):
    """names: the exported ones, in order of registration."""
    for name, parameter in zip(names, model.parameters()):
        if is_named_in(frozen, name):
            parameter.requires_grad_(False)


def laid_out(weights, memory_format):
    """As scenarios/workloads/models.h says; the values stay what they are."""
    if weights.dim() < 2 or memory_format == "contiguous":
        return weights
    if memory_format == "channels_last":
        return weights.contiguous(memory_format=torch.channels_last) if weights.dim() == 4 else weights
    if memory_format == "transposed":
        return weights.transpose(-2, -1).contiguous().transpose(-2, -1)
    columns = weights.shape[-1]
    return torch.cat([weights, torch.zeros_like(weights)], -1).narrow(-1, 0, columns)


def lay_out(model, options):
    for parameter in model.parameters():
        parameter.data = laid_out(parameter.data, options.get("memory_format", "contiguous"))


def load(model, parameters, buffers):
    """Copies the exported tensors into the model; they must fit one by one."""
    for ours, theirs in ((parameters, list(model.parameters())), (buffers, list(model.buffers()))):
        shapes = [[list(t.shape) for t in tensors] for tensors in (ours, theirs)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"shapes differ: exported {shapes[0]}, torch.nn {shapes[1]}")
        for source, target in zip(ours, theirs):
            target.data = source.clone()
