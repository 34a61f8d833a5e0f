"""Of all that loaders give only what is trained on tells how samples are dealt: an evaluation, a peek or a mean over the data
set may see an order again. Without torch: the agent's own account of it."""
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "python"))
from lockstep.agent.deals import Deals, Iteration, bytes_of  # noqa: E402
from lockstep.agent.items import Items  # noqa: E402


class Sampler:
    shuffle, seed, num_replicas, rank = True, 0, 2, 0

    def __init__(self, samples=8, dealt=8):
        self.dataset, self.total_size, self.epoch = range(samples), dealt, 0


class Loader:
    """As the agent watches one: its sampler deals when the first batch is asked for, or, with workers, before that."""

    def __init__(self, deals, sampler, workers=False, size=None):
        self.deals, self.sampler, self.workers, self.size = deals, sampler, workers, size

    def begin(self):
        if self.workers:
            self.deals.dealt(self.sampler)
        return self.batches()

    def batches(self):
        if not self.workers:
            self.deals.dealt(self.sampler)
        yield from range(3)

    def __iter__(self):
        iteration, exhausted = Iteration(3, size=self.size), False
        batches = self.deals.within(iteration, self.begin)
        try:
            while True:
                try:
                    batch = self.deals.next_of(iteration, batches)
                except StopIteration:
                    exhausted = True
                    return
                yield batch
        finally:
            self.deals.ended(iteration, exhausted)


class Data(list):
    """Unlike a list, known to be itself."""

    __hash__ = object.__hash__


class Model:
    def parameters(self):
        return [types.SimpleNamespace(requires_grad=True)]


class DealsTest(unittest.TestCase):
    def setUp(self):
        self.end = {"stale_epochs": 0, "padded": 0, "replicas": 0, "replicas_dealt": [], "shuffles": [], "splits": []}
        self.recorder = types.SimpleNamespace(end=self.end, calls=0, world=2, position=0, batches=0, computed={}, items=Items())
        self.deals = self.recorder.deals = Deals(self.recorder)
        self.loader = Loader(self.deals, Sampler())

    def train(self, evaluate=lambda: None):
        for _ in self.loader:
            evaluate()
            self.recorder.calls += 1
            self.deals.trained()

    def evaluate(self, loader):
        for _ in loader:
            self.recorder.calls += 1

    def test_an_epoch_that_is_trained_twice_is_stale(self):
        self.train()
        self.assertEqual(self.end["stale_epochs"], 0)
        self.train()
        self.assertEqual(self.end["stale_epochs"], 1)
        self.assertEqual(self.end["shuffles"], ["seed 0, epoch 0"] * 2)

    def test_a_loader_that_begins_its_sampler_twice_for_one_iteration_repeats_nothing(self):
        """As torchdata's does, to know how to go on after a checkpoint."""
        begin = self.loader.begin
        self.loader.begin = lambda: self.deals.dealt(self.loader.sampler) or begin()
        self.train()
        self.assertEqual(self.end["stale_epochs"], 0)
        self.train()
        self.assertEqual(self.end["stale_epochs"], 1)

    def anew(self, dataset, seed=0):
        """As a script that makes its loader anew for each epoch."""
        self.loader = Loader(self.deals, Sampler())
        self.loader.sampler.dataset, self.loader.sampler.seed = dataset, seed

    def test_an_epoch_that_another_sampler_dealt_to_the_end_is_stale(self):
        dataset, model = Data(range(6)), Model()
        self.recorder.computed = {0: model}
        for stale in (0, 1, 2):
            self.anew(dataset)
            self.train()
            self.assertEqual(self.end["stale_epochs"], stale)

    def test_another_seed_data_set_or_model_is_another_order(self):
        dataset, models = Data(range(6)), [Model(), Model()]
        for model, data, seed in ((0, dataset, 0), (0, dataset, 1), (1, dataset, 0), (0, Data(range(6)), 0)):
            self.recorder.computed = {0: models[model]}
            self.anew(data, seed)
            self.train()
        for _ in range(3):  # nobody knows whether a list is another one at the same place
            self.anew(list(range(6)))
            self.train()
        self.assertEqual(self.end["stale_epochs"], 0)

    def test_a_loader_that_is_made_anew_to_resume_repeats_nothing(self):
        dataset, model = Data(range(6)), Model()
        self.recorder.computed = {0: model}
        for stop in (1, 3):
            self.anew(dataset)
            for _ in zip(range(stop), self.loader):
                self.recorder.calls += 1
                self.deals.trained()
        self.assertEqual(self.end["stale_epochs"], 0)

    def test_evaluations_may_see_one_order_for_ever(self):
        validation = Loader(self.deals, Sampler(7), workers=True)
        for self.loader.sampler.epoch in range(3):
            self.train(lambda: self.evaluate(validation))
            self.evaluate(validation)
            self.evaluate(self.loader)
        self.assertEqual((self.end["stale_epochs"], self.end["padded"], len(self.end["shuffles"])), (0, 0, 3))
        self.assertEqual((self.recorder.position, self.recorder.batches), (3, 3))

    def test_a_peek_and_a_mean_over_the_data_are_no_training(self):
        next(iter(self.loader))
        list(self.loader)
        next(iter(self.loader))
        self.train()
        self.assertEqual((self.end["stale_epochs"], self.end["shuffles"]), (0, ["seed 0, epoch 0"]))

    def test_a_new_iterator_for_each_step_is_one(self):
        for _ in range(3):
            next(iter(self.loader))
            self.recorder.calls += 1
            self.deals.trained()
        self.assertEqual(self.end["stale_epochs"], 2)

    def test_what_is_kept_in_a_list_and_trained_on_was_repeated(self):
        self.loader.sampler = Sampler(7)
        for _ in list(self.loader):
            self.recorder.calls += 1
            self.deals.trained()
        self.assertEqual((self.end["padded"], self.end["stale_epochs"]), (1, 0))

    def test_what_a_loader_drops_was_not_repeated(self):
        """Of 7 samples each of two ranks is dealt 4, of which the last one may be a repetition: in three batches of 1 it is none."""
        for size, padded in ((1, 0), (2, 1), (None, 1)):
            with self.subTest(size):
                self.end["padded"] = 0
                self.loader = Loader(self.deals, Sampler(7), size=size)
                self.train()
                self.assertEqual(self.end["padded"], padded)

    def test_keys_of_a_part_need_not_be_numbers(self):
        self.assertEqual(bytes_of(range(3)), bytes_of([0, 1, 2]))
        self.assertNotEqual(bytes_of(["a", "b"]), bytes_of(["b", "a"]))
        self.assertNotEqual(bytes_of(["a,b"]), bytes_of(["a", "b"]))
        self.assertEqual(bytes_of([("x", 1), ("y", 1 << 70)]), bytes_of([("x", 1), ("y", 1 << 70)]))
        self.assertIsNone(bytes_of([object()]))
        self.assertIsNone(bytes_of([("x", object())]))


if __name__ == "__main__":
    unittest.main()
