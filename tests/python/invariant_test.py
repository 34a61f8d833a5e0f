"""lockstep.invariant in real training scripts, on this Python's torch: DistributedDataParallel of any number of ranks
has the bits of one device, whatever the model. A sample; LOCKSTEP_INVARIANT=all: 6 models x 5 optimizers x 6 numbers
of ranks x 100 steps (docs/invariant.md), minutes.
Skipped (exit code 77) where this Python has no torch."""
import collections
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
ALL = os.environ.get("LOCKSTEP_INVARIANT") == "all"
MODELS = ("mlp", "dropout", "batch_norm", "convnet", "routed", "tokens")
OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop")


def example():
    spec = importlib.util.spec_from_file_location("example_invariant", ROOT / "examples/invariant.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(*words):
    if words[:2] == ("--world-size", 1):  # without another start of torch
        return example().on_one_device(example().parsed([str(word) for word in words]))
    return printed(*words).split()[-1]


def printed(*words, launcher=()):
    done = subprocess.run([sys.executable, "-B", *launcher, str(ROOT / "examples/invariant.py"), *map(str, words)],
                          capture_output=True, text=True, timeout=1800, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Programs(unittest.TestCase):
    def of_all_sizes(self, world_sizes, *words):
        return [digest("--world-size", size, *words) for size in world_sizes]

    def test_any_number_of_ranks(self):
        for model, world_size in (("convnet", 3), ("routed", 3), ("tokens", 5)):
            with self.subTest(model):
                found = self.of_all_sizes((1, world_size), "--model", model, "--steps", 3)
                self.assertEqual(len(set(found)), 1, found)

    def test_a_rank_that_is_lost_and_another_number_of_ranks_change_no_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            saved = pathlib.Path(folder, "run.pt")
            words = ("--model", "dropout", "--checkpoint", saved)
            # With Python 3.11 torchrun of PyTorch 1.13 wants to be told of redirects.
            torchrun = (ROOT / "tests/cli/torchrun.py", "--redirects", "0:1", "--tee", "0:1", "--log_dir", folder,
                        "--standalone", "--nproc_per_node", "3", "--max_restarts", "1")
            replaced = printed(*words, "--steps", 5, "--lose", "1@3", launcher=map(str, torchrun)).split()[-1]
            self.assertTrue(pathlib.Path(f"{saved}.lost").exists())
            fewer = digest("--world-size", 2, *words, "--steps", 7)
            self.assertEqual([replaced, fewer], [digest("--world-size", 1, "--model", "dropout", "--steps", steps)
                                                 for steps in (5, 7)])

    def test_plain_accumulation_differs(self):
        """The control: without the tree the numbers of ranks do show."""
        found = self.of_all_sizes((1, 3), "--plain", "--model", "mlp", "--steps", 3)
        self.assertEqual(len(set(found)), 2, found)

    @unittest.skipUnless(ALL, "minutes: LOCKSTEP_INVARIANT=all")
    def test_matrix(self):
        found = collections.defaultdict(set)
        for world_size in (1, 2, 3, 4, 6, 8):
            words = ("--world-size", world_size, "--model", "all", "--optimizer", "all")
            for line in printed(*words, "--steps", 100, "--shards", 24, "--samples", 2).splitlines():
                model, optimizer, _, found_hash = line.split()
                found[model, optimizer].add(found_hash)
        self.assertEqual(len(found), 30)
        self.assertEqual([case for case, hashes in found.items() if len(hashes) > 1], [])


class Tree(unittest.TestCase):
    def setUp(self):
        from lockstep import invariant
        self.invariant = invariant

    def test_no_split_and_no_arrival_changes_a_bit(self):
        import torch
        draws = torch.Generator().manual_seed(3)
        for count in range(1, 20):
            leaves = [torch.randn(64, generator=draws) for _ in range(count)]
            expected = self.sum_of(leaves, range(count))
            for world_size in range(1, count + 1):
                roots = []
                for rank in range(world_size):
                    own = self.invariant.shards_of_rank(count, world_size, rank)
                    tree = self.invariant.ShardTree(count, lambda a, b: a + b)
                    for shard in reversed(own):
                        tree.put((0, shard), leaves[shard])
                    taken = tree.take()
                    self.assertEqual([node for node, _ in taken], self.invariant.roots_of(own, count))
                    roots += taken
                tree = self.invariant.ShardTree(count, lambda a, b: a + b)
                for place in torch.randperm(len(roots), generator=draws).tolist():
                    tree.put(*roots[place])
                self.assertTrue(torch.equal(tree.take()[0][1], expected))
            if count > 2:
                leaves[1], leaves[2] = leaves[2], leaves[1]
                self.assertFalse(torch.equal(self.sum_of(leaves, range(count)), expected))

    def sum_of(self, leaves, order):
        tree = self.invariant.ShardTree(len(leaves), lambda a, b: a + b)
        for shard in order:
            tree.put((0, shard), leaves[shard])
        ((_, total),) = tree.take()
        return total

    def test_misuse_is_told(self):
        import torch
        shards = self.invariant.VirtualShards(torch.nn.Linear(2, 2), 4)
        with self.assertRaisesRegex(ValueError, "shard 2, where 0 is next"):
            with shards.compute(2):
                pass
        sync = torch.nn.SyncBatchNorm(3)
        with self.assertRaisesRegex(ValueError, "SyncBatchNorm"):
            self.invariant.VirtualShards(sync, 4)
        with self.assertRaisesRegex(ValueError, "leave none"):
            self.invariant.VirtualShards(torch.nn.Linear(2, 2), 0)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this Python has no torch")
        sys.exit(77)
    unittest.main()
