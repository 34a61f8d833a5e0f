"""Parameters that are trained in vain: DistributedDataParallel sums their gradients, and no optimizer has them, while one has
others that never had a gradient, as of a layer that was replaced after the optimizer was made."""
MOST_NAMES = 64


def found(recorder, params):
    """Before a step: which of its parameters have gradients."""
    recorder.had_gradients.update(id(param) for param in params if param.grad is not None)


def names(recorder):
    """At the end. None where an optimizer is gone, which may have had them."""
    optimizers = [made() for made in recorder.made]
    if not recorder.models or not optimizers or any(one is None for one in optimizers):
        return []
    updated = {id(param) for one in optimizers for group in one.param_groups for param in group["params"]}
    held = {id(param): name for model in recorder.models for name, param in model.params if param.requires_grad}
    if all(number in recorder.had_gradients or number in held for number in updated):
        return []
    return [name for number, name in held.items() if number not in updated][:MOST_NAMES]
