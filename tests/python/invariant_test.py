"""lockstep.invariant in real training scripts, on this Python's torch: DistributedDataParallel of any number of ranks
has the bits of one device, whatever the model. A sample; LOCKSTEP_INVARIANT=all: 6 models x 5 optimizers x 6 numbers
of ranks x 100 steps (docs/invariant.md), minutes.
Skipped (exit code 77) where this Python has no torch."""
import collections
import importlib.util
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import unittest

from invariant_example import example

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
ALL = os.environ.get("LOCKSTEP_INVARIANT") == "all"
MODELS = ("mlp", "dropout", "batch_norm", "convnet", "routed", "tokens")
OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop")


def digest(*words):
    if words[:2] == ("--world-size", 1):  # without another start of torch
        return example().outcome(example().parsed([str(word) for word in words]))
    return printed(*words).split()[-1]


def printed(*words):
    done = subprocess.run([sys.executable, "-B", str(ROOT / "examples/invariant.py"), *map(str, words)],
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


def torchrun(*words):
    """Started. Its --redirects: torch 1.13 on Python 3.11 does not know its own default."""
    launcher = [sys.executable, "-B", str(ROOT / "tests/cli/torchrun.py"), "--redirects", "1", "--tee", "1",
                "--monitor_interval", "0.2"]
    # Without it PyTorch 2.15 has restarted ranks connect to the addresses of those before.
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen([*launcher, *map(str, words)], env=environment, cwd=ROOT, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Elastic(unittest.TestCase):
    """Ranks come and go; the hash is that of one device that was never interrupted."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.checkpoint = pathlib.Path(folder.name, "checkpoint")
        self.words = ("--model", "batch_norm", "--steps", 9)
        self.expected = digest("--world-size", 1, *self.words)
        self.example = (ROOT / "examples/invariant.py", *self.words, "--checkpoint", self.checkpoint)

    def hash_printed_by(self, launcher, world_size):
        """Of a launcher that has lost a rank and has come to the end."""
        log, _ = launcher.communicate(timeout=600)
        self.assertEqual(launcher.returncode, 0, log[-3000:])
        self.assertTrue(pathlib.Path(f"{self.checkpoint}.lost").exists(), "no rank was lost")
        (line,) = [line for line in log.splitlines() if "batch_norm adam" in line]
        self.assertEqual(line.split()[-2], str(world_size))
        return line.split()[-1]

    def test_four_three_five_ranks(self):
        for world_size, steps in ((4, 3), (3, 6), (5, 9)):
            found = digest("--world-size", world_size, *self.words, "--steps", steps, "--checkpoint", self.checkpoint)
        self.assertEqual(found, self.expected)

    def test_a_lost_rank_is_replaced(self):
        launcher = torchrun("--standalone", "--nproc_per_node", 3, "--max_restarts", 1, *self.example, "--lose", "1@4")
        self.assertEqual(self.hash_printed_by(launcher, 3), self.expected)

    @unittest.skipUnless(ALL, "half a minute: LOCKSTEP_INVARIANT=all")
    def test_a_lost_machine_is_not_replaced(self):
        """Two launchers, of three ranks and one; the second one dies with its rank, and three go on."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            endpoint = f"localhost:{unused.getsockname()[1]}"
        words = ("--rdzv_backend", "c10d", "--rdzv_id", "elastic", "--rdzv_endpoint", endpoint, "--nnodes", "1:2",
                 "--max_restarts", 3)
        last = "join_timeout=120,last_call_timeout=5"
        first = torchrun(*words, "--rdzv_conf", f"is_host=1,{last}", "--nproc_per_node", 3, *self.example,
                         "--lose", "3@4", "--agent")
        second = torchrun(*words, "--rdzv_conf", f"is_host=0,{last}", "--nproc_per_node", 1, *self.example,
                          "--lose", "3@4", "--agent")
        self.assertEqual(self.hash_printed_by(first, 3), self.expected)
        second.communicate()
        self.assertEqual(second.returncode, -9)


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
