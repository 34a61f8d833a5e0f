"""`lockstep run --trace DIR -- COMMAND`: groups of some of the ranks are in every kind of trace, and `lockstep explain DIR`
names whom the run itself blamed, whichever group the others wait in."""
import json
import os
import pathlib
import pickle
import subprocess
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]

# A mesh of `rows` rows: gradients are summed in each row, then in each column.
SCRIPT = """
import sys, time, torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
rank, world, rows = dist.get_rank(), dist.get_world_size(), {rows}
width = world // rows
def group_of(lists):
    made = [(ranks, dist.new_group(ranks)) for ranks in lists]
    return next(group for ranks, group in made if rank in ranks)
row = group_of([list(range(at * width, (at + 1) * width)) for at in range(rows)])
column = group_of([list(range(at, world, width)) for at in range(width)])
torch.manual_seed(rank)
net = nn.Linear(7, 5)
for p in net.parameters(): dist.broadcast(p.data, 0)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
for step in range(1, {steps} + 1):
    optimizer.zero_grad()
    net(torch.randn(3, 7)).square().mean().backward()
    for p in net.parameters():
        {sum}
        dist.all_reduce(p.grad, group=row)
        dist.all_reduce(p.grad, group=column)
    optimizer.step()
{end}
dist.destroy_process_group()
"""
SHORT = ("--timeout-scale", "0.001")  # 1.8 s


def script(rows=2, steps=5, sum="pass", end="dist.barrier()"):
    return SCRIPT.format(rows=rows, steps=steps, sum=sum, end=end)


