"""Scenarios with "program": a file says what a command line of `verify|run|sweep -- COMMAND` says, and what is
expected; a folder of them is a check for continuous integration."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
SHIPPED = ROOT / "examples/scenarios"
WITH_PYTHON = ["--set", f"/program/command/0={PYTHON}"]

sys.path.insert(0, str(ROOT / "tests/cli"))
from schema_check import problems  # noqa: E402


class Scenarios(FolderTest):
    def run_lockstep(self, *words, trusts=True):
        """From a folder of its own: paths of a scenario are relative to its file."""
        words += ("--trust-programs",) if trusts and words[0] in ("verify", "run", "sweep") else ()
        ran = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=900,
                             cwd=self.folder, env={**self.environment, "OMP_NUM_THREADS": "1"})
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        self.said = ran.stdout + ran.stderr
        return ran.returncode

    def execute(self, verb, *words):
        path = self.folder / "result.json"
        path.unlink(missing_ok=True)
        code = self.run_lockstep(verb, *words, "--json", path)
        return code, json.loads(path.read_text())

    def write(self, name="x.json", **keys):
        document = {"name": name.removesuffix(".json"), "program": {"command": [PYTHON, "toy_ddp.py"],
                                                                    "directory": str(ROOT / "examples")}, **keys}
        (self.folder / name).write_text(json.dumps(document))
        return name

    def test_the_shipped_ones_are_a_check(self):
        junit = self.folder / "junit.xml"
        code, found = self.execute("verify", SHIPPED, *WITH_PYTHON, "--junit", junit)
        self.assertEqual(code, 0, self.said)
        self.assertEqual([(run["name"], run["as"], run["met"]) for run in found["runs"]],
                         [("toy_ddp", "verify", True)] * 2 + [("toy_ddp_bugs", "verify", True)] * 2
                         + [("toy_ddp_killed", "run", True)])
        self.assertEqual([run["verdict"] for run in found["runs"]], ["pass", "pass", "fail", "fail", "fail"])
        self.assertIn("pass: 5 runs as expected", self.said)
        schema = json.loads(subprocess.run([PROGRAM, "schema", "--program-scenario-result"], capture_output=True).stdout)
        self.assertEqual(problems(found, schema), [])
        of = {"verify": "--program", "run": "--program-run"}
        for run in found["runs"]:
            schema = json.loads(subprocess.run([PROGRAM, "schema", of[run["as"]]], capture_output=True).stdout)
            self.assertEqual(problems(run["result"], schema), [])
        self.assertIn('failures="0"', junit.read_text())

    def test_they_are_as_the_schema_says(self):
        schema = json.loads(subprocess.run([PROGRAM, "schema", "--program-scenario"], capture_output=True).stdout)
        for path in SHIPPED.glob("*.json"):
            self.assertEqual(problems(json.loads(path.read_text()), schema), [], path)

    def test_what_is_not_as_expected_is_a_failure_with_both(self):
        path = self.write(expect={"verdict": "fail", "cause": "summed_loss"})
        code, found = self.execute("verify", path)
        self.assertEqual(code, 1, self.said)
        self.assertIn("x: not as expected: verdict: expected fail, got pass; cause: expected summed_loss, got none",
                      self.said)
        self.assertEqual(found["runs"][0]["unmet"][1], "cause: expected summed_loss, got none")
        self.assertIn("fail: 1 run, 1 not as expected; exit 1", self.said)

    def test_what_is_inconclusive_is_undecided(self):
        path = self.write(program={"command": [PYTHON, "-c", "pass"]})
        code, found = self.execute("verify", path, "--quiet")
        self.assertEqual((code, found["runs"][0]["met"]), (3, None), self.said)
        self.assertIn("x: undecided: expected pass, and the run is inconclusive", self.said)

    def test_a_run_with_faults_and_who_is_late(self):
        path = self.write(world_size=3, faults=["stall rank=2 step=6 duration_ms=1500"],
                          expect={"verdict": "pass", "straggler": {"rank": 2, "class": "stopped"}})
        for _ in range(4):  # a busy machine leaves it undecided
            code, found = self.execute("run", path)
            if code != 3:
                break
        self.assertEqual(code, 0, self.said)
        self.assertEqual(found["runs"][0]["result"]["faults"][0]["acted_on"], [2])
        self.assertIn("straggler: rank 2 is late", self.said)
        # Never acted: neither completed as expected nor failed.
        code, found = self.execute("run", path, "--set", '/faults=["kill rank=1 step=9999"]',
                                   "--set", '/expect={"outcome": "failed"}')
        self.assertEqual((code, found["runs"][0]["met"]), (3, None), self.said)
        self.assertIn("never acted", self.said)

    def test_a_blamed_rank_that_is_another_one(self):
        code, found = self.execute("run", SHIPPED / "toy_ddp_killed.json", *WITH_PYTHON, "--set",
                                   "/expect/primary_rank=2")
        self.assertEqual(code, 1, self.said)
        self.assertEqual(found["runs"][0]["unmet"], ["primary_rank: expected 2, got 1"])

    def test_traces(self):
        traces = self.folder / "traces"
        words = [SHIPPED / "toy_ddp_killed.json", *WITH_PYTHON, "--trace-kind", "flight_recorder"]
        self.assertEqual(self.run_lockstep("run", *words, "--trace", f"{traces}/"), 0, self.said)
        self.assertEqual(sorted(path.name[-1] for path in traces.iterdir()), ["0", "1", "2"])
        self.assertEqual(self.run_lockstep("explain", traces), 1, self.said)
        self.assertIn("rank 1", self.said.splitlines()[0])
        two = ["--set", '/matrix={"/world_size": [2, 3]}', "--trace"]
        self.assertEqual(self.run_lockstep("run", *words, *two, f"{traces}/two/"), 0, self.said)
        self.assertEqual([len(list((traces / "two" / run).iterdir())) for run in ("0001", "0002")], [2, 3])
        self.assertEqual(self.run_lockstep("run", *words[:-2], *two, self.folder / "x.json"), 2, self.said)
        self.assertIn("a file holds one run, not 2", self.said)

    def test_run_takes_none_without_faults(self):
        code = self.run_lockstep("run", SHIPPED, *WITH_PYTHON)
        self.assertEqual(code, 2, self.said)
        self.assertIn('toy_ddp.json: error: run: this scenario has no "faults"', self.said)

    def test_the_first_that_is_not_as_expected_ends_it(self):
        path = self.write(matrix={"/world_size": [2, 3]}, expect={"verdict": "fail"})
        code, found = self.execute("verify", path, "--fail-fast")
        self.assertEqual((code, len(found["runs"]), found["not_run"]), (1, 1, 1), self.said)
        code, found = self.execute("verify", path, "--filter", "world_size=3", "--set", '/expect={"verdict": "pass"}',
                                   "--seed", "4")
        self.assertEqual((code, len(found["runs"])), (0, 1), self.said)
        self.assertEqual(found["runs"][0]["set"], {"/world_size": 3})
        self.assertEqual(self.run_lockstep("verify", path, "--filter", "zzz"), 4, self.said)

    def test_looked_at_without_running(self):
        self.assertEqual(self.run_lockstep("verify", SHIPPED, *WITH_PYTHON, "--list"), 0, self.said)
        self.assertRegex(self.said, r"toy_ddp +2 +A correct")
        self.assertEqual(self.run_lockstep("scenario", "check", SHIPPED, *WITH_PYTHON), 0, self.said)
        self.assertIn("ok: 3 files, 5 runs", self.said)
        self.assertEqual(self.run_lockstep("scenario", "list", SHIPPED, *WITH_PYTHON), 0, self.said)
        self.assertRegex(self.said, r"toy_ddp_killed +1 +\S+toy_ddp_killed.json")

    def test_sweep_takes_one(self):
        result = self.folder / "result.json"
        path = self.write(sweep={"caps": [1, 25], "steps": 20, "warmup": 2, "rounds": 1},
                          matrix={"/world_size": [2, 3]})
        self.assertEqual(self.run_lockstep("sweep", path), 2)
        self.assertIn("2 runs are selected; expected one", self.said)
        code = self.run_lockstep("sweep", path, "--set", "/world_size=2", "--steps", "3", "--caps", "2,25", "--allow-busy",
                                 "--json", result)
        self.assertIn(code, (0, 3), self.said)
        found = json.loads(result.read_text())
        self.assertEqual(found["exit_code"], code)
        self.assertEqual([world["world_size"] for world in found["worlds"]], [2])
        self.assertIn("medians of 1 round, each of 3 steps after 2", self.said)
        for words, said in ((["--steps", "1"], "/sweep/steps"), (["--caps", "auto"], "/sweep/caps"),
                            (["--reducers", "c10d"], "--reducers"), (["--set", "/faults=[]"], "faults")):
            self.assertEqual(self.run_lockstep("sweep", path, "--set", "/world_size=2", *words), 2, self.said)
            self.assertIn(said, self.said)

    def test_nothing_is_run_of_a_file_that_is_not_trusted(self):
        command = ["/bin/sh", "-c", "touch here; exit 1"]
        path = self.write(program={"command": command})
        for words in (["verify", path], ["sweep", path, "--caps", "1,2"], ["run", path, "--set", "/faults=[]"]):
            self.assertEqual(self.run_lockstep(*words, trusts=False), 2, self.said)
            self.assertIn("x.json: error: it runs a command: /bin/sh -c touch here; exit 1; expected --trust-programs, if you trust it",
                          self.said)
        self.assertEqual(self.run_lockstep("verify", path, "--list", trusts=False), 0, self.said)
        self.assertFalse((self.folder / "here").exists())
        self.assertEqual(self.run_lockstep("verify", path), 3, self.said)
        self.assertTrue((self.folder / "here").exists())
        toy = ROOT / "scenarios/equivalence/toy_model.json"
        self.assertEqual(self.run_lockstep("verify", toy), 2, self.said)
        self.assertIn("--trust-programs: lockstep verify on this machine does not take it", self.said)

    def test_bad_input(self):
        path = self.write(model={"kind": "mlp"}, program={"command": [PYTHON, "nowhere.py"]})
        code, found = self.execute("verify", path)
        self.assertEqual(code, 2, self.said)
        self.assertIn('unknown key "model"', self.said)
        self.assertEqual(self.run_lockstep("verify", path, "--set", "/model=1"), 2)
        path = self.write(program={"command": [PYTHON, "nowhere.py"]})
        self.assertEqual(self.run_lockstep("verify", path), 2, self.said)
        self.assertIn("nowhere.py: no such file", self.said)
        self.assertIn("x.json:1:", self.said)
        toy = ROOT / "scenarios/equivalence/toy_model.json"
        self.assertEqual(self.run_lockstep("verify", path, toy), 2, self.said)
        self.assertIn('this scenario has no "program"', self.said)
        self.assertEqual(self.run_lockstep("scenario", "explain", path), 2, self.said)
        self.assertIn("this is the scenario of a program", self.said)
        path = self.write()
        for option in (["--keep"], ["--out", "o"], ["--device", "cuda"], ["--jobs", "2"], ["--hosts", "a"],
                       ["--shard", "1/2"], ["--last-failed"], ["--metrics"], ["--verbose"], ["--trace", "t"]):
            self.assertEqual(self.run_lockstep("verify", path, *option), 2, (option, self.said))
            self.assertIn(f"{option[0]}: lockstep verify of programs does not take it", self.said)
        self.assertEqual(self.run_lockstep("verify", path, "--list", "--json", "x"), 2, self.said)
        self.assertIn("--json: lockstep verify of programs with --list does not take it", self.said)
        self.assertEqual(self.run_lockstep("verify", path, "--full"), 2, self.said)
        self.assertEqual(self.run_lockstep("verify", path, "--set", "/nonsense=1"), 2, self.said)


if __name__ == "__main__":
    unittest.main()
