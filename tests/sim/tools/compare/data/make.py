"""Makes the files of this folder, with PyTorch's and safetensors' own code:

    /usr/bin/python3 make.py pytorch.pt             (PyTorch 1.13.1 of Debian 12 made the one here)
    python3 make.py library.safetensors             (safetensors 0.4.5 of PyPI)
"""
import struct
import sys


def make_torch(path):
    import torch
    torch.manual_seed(1)
    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    tied = torch.ones(2)
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
                "loss": 1.5, "best": True, "text": "text", "none": None, "size": torch.Size([1, 2]),
                "dtype": torch.float32, "parameter": model.weight, "bytes": b"ab",
                "empty": torch.zeros(0), "complex": torch.ones(2, dtype=torch.complex64),
                "brain": torch.ones(3, dtype=torch.bfloat16), "large": 1 << 70, "tuple": (1, 2, 3, 4),
                "set": {1, 2}, "view": torch.arange(10)[2:8:2], "device": torch.device("cpu"),
                "transposed": torch.arange(6.0).reshape(2, 3).t(), "tied": {"a": tied, "b": tied},
                "negative": -1, "flags": torch.tensor([True, False])}, path)


def make_safetensors(path):
    from safetensors import serialize
    tensors = {"fc1.weight": {"dtype": "float32", "shape": [3, 2],
                              "data": struct.pack("<6f", *range(6))}}
    for name, width in (("float64", 8), ("float16", 2), ("bfloat16", 2), ("int64", 8), ("int32", 4),
                        ("int16", 2), ("int8", 1), ("uint8", 1), ("bool", 1)):
        tensors[f"a.{name}"] = {"dtype": name, "shape": [2], "data": bytes([0, 1] * width)}
    tensors["empty"] = {"dtype": "float32", "shape": [0, 3], "data": b""}
    tensors["scalar"] = {"dtype": "float32", "shape": [], "data": struct.pack("<f", 1.5)}
    with open(path, "wb") as file:
        file.write(serialize(tensors, {"format": "pt"}))


make_torch(sys.argv[1]) if sys.argv[1].endswith(".pt") else make_safetensors(sys.argv[1])
