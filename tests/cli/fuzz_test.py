"""scripts/fuzz: its ledger counts nothing twice and loses nothing when a night is cut short, and who changes a reader
gets its target fuzzed."""
import argparse
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest

from harness import ROOT

sys.path.insert(0, str(ROOT / "tests/fuzz"))
import ledger  # noqa: E402
import readers  # noqa: E402
import run  # noqa: E402

# As libFuzzer: what lies in its folders first, then `-runs` in all, or until it is interrupted.
FUZZER = """#!/bin/sh
trap 'echo "stat::number_of_executed_units: 70" >&2; exit 72' INT
for word; do case $word in -runs=*) runs=${word#-runs=} ;; -max_len=*) longest=${word#-max_len=} ;; esac; done
printf '#4\\tINITED cov: 3\\n' >&2
echo "$runs" >> "$0.asked"
touch "$0.began"
[ ! -e "$0.waits" ] || for i in $(seq 600); do sleep 0.05; done
echo "stat::number_of_executed_units: $runs" >&2
"""


class Ledger(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.tmp = pathlib.Path(kept.name)
        self.program = self.tmp / "fuzz_zip"
        self.program.write_text(FUZZER)
        self.program.chmod(0o755)
        self.document = self.tmp / "fuzzing.md"
        self.document.write_text("before\n" + ledger.BEGIN + "old\n" + ledger.END + "after\n")
        self.replaced(ledger, "PATH", self.tmp / "ledger.json")
        self.replaced(ledger, "DOCUMENT", self.document)
        self.replaced(run, "WORK", self.tmp / "work")
        self.replaced(run, "STOP", run.Stop())

    def replaced(self, module, name, value):
        self.addCleanup(setattr, module, name, getattr(module, name))
        setattr(module, name, value)

    def fuzz(self, runs, commit):
        options = argparse.Namespace(runs=runs, ledger=True, seed=0, commit=commit, per_target=60)
        fuzzer = run.Fuzzer("zip", options, self.tmp, self.tmp / "seeds", str(self.tmp))
        (fuzzer.corpus / "an input").write_text("x")
        fuzzer.seeds = []
        return run.side_by_side([fuzzer.run], 1, options)

    def test_nights_add_up_and_what_is_there_is_not_counted_again(self):
        self.fuzz(1000, "aaaaaaa")
        first = ledger.load()["zip"]
        self.assertEqual((first.executions, first.first, first.last), (997, "aaaaaaa", "aaaaaaa"))
        self.fuzz(2000, "bbbbbbb")
        second = ledger.load()["zip"]
        self.assertEqual((second.first, second.last), ("aaaaaaa", "bbbbbbb"))
        asked = [int(line) for line in pathlib.Path(f"{self.program}.asked").read_text().split()]
        # The four that it reads first are read each night.
        self.assertEqual(second.executions, sum(asked) - 4 * len(asked))
        self.assertLessEqual(second.executions, 2000)

    def test_who_is_stopped_keeps_what_was_done(self):
        pathlib.Path(f"{self.program}.waits").touch()
        stopper = threading.Thread(target=self.stop_when_begun)
        stopper.start()
        results = self.fuzz(1000, "aaaaaaa")
        stopper.join()
        self.assertEqual(results[0].findings, [])
        self.assertEqual(ledger.load()["zip"].executions, 66)
        self.assertEqual(run.STOP.run(["true"]), (None, ""))

    def stop_when_begun(self):
        for _ in range(3000):
            if pathlib.Path(f"{self.program}.began").exists():
                break
            time.sleep(0.02)
        run.STOP.ask(signal.SIGINT, None)

    def test_the_table_says_what_the_ledger_says(self):
        ledger.add("zip", 10, 2, 5, 0, "aaaaaaa")
        ledger.add("folders", 7, 1, 0, 1, "bbbbbbb")
        ledger.add("wire", 0, 1, 0, 0, "bbbbbbb")
        text = self.document.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"), text)
        self.assertIn("| `zip` | 10 | 1,000,000 | 5 | 5 | 0 | aaaaaaa to aaaaaaa |", text)
        self.assertIn("| `folders` | 7 | 50,000 | 7 |  | 1 | bbbbbbb to bbbbbbb |", text)
        self.assertNotIn("wire", text)

    def test_the_document_of_the_tree_has_the_table_of_its_ledger(self):
        document = (ROOT / "docs/fuzzing.md").read_text()
        self.assertEqual(ledger.with_table(document, ledger.load(ROOT / "tests/fuzz/ledger.json")),
                         document)


class Readers(unittest.TestCase):
    """A tree with one reader, what lies around it, and two targets."""

    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.root = pathlib.Path(kept.name)
        self.write("tests/fuzz/target_log.cc", "sim/log/source.h", "tests/fuzz/shared.h")
        self.write("tests/fuzz/shared.h", "sim/judge/evidence.h")
        self.write("tests/fuzz/target_zip.cc", "sim/zip/zip.h")
        self.write("sim/log/source.h")
        self.write("sim/log/source.cc", "sim/log/patterns.h", "base/text.h")
        self.write("sim/log/patterns.h")
        self.write("sim/log/patterns.cc", "sim/log/words.h")
        for further in ("sim/log/words.h", "sim/judge/evidence.h", "base/text.h", "sim/zip/zip.h"):
            self.write(further)

    def write(self, name, *included):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f'#include "{header}"\n' for header in included))

    def affected(self, *files):
        return readers.affected(["log", "zip", "folders"], set(files), self.root)

    def test_a_reader_its_source_and_what_lies_around_it(self):
        for file in ("tests/fuzz/target_log.cc", "sim/log/source.cc", "sim/log/patterns.cc", "sim/judge/evidence.h",
                     "tests/fuzz/corpus/log/seed"):
            self.assertEqual(self.affected(file), ["log", "folders"], file)

    def test_what_everything_stands_on_affects_none(self):
        for file in ("base/text.h", "sim/log/words.h", "docs/fuzzing.md", "tests/fuzz/corpus/logs/seed"):
            self.assertEqual(self.affected(file), ["folders"], file)
        self.assertEqual(self.affected("sim/zip/zip.h", "sim/log/source.h"), ["log", "zip", "folders"])

    def test_each_target_of_the_tree_has_a_reader(self):
        for target in run.known_targets():
            own = [name for name in readers.files_of(target) if not name.startswith(readers.FUZZ)]
            self.assertTrue(own, target)

    def test_others_fill_the_time_in_turn(self):
        self.assertEqual(run.in_turn(["a", "b", "c"], 2, 4), ["b", "c"])
        self.assertEqual(run.in_turn(["a", "b", "c"], 2, 5), ["c", "a"])
        self.assertEqual(run.in_turn(["a", "b", "c"], 7, 0), ["a", "b", "c"])
        self.assertEqual(run.in_turn(["a", "b", "c"], -2, 0), [])
        self.assertEqual(run.in_turn([], 2, 5), [])
        options = argparse.Namespace(seconds=None, at_most=300, jobs=2)
        self.assertEqual(run.minutes(options), 10)

    def test_time_is_shared_where_targets_are_many(self):
        def each(targets, **given):
            options = argparse.Namespace(**{"seconds": None, "hours": None, "at_most": None, "jobs": 2, **given})
            return run.seconds_of_each(options, ["zip"] * targets)
        self.assertEqual(each(7), 60)
        self.assertEqual(each(7, at_most=300), 60)
        self.assertEqual(each(20, at_most=300), 30)
        self.assertEqual(each(0, at_most=300), 60)
        self.assertEqual(each(4, hours=1), 1800)


if __name__ == "__main__":
    unittest.main()
