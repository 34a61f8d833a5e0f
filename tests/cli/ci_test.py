"""What continuous integration reads: JUnit, annotations, summaries, shards; docs/ci.md as it stands."""
import json
import os
import re
import shutil
import subprocess
import unittest
import xml.etree.ElementTree

from harness import PATIENCE_S, PROGRAM, ROOT, TOY, ProgramTest, read_json

SMALL = """{
  "name": "mine",
  "what": "a small matrix",
  "world_size": 3, "steps": 2, "samples_per_rank": 4,
  "model": {"kind": "linear", "in_features": 4, "out_features": 3},
  "data": {"kind": "randn", "features": 4, "targets": 3},
  "loss": {"kind": "mse"}, "optimizer": {"kind": "sgd", "lr": 0.1},
  "reducer": {"kind": "bucketed"},
  "communicator": {"kind": "local", "algorithm": "ring"},
  "lanes": ["replica", "replay", "float64"],
  "expect": {"verdict": "pass"},
  "matrix": {"/world_size": [2, 3, 6], "/reducer/kind": ["bucketed", "c10d", "flat"]}
}
"""
WRONG = '[{"kind": "wrong_divisor"}]'


def cases_of(path):
    return list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))


def key_of(case):
    return case.get("classname"), case.get("name")


def properties_of(element):
    return {p.get("name"): p.get("value") for p in element.findall("properties/property")}


class CiTest(ProgramTest):
    def setUp(self):
        super().setUp()
        for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
            self.env.pop(name, None)
        self.checks = self.tmp / "checks"
        self.checks.mkdir()
        self.small = self.checks / "mine.json"
        self.small.write_text(SMALL)
        self.junit = self.tmp / "junit.xml"
        self.json = self.tmp / "result.json"

    def wrong(self, which="", **change):
        """The same with a defect put in, where `which` is part of a reducer's name."""
        document = json.loads(SMALL)
        document["mutants"] = json.loads(WRONG)
        document.update(change)
        path = self.checks / "wrong.json"
        path.write_text(json.dumps({**document, "name": document.get("name", "mine") + which}, indent=1))
        return path

    def verify(self, *args, code=0, **options):
        result = self.run_program("verify", *args, "--junit", self.junit, "--json", self.json,
                                  **options)
        self.assertEqual(result.code, code, result.text)
        return result


