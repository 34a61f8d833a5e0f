"""Audits for silent corruption (lockstep.audit) in trainings of examples/invariant.py, with flipped bits planted: found
when and where they should be, with the right rank; nothing where nothing is wrong, and not a bit of the training changed.
Skipped (exit code 77) where this Python has no torch."""
import argparse
import contextlib
import functools
import importlib.util
import io
import os
import pathlib
import pickle
import sys
import tempfile
import unittest

from invariant_example import example

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
STEPS = 10
FLIPS = [f"{rank}:{what}" for rank in (0, 1, 2) for what in ("weights@6", "unit@6", "audit@9")] + [
    "1:optimizer@6", "1:optimizer@9", "1:average@6", "1:average@9", "1:buffers@9", "0:buffers@9", "2:gradient@9",
    "1:gradient@6"]


def options(*words):
    """The trainings that the example would run with these words."""
    module = example()
    return list(module.cases(module.parsed([str(word) for word in words])))


def flips(*where, **others):
    words = [word for key, value in others.items() for word in (f"--{key}", value)]
    words += [word for one in where for word in ("--flip", one)]
    return options("--world-size", 3, "--model", "batch_norm", "--audit-every", 5, "--steps", STEPS, *words)


def ranks_of(world_size, run):
    """What run(rank) returned on every rank. Forked: torch is loaded once, and has not computed anything yet."""
    import torch.distributed as dist
    import torch.multiprocessing as mp
    with tempfile.TemporaryDirectory() as folder:

        def rank_main(rank):
            if world_size > 1:
                dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
            pathlib.Path(folder, str(rank)).write_bytes(pickle.dumps(run(rank)))
            if world_size > 1:
                dist.barrier()

        mp.start_processes(rank_main, (), world_size, start_method="fork")
        return [pickle.loads(pathlib.Path(folder, str(rank)).read_bytes()) for rank in range(world_size)]


def trainings(world_size, cases):
    """[for each case what each rank returned], from one start of the ranks."""
    module = example()

    def run(rank):
        return [module.outcome(case, rank, world_size) for case in cases]

    return list(zip(*ranks_of(world_size, run)))


def with_broken_addition(rank, broken_level):
    """Rank 1 adds to a wrong sum: 1: of two shards, wherever it does so; 3: of all, of which its part goes to everyone."""
    from lockstep import invariant
    take = invariant.ShardTree.take

    def broken(tree):
        taken = take(tree)
        for (level, _), value in taken:
            if level == broken_level and rank == 1:
                value[0] += 1
        return taken

    invariant.ShardTree.take = broken
    try:
        (case,) = flips("1:weights@99", audit="all")
        return example().outcome(case, rank, 3)
    finally:
        invariant.ShardTree.take = take


def told_and_going_on(rank):
    """With on_corruption: what it got, and that the training came to its end."""
    module, told = example(), []
    module.VirtualShards = functools.partial(module.VirtualShards, on_corruption=told.append)
    (case,) = flips("2:unit@0")
    return told, module.outcome(case, rank, 3)


def unrepeatable(rank):
    """Two trainings whose shards are not what their numbers say: other samples each time; others for who audits."""
    import torch
    module, (case,) = example(), flips("1:weights@99")
    case.flip = (rank, "gradient", 4)
    systematic = module.outcome(case, rank, 3)
    draws = torch.Generator().manual_seed(rank)
    module.batch_of = lambda *_: (torch.randn((4, 16), generator=draws), torch.zeros(4, dtype=torch.long))
    case.flip = None
    return [systematic, module.outcome(case, rank, 3)]


