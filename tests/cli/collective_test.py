#!/usr/bin/env python3
"""lockstep collective: real ranks, every operation, outputs, exit codes, bad input, failures."""
import contextlib
import csv
import os
import signal
import subprocess
import time
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, alive, descendants, rank_of, read_json

SMALL = ["--min-bytes", "8", "--max-bytes", "40K", "--factor", "70", "--iterations", "3", "--warmup",
         "1"]
ALL = "gloo:ring,gloo:bcube,gloo:halving_doubling,gloo:ring_chunked,c10d,shm,shm:rank_order,hierarchical:ring:2"
OPERATIONS = ("all_reduce", "broadcast", "reduce_scatter", "all_gather", "all_to_all")


class CollectiveTest(ProgramTest):
    def collective(self, *args, code=0, timeout=120):
        result = self.run_program("collective", *args, timeout=timeout)
        if code is not None:
            self.assertEqual(result.code, code, result.text)
        return result

    def test_every_operation_of_every_communicator_has_the_right_bits(self):
        for operation in OPERATIONS:
            path = self.tmp / "result.json"
            result = self.collective(operation, "--communicators", ALL, "--world-size", "3", *SMALL,
                                     "--json", path)
            document = read_json(path)["collective"]
            self.assertEqual(document["control"], "detected")
            self.assertEqual(document["wrong"], 0)
            self.assertEqual([one["label"] for one in document["communicators"]],
                             ALL.replace("shm,", "shm:ring,").split(","))
            sizes = 2 if operation in ("reduce_scatter", "all_gather", "all_to_all") else 3
            self.assertEqual(document["results"], 8 * sizes * 3 * 4)
            for communicator in document["communicators"]:
                self.assertEqual(len(communicator["sizes"]), sizes)
                for size in communicator["sizes"]:
                    self.assertEqual(len(size["times_ns"]), 3)
                    time_ns = size["time_ns"]
                    self.assertLessEqual(time_ns["low"], time_ns["median"])
                    self.assertLessEqual(time_ns["median"], time_ns["high"])
            last = result.out.splitlines()[-1]
            self.assertIn("wrong: 0, controls: 1 of 1; average bus bandwidth GB/s: gloo:ring", last)

    def test_bandwidths_are_those_of_nccl_tests(self):
        for operation, world, factor in (("all_reduce", 3, 4 / 3), ("reduce_scatter", 2, 1 / 2),
                                         ("all_gather", 2, 1 / 2), ("all_to_all", 3, 2 / 3),
                                         ("broadcast", 2, 1)):
            path = self.tmp / "result.json"
            self.collective(operation, "--communicators", "shm", "--world-size", world, *SMALL,
                            "--json", path, "--csv", self.tmp / "result.csv")
            communicator = read_json(path)["collective"]["communicators"][0]
            rows = list(csv.DictReader((self.tmp / "result.csv").read_text().splitlines()))
            for size, row in zip(communicator["sizes"], rows, strict=True):
                self.assertAlmostEqual(size["algbw_gb_s"], size["bytes"] / size["time_ns"]["median"])
                self.assertAlmostEqual(size["busbw_gb_s"], size["algbw_gb_s"] * factor)
                self.assertEqual(int(row["size_bytes"]), size["bytes"])
            mean = sum(s["busbw_gb_s"] for s in communicator["sizes"]) / len(rows)
            self.assertAlmostEqual(communicator["average_busbw_gb_s"], mean)

    def test_other_types(self):
        for dtype, communicators in (("float64", "gloo,c10d,shm"), ("float16", "gloo,c10d,shm"),
                                     ("bfloat16", "gloo:bcube,shm")):
            for operation in ("all_reduce", "all_gather"):
                words = ("--dtype", dtype, "--world-size", "3", *SMALL)
                result = self.collective(operation, "--communicators", communicators, *words, code=None)
                if "Invalid scalar type" in result.out:  # ProcessGroupGloo of some builds adds no halves
                    self.assertRegex(result.out, r"broke down: rank-\d: c10d at ")
                    result = self.collective(operation, "--communicators", "gloo,shm", *words)
                self.assertEqual(result.code, 0, result.text)
                self.assertIn(f" {dtype} ", result.out)

    def test_bad_input(self):
        for args, why in (
                (["--communicators", "glo"], 'did you mean "gloo"?'),
                (["--communicators", "gloo:rank_order"], "--communicators"),
                (["--communicators", "shm,shm:ring"], "each once"),
                (["--min-bytes", "8k"], '--min-bytes: "8k"'),
                (["--min-bytes", "64", "--max-bytes", "8"], "hold no size"),
                (["--max-bytes", "1G", "--world-size", "64"], "a smaller --max-bytes"),
                (["--world-size", "1"], "--world-size"),
                (["--dtype", "int8"], "--dtype"),
                (["--json", "/proc/nope"], "--json")):
            result = self.collective("all_reduce", *args, code=2)
            self.assertIn(why, result.err, args)
        self.assertIn("OPERATION", self.collective("reduce", code=2).err)
        self.collective(code=2)

    def start(self, *args):
        return subprocess.Popen([PROGRAM, "collective", "all_reduce", *args], text=True, cwd=ROOT,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)

    # What the ranks of the set at work have written: a set that is done takes its files with it.
    def written(self):
        texts = []
        for file in (self.tmp / "out").glob("*/rank-*.collective"):
            with contextlib.suppress(FileNotFoundError):
                texts.append(file.read_text())
        return texts

    # A moment after all ranks have left a line with this word.
    def rank_at_work(self, run, rank, ranks, word):
        end = time.monotonic() + 100
        while time.monotonic() < end and run.poll() is None:
            texts = self.written()
            found = [pid for pid in descendants(run.pid) if rank_of(pid) == rank]
            # Some sizes are done too.
            if found and sum(word in text and text.count("\n") > 3 for text in texts) == ranks:
                time.sleep(0.3)
                return found[0]
            time.sleep(0.02)
        run.kill()
        self.fail("no rank at work: " + "".join(run.communicate()))

    def failed(self, communicator, number, *args):
        run = self.start("--communicators", communicator, "--world-size", "3", "--iterations", "1000",
                         "--out", str(self.tmp / "out"), "--max-bytes", "1M", "--factor", "2", *args)
        os.kill(self.rank_at_work(run, 1, 3, "control_wrong"), number)
        pids = descendants(run.pid)
        out, err = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 3, out + err)
        self.assertIn(f"{communicator.split(':')[0]}:ring", out)
        self.assertFalse(any(alive(pid) for pid in pids))
        self.assertIn("wrong: 0, controls: 1 of 1; broke down; exit 3", out.splitlines()[-1])
        return out

    def test_a_rank_that_crashes_is_named(self):
        for communicator in ("gloo", "shm", "hierarchical:ring:2"):
            out = self.failed(communicator, signal.SIGKILL)
            self.assertIn("broke down: rank-1: was ended by signal 9", out)

    def test_a_time_out_says_where_and_who_was_stopped(self):
        out = self.failed("gloo", signal.SIGSTOP, "--timeout-ms", "1000")
        self.assertRegex(out, r"broke down: rank-\d: gloo:ring at \d+ bytes: ")
        self.assertIn("rank-1 was stopped by a signal", out)

    def test_interrupted_it_prints_what_it_knows(self):
        run = self.start("--communicators", "shm", "--iterations", "1000", "--out",
                         str(self.tmp / "out"))
        self.rank_at_work(run, 1, 2, "row")
        os.kill(run.pid, signal.SIGINT)
        out, _ = run.communicate(timeout=PATIENCE_S)
        self.assertEqual(run.returncode, 130, out)
        self.assertIn("interrupted by signal 2", out)
        self.assertIn("shm:ring", out)


if __name__ == "__main__":
    unittest.main()
