"""What a loss makes of results that calls returned: which numbers it multiplies them by. Sums and means of results, times numbers
of the script, have the scale of whatever batch these were made of; a number of samples among them has not."""

THROUGH = ("AddBackward0", "SubBackward0", "RsubBackward1", "NegBackward0", "MeanBackward0", "MeanBackward1", "SumBackward0", "SumBackward1", "StackBackward0", "CatBackward0",
           "UnsqueezeBackward0", "SqueezeBackward0", "SqueezeBackward1", "ViewBackward0", "ReshapeAliasBackward0")
PRODUCTS = ("MulBackward0", "DivBackward0")
MOST_NODES = 256


class Unknown(Exception):
    """It is made otherwise."""


def inputs_of(node):
    return [one for one, _ in node.next_functions if one is not None]


def factor_of(node):
    """Of a product with one number, a quotient by one. Raises Unknown."""
    values = [getattr(node, name, None) for name in ("_saved_other", "_saved_self")]
    numbers = [value for value in values if hasattr(value, "numel") and not value.requires_grad]
    if len(inputs_of(node)) != 1 or len(numbers) != 1 or numbers[0].numel() != 1:
        raise Unknown
    number, divides = float(numbers[0]), type(node).__name__ == "DivBackward0"
    if divides and (number == 0 or node.next_functions[0][0] is None):
        raise Unknown
    return 1 / number if divides else number


def number_at(node):
    """Which a node multiplies what it is made of by; None: it is a sum, or a mean. Raises Unknown."""
    name, alpha = type(node).__name__, getattr(node, "_saved_alpha", 1)
    if name in PRODUCTS:
        return factor_of(node)
    if name not in THROUGH:
        raise Unknown
    return None if alpha == 1 else float(alpha)


def factors(loss, results):
    """In the order of the sum; None: it is made of something else as well. A term times 0 is none, whatever it is made of."""
    made = {id(node): node for node in (getattr(result, "grad_fn", None) for result in results) if node is not None}
    found, left, seen = [], [loss.grad_fn], 0
    try:
        while left:
            node, seen = left.pop(), seen + 1
            if id(node) in made:
                continue
            if seen > MOST_NODES:
                raise Unknown
            number = number_at(node)
            found += [] if number is None else [number]
            left += [] if number == 0 else inputs_of(node)
    except (Unknown, RuntimeError):  # RuntimeError: what is saved was freed, or changed
        return None
    return found


def may_be_a_count(number, counts):
    """Of samples, or a divisor by them."""
    return number != 0 and any(abs(abs(value) / count - 1) < 1e-9 for count in counts for value in (number, 1 / number))


def counts_of(tensors):
    """Of rows, of rows of rows, ..., each as often as it may be counted."""
    found = set()
    for tensor in tensors:
        product = 1
        for size in tensor.shape:
            product *= size
            found |= {size, product}
    return found - {0, 1}