def by_hand(world_size, audit_every, inner, samples, steps=4):
    """A training with `samples(step, shard)`, the micro-batches of a shard; its hash and the shards that were computed."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    module = example()
    torch.set_num_threads(1)
    unused = not isinstance(inner, torch.nn.Sequential)
    model = DistributedDataParallel(inner, find_unused_parameters=unused) if world_size > 1 else inner
    optimizer = torch.optim.Adam(inner.parameters())
    audits = {"audit_every": audit_every, "audit": "all", "optimizer": optimizer} if audit_every else {}
    shards, seen = module.VirtualShards(model, 7, **audits), []
    for step in range(steps):
        for shard in shards:
            seen.append((shard, shards.auditing))
            with shards.compute(shard):
                parts = samples(step, shard)
                for number, (inputs, targets) in enumerate(parts, 1):
                    last = number == len(parts) or world_size == 1
                    with contextlib.nullcontext() if last else model.no_sync():
                        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return module.hash_of(inner, optimizer), seen


def micro_batches(world_size, audit_every):
    """Two a shard, with other numbers of samples in each."""
    from torch import nn
    import torch
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 4))
    batch_of = example().batch_of
    return by_hand(world_size, audit_every, inner, lambda step, shard: [
        batch_of("numbers", 10 * step + half, shard, 2 + (shard + half) % 3) for half in range(2)])


def alternating(world_size, audit_every):
    """All shards of a step use one and the same of two heads, from step to step the other one."""
    import torch
    torch.manual_seed(0)

    def samples(step, shard):
        inputs, targets = example().batch_of("numbers", step, shard, 4)
        inputs[0, 0] = 1 - 2 * (step % 2)
        return [(inputs, targets)]

    return by_hand(world_size, audit_every, example().Routed(), samples, steps=6)


class Corruption(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Before anything is computed in this process: ranks are forked from it."""
        from lockstep.audit import What
        cls.What = What
        cls.flipped = dict(zip(FLIPS, trainings(3, flips(*FLIPS))))
        cls.all = dict(zip(FLIPS, trainings(3, flips(*FLIPS[:9], audit="all"))))
        cls.two = dict(zip(FLIPS, trainings(2, flips("1:weights@6", "1:unit@6", "1:gradient@9"))))
        models = [one for model in ("routed", "tokens", "batch_norm", "dropout") for one in options(
            "--model", model, "--audit-every", 2, "--audit", "all" if model == "tokens" else "one", "--steps", 4,
            "--shards", 7)]
        cls.plain = [argparse.Namespace(**{**vars(one), "audit_every": None}) for one in models]
        cls.clean = {size: trainings(size, models) for size in (2, 3, 5)}
        cls.adding = {level: ranks_of(3, lambda rank, level=level: with_broken_addition(rank, level)) for level in (1, 3)}
        cls.unrepeatable = list(zip(*ranks_of(3, unrepeatable)))
        cls.told = ranks_of(3, told_and_going_on)
        cls.by_hand = ranks_of(3, lambda rank: [run(3, every) for run in (micro_batches, alternating) for every in (1, 2)])

    def found(self, results):
        self.assertEqual(len({str(one) for one in results}), 1, results)  # alike on every rank
        self.assertIsInstance(results[0], RuntimeError)
        return results[0]

    def expect(self, flip, what, ranks, results=None, undecided=False):
        found = self.found(results or self.flipped[flip])
        self.assertEqual((found.step, found.what, found.ranks, found.undecided), (9, what, ranks, undecided), f"{flip}: {found}")
        self.assertEqual(found.clean_step, 4)
        return found

    def test_states_name_the_rank_outside_the_majority(self):
        What = self.What
        for rank in (0, 1, 2):
            self.expect(f"{rank}:weights@6", What.WEIGHTS, (rank,))
        self.assertEqual(self.expect("1:optimizer@6", What.WEIGHTS, (1,)).also, (What.OPTIMIZER_STATE,))
        self.assertEqual(self.expect("1:optimizer@9", What.OPTIMIZER_STATE, (1,)).name, "0.weight")
        self.expect("1:average@6", What.WEIGHTS, (1,))
        self.expect("1:average@9", What.AVERAGES, (1,))
        for rank in (0, 1):
            self.assertEqual(self.expect(f"{rank}:buffers@9", What.BUFFERS, (rank,)).name, "1.running_mean")

    def test_a_third_rank_decides_whose_gradient_is_wrong(self):
        What = self.What
        for rank in (0, 1, 2):
            for results in (self.flipped, self.all):
                self.expect(f"{rank}:unit@6", What.GRADIENT, (rank,), results[f"{rank}:unit@6"])
                auditing = self.expect(f"{rank}:audit@9", What.GRADIENT, (rank,), results[f"{rank}:audit@9"])
                self.assertEqual(auditing.pair, ((rank + 1) % 3, rank))
        found = self.expect("2:gradient@9", What.GRADIENT, (2,))
        self.assertEqual((found.pair, found.shard, found.name), ((2, 1), 6, "0.weight"))

    def test_a_gradient_that_was_wrong_once_is_not_found_later(self):
        """As docs/invariant.md says: all ranks have added the same."""
        results = self.flipped["1:gradient@6"]
        self.assertIsInstance(results[0], str, results)

    def test_two_ranks(self):
        two, What = list(self.two.values()), self.What
        self.expect("weights", What.WEIGHTS, (0, 1), two[0], undecided=True)
        self.expect("unit", What.GRADIENT, (0, 1), two[1], undecided=True)
        self.expect("gradient, once", What.GRADIENT, (1,), two[2])

    def test_a_wrong_sum_of_right_gradients(self):
        for level, what in ((1, self.What.SUM), (3, self.What.AVERAGES)):
            found = self.found(self.adding[level])
            self.assertEqual((found.step, found.what, found.ranks, found.shard), (4, what, (1,), None), found)

    def test_nobody_is_accused_where_the_program_does_not_repeat_itself(self):
        for results in self.unrepeatable:
            found = self.found(results)
            self.assertEqual((found.step, found.what, found.undecided), (4, self.What.GRADIENT, True), found)
        self.assertEqual(self.found(self.unrepeatable[0]).ranks, (0, 1, 2))

    def test_who_is_told_goes_on(self):
        for told, end in self.told:
            self.assertEqual([(one.step, one.ranks) for one in told], [(4, (2,)), (9, (2,))])
            self.assertIsInstance(end, str)

    def test_a_clean_run_is_the_run_without_audits(self):
        expected = [results[0] for results in trainings(1, self.plain)]
        for size, found in self.clean.items():
            self.assertEqual([results[0] for results in found], expected, f"{size} ranks")

    def test_micro_batches_and_heads_that_no_shard_uses(self):
        runs = [run for run in (micro_batches, alternating) for _ in (1, 2)]
        for run, (found, seen), every in zip(runs, self.by_hand[0], (1, 2, 1, 2)):
            with self.subTest(run.__name__, every=every):
                self.assertEqual(found, run(1, None)[0])
                self.assertEqual(run(1, every)[0], found)
                audited = [(2, True), (3, True)]
                self.assertEqual(seen[:5], ([(0, False), (1, False)] + audited * (every == 1) + [(0, False), (1, False)])[:5]
                                 if every == 1 else [(0, False), (1, False), (0, False), (1, False), (2, True)])