class Junit(CiTest):
    def check_against_json(self):
        document = read_json(self.json)
        cases = cases_of(self.junit)
        self.assertEqual(len(cases), len(document["runs"]) + len(document["not_run"]))
        by_key = {key_of(case): case for case in cases}
        for run in document["runs"]:
            case = by_key[run["name"], run["label"] or run["name"]]
            found = [child.tag for child in case if child.tag != "properties"]
            expected = {True: [], False: ["failure"], None: ["error"]}[run["met"]]
            self.assertEqual(found, expected, run["label"])
            self.assertEqual(float(case.get("time")), run["duration_ms"] / 1000)
            properties = properties_of(case)
            for name in ("seed", "world_size", "reducer", "communicator"):
                self.assertEqual(properties[name], str(run[name]))
            self.assertEqual(properties["again"], run["again"])
            if run["first_divergence"] and run["met"] is False:
                first = run["first_divergence"]
                text = case.find("failure").get("message")
                for part in (f"step {first['step']},", first["tensor"], f"bucket {first['bucket']}",
                             first["cause"], str(first["element"])):
                    self.assertIn(part, text)
                self.assertIn(run["again"], case.find("failure").text)
        root = xml.etree.ElementTree.parse(self.junit).getroot()
        summary = document["summary"]
        self.assertEqual(int(root.get("tests")), len(cases))
        self.assertEqual(int(root.get("failures")), summary["unmet"])
        self.assertEqual(int(root.get("errors")), summary["undecided"])
        suite = properties_of(root.find("testsuite"))
        self.assertEqual(suite["libtorch"], document["libraries"]["torch"])
        self.assertEqual(suite["lockstep"], document["lockstep_version"])
        return document

    def test_passed_runs_and_failed_ones_as_the_json_has_them(self):
        self.verify(self.small)
        self.assertEqual(len(self.check_against_json()["runs"]), 9)
        self.verify(self.wrong("_wrong"), self.small, code=1)
        document = self.check_against_json()
        self.assertEqual(document["summary"]["unmet"], 9)
        self.assertEqual(document["summary"]["met"], 9)

    def test_what_is_inconclusive_is_an_error_with_the_guilty_rank(self):
        self.verify("scenarios/faults/kill.json", "--set",
                    "/world_size=3", "--set", "/faults/0/phase=backward",
                    "--set", '/expect={"verdict": "pass"}', code=3)
        self.check_against_json()
        (case,) = cases_of(self.junit)
        self.assertIn("rank 1", case.find("error").get("message"))
        self.assertEqual(case.find("error").get("type"), "crash")
        self.assertEqual(properties_of(case)["primary_rank"], "1")

    def test_a_hostile_name_stays_a_name(self):
        name = "</testsuite>&\"'<x>]]> ::error::"
        self.verify(self.wrong(name=name), code=1)
        for case in cases_of(self.junit):
            self.assertEqual(case.get("classname"), name)
        for unseen in ("\u0001", "\u2028", "\u202e", "\n"):
            self.verify(self.wrong(name=name + unseen), code=2)

    def test_bad_input_is_an_error_and_an_unwritable_report_runs_nothing(self):
        self.small.write_text(SMALL.replace('"steps"', '"stps"'))
        self.verify(self.small, code=2)
        messages = [case.find("error").get("message") for case in cases_of(self.junit)]
        self.assertTrue(any("stps" in message for message in messages), messages)
        result = self.run_program("verify", TOY, "--junit", "/proc/nope/x.xml")
        self.assertEqual(result.code, 2)
        self.assertIn("--junit /proc/nope/x.xml", result.err)
        self.assertIn("nothing was run", result.err)

    def test_other_verbs_have_it_too(self):
        self.run_program("campaign", "--seeds", "2", "--seed", "5", "--junit", self.junit)
        self.assertEqual(len(cases_of(self.junit)), 2)
        result = self.run_program("run", self.small, "--filter", "world_size=2", "--junit", self.junit)
        self.assertEqual(result.code, 0, result.text)
        self.assertEqual(len(cases_of(self.junit)), 3)
        self.run_program("sweep", TOY, "--caps", "1,25", "--worlds", "2", "--reducers", "bucketed",
                         "--steps", "2", "--warmup", "1", "--rounds", "1", "--allow-busy",
                         "--set", "/communicator/kind=gloo", "--junit", self.junit)
        self.assertGreaterEqual(len(cases_of(self.junit)), 1)
        self.run_program("collective", "all_reduce", "--communicators", "shm", "--max-bytes", "64",
                         "--iterations", "2", "--junit", self.junit)
        self.assertGreaterEqual(len(cases_of(self.junit)), 1)


