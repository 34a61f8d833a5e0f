"""Silent corruption (lockstep.audit): what is broken on one rank on purpose is found, at the next audit, with the right
rank; what is not broken is not. Skipped (exit code 77) where this Python has no torch."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))


def cases(world_size):
    done = subprocess.run([sys.executable, "-B", str(ROOT / "tests/python/audit_ranks.py"), str(world_size)],
                          capture_output=True, text=True, timeout=600, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return {answer.pop("case"): answer for answer in map(json.loads, done.stdout.splitlines())}


class Audits(unittest.TestCase):
    def expect(self, answer, what, step, ranks, undecided=False):
        found = (answer["found"], answer["step"], answer["ranks"], answer["undecided"])
        self.assertEqual(found, (what, step, ranks, undecided), answer)

    def clean(self, answers):
        self.assertEqual(answers["nothing"], {"found": None})
        for kind in ("convnet", "routed", "tokens"):
            self.assertTrue(answers[kind]["same"], kind)

    def test_three_ranks_name_one(self):
        """Audits are in steps 2, 4, 6, ...; what is broken is so from step 3 on."""
        answers = cases(3)
        self.clean(answers)
        self.expect(answers["every gradient"], "gradient", 4, [1])
        # Rank 0 has shards 0 and 1, of which the second has its turn in the audits of steps 4, 8, ...
        self.expect(answers["one shard's gradient"], "gradient", 4, [0])
        self.assertEqual(answers["one shard's gradient"]["shard"], 1)
        self.expect(answers["when it checks"], "gradient", 2, [1])
        self.expect(answers["when it checks for the first time"], "gradient", 2, [1])
        self.expect(answers["weights"], "weights", 4, [1])
        self.assertEqual(answers["weights"]["tensor"], "0.weight")
        self.expect(answers["optimizer state"], "optimizer state", 4, [0])
        self.expect(answers["averaged gradients"], "averaged gradients", 4, [1])

    def test_two_ranks_are_two(self):
        """Nobody is accused whom the other could be; but who does not repeat itself is."""
        answers = cases(2)
        self.clean(answers)
        for case, what in (("every gradient", "gradient"), ("weights", "weights"),
                           ("optimizer state", "optimizer state"), ("averaged gradients", "averaged gradients")):
            self.expect(answers[case], what, 4, [0, 1], undecided=True)
        self.expect(answers["when it checks for the first time"], "gradient", 2, [1])


class Rules(unittest.TestCase):
    def test_a_majority_accuses_and_a_half_does_not(self):
        from lockstep.audit import outsiders
        self.assertEqual(outsiders([7, 7, 5]), [2])
        self.assertEqual(outsiders([5, 7, 7, 7, 6]), [0, 4])
        for values in ([7, 5], [7, 7, 5, 5], [1, 2, 3]):
            self.assertIsNone(outsiders(values))

    def test_one_device_checks_itself(self):
        import torch
        from lockstep.invariant import SilentCorruption, VirtualShards
        model = torch.nn.Linear(3, 2)
        shards = VirtualShards(model, 4, audit_every=1)
        for step in range(3):
            seen = 0
            try:
                for shard in shards:
                    seen += 1
                    with shards.compute(shard):
                        (model(torch.ones(2, 3)).sum() * (2 if step == 2 and seen == 5 else 1)).backward()
            except SilentCorruption as found:
                self.assertEqual((step, found.what, found.ranks), (2, "gradient", [0]))
                return
            self.assertEqual(seen, 5)
        self.fail("nothing was found")

    def test_misuse_is_told(self):
        import torch
        from lockstep.invariant import VirtualShards
        with self.assertRaisesRegex(ValueError, "audit_every=-1"):
            VirtualShards(torch.nn.Linear(2, 2), 4, audit_every=-1)
        model = torch.nn.Linear(3, 2)
        shards = VirtualShards(model, 1, audit_every=1)
        with self.assertRaisesRegex(ValueError, "was not computed"):
            for shard in shards:
                if shards.auditing is None:
                    with shards.compute(shard):
                        model(torch.ones(2, 3)).sum().backward()


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: this Python has no torch")
        sys.exit(77)
    unittest.main()
