"""scripts/lockstep_record.py on real DDP runs, and what `lockstep analyze` and `lockstep compare` say of
them. Skipped (exit code 77) where this Python has no torch with Gloo."""
import json
import multiprocessing
import os
import pathlib
import sys
import time
import unittest

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path[:0] = [str(HERE.parent / "cli"), str(HERE.parent.parent / "scripts")]
try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {sys.executable} has no torch with distributed ({error})")
    sys.exit(77)
if not dist.is_available() or not dist.is_gloo_available():
    print("skipped: torch here has no Gloo")
    sys.exit(77)

from harness import ProgramTest, read_json  # noqa: E402
from lockstep_record import record  # noqa: E402


def train(rank, world_size, folder, options):
    """Twelve steps of a small model; the weights go to `folder`."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank,
                            world_size=world_size)
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                              torch.nn.Linear(64, 4))
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002,
                                                      broadcast_buffers="late" not in options)
    optimizer = torch.optim.Adam(model.parameters())
    if options.get("record", True):
        record(model, optimizer, folder / "run", hash_every=options.get("hash_every", 1))
    for step in range(1, 13):
        torch.manual_seed(1000 * step + rank)
        inputs = torch.randn(8, 16)
        if rank == options.get("late"):
            time.sleep(0.15)
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if options.get("damage") == (rank, step):
            with torch.no_grad():
                net[3].weight[1, 2] += 1e-3
    torch.save(net.state_dict(), folder / f"weights-{rank}.pt")
    os._exit(0) if options.get("killed") else dist.destroy_process_group()


class Recorder(ProgramTest):
    def train(self, name, world_size, **options):
        folder = self.tmp / name
        folder.mkdir()
        context = multiprocessing.get_context("fork")
        ranks = [context.Process(target=train, args=(rank, world_size, folder, options))
                 for rank in range(world_size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            self.assertEqual(process.exitcode, 0)
        return folder / "run"

    def compare(self, a, b, code):
        result = self.run_program("compare", a, b, "--json", self.tmp / "result.json")
        self.assertEqual(result.code, code, result.text)
        return result.out, read_json(self.tmp / "result.json")

    def test_recording_changes_no_bit(self):
        for world_size in (2, 3):
            weights = []
            for name, recorded in ((f"with{world_size}", True), (f"without{world_size}", False)):
                run = self.train(name, world_size, record=recorded)
                weights.append(torch.load(run.parent / "weights-0.pt"))
            for name, tensor in weights[0].items():
                self.assertTrue(torch.equal(tensor, weights[1][name]), name)

    def test_a_late_rank_is_named(self):
        run = self.train("late", 3, late=1)
        path = self.tmp / "analysis.json"
        result = self.run_program("analyze", run, "--json", path, "--trace", self.tmp / "trace.json")
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("recorded by 3 ranks", result.out)
        self.assertIn("rank 1 is late: compute in load", result.out)
        analysis = read_json(path)
        self.assertEqual((analysis["straggler"]["rank"], analysis["world_size"]), (1, 3))
        self.assertGreater(len(json.loads((self.tmp / "trace.json").read_text())["traceEvents"]), 100)

    def test_the_same_run_twice(self):
        a, b = self.train("a", 2), self.train("b", 2, hash_every=3)
        text, document = self.compare(a, b, 0)
        self.assertRegex(text, r"pass: \d+ hashes of 4 steps compared, 0 differ")
        self.assertEqual(document["recordings"]["steps"], 4)
        lines = (a / "rank-0.hashes").read_text().splitlines()
        first = json.loads(lines[0])
        self.assertEqual([len(lines), len(first["gradient"]), len(first["optimizer_state"])],
                         [12, 6, 18])
        self.assertIn("1.running_mean", first["buffer"])

    def test_the_first_divergence_is_named(self):
        good = self.train("good", 2)
        bad = self.train("bad", 2, damage=(0, 5))  # after step 5 was hashed, on rank 0 alone
        text, document = self.compare(bad, good, 1)
        self.assertIn("first difference  step 6, gradient of ", text)
        self.assertIn("A's own ranks disagree  step 6, parameter of 3.weight: rank 1", text)
        recordings = document["recordings"]
        self.assertEqual(recordings["first"]["step"], 6)
        self.assertEqual(recordings["ranks_of_a"]["rank"], 1)
        self.assertIsNone(recordings["ranks_of_b"])

    def test_a_rank_that_dies_leaves_its_records(self):
        run = self.train("killed", 2, killed=True)
        result = self.run_program("analyze", run)
        self.assertEqual(result.code, 0, result.text)

    def test_damaged_recordings_are_bad_input(self):
        run = self.train("run", 2)
        (run / "rank-1.hashes").write_text("{}\n")
        result = self.run_program("compare", run, run)
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("rank-1.hashes:1: error: is no line of hashes", result.err)
        (run / "rank-1.records").unlink()
        self.assertEqual(self.run_program("analyze", run).code, 2)
        (run / "recording.json").write_text('{"format": "lockstep_recording", "version": 2}')
        for verb in (("analyze", run), ("compare", run, run)):
            self.assertEqual(self.run_program(*verb).code, 2)


if __name__ == "__main__":
    unittest.main()