class GitHub(CiTest):
    def setUp(self):
        super().setUp()
        self.summary = self.tmp / "summary.md"
        self.env.update(GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(self.tmp),
                        GITHUB_STEP_SUMMARY=str(self.summary))

    def annotations(self, result):
        return [line for line in result.err.split("\n") if line.startswith("::")]

    def test_failures_stand_on_the_line_of_expect(self):
        self.small.write_text(SMALL.replace('"lanes"', f'"mutants": {WRONG},\n  "lanes"'))
        line = self.small.read_text().split("\n").index('  "expect": {"verdict": "pass"},') + 1
        result = self.verify("checks/mine.json", "--filter", "world_size=3", code=1, cwd=self.tmp)
        found = self.annotations(result)
        self.assertEqual(len(found), 3, result.err)
        for text in found:
            self.assertTrue(text.startswith(f"::error file=checks/mine.json,line={line},title=fail%3A"),
                            text)
            self.assertIn("wrong_divisor", text)
            self.assertIn("%0Aagain: lockstep verify", text)
        self.assertIn("| mine | **fail** | 3 | 0 | 3 |", self.summary.read_text())
        # From another folder the file is the same one.
        result = self.verify(self.small, "--filter", "world_size=3", code=1)
        self.assertTrue(self.annotations(result)[0].startswith("::error file=checks/mine.json,"))

    def test_ten_and_a_count_and_the_summary_is_appended_to(self):
        self.summary.write_text("before\n")
        path = self.wrong(matrix={"/seed": list(range(13))})
        found = self.annotations(self.verify(path, code=1))
        self.assertEqual(len(found), 11)
        self.assertIn("and 3 more, of 13", found[-1])
        self.assertTrue(self.summary.read_text().startswith("before\n### lockstep verify\n"))

    def test_bad_input_at_its_place(self):
        self.small.write_text(SMALL.replace('"steps"', '"stps"'))
        found = self.annotations(self.verify("checks/mine.json", code=2, cwd=self.tmp))
        self.assertTrue(any(text.startswith("::error file=checks/mine.json,line=4,col=")
                            for text in found), found)

    def test_only_where_it_is_wanted(self):
        path = self.wrong(matrix={"/seed": [1]})
        result = self.verify(path, "--annotations", "none", code=1)
        self.assertEqual(self.annotations(result), [])
        self.assertFalse(self.summary.exists())
        self.env.pop("GITHUB_ACTIONS")
        self.assertEqual(self.annotations(self.verify(path, code=1)), [])
        self.assertEqual(len(self.annotations(self.verify(path, "--annotations", "github", code=1))), 1)

    def test_a_summary_that_cannot_be_written_is_a_warning(self):
        self.env["GITHUB_STEP_SUMMARY"] = "/proc/nope"
        self.assertIn("warning: GITHUB_STEP_SUMMARY", self.verify(self.small).err)


class Narrowing(CiTest):
    def labels(self):
        return sorted(run["label"] for run in read_json(self.json)["runs"])

    def test_shards_together_are_all_runs_once(self):
        self.verify(self.small)
        everything = self.labels()
        together = []
        for index in (1, 2, 3, 4):
            self.verify(self.small, "--shard", f"{index}/4")
            self.assertIn(len(self.labels()), (2, 3))
            together += self.labels()
        self.assertEqual(sorted(together), everything)
        self.assertIn("is empty", self.verify(self.small, "--shard", "64/64", code=4).err)
        self.assertEqual(self.run_program("verify", self.small, "--shard", "5/4").code, 2)

    def test_fail_fast_ends_with_the_first_failure(self):
        path = self.wrong(matrix={"/seed": list(range(300))})
        self.verify(path, "--fail-fast", "--jobs", "1", code=1)
        document = read_json(self.json)
        self.assertLess(len(document["runs"]), 300)
        self.assertGreaterEqual(document["summary"]["unmet"], 1)
        self.assertEqual(len(document["runs"]) + len(document["not_run"]), 300)
        root = xml.etree.ElementTree.parse(self.junit).getroot()
        self.assertEqual(int(root.get("skipped")), len(document["not_run"]))

    def test_last_failed_runs_what_failed_until_it_passes(self):
        self.assertIn("none of the 9 runs failed last",
                      self.verify(self.small, "--last-failed", code=4).err)
        self.small.write_text(SMALL.replace('"lanes"', f'"mutants": {WRONG},\n  "lanes"'))
        self.verify(self.small, "--filter", "world_size=6", code=1)
        failed = self.labels()
        self.small.write_text(SMALL)
        result = self.verify(self.small, "--last-failed")
        self.assertEqual(self.labels(), failed)
        self.assertIn("failed last: 3 of 9 runs\n  mine world_size=6", result.err)
        self.verify(self.small, "--last-failed", code=4)

    def test_a_baseline_tells_regressions_from_what_is_known(self):
        wrong = self.wrong("_wrong", matrix={"/seed": [1, 2]})
        self.verify(self.checks, code=1)
        before = self.tmp / "before.json"
        shutil.copy(self.json, before)
        self.verify(self.checks, "--baseline", before)
        words = {run["name"]: run["baseline"] for run in read_json(self.json)["runs"]}
        self.assertEqual(words, {"mine": "same", "mine_wrong": "known"})
        self.assertEqual(read_json(self.json)["summary"]["known"], 2)
        wrong.unlink()
        self.small.write_text(SMALL.replace('"lanes"', f'"mutants": {WRONG},\n  "lanes"'))
        result = self.verify(self.checks, "--baseline", before, code=1)
        self.assertEqual({run["baseline"] for run in read_json(self.json)["runs"]}, {"regression"})
        self.assertIn("regression", result.out)
        self.assertEqual(self.run_program("verify", self.small, "--baseline", self.small).code, 2)

    def test_jobs_are_auto_or_a_number(self):
        self.verify(self.small, "--jobs", "auto")
        self.verify(self.small, "--jobs", "2")
        for bad in ("0", "many", "-1"):
            self.assertEqual(self.run_program("verify", self.small, "--jobs", bad).code, 2)


