"""What a model is given, beside what its loaders gave: where a script computes it of a rank's own batch, as by its mean,
more ranks have other inputs of the same samples."""
import hashlib
import random
import sys

from .sketches import MOST_SAMPLES, digest, rows

ZERO, UNIT = 1e-12, 1e-4  # a mean beside the largest number; a deviation, of which scripts may add an epsilon


def first_tensor(batch):
    import torch
    while isinstance(batch, (list, tuple)) and batch:
        batch = batch[0]
    return batch if isinstance(batch, torch.Tensor) and batch.dim() > 0 else None


def random_states():
    """Of the generators that everybody shares."""
    import torch
    numpy = sys.modules.get("numpy")
    states = [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    return states + ([numpy.random.get_state()[1].tobytes(), numpy.random.get_state()[2]] if numpy else [])


def is_standardized(tensor):
    """Mean 0 and deviation 1 over the batch (by column, by channel, of all numbers), and not of each sample by itself."""
    if tensor is None or not tensor.is_floating_point() or tensor.dim() < 2 or len(tensor) < 2:
        return False
    values = tensor.detach().double()
    for dims in {(0,), tuple(range(values.dim())), (0, *range(2, values.dim()))}:
        mean, deviation = values.mean(dims), values.std(dims, unbiased=False)
        count = values.numel() // max(mean.numel(), 1)
        near = [abs(float(deviation.min()) * scale - 1) + abs(float(deviation.max()) * scale - 1) < UNIT
                for scale in (1, (count / max(count - 1, 1)) ** 0.5)]
        if float(mean.abs().max()) <= ZERO * max(float(values.abs().max()), 1) and any(near):
            each = values.reshape(len(values), -1).mean(1)
            return float(each.abs().max()) > ZERO
    return False


def rows_of_all(batch):
    """Of each sample all that a batch has of it, where rows() know its first tensor alone; of what has another length, its own rows."""
    import torch
    from torch.utils import _pytree as tree
    leaves = [leaf for leaf in tree.tree_flatten(batch)[0] if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.dim() > 0]
    alike = [leaf for leaf in leaves if len(leaf) == len(leaves[0])]
    if sum(len(leaf) for leaf in leaves) > MOST_SAMPLES:
        return []
    return [digest(parts) for parts in zip(*alike)] + [row for leaf in leaves if len(leaf) != len(leaves[0]) for row in rows(leaf)]


def loaded(recorder, batch):
    if len(recorder.loaded) <= MOST_SAMPLES:
        recorder.loaded += rows(batch)
    if recorder.items.drew and len(recorder.loaded_drawn) <= MOST_SAMPLES:
        recorder.loaded_drawn += rows_of_all(batch)
    recorder.loaded_standardized = recorder.loaded_standardized or is_standardized(first_tensor(batch))
    recorder.states = recorder.states_before_loss = recorder.generators.states()


def samples_of(recorder, batch):
    """Of what a forward is given, by its first tensor, unless that is none of what loaders gave and another one is: before the
    samples a model may be given what all of them share (a support set, a grid). Beside all that they gave, rows are none that
    the script computes (what a generator makes of them), and whose last bits depend on how many there are."""
    first, loaded = rows(batch), set(recorder.loaded)
    if loaded and loaded <= set(first):
        return [row for row in first if row in loaded]
    if not loaded or loaded & set(first):
        return first
    others = (rows(one) for one in batch[1:])
    return next((own for own in others if own and loaded >= set(own)), first)


def note_draws(recorder):
    """Since a loader gave its last batch."""
    recorder.drew = recorder.drew or (recorder.states is not None and recorder.states != recorder.generators.states())


def note_loss_draws(recorder):
    """Before a backward, beside those of forwards: what ranks drew by other states than one device, or more of, its loss may be made
    of. Since the last batch, where loaders give any; else since the last forward."""
    before, now = recorder.states_before_loss, recorder.generators.states()
    if before not in (None, now):
        text = f"{recorder.loss_draws}{recorder.generators.moved(before, now)}"
        recorder.loss_draws = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def forward_ended(recorder, states):
    if recorder.states is None:
        recorder.states_before_loss = states


def given(recorder, batch):
    """To a forward that no other surrounds: its samples, too."""
    note_draws(recorder)
    if not recorder.samples:
        recorder.standardized = True  # until one is not
    recorder.standardized = recorder.standardized and is_standardized(first_tensor(batch))
    recorder.samples += samples_of(recorder, batch)


def names_of(recorder):
    known = 0 < len(recorder.loaded) <= MOST_SAMPLES
    return {"drawn": recorder.drawn if len(recorder.drawn) <= MOST_SAMPLES else [], "loaded": recorder.loaded if known else [], "drew": recorder.drew,
            "loaded_drawn": recorder.loaded_drawn if len(recorder.loaded_drawn) <= MOST_SAMPLES else [],
            "loss_draws": recorder.loss_draws, "standardized": known and recorder.standardized and not recorder.loaded_standardized}
