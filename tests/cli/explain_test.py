"""lockstep explain: dumps as PyTorch's flight recorder writes them, and what must not be taken for one."""
import json
import pickle
import unittest

from harness import ProgramTest


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
        (folder / "again_2").write_bytes((folder / "_dump_2").read_bytes())
        self.assertEqual(self.run_program("explain", folder).code, 2)
        (folder / "again_2").rename(folder / "again")
        self.assertIn("ends in the rank", self.run_program("explain", folder).err)

    def test_a_name_cannot_steer_a_terminal(self):
        name = "x\x1b[31m\n::error::forged"
        folder = self.write({0: dump(0, 2, 5, (5,), name), 1: dump(1, 2, name=name)})
        done = self.run_program("explain", folder)
        self.assertEqual(done.code, 1, done.text)
        self.assertNotIn("\x1b", done.text)
        self.assertNotRegex(done.text, r"(?m)^::error")


if __name__ == "__main__":
    unittest.main()
