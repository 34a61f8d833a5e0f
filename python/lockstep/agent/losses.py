"""Backwards are counted; whether a loss was summed is noted."""

LOSSES = ("cross_entropy", "mse_loss", "nll_loss", "l1_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits")


def watch(recorder):
    import torch
    functional, backward = torch.nn.functional, torch.Tensor.backward
    inside = False

    def counted(self, *args, **kwargs):
        nonlocal inside
        if inside:  # torch calls it by its name again where a TorchFunctionMode is on
            return backward(self, *args, **kwargs)
        recorder.end["backwards"] += 1
        recorder.backwards += 1
        recorder.backward_after_clip |= recorder.clipped
        if recorder.file is None:  # while the group still says which rank this is
            recorder.write({"kind": "begin"})
        inside = True
        try:
            return backward(self, *args, **kwargs)
        finally:
            inside = False
    torch.Tensor.backward = counted

    def noting(loss):
        def noted(*args, **kwargs):
            recorder.end["summed"] |= kwargs.get("reduction") == "sum" and torch.is_grad_enabled()
            return loss(*args, **kwargs)
        return noted
    for name in LOSSES:
        setattr(functional, name, noting(getattr(functional, name)))
