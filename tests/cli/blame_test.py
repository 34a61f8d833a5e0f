"""Who is blamed rests on what ranks measured, never on what an error happens to say."""
import json
import pathlib
import time
import unittest

from harness import TOY, ProgramTest, read_json

TIMEOUTS = [word for pair in (("collective", 600), ("construction", 2000), ("step", 3000),
                              ("rendezvous", 8000), ("run", 30000))
            for word in ("--set", f"/timeouts/{pair[0]}_ms={pair[1]}")]


class Blame(ProgramTest):
    def failed(self, world_size, fault, *args):
        document = self.verify_json(TOY, "--set", f"/world_size={world_size}",
                                    "--set", f"/faults=[{json.dumps(fault)}]",
                                    *TIMEOUTS, *args, "--out", self.tmp / f"out{time.monotonic()}",
                                    code=3)
        return document["runs"][0]

    def accuse(self, run_dir, scapegoat):
        """Rewrites every error of the run: all say that `scapegoat` did it."""
        text = f"checkpoint: rank {scapegoat} is bad, step 1: timed out waiting for rank {scapegoat}"
        for path in pathlib.Path(run_dir).glob("rank-*.evidence.json"):
            evidence = read_json(path)
            if evidence["error_kind"]:
                evidence["error"] = text
            for reason in evidence["check_reasons"]:
                reason["text"] = text
            path.write_text(json.dumps(evidence))

    def analyzed(self, run_dir):
        path = self.tmp / "analyzed.json"
        result = self.run_program("analyze", run_dir, "--json", path)
        self.assertEqual(result.code, 3, result.text)
        return read_json(path)["runs"][0]["failure"]

    def test_texts_that_accuse_another_rank_move_nothing(self):
        for world_size, fault, rank in (
                (3, {"kind": "exception", "rank": 1, "step": 2}, 1),
                (6, {"kind": "kill", "rank": 4, "step": 2}, 4),
                (7, {"kind": "reset", "rank": 2, "step": 2}, 2),
                (3, {"kind": "stop", "rank": 2, "step": 2, "phase": "backward"}, 2)):
            run = self.failed(world_size, fault)
            before = run["failure"]
            self.assertEqual(before["rank"], rank, before["message"])
            for scapegoat in (0, world_size - 1):
                self.accuse(run["run_dir"], scapegoat)
                after = self.analyzed(run["run_dir"])
                for key in ("rank", "kind", "cause", "secondary", "explanation"):
                    self.assertEqual(before[key], after[key], (fault, scapegoat, key))

    def test_an_error_carries_what_the_rank_knew(self):
        run = self.failed(3, {"kind": "stop", "rank": 1, "step": 2, "phase": "backward"})
        evidence = [read_json(path) for path in
                    sorted(pathlib.Path(run["run_dir"]).glob("rank-*.evidence.json"))]
        timed_out = [one for one in evidence if one["error_kind"] == "timeout"]
        self.assertTrue(timed_out, evidence)
        for one in timed_out:
            self.assertEqual(one["sequence"], run["failure"]["explanation"]["collective"]["sequence"])
            self.assertEqual(one["error_step"], 2)
            self.assertTrue(500 < one["deadline_ms"] <= 600, one)
            self.assertGreaterEqual(one["waited_ms"], one["deadline_ms"])

    def test_a_latency_beyond_the_time_out_is_nobodys_fault_and_ends_in_time(self):
        start = time.monotonic()
        run = self.failed(3, {"kind": "latency", "duration_ms": 20000}, "--set",
                          "/timeouts/construction_ms=600")
        self.assertLess(time.monotonic() - start, 10)
        failure = run["failure"]
        self.assertIsNone(failure["rank"], failure["message"])
        self.assertEqual(failure["kind"], "timeout")
        self.assertRegex(failure["message"], "^the time-out of 600 ms is too short, or the network "
                                             "lost what was sent: all ranks entered ")
        self.assertLess(failure["after_ms"], 3000)
        self.assertEqual(failure["secondary"], [0, 1, 2])


if __name__ == "__main__":
    unittest.main()
