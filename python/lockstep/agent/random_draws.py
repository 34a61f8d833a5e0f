"""Draws of the forward differ between W ranks and one device: those of dropout are off in this lane."""


def watch(recorder):
    import torch

    def kept(input, *args, **kwargs):
        recorder.end["dropout"] = True
        return input
    torch.nn.functional.dropout = kept