class Documented(CiTest):
    """docs/ci.md: the commands of its files, with what is built here in place of what they install."""

    def blocks(self):
        text = (ROOT / "docs/ci.md").read_text()
        return re.findall(r"^```yaml\n(.*?)^```", text, re.S | re.M)

    def run_command(self, command, **env):
        tools = self.tmp / "bin"
        tools.mkdir(exist_ok=True)
        for name in ("lockstep", "lockstep-worker"):
            link = tools / name
            if not link.exists():
                link.symlink_to(os.path.join(os.path.dirname(os.path.realpath(PROGRAM)), name))
        done = subprocess.run(["sh", "-e", "-c", command], cwd=self.tmp, capture_output=True,
                              text=True, timeout=PATIENCE_S,
                              env={**self.env, **env, "PATH": f"{tools}:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, command + done.stdout + done.stderr)

    def installs(self, command):
        """What cannot be done here must at least be there."""
        script = re.search(r"lockstep/(scripts/\S+)", command)
        if script:
            self.assertTrue(os.access(ROOT / script[1], os.X_OK), command)
        return script or "apt-get" in command

    def check_parts(self, run_part):
        everything, seen = 9, []
        for index in (1, 2, 3):
            for name in ("junit.xml", "result.json"):
                (self.tmp / name).unlink(missing_ok=True)
            run_part(index)
            read_json(self.tmp / "result.json")
            seen += [key_of(case) for case in cases_of(self.tmp / "junit.xml")]
        self.assertEqual(len(seen), everything)
        self.assertEqual(len(set(seen)), everything)

    def test_github_actions(self):
        text = next(block for block in self.blocks() if "github/workflows" in block)
        commands = re.findall(r"^ +(?:- )?run: (?!\|)(.+)$", text, re.M)
        for block in re.findall(r"^ +run: \|\n((?: {10,}.*\n)+)", text, re.M):
            commands.append(block)
        commands = [command for command in commands if not self.installs(command)]
        self.assertEqual(len(commands), 2, commands)
        self.assertIn("shard: [1, 2, 3]", text)
        summary = self.tmp / "summary.md"

        def run_part(index):
            for command in commands:
                self.run_command(command.replace("${{ matrix.shard }}", str(index)),
                                 GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(self.tmp),
                                 GITHUB_STEP_SUMMARY=str(summary))

        self.check_parts(run_part)
        self.assertEqual(summary.read_text().count("### lockstep verify"), 3)
        for path in re.search(r"path: \|\n((?: +\S+\n)+)", text)[1].split():
            self.assertTrue((self.tmp / path).exists(), path)

    def test_gitlab(self):
        text = next(block for block in self.blocks() if "gitlab-ci" in block)
        commands = [c for c in re.findall(r"^    - (.*lockstep.*)$", text, re.M)
                    if not self.installs(c)]
        self.assertEqual(len(commands), 2, commands)
        self.assertIn("parallel: 3", text)

        def run_part(index):
            for command in commands:
                self.run_command(command, CI_NODE_INDEX=str(index), CI_NODE_TOTAL="3")

        self.check_parts(run_part)
        for path in re.findall(r"junit: (\S+)", text):
            self.assertTrue((self.tmp / path).exists(), path)

    def test_every_option_of_the_table_is_one(self):
        text = (ROOT / "docs/ci.md").read_text()
        help_text = self.run_program("verify", "--help").out
        options = re.findall(r"^\| `(--[a-z-]+)", text, re.M)
        self.assertGreater(len(options), 5)
        for option in options:
            self.assertIn(option + " ", help_text)


if __name__ == "__main__":
    unittest.main()
