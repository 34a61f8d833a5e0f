"""Draws of the forward differ between W ranks and one device: those of dropout are off in this lane."""
import functools

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


def watch(recorder):
    import torch
    functional = torch.nn.functional
    for name in DROPOUTS:
        if hasattr(functional, name):
            setattr(functional, name, kept(recorder, getattr(functional, name)))
    attend = getattr(functional, "scaled_dot_product_attention", None)
    if attend is not None:
        @functools.wraps(attend)
        def attended(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            note(recorder, dropout_p > 0)
            return attend(query, key, value, attn_mask, 0.0, *args, **kwargs)
        functional.scaled_dot_product_attention = attended


def note(recorder, active):
    import torch
    recorder.end["dropout"] |= active
    recorder.dropouts += active and torch.is_grad_enabled()


def kept(recorder, drop):
    @functools.wraps(drop)
    def dropped(input, p=0.5, training=False, inplace=False):
        note(recorder, bool(training and p > 0))
        return input
    return dropped
