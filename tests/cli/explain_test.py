"""lockstep explain: dumps as PyTorch's flight recorder writes them, logs of ranks and launchers, and what must not be
taken for one."""
import collections
import gzip
import json
import pathlib
import pickle
import sys
import unittest

from harness import PROGRAM, ROOT, ProgramTest

sys.path.insert(0, str(ROOT / "tests/sim/tools/explain"))
import made_incidents
import made_parallel
import made_random


class Stranger:
    """What pickle.load would call."""
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def dump(rank, world=3, last=4, waits=(), name="default_pg"):
    entries = [{"record_id": s, "pg_id": 0, "process_group": ("0", name), "collective_seq_id": s, "p2p_seq_id": 0,
                "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + s * 10**7, "input_sizes": [[8]],
                "input_dtypes": ["Float"], "state": "scheduled" if s in waits else "completed", "retired": s not in waits,
                "timeout_ms": 1000, "is_p2p": False} for s in range(1, last + 1)]
    status = {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": last - len(waits)}
    return {"version": "2.9", "pg_config": {"0": {"name": "0", "desc": name, "ranks": str(list(range(world)))}},
            "nccl_version": "2.27.3", "pg_status": {"0": status}, "entries": entries}


CLOSED = ("RuntimeError: [/third_party/gloo/gloo/transport/tcp/pair.cc:561] Connection closed by peer [127.0.0.1]:16772. "
          "This is typically caused by a remote worker crashing.")


def error(rank, last):
    """As PyTorch's hook for uncaught exceptions writes it."""
    lines = ("Traceback (most recent call last):", "  File \"train.py\", line 8, in <module>", last)
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


class Explain(ProgramTest):
    def write(self, dumps):
        folder = self.tmp / "dumps"
        folder.mkdir(exist_ok=True)
        for rank, made in dumps.items():
            (folder / f"_dump_{rank}").write_bytes(pickle.dumps(made, protocol=2))
        return folder

    def answer(self, folder, code):
        path = self.tmp / "answer.json"
        done = self.run_program("explain", folder, "--json", path)
        self.assertEqual(done.code, code, done.text)
        return done, json.loads(path.read_text())

    def test_the_rank_that_never_entered_is_named(self):
        folder = self.write({0: dump(0, last=5, waits=(5,)), 1: dump(1), 2: dump(2, last=5, waits=(5,))})
        done, answer = self.answer(folder, 1)
        self.assertEqual((answer["guilty"], answer["victims"], answer["class"]), ([1], [0, 2], "never_entered"))
        self.assertEqual((answer["collective"], answer["sequence"], answer["group"]), ("all_reduce", 5, "0"))
        self.assertIn("rank 1 never entered all_reduce 5 of group 0 (default_pg)", done.text)

    def test_nobody_is_named_where_nobody_waits(self):
        done, answer = self.answer(self.write({rank: dump(rank) for rank in range(3)}), 0)
        self.assertEqual((answer["verdict"], answer["guilty"], answer["victims"]), ("nothing", [], []))
        self.assertIn("nothing to explain", done.text)

    def test_a_straggler_is_named_where_nothing_failed(self):
        folder = self.write({})
        for rank in range(3):
            made = dump(rank, last=60)
            for entry in made["entries"]:
                step, bucket = divmod(entry["record_id"] - 1, 4)
                late_ms = 30 if rank == 1 and bucket >= 2 else 0
                entry["time_created_ns"] = 10**18 + (step * 130 + bucket * 5 + late_ms) * 10**6
                entry["input_sizes"] = [[8 + bucket]]
            # As PyTorch writes JSON: its keys in order, so that groups come behind thousands of bytes.
            (folder / f"dump_{rank}").write_text(json.dumps(made, sort_keys=True))
        done, answer = self.answer(folder, 1)
        self.assertEqual((answer["dumps"], answer["class"], answer["guilty"], answer["victims"]), (3, "straggler", [1], [0, 2]))
        self.assertAlmostEqual(answer["lateness_ms"], 30, delta=0.1)
        self.assertAlmostEqual(answer["slowdown"], 1.3, delta=0.01)
        self.assertIn("rank 1 is a straggler: in each step the others wait 30.0 ms for it, 1.30x", done.text)
        scenario = self.run_program("explain", folder, "--scenario", self.tmp / "again.json")
        self.assertIn("no scenario was written: nothing failed", scenario.text)

    def traces(self, late_ms=30, left=range(3)):
        """Of three ranks, the second of which comes late to the all-reduce of each step."""
        folder = self.tmp / f"traces-{late_ms}-{len(left)}"
        folder.mkdir(exist_ok=True)
        for rank in left:
            events = []
            for step in range(8):
                begin, came = step * 1e5 + rank * 1e9, 4e4 + (1e3 * late_ms if rank == 1 else 0)
                for category, name, at, duration, arguments in (
                        ("user_annotation", f"ProfilerStep#{step}", 0, 9e4, {}),
                        ("kernel", "sgemm", 0, came + 1e3, {"stream": 7}),
                        ("kernel", "ncclDevKernel_AllReduce", came, 8e4 - came, {"stream": 20})):
                    events.append({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 1, "ts": begin + at,
                                   "dur": duration, "args": arguments})
            text = json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events,
                               "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}})
            (folder / f"{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text.encode()))
        return folder

    def test_a_straggler_is_named_from_traces(self):
        folder = self.traces()
        done, answer = self.answer(folder, 1)
        self.assertEqual((answer["class"], answer["guilty"], answer["victims"]), ("straggler", [1], [0, 2]))
        self.assertAlmostEqual(answer["lateness_ms"], 30, delta=0.1)
        self.assertEqual([trace["rank"] for trace in answer["traces"]], [0, 1, 2])
        self.assertAlmostEqual(answer["traces"][0]["overlap_percent"], 2.5, delta=0.01)
        self.assertAlmostEqual(answer["traces"][0]["waiting_ms"], 30, delta=0.01)
        self.assertAlmostEqual(answer["traces"][1]["waiting_ms"], 0, delta=0.01)
        page = self.tmp / "traces.html"
        self.assertEqual(self.run_program("explain", folder, "--html", page).code, 1)
        self.assertIn("waiting ms", page.read_text())
        self.answer(self.traces(late_ms=0), 0)
        self.assertIn(f"lockstep explain {folder}", self.run_program("analyze", folder).err)
        _, answer = self.answer(self.traces(left=range(2)), 3)
        self.assertEqual((answer["guilty"], answer["candidates"]), ([], [1]))

    def test_an_absent_dump_leaves_it_undecided(self):
        done, answer = self.answer(self.write({0: dump(0, last=5, waits=(5,)), 1: dump(1, last=5, waits=(5,))}), 3)
        self.assertEqual((answer["verdict"], answer["guilty"], answer["candidates"]), ("undecided", [], [2]))
        self.assertIn("the dump of rank 2", done.text)

    def test_nothing_of_a_pickle_is_executed(self):
        made = self.tmp / "made"
        folder = self.write({0: {**dump(0), "entries": [Stranger(made)]}})
        done = self.run_program("explain", folder)
        self.assertEqual(done.code, 2, done.text)
        self.assertFalse(made.exists())

    def test_other_files_are_bad_input(self):
        other = self.tmp / "_dump_0"
        for text in ("", "{}", '{"version": "3.0"}', '{"version": "2.9"}', "[" * 100_000, "text"):
            other.write_text(text)
            done = self.run_program("explain", other)
            self.assertEqual(done.code, 2, (text[:20], done.text))
            self.assertIn("_dump_0", done.err)

    def test_two_dumps_of_a_rank_and_a_name_without_one(self):
        folder = self.write({rank: dump(rank) for rank in range(3)})
        (folder / "again_2").write_text(json.dumps(dump(2)))
        self.assertEqual(self.run_program("explain", folder).code, 0, "the same")
        (folder / "again_2").write_text(json.dumps(dump(2, last=5)))
        done = self.run_program("explain", folder)
        self.assertEqual(done.code, 2, done.text)
        self.assertIn("a second dump of rank 2, which differs", done.err)
        (folder / "again_2").rename(folder / "again")
        self.assertIn("ends in the rank", self.run_program("explain", folder / "again").err)

    def test_a_dump_that_is_cut_short_is_left_out_of_a_folder_and_told(self):
        folder = self.write({rank: dump(rank, last=5, waits=(5,)) for rank in range(3)})
        (folder / "_dump_1").write_bytes((folder / "_dump_1").read_bytes()[:200])
        done, answer = self.answer(folder, 3)
        self.assertEqual((answer["dumps"], answer["candidates"], answer["victims"]), (2, [1], [0, 2]))
        self.assertIn("not read, being damaged: _dump_1", done.text)
        self.assertEqual(self.run_program("explain", folder / "_dump_1").code, 2)

    def test_files_that_gzip_packed(self):
        folder = self.write({0: dump(0, last=5, waits=(5,)), 1: dump(1), 2: dump(2, last=5, waits=(5,))})
        for path in list(folder.iterdir()):
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        done, answer = self.answer(folder, 1)
        self.assertEqual((answer["guilty"], answer["class"]), ([1], "never_entered"))
        log = self.tmp / "job.log.gz"
        log.write_bytes(gzip.compress(error(1, "ValueError: no such file").encode()))
        self.assertEqual(self.answer(log, 1)[1]["guilty"], [1])

    def test_a_name_cannot_steer_a_terminal(self):
        name = "x\x1b[31m\n::error::forged"
        folder = self.write({0: dump(0, 2, 5, (5,), name), 1: dump(1, 2, name=name)})
        done = self.run_program("explain", folder)
        self.assertEqual(done.code, 1, done.text)
        self.assertNotIn("\x1b", done.text)
        self.assertNotRegex(done.text, r"(?m)^::error")

    def logs(self, texts):
        folder = self.tmp / "logs"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        return folder

    def test_who_ended_by_its_own_exception_is_named_beside_those_that_lost_it(self):
        folder = self.logs({"log.0": error(0, CLOSED), "log.1": error(1, "ValueError: no such file"), "log.2": error(2, CLOSED)})
        done, answer = self.answer(folder, 1)
        self.assertEqual((answer["guilty"], answer["victims"], answer["class"], answer["logs"]), ([1], [0, 2], "died", 3))
        self.assertIn("log.1:3", done.text)
        self.assertIn("ValueError: no such file", done.text)

    def test_who_only_lost_a_peer_is_not_named(self):
        folder = self.logs({"log.0": error(0, CLOSED), "log.2": error(2, CLOSED)})
        done, answer = self.answer(folder, 3)
        self.assertEqual((answer["verdict"], answer["guilty"], answer["victims"]), ("undecided", [], [0, 2]))

    def test_a_log_without_a_known_line_is_not_said_to_be_well(self):
        done, answer = self.answer(self.logs({"job.log": "step 1 loss 0.5\n"}), 3)
        self.assertIn("a line that says", answer["missing"][0])

    def test_dumps_and_logs_together(self):
        """Rank 1 was killed: no dump of it, nothing in its log."""
        dumps = self.write({0: dump(0, last=5, waits=(5,)), 2: dump(2, last=5, waits=(5,))})
        logs = self.logs({"log.0": error(0, CLOSED), "log.1": "", "log.2": error(2, CLOSED)})
        self.answer(dumps, 3)
        path = self.tmp / "both.json"
        done = self.run_program("explain", dumps, logs, "--json", path)
        answer = json.loads(path.read_text())
        self.assertEqual((done.code, answer["guilty"], answer["class"]), (1, [1], "silent"))

    def test_torchruns_folders_and_the_last_attempt(self):
        for attempt, rank in ((0, 0), (1, 1)):
            for one in (0, 1):
                folder = self.tmp / "logs" / "none_x" / f"attempt_{attempt}" / str(one)
                folder.mkdir(parents=True)
                (folder / "stderr.log").write_text(error(one, "ValueError: a" if one == rank else CLOSED))
                (folder / "stdout.log").write_text("")
        done, answer = self.answer(self.tmp / "logs", 1)
        self.assertEqual(answer["guilty"], [1])

    def test_an_error_file_of_torchelastic(self):
        folder = self.tmp / "logs" / "attempt_0" / "2"
        folder.mkdir(parents=True)
        more = {"extraInfo": {"py_callstack": "", "timestamp": "1764000000"}}
        for message in ({"message": {"message": "KeyError: 'loss'", **more}}, {"message": "KeyError: 'loss'", **more}):
            (folder / "error.json").write_text(json.dumps(message))
            done, answer = self.answer(self.tmp / "logs", 1)
            self.assertEqual((answer["guilty"], answer["class"]), ([2], "died"))
        for message in (5, None, [], {}, {"message": {}}):
            (folder / "error.json").write_text(json.dumps({"message": message, **more}))
            self.answer(self.tmp / "logs", 3)

    def test_what_is_no_text_is_left_out_of_a_folder_and_refused_by_name(self):
        folder = self.logs({"log.0": error(0, CLOSED)})
        (folder / "store").write_bytes(b"a\0b")
        done, answer = self.answer(folder, 3)
        self.assertIn("store", answer["evidence"][0])
        self.assertEqual(self.run_program("explain", folder / "store").code, 2)

    def test_analyze_tells_the_command_that_reads_it(self):
        dumps = self.write({rank: dump(rank) for rank in range(2)})
        logs = self.logs({"log.0": error(0, CLOSED)})
        for path in (dumps, dumps / "_dump_0", logs, logs / "log.0"):
            done = self.run_program("analyze", path)
            self.assertEqual(done.code, 2, done.text)
            self.assertIn(f"lockstep explain {path}", done.err)
        (logs / "log.0").write_text("step 1\n")
        for path in (logs, logs / "log.0", self.tmp / "none"):
            done = self.run_program("analyze", path)
            self.assertEqual(done.code, 2, done.text)
            self.assertNotIn("explain", done.err)

    def test_a_hole_in_a_log_takes_no_time(self):
        """What stands behind 64 GiB of nothing, as where a log was cut while its writer went on."""
        folder = self.logs({"log.0": error(0, CLOSED), "log.1": "step 1\n"})
        with (folder / "log.1").open("r+b") as file:
            file.seek(1 << 36)
            file.write(b"\n" + error(1, "ValueError: late").encode())
        done, answer = self.answer(folder, 1)
        self.assertEqual(answer["guilty"], [1])

    def again(self, *paths):
        """What run says of the scenario that explain writes."""
        scenario, path = self.tmp / "again.json", self.tmp / "answer.json"
        done = self.run_program("explain", *paths, "--scenario", scenario, "--json", path)
        self.assertEqual(done.code, 1, done.text)
        self.assertEqual(json.loads(path.read_text())["scenario"], str(scenario))
        for command in (f"lockstep run {scenario}\n", f"lockstep simulate {scenario} --full "):
            self.assertIn(command, done.text)
        result = self.tmp / "result.json"
        ran = self.run_program("run", scenario, "--json", result)
        self.assertEqual(ran.code, 0, ran.text)
        simulated = self.run_program("simulate", scenario, "--full")
        self.assertEqual(simulated.code, 0, simulated.text)
        return json.loads(result.read_text())["runs"]

    def test_the_scenario_fails_by_the_same_rank(self):
        (run,) = self.again(self.write({0: dump(0, last=5, waits=(5,)), 1: dump(1), 2: dump(2, last=5, waits=(5,))}))
        self.assertEqual((run["failure"]["rank"], run["failure"]["kind"]), (1, "hang"))
        (run,) = self.again(self.logs({"log.0": error(0, CLOSED), "log.1": error(1, CLOSED), "log.2": error(2, "ValueError: a")}))
        self.assertEqual((run["failure"]["rank"], run["failure"]["kind"]), (2, "exception"))

    def test_no_scenario_is_written_of_what_is_undecided_or_nothing(self):
        scenario = self.tmp / "again.json"
        for dumps, code in (({0: dump(0, last=5, waits=(5,)), 1: dump(1, last=5, waits=(5,))}, 3),
                            ({rank: dump(rank) for rank in range(3)}, 0)):
            folder = self.write(dumps)
            done = self.run_program("explain", folder, "--scenario", scenario)
            self.assertEqual(done.code, code, done.text)
            self.assertRegex(done.text, r"no scenario was written: .*\n$")
            self.assertFalse(scenario.exists())
        done = self.run_program("explain", folder, "--scenario", self.tmp / "none" / "again.json")
        self.assertEqual(done.code, 2, done.text)
        self.assertIn("--scenario", done.err)

    def test_what_was_made_up_to_accuse_innocents_does_not(self):
        for name, incidents in (("jobs", made_incidents.INCIDENTS), ("parallel", made_parallel.INCIDENTS)):
            self.assertEqual(made_incidents.judge_all(incidents, PROGRAM, pathlib.Path(self.tmp) / name), [])

    def test_of_random_parallel_jobs_who_hangs_is_named_and_nobody_else(self):
        table = made_random.counted(PROGRAM, pathlib.Path(self.tmp), 120, 1)
        self.assertEqual(sum(counts["innocent"] for counts in table.values()), 0)
        one = sum((counts for (hang, missing, _), counts in table.items() if hang == 1 and not missing), collections.Counter())
        self.assertGreater(one["exact"], 0.9 * one.total())
        untimed = made_random.counted(PROGRAM, pathlib.Path(self.tmp), 120, 1, untimed=True)
        self.assertEqual(sum(counts["innocent"] for counts in untimed.values()), 0)

    def test_junit_and_schema(self):
        folder = self.logs({"log.0": error(0, CLOSED), "log.1": error(1, "ValueError: \x1b[2J::error::forged")})
        path = self.tmp / "explain.xml"
        done = self.run_program("explain", folder, "--junit", path)
        self.assertEqual(done.code, 1, done.text)
        self.assertIn("failures=\"1\"", path.read_text())
        self.assertIn("rank 1 failed on its own", path.read_text())
        self.assertNotIn("\x1b", path.read_text() + done.text)
        schema = self.run_program("schema", "--explain")
        self.assertEqual(json.loads(schema.out)["title"], "Answer of lockstep explain (--json)")


if __name__ == "__main__":
    unittest.main()