class GroupTraces(FolderTest):
    def traced(self, *options, text=None, world=4, kind="flight_recorder", python=PYTHON):
        """What --json says of a run, and the folder with its trace."""
        path, result, traces = self.folder / "train.py", self.folder / "result.json", self.folder / "traces"
        path.write_text(text or script())
        subprocess.run(["rm", "-rf", traces], check=True)
        ran = subprocess.run([PROGRAM, "run", "--world-size", str(world), "--json", result, "--trace", f"{traces}/",
                              "--trace-kind", kind, *options, "--", python, path], capture_output=True, text=True, timeout=600,
                             env={**self.environment, "OMP_NUM_THREADS": "1"})
        self.said = ran.stdout + ran.stderr
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return json.loads(result.read_text()), traces

    def explained(self, traces):
        path = self.folder / "explained.json"
        ran = subprocess.run([PROGRAM, "explain", traces, "--json", path], capture_output=True, text=True, timeout=600)
        self.said += ran.stdout + ran.stderr
        return json.loads(path.read_text())

    def both_name(self, rank, *options, **how):
        found, traces = self.traced(*options, **how)
        self.assertEqual((found["failure"] or {}).get("rank"), rank, self.said)
        answer = self.explained(traces)
        self.assertEqual(answer["guilty"], [] if rank is None else [rank], self.said)
        return found, answer

    def test_a_rank_that_is_killed(self):
        self.both_name(1, "--fault", "kill rank=1 step=3")
        self.both_name(0, "--fault", "kill rank=0 step=3", text=script(rows=1), world=3)
        self.both_name(4, "--fault", "kill rank=4 step=3", world=6)

    def test_a_rank_that_stalls_beyond_the_timeout(self):
        self.both_name(2, "--fault", "stall rank=2 step=3 duration_ms=4000", *SHORT)
        self.both_name(5, "--fault", "stall rank=5 step=4 duration_ms=4000", *SHORT, text=script(rows=3), world=6)

    def test_a_rank_that_hangs_keeps_others_in_other_groups(self):
        _, answer = self.both_name(3, "--fault", "deadlock rank=3 step=3 phase=forward", *SHORT)
        self.assertEqual(answer["class"], "never_entered")
        self.assertEqual(answer["victims"], [0, 1, 2])
        self.both_name(1, "--fault", "deadlock rank=1 step=2", "--hang-after", "3", text=script(rows=3), world=6)

    def test_a_rank_that_hangs_before_its_first_collective_of_a_group(self):
        self.both_name(1, "--fault", "deadlock rank=1 step=1 phase=forward", *SHORT)

    def test_who_waits_elsewhere_is_not_to_blame(self):
        """Rank 3 waits in its column for rank 1, which waits in its row for rank 0."""
        late = "if rank == 0 and step == 3: time.sleep(600)"
        self.both_name(0, *SHORT, text=script(sum=late))

    def test_who_calls_another_collective_in_a_group_than_most(self):
        other = "if rank == 1 and step == 3: dist.all_reduce(p.grad[:2].clone(), group=row)"
        _, answer = self.both_name(1, *SHORT, text=script(sum=other), world=6)
        self.assertEqual(answer["class"], "mismatch", self.said)
        self.assertIn("ranks called different collectives in the group of ranks 0, 1 and 2: ", self.said)

    def test_what_the_dumps_hold(self):
        found, traces = self.traced()
        self.assertEqual(found["outcome"], "completed", self.said)
        dumps = [pickle.loads((traces / f"_dump_{rank}").read_bytes()) for rank in range(4)]
        self.assertEqual({key: (one["name"], one["ranks"]) for key, one in dumps[0]["pg_config"].items()},
                         {"0": ("0", "[0, 1, 2, 3]"), "1": ("1", "[0, 1]"), "3": ("3", "[0, 2]")})
        self.assertEqual(set(dumps[3]["pg_config"]), {"0", "2", "4"})
        entries = [entry for entry in dumps[3]["entries"] if entry["process_group"][0] == "4"]
        self.assertEqual([entry["collective_seq_id"] for entry in entries], list(range(1, 11)))  # weight and bias, five steps
        self.assertEqual({entry["pg_id"] for entry in entries}, {2})
        weight = entries[-2]
        self.assertEqual((weight["input_sizes"], weight["output_sizes"], weight["input_dtypes"]), ([[35]], [[35]], ["Float"]))
        self.assertEqual((weight["profiling_name"], weight["state"], weight["timeout_ms"]), ("gloo:all_reduce", "completed", 1800000))
        self.assertEqual(dumps[3]["pg_status"]["2"]["last_completed_collective"], 10)
        self.assertEqual([entry["record_id"] for entry in dumps[3]["entries"]], list(range(len(dumps[3]["entries"]))))

    def test_other_kinds_name_the_group(self):
        _, traces = self.traced(kind="kineto")
        events = json.loads((traces / "rank-2.json").read_text())["traceEvents"]
        names = {event["args"]["Process Group Name"] for event in events if event.get("cat") == "communication"}
        self.assertEqual(names, {"0", "2", "3"}, self.said)
        _, traces = self.traced(kind="chakra")
        self.assertEqual({path.name for path in traces.iterdir()}, {f"trace.{rank}.et" for rank in range(4)})

    def test_what_cannot_be_written_is_refused_before_anything_runs(self):
        marker = self.folder / "ran"
        command = ["--", PYTHON, "-c", f"open({str(marker)!r}, 'w')"]
        for words, why in ((("--trace", "/proc/none/x.json"), "--trace /proc/none/x.json"),
                           (("--trace", self.folder / "one", "--trace-kind", "chakra"), "has a file of each rank"),
                           (("--trace", self.folder, "--trace-kind", "flight_recorder"), "is not empty"),
                           (("--trace-kind", "hta"), "--trace")):
            ran = subprocess.run([PROGRAM, "run", *words, *command], capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
            self.assertIn(why, ran.stdout + ran.stderr)
            self.assertFalse(marker.exists())

    @unittest.skipUnless(OTHERS, "LOCKSTEP_TORCH_PYTHONS names no Python with another PyTorch")
    def test_other_versions_of_pytorch(self):
        for python in OTHERS:
            with self.subTest(python):
                self.both_name(1, "--fault", "kill rank=1 step=3", python=python)
                self.both_name(3, "--fault", "deadlock rank=3 step=3 phase=forward", *SHORT, python=python)


if __name__ == "__main__":
    unittest.main()
