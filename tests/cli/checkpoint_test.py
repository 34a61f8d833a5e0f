"""Checkpoints as files that outlive a run: saved by one invocation, resumed by the next."""
import pathlib
import shutil
import unittest

from harness import ProgramTest

SCENARIO = """{
  "name": "resumed", "what": "a test", "world_size": 4, "steps": 4, "batch_size": 24,
  "model": {"kind": "mlp", "in_features": 8, "hidden": [12, 10], "out_features": 4,
            "activation": "tanh"},
  "data": {"kind": "randn", "samples": 96, "features": 8, "targets": 4},
  "loss": {"kind": "mse"},
  "optimizer": {"kind": "sgd", "lr": 0.1, "momentum": 0.9},
  "checkpoint": {"kind": "resume", "path": "run.checkpoint", "if_missing": "start",
                 "every_steps": 4},
  "lanes": ["replica", "replay", "float64"]
}"""


class Checkpoint(ProgramTest):
    def setUp(self):
        super().setUp()
        self.scenario = self.tmp / "scenario.json"
        self.scenario.write_text(SCENARIO)
        self.file = self.tmp / "run.checkpoint"

    def run_of(self, *sets, **options):
        words = [word for pair in sets for word in ("--set", pair)]
        return self.verify_json(self.scenario, *words, **options)["runs"][0]

    def lanes(self, run):
        return {name: lane["verdict"] for name, lane in run["lanes"].items()
                if name in ("replica", "replay", "float64")}

    def test_resumed_run_is_the_uninterrupted_one(self):
        whole = self.run_of("/steps=8", "/checkpoint/every_steps=0")
        self.run_of()
        resumed = self.run_of("/steps=8")
        self.assertEqual(set(self.lanes(resumed).values()), {"pass"})
        # Not equal to `whole`: DDP's first step after the resume adds in another order.
        self.assertEqual(set(self.lanes(whole).values()), {"pass"})

    def test_resumes_on_another_world_size(self):
        self.run_of()
        for ranks in (3, 6, 1):
            kept = self.tmp / f"on-{ranks}.checkpoint"
            shutil.copy(self.file, kept)
            shutil.copy(f"{self.file}.double", f"{kept}.double")
            run = self.run_of("/steps=7", f"/world_size={ranks}", f"/checkpoint/path={kept}")
            self.assertEqual(run["lanes"]["float64"]["verdict"], "pass", run)
            self.assertEqual(run["lanes"]["replay"]["verdict"], "not_applicable")
            self.assertEqual(run["lanes"]["replica"]["verdict"],
                             "pass" if ranks > 1 else "not_applicable")

    def test_held_out_data_decide_which_state_is_the_best(self):
        best, last = pathlib.Path(f"{self.file}.best"), self.file
        held_out = ("/checkpoint/evaluate_samples=24", "/checkpoint/every_steps=1")
        self.run_of(*held_out)
        self.assertEqual(best.read_bytes(), last.read_bytes())  # it learns: the last is the best
        first = {}
        for steps in (1, 4):
            for path in (best, last, pathlib.Path(f"{self.file}.double")):
                path.unlink(missing_ok=True)
            words = [w for s in (*held_out, f"/steps={steps}", "/optimizer/lr=20")
                     for w in ("--set", s)]
            self.run_program("verify", self.scenario, *words)
            first[steps] = best.read_bytes()
        self.assertEqual(first[1], first[4])  # every further step is worse
        self.assertNotEqual(first[4], last.read_bytes())

    def test_ranks_make_the_same_folder_at_once(self):
        for name in ("a", "b", "c"):
            run = self.run_of(f"/checkpoint/path={name}/deep/deeper/run.checkpoint")
            self.assertEqual(run["verdict"], "pass", run)
            self.assertTrue((self.tmp / name / "deep/deeper/run.checkpoint").is_file())

    def test_bad_files_are_bad_input_and_stay_as_they_are(self):
        self.run_of()
        whole = self.file.read_bytes()
        for damaged, word in ((whole[:300], "cut short"), (b"PK something", "not a checkpoint"),
                              (whole[:-40] + b"x" + whole[-39:], "checksum")):
            self.file.write_bytes(damaged)
            result = self.run_program("verify", self.scenario, "--set", "/steps=8")
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(word, result.text)
            self.assertIn("run.checkpoint", result.text)
            self.assertEqual(self.file.read_bytes(), damaged)

    def test_missing_file_is_bad_input_unless_it_may_be(self):
        result = self.run_program("verify", self.scenario, "--set", "/checkpoint/if_missing=error")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("run.checkpoint: there is no such file", result.text)


if __name__ == "__main__":
    unittest.main()
