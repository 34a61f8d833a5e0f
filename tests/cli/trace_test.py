"""Traces for other tools (docs/traces.md): dumps of a flight recorder, from which `lockstep explain` and PyTorch's own
tool name the rank that the run itself blamed; which folders are refused."""
import functools
import os
import pathlib
import pickle
import subprocess
import unittest

from harness import LINEAR, PATIENCE_S, TOY, ProgramTest, read_json

PYTHONS = [os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3"),
           *os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":")]
TOOL = "torch.distributed.flight_recorder.fr_trace"
THREE = ("--filter", "world_size=3")
ENTRY = {"record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "op_id", "profiling_name",
         "time_created_ns", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "state",
         "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p", "frames"}


@functools.cache
def tool_python():
    """A Python whose PyTorch reads flight recorder dumps, or None."""
    for python in filter(None, PYTHONS):
        if not pathlib.Path(python).exists():
            continue
        found = subprocess.run([python, "-c", f"import {TOOL}"], capture_output=True, timeout=PATIENCE_S)
        if found.returncode == 0:
            return python
    return None


class Traces(ProgramTest):
    def dumps(self, scenario, *words, verb="run", code=0):
        """(blamed, folder) of one run."""
        folder, result = self.tmp / "dumps", self.tmp / "result.json"
        done = self.run_program(verb, scenario, *words, "--trace", f"{folder}/", "--trace-kind", "flight_recorder",
                                "--json", result)
        self.assertEqual(done.code, code, done.text)
        (run,) = read_json(result)["runs"]
        return (run["failure"] or {}).get("rank"), folder

    def explained(self, folder, codes=(1,)):
        path = self.tmp / "explained.json"
        done = self.run_program("explain", folder, "--json", path)
        self.assertIn(done.code, codes, done.text)
        return read_json(path)

    def torch_says(self, folder):
        python = tool_python()
        if python is None:
            self.skipTest(f"no Python of {PYTHONS} has {TOOL}")
        done = subprocess.run([python, "-m", TOOL, folder], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_a_rank_that_hangs(self):
        blamed, folder = self.dumps("scenarios/faults/deadlock.json", *THREE, "--set", "/reducer/kind=bucketed")
        answer = self.explained(folder)
        self.assertEqual((answer["class"], answer["guilty"], answer["victims"]), ("never_entered", [blamed], [0, 2]))
        said = self.torch_says(folder)
        self.assertIn(f"sequence number: {answer['sequence']}\n", said)
        self.assertIn(f"missing ranks: {{{blamed}}}", said)
        self.assertIn("backward, bucket 0 at step:2", said)

    def test_a_rank_that_crashes_before_a_collective(self):
        blamed, folder = self.dumps("scenarios/faults/kill.json", "--set", "/faults/0/phase=backward", *THREE)
        self.assertEqual(self.explained(folder)["guilty"], [blamed])
        self.assertIn(f"missing ranks: {{{blamed}}}", self.torch_says(folder))

    def test_a_rank_that_calls_something_else(self):
        """PyTorch's tool takes whichever rank it read first for right: it knows the collective, not the culprit."""
        blamed, folder = self.dumps("scenarios/faults/skip_collective.json", *THREE)
        answer = self.explained(folder)
        self.assertEqual((answer["class"], answer["guilty"], answer["victims"]), ("mismatch", [blamed], [0, 2]))
        said = self.torch_says(folder)
        self.assertIn(f"Collective sequence number: {answer['sequence']} has errors", said)
        self.assertIn("SIZE_OR_SYNTAX_MISMATCH", said)

    def test_a_rank_that_is_late(self):
        blamed, folder = self.dumps("scenarios/faults/backward_skew_times_out.json", *THREE, "--set",
                                    "/reducer/kind=bucketed")
        self.assertEqual(self.explained(folder)["guilty"], [blamed])

    def test_nobody_where_nothing_failed(self):
        blamed, folder = self.dumps(TOY, verb="verify")
        self.assertIsNone(blamed)
        self.assertEqual(self.explained(folder, (0, 3))["guilty"], [])  # too short to align clocks by
        for rank, path in enumerate(sorted(folder.iterdir())):
            self.assertEqual(path.name, f"_dump_{rank}")
            dump = pickle.loads(path.read_bytes())
            self.assertEqual(dump["version"], "2.10")
            self.assertEqual(dump["pg_config"]["0"]["desc"], "default_pg")
            last = dump["entries"][-1]
            self.assertEqual(set(last) - {"duration_ms"}, ENTRY)
            self.assertEqual(last["process_group"], ("0", "default_pg"))
            self.assertEqual((last["state"], last["retired"]), ("completed", True))
            self.assertRegex(last["profiling_name"], "^gloo:")
            self.assertLessEqual(last["time_created_ns"], last["time_discovered_started_ns"])
            self.assertLess(last["time_discovered_started_ns"], last["time_discovered_completed_ns"])
            self.assertEqual(dump["pg_status"]["0"]["last_completed_collective"], last["collective_seq_id"])

    def test_a_kept_run_gives_what_the_run_gave(self):
        out, kept, again = self.tmp / "out", self.tmp / "kept", self.tmp / "again"
        self.dumps(LINEAR, "--keep", "--out", out, verb="verify")
        for kind, folder in (("flight_recorder", kept), ("chakra", again)):
            done = self.run_program("analyze", out / "0001", "--trace", f"{folder}/", "--trace-kind", kind)
            self.assertEqual(done.code, 0, done.text)
        for path in sorted((self.tmp / "dumps").iterdir()):
            self.assertEqual((kept / path.name).read_bytes(), path.read_bytes())
        self.assertEqual({p.name for p in again.iterdir()}, {f"trace.{rank}.et" for rank in range(4)})

    def test_gloo_is_not_called_nccl(self):
        path = self.tmp / "trace.json"
        self.verify_json(TOY, "--trace", path)
        names = {event["name"] for event in read_json(path)["traceEvents"]}
        self.assertIn("gloo:all_reduce", names)
        self.assertNotIn("nccl", path.read_text())

    def test_what_cannot_be_written_is_refused(self):
        full = self.tmp / "full"
        full.mkdir()
        (full / "_dump_9").write_text("of another run")
        kind = ("--trace-kind", "flight_recorder")
        for words, why in ((["--trace", full, *kind], "is not empty; expected an empty folder"),
                           (["--trace", "/proc/none/", *kind], "cannot be written to"),
                           (["--trace", self.tmp / "file", *kind], "has a file of each rank; expected a folder"),
                           (["--trace", self.tmp / "file", "--trace-kind", "other"], "--trace-kind"),
                           ([*kind], "--trace")):
            done = self.run_program("verify", TOY, *words)
            self.assertEqual(done.code, 2, done.text)
            self.assertIn(why, done.err)
        self.assertFalse((self.tmp / "file").exists())

    def test_a_run_without_a_collective_has_no_dumps(self):
        out, folder = self.tmp / "out", self.tmp / "none"
        blamed, dumps = self.dumps("scenarios/faults/kill.json", "--set", "/faults/0/phase=rendezvous", *THREE, "--keep",
                                   "--out", out)
        self.assertEqual(blamed, 1)
        self.assertEqual([pickle.loads(path.read_bytes())["entries"] for path in dumps.iterdir()], [[]] * 3)
        done = self.run_program("analyze", out, "--trace", f"{folder}/", "--trace-kind", "flight_recorder")
        self.assertEqual(done.code, 2, done.text)
        self.assertIn("no rank came to a collective, of which flight_recorder is made", done.text)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main()
