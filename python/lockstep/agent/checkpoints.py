"""Loads of state, counted on each rank."""


def watch(recorder):
    import torch
    for kind, what in ((torch.nn.Module, "model"), (torch.optim.Optimizer, "optimizer")):
        kind.load_state_dict = counting(recorder, kind.load_state_dict, what)


def counting(recorder, load, what):
    def loaded(self, *args, **kwargs):
        recorder.loads[what] += 1
        return load(self, *args, **kwargs)
    return loaded
