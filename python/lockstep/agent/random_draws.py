"""Draws of the forward differ between W ranks and one device: those of dropout are off in this lane."""
import functools
import hashlib
import random
import sys
import weakref

from . import sketches
from .inputs import random_states

DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
DRAWING = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
FILLING = ("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_")
MOST_GENERATORS = 64


def watch(recorder):
    import torch
    functional = torch.nn.functional
    recorder.generators = Generators()
    recorder.generators.watch(torch)
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


class Generators:
    """Those that everybody shares, and those that a script makes for itself: was any drawn from?"""

    def __init__(self):
        self.given = ""  # of calls of torch that were given a generator: a hash of how these began
        self.of_numpy, self.of_python = [], weakref.WeakSet()  # the former cannot be referred to weakly

    def states(self):
        return random_states(), self.given, [state_of(one) for one in self.of_numpy], [one.getstate() for one in list(self.of_python)]

    @staticmethod
    def moved(before, now):
        """Of two answers of states(): what is new in the second one. Others may have begun anywhere."""
        (shared, given, of_numpy, of_python), (shared_now, given_now, of_numpy_now, of_python_now) = before, now
        return [one for one, was in zip([*shared_now, given_now], [*shared, given]) if one != was] + [
            one for one in of_numpy_now if one not in of_numpy] + sorted((one for one in of_python_now if one not in of_python), key=str)

    def watch(self, torch):
        for where, names in ((torch, DRAWING), (torch.Tensor, FILLING)):
            for name in names:
                setattr(where, name, as_builtin(torch, getattr(where, name), self.counting(getattr(where, name))))
        numpy, begin = sys.modules.get("numpy"), random.Random.__init__
        if numpy is not None:
            numpy.random.default_rng = self.keeping(numpy.random.default_rng)
            numpy.random.RandomState = self.kept_kind(numpy.random.RandomState)

        @functools.wraps(begin)
        def init(one, *args, **kwargs):
            begin(one, *args, **kwargs)
            has_state = type(one).getstate is random.Random.getstate  # random.SystemRandom has none
            if has_state and len(self.of_python) < MOST_GENERATORS:
                self.of_python.add(one)
        random.Random.__init__ = init

    def counting(self, draw):
        @functools.wraps(draw)
        def drawn(*args, **kwargs):
            generator = kwargs.get("generator")
            if generator is not None and not sketches.drawing:
                state = generator.get_state().numpy().tobytes()
                self.given = hashlib.blake2b(self.given.encode() + state, digest_size=8).hexdigest()
            return draw(*args, **kwargs)
        return drawn

    def keeping(self, make):
        @functools.wraps(make)
        def made(*args, **kwargs):
            generator = make(*args, **kwargs)
            self.keep(generator)
            return generator
        return made

    def keep(self, generator):
        if len(self.of_numpy) < MOST_GENERATORS:
            self.of_numpy.append(generator)

    def kept_kind(self, kind):
        """A class still, of which those that others made are instances, too."""
        class Kind(type):
            def __instancecheck__(cls, one):
                return isinstance(one, kind)

        def init(one, *args, **kwargs):
            kind.__init__(one, *args, **kwargs)
            self.keep(one)
        return Kind(kind.__name__, (kind,), {"__init__": init, "__module__": kind.__module__})


def state_of(generator):
    """Of NumPy's: RandomState holds arrays."""
    if hasattr(generator, "get_state"):
        _, key, position, *_ = generator.get_state()
        return key.tobytes(), position
    return str(generator.bit_generator.state)


def as_builtin(torch, function, stand_in):
    """So that torch.jit.script() still finds the operator that it stands for."""
    operator = torch.jit._builtins._find_builtin(function)
    if operator is not None:
        torch.jit._builtins._register_builtin(stand_in, operator)
    return stand_in
