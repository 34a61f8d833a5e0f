"""Reducer invariant from outside: one hash for every number of ranks, also where it changes in the middle."""
import json
import unittest

from harness import ProgramTest

SCENARIO = {
    "name": "elastic", "what": "A run that goes on with other numbers of ranks",
    "world_size": 4, "steps": 4, "batch_size": 24,
    "model": {"kind": "mlp", "in_features": 8, "hidden": [12, 10], "out_features": 4},
    "data": {"kind": "randn", "samples": 96, "features": 8, "targets": 4},
    "split": {"kind": "distributed"},
    "loss": {"kind": "mse"},
    "optimizer": {"kind": "adam", "lr": 0.01},
    "reducer": {"kind": "invariant", "virtual_shards": 8},
    "lanes": ["replica", "invariant"],
}


class Invariant(ProgramTest):
    def scenario(self, **keys):
        path = self.tmp / "run.json"
        path.write_text(json.dumps({**SCENARIO, **keys}))
        return path

    def hashes(self, path, *sets, code=0):
        words = [word for one in sets for word in ("--set", one)]
        document = self.verify_json(path, *words, code=code)
        return [(run["final_hash"], run["lanes"]["invariant"]["verdict"]) for run in document["runs"]]

    def refusal(self, *sets):
        words = [word for one in sets for word in ("--set", one)]
        result = self.run_program("scenario", "check", self.scenario(), *words)
        self.assertEqual(result.code, 2, result.text)
        return result.text

    def test_one_hash(self):
        path = self.scenario(matrix={"/world_size": [1, 2, 3, 7]}, communicator={"kind": "local"})
        runs = self.hashes(path)
        self.assertEqual(len({digest for digest, _ in runs}), 1, runs)
        self.assertEqual({verdict for _, verdict in runs}, {"pass"})
        # Of the same batches, added in the order of the ranks.
        plain = self.scenario(matrix={"/world_size": [1, 2, 4, 6]}, communicator={"kind": "local"},
                              split={"kind": "contiguous"}, lanes=["replay"], reducer={"kind": "bucketed"})
        digests = {run["final_hash"] for run in self.verify_json(plain)["runs"]}
        self.assertEqual(len(digests), 4, digests)

    def test_sync_batch_norm(self):
        """All virtual shards meet in a layer, those of one micro-batch where there are several."""
        model = {"kind": "batch_norm_mlp", "in_features": 8, "hidden": [12, 10], "out_features": 4, "norm": "sync"}
        for keys in ({}, {"accumulate_steps": 3}, {"reducer": {**SCENARIO["reducer"], "find_unused_parameters": True}}):
            with self.subTest(keys):
                path = self.scenario(matrix={"/world_size": [1, 2, 3, 5]}, communicator={"kind": "local"}, model=model,
                                     batch_size=48, **keys)
                runs = self.hashes(path)
                self.assertEqual(len({digest for digest, _ in runs}), 1, runs)
                self.assertEqual({verdict for _, verdict in runs}, {"pass"})
        ((other, _),) = self.hashes(self.scenario(model={**model, "norm": "batch"}, batch_size=48))
        self.assertNotEqual(other, runs[0][0])

    def test_elastic(self):
        path = self.scenario(checkpoint={"kind": "resume", "path": str(self.tmp / "run.checkpoint"),
                                         "if_missing": "start", "every_steps": 4})
        for world_size, steps in ((4, 4), (3, 8), (5, 12)):
            ((last, verdict),) = self.hashes(path, f"/world_size={world_size}", f"/steps={steps}")
            self.assertEqual(verdict, "pass")
        ((never_interrupted, verdict),) = self.hashes(self.scenario(), "/world_size=1", "/steps=12")
        self.assertEqual(verdict, "pass")
        self.assertEqual(last, never_interrupted)

    def test_data_that_does_not_round(self):
        """No order of additions can be seen: the control is missed, and nothing is green."""
        words = ("scenarios/equivalence/exact.json", "--set", "/world_size=3",
                 "--set", '/reducer={"kind":"invariant","virtual_shards":6}', "--set", '/lanes=["exact","invariant"]')
        (run,) = self.verify_json(*words, code=3)["runs"]
        self.assertEqual({lane: said["verdict"] for lane, said in run["lanes"].items()},
                         {"exact": "pass", "invariant": "void"})

    def test_a_rank_that_is_lost_before_a_bucket_is_named_with_it(self):
        path = self.tmp / "result.json"
        result = self.run_program("run", self.scenario(), "--json", path, "--set",
                                  '/faults=[{"kind":"kill","rank":1,"step":2,"bucket":0}]')
        self.assertEqual(result.code, 3, result.text)
        self.assertRegex(result.out, r"rank 1 was killed by SIGKILL \(9\) in backward of step 2; "
                                     r"it never entered all_to_all \d+ \(bucket 0,")

    def test_without_a_lost_rank_the_others_go_on_with_the_same_bits(self):
        saved = self.tmp / "run.checkpoint"
        path = self.scenario(steps=6, checkpoint={"kind": "resume", "path": str(saved), "if_missing": "start",
                                                  "every_steps": 1})
        lost = self.run_program("run", path, "--set", '/faults=[{"kind":"kill","rank":2,"step":4}]')
        self.assertEqual(lost.code, 3, lost.text)
        self.assertIn("rank 2 was killed", lost.out)
        self.assertTrue(saved.exists())
        ((digest, verdict),) = self.hashes(path, "/world_size=3")
        self.assertEqual(verdict, "pass")
        whole = self.hashes(self.scenario(steps=6), "/world_size=1")
        self.assertEqual(whole, [(digest, "pass")])

    def test_refusals(self):
        for sets, words in (
                (('/reducer={"kind":"invariant"}',), "virtual_shards"),
                (("/world_size=9",), "8 virtual shards leave none for some of 9 ranks"),
                (("/batch_size=12",), "virtual shards"),
                (("/reducer/gradient_as_bucket_view=true",), "has no gradient_as_bucket_view"),
                (('/reducer={"kind":"bucketed","virtual_shards":4}',), 'reducer "bucketed" has no virtual shards'),
                (('/split={"kind":"manual"}',), "rank 0 would scatter"),
                (('/mutants=[{"kind":"other_order"}]',), "reducer invariant has others"),
                (('/faults=[{"kind":"skip_collective","rank":1,"step":2,"bucket":0}]',), "with its one shard"),
                (("/accumulate_steps=3", "/accumulate_sync=each"), "one sum"),
                (("/loss/report_every=1",), "losses of virtual shards"),
        ):
            with self.subTest(sets):
                self.assertIn(words, self.refusal(*sets))


if __name__ == "__main__":
    unittest.main()