class Parts(unittest.TestCase):
    def test_checksums_see_every_bit(self):
        import torch
        from lockstep.audit import checksum
        draws = torch.Generator().manual_seed(1)
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.complex64):
            values = torch.randint(0, 100, (70_001,), generator=draws).to(dtype)
            before = checksum(values)
            self.assertEqual(checksum(values.clone()), before)
            bits = values.view(torch.uint8)
            for place in torch.randint(0, bits.numel(), (40,), generator=draws).tolist():
                bits[place] ^= 1 << place % 8
                self.assertNotEqual(checksum(values), before, (dtype, place))
                bits[place] ^= 1 << place % 8
            swapped = values.roll(1)
            self.assertNotEqual(checksum(swapped), before)
        self.assertEqual(int(checksum(torch.zeros(0))), 0)

    def test_every_shard_comes_round(self):
        import torch
        from lockstep.invariant import VirtualShards
        model = torch.nn.Linear(2, 2)
        shards = VirtualShards(model, 3, audit_every=2, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        due = [step for step in range(6) if shards.audit.due(step)]
        self.assertEqual([shards.audit.audited(0, step) for step in due], [(0,), (1,), (2,)])

    def test_misuse_is_told(self):
        import torch
        from lockstep.invariant import VirtualShards
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for words, sentence in (({"audit_every": 0, "optimizer": optimizer}, "audit_every is 0"),
                                ({"audit_every": 2}, "needs the optimizer"), ({"optimizer": optimizer}, "without audit_every"),
                                ({"audit_every": 2, "optimizer": optimizer, "audit": "some"}, "audit is 'some'")):
            with self.assertRaisesRegex(ValueError, sentence):
                VirtualShards(model, 2, **words)
        shards = VirtualShards(model, 2, audit_every=1, optimizer=optimizer)
        with self.assertRaisesRegex(RuntimeError, "before this rank's own shards"):
            list(shards)
        for shard in shards.own:
            with shards.compute(shard):
                model(torch.ones(1, 2)).sum().backward()
        with self.assertRaisesRegex(RuntimeError, "step 0 ends with an audit: iterate"):
            with shards.compute(0):
                pass

    def test_the_example_refuses_what_would_have_no_effect(self):
        for words, sentence in (("--world-size 3 --flip 3:unit@7", "no rank 3: 0 to 2"), ("--flip 1:nothing@7", "WHAT being one of"),
                                ("--plain --flip 1:unit@1", "--plain"), ("--plain --audit-every 2", "--plain"),
                                ("--audit all", "--audit-every"), ("--lose 1@1", "--checkpoint"), ("--agent", "--lose"),
                                ("--lose 2@1 --checkpoint x", "no rank 2")):
            told = io.StringIO()
            with contextlib.redirect_stderr(told), self.assertRaises(SystemExit) as ended:
                options(*words.split())
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(sentence, told.getvalue())
        (case,) = options("--model", "mlp", "--flip", "1:buffers@1")
        with self.assertRaisesRegex(ValueError, "of which the model has none"):
            example().outcome(case)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this Python has no torch")
        sys.exit(77)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    unittest.main()
