"""torchrun, also where PyTorch was built without libuv, as Debian's from 13 on: its agents ask for a
TCPStore with libuv all the same, and there is no option against it (pytorch/pytorch#148283)."""
import runpy

import torch.distributed as dist


def has_asked_for_libuv():
    try:
        dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    except RuntimeError as error:
        return "libuv" in str(error)
    return False


class PlainStore(dist.TCPStore):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{**kwargs, "use_libuv": False})


if has_asked_for_libuv():
    dist.TCPStore = PlainStore
runpy.run_module("torch.distributed.run", run_name="__main__")
