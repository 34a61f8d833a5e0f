"""scripts/lockstep_record.py on real DDP runs, and what `lockstep analyze` and `lockstep compare` say of
them. Skipped (exit code 77) where this Python has no torch with Gloo."""
import contextlib
import copy
import datetime
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import signal
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
                            world_size=world_size,
                            timeout=datetime.timedelta(seconds=options.get("timeout", 60)))
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                              torch.nn.Linear(64, 4))
    if options.get("samples"):  # a batch that is shared out, by a model that knows no batch
        net[1] = torch.nn.Tanh()
    model = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.002)
    optimizer = torch.optim.Adam(model.parameters())
    if options.get("record", True):
        record(model, optimizer, folder / "run", hash_every=options.get("hash_every", 1),
               keep_tensors=options.get("keep_tensors", False))
    for step in range(1, options.get("steps", 12) + 1):
        torch.manual_seed(1000 * step + rank)
        if options.get("killed") == (rank, step):
            os.kill(os.getpid(), signal.SIGKILL)
        if options.get("sleeps", ())[:2] == (rank, step):
            time.sleep(options["sleeps"][2])
        optimizer.zero_grad()
        for number in range(options.get("accumulate", 1)):
            late_at = options.get("late_at", "load") if rank == options.get("late") else ""
            inputs = torch.randn(8, 16)
            if options.get("samples"):
                torch.manual_seed(step)
                inputs = torch.randn(options["samples"], 16).chunk(world_size)[rank]
            time.sleep(0.15 if late_at == "load" else 0)
            last = number + 1 == options.get("accumulate", 1)
            with contextlib.nullcontext() if last else model.no_sync():
                output = model(inputs)
                time.sleep(0.15 if late_at == "forward" else 0)
                output.square().mean().backward()
        time.sleep(0.15 if late_at == "optimizer" else 0)
        optimizer.step()
        if options.get("damage") == (rank, step):
            with torch.no_grad():
                net[3].weight[1, 2] += 1e-3
    torch.save(net.state_dict(), folder / f"weights-{rank}.pt")
    os._exit(0) if options.get("no_end") else dist.destroy_process_group()


class Recorder(ProgramTest):
    def train(self, name, world_size, **options):
        folder = self.tmp / name
        folder.mkdir()
        context = multiprocessing.get_context("fork")
        ranks = [context.Process(target=train, args=(rank, world_size, folder, options), daemon=True)
                 for rank in range(world_size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(60)
            if "killed" not in options and "sleeps" not in options:
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

    def straggler_of(self, name, world_size, **options):
        run = self.train(name, world_size, **options)
        path = self.tmp / "analysis.json"
        result = self.run_program("analyze", run, "--json", path, "--trace", self.tmp / "trace.json")
        self.assertEqual(result.code, 0, result.text)
        self.assertIn(f"recorded by {world_size} ranks", result.out)
        self.assertGreater(len(json.loads((self.tmp / "trace.json").read_text())["traceEvents"]), 100)
        found = read_json(path)["straggler"]
        self.assertIn(found["text"], result.out)
        return found["rank"], found["class"], found["phase"]

    def test_a_late_rank_is_named_where_it_is_late(self):
        # The others wait for it in the broadcast of BatchNorm's buffers as well: rank 0 sends them.
        for late in (0, 1):
            for phase in ("load", "forward", "optimizer"):
                with self.subTest(late=late, phase=phase):
                    self.assertEqual(self.straggler_of(f"{phase}{late}", 3, late=late, late_at=phase),
                                     (late, "compute", phase))

    def test_a_slow_loader_between_micro_batches_is_no_backward(self):
        for late in (0, 1):
            with self.subTest(late=late):
                self.assertEqual(self.straggler_of(f"late{late}", 2, late=late, accumulate=3),
                                 (late, "compute", "load"))

    def test_the_same_run_twice(self):
        a, b = self.train("a", 2), self.train("b", 2, hash_every=3)
        text, document = self.compare(a, b, 0)
        self.assertRegex(text, r"pass: \d+ hashes of 4 steps compared, 0 differ")
        self.assertIn("note: A's ranks hold buffers of their own  step 1, 1.running_mean: rank 1", text)
        self.assertEqual(document["recordings"]["buffers_of_b"]["tensor"], "1.running_mean")
        self.assertEqual(document["recordings"]["steps"], 4)
        lines = (a / "rank-0.hashes").read_text().splitlines()
        first = json.loads(lines[0])
        self.assertEqual([len(lines), len(first["gradient"]), len(first["optimizer_state"])],
                         [13, 6, 18])
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

    def test_recordings_that_are_not_whole_never_pass(self):
        whole = self.train("whole", 2)
        for name, options, kind in (("killed", {"killed": (1, 6)}, "no_end"),
                                    ("short", {"steps": 8}, "other_length"),
                                    ("no_end", {"no_end": True}, "no_end")):
            run = self.train(name, 2, **options)
            text, document = self.compare(run, whole, 3)
            self.assertIn("inconclusive: ", text)
            self.assertIn(kind, [gap["kind"] for gap in document["recordings"]["gaps"]])
            self.assertEqual(document["recordings"]["last_step"],
                             {"killed": 5, "short": 8, "no_end": 12}[name])

    def analyze(self, run, code):
        path = self.tmp / "analysis.json"
        result = self.run_program("analyze", run, "--json", path)
        self.assertEqual(result.code, code, result.text)
        return result.out, read_json(path)

    def test_who_never_came_is_named(self):
        for name, options in (("buffers", {}), ("buckets", {"samples": 12})):
            run = self.train(name, 3, killed=(1, 6), **options)
            text, analysis = self.analyze(run, 3)
            self.assertIn("inconclusive: the run failed: rank 1 never entered ", text)
            end = analysis["end"]
            self.assertEqual([end["kind"], end["last_whole_step"], end["meeting"]["never_came"]],
                             ["failed", 5, [1]])
            self.assertEqual([end["ranks"][0]["end"], end["ranks"][1]["end"]], ["error", "cut"])
            self.assertIsNone(analysis["straggler"])
            self.assertEqual(analysis["metrics"]["steps"][-1], 5)

    def test_who_sleeps_through_a_time_out_is_named(self):
        run = self.train("sleeps", 2, samples=12, sleeps=(1, 6, 5), timeout=2)
        text, analysis = self.analyze(run, 3)
        self.assertIn("rank 1 entered the collective of bucket 0 in backward of step 6 5.", text)
        self.assertIn("rank 0 waited and gave up after 2.", text)
        self.assertEqual(analysis["end"]["meeting"]["late"], [1])

    def test_an_end_that_was_not_recorded(self):
        text, analysis = self.analyze(self.train("no_end", 2, no_end=True), 3)
        self.assertEqual(analysis["end"]["kind"], "unfinished")
        self.assertIn("the run has no end: no end was recorded of ranks 0 and 1", text)
        result = self.run_program("analyze", self.train("whole", 2))
        if result.code != 0:  # the records say that the ranks had no core
            self.assertEqual(result.code, 3, result.text)
            self.assertIn("inconclusive: busy machine", result.text)

    def test_two_ranks_against_one(self):
        """Of one batch, shared out: the same run but for rounding."""
        two = self.train("two", 2, samples=12, keep_tensors=True)
        one = self.train("one", 1, samples=12, keep_tensors=True)
        for options, why in (((), "have no tolerance"), (("--rtol", "0", "--key", "x"), "--key: lockstep compare of recordings")):
            result = self.run_program("compare", two, one, *options)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(why, result.err)
        result = self.run_program("compare", two, one, "--rtol", "1e-3", "--atol", "1e-5")
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("in 13 pairs of files", result.out)
        path = self.tmp / "result.json"
        result = self.run_program("compare", two, one, "--atol", "0", "--json", path)
        self.assertEqual(result.code, 1, result.text)
        document = read_json(path)
        self.assertEqual(document["recordings"]["compared"], "tensors")
        self.assertEqual(document["files"][-2]["name"], "rank-0.step-12.pt")
        hashes = self.train("hashes", 2, samples=12)
        result = self.run_program("compare", hashes, two, "--rtol", "1e-3")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("keep_tensors=True", result.err)

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


class TrainingLoops(ProgramTest):
    """record() within training loops as people write them, in one process; after all that forks."""

    def setUp(self):
        super().setUp()
        dist.init_process_group("gloo", init_method=f"file://{self.tmp}/rendezvous", rank=0,
                                world_size=1)
        self.addCleanup(dist.destroy_process_group)
        torch.manual_seed(3)
        self.net = torch.nn.Linear(8, 4)
        self.model = torch.nn.parallel.DistributedDataParallel(self.net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def record(self, model=None, **options):
        return record(model or self.model, self.optimizer, self.tmp / "run", hash_every=1, **options)

    def step(self, model=None):
        self.optimizer.zero_grad()
        (model or self.model)(torch.randn(5, 8)).square().mean().backward()
        self.optimizer.step()

    def recorded_steps(self):
        lines = [json.loads(line) for line in (self.tmp / "run/rank-0.hashes").read_text().splitlines()]
        return [line["step"] for line in lines if "end" not in line]

    def test_schedulers_before_and_after(self):
        rates = torch.optim.lr_scheduler
        before = rates.StepLR(self.optimizer, 1)
        self.record()
        after = rates.LambdaLR(self.optimizer, lambda step: 1.0)
        cycle = rates.OneCycleLR(self.optimizer, max_lr=0.1, total_steps=9)
        for _ in range(2):
            self.step()
            for scheduler in (before, after, cycle):
                scheduler.step()
        self.assertEqual(self.recorded_steps(), [1, 2])

    def test_grad_scaler(self):
        self.record()
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        scaler.scale(self.model(torch.randn(5, 8)).mean()).backward()
        scaler.step(self.optimizer)
        scaler.update()
        self.assertEqual(self.recorded_steps(), [1])

    def test_copies_are_not_recorded(self):
        self.record()
        self.step()
        average = torch.optim.swa_utils.AveragedModel(self.model)
        for other in (copy.deepcopy(self.model), average, copy.deepcopy(self.net)):
            other(torch.randn(5, 8)).mean().backward()
        copied = copy.deepcopy(self.optimizer)
        copied.step()
        self.step()
        self.assertEqual(self.recorded_steps(), [1, 2])
        phases = self.run_program("analyze", self.tmp / "run", "--metrics", "--json",
                                  self.tmp / "analysis.json")
        self.assertNotEqual(phases.code, 2, phases.text)

    def test_pickles_need_no_recorder(self):
        self.record()
        self.step()
        file = io.BytesIO()
        torch.save(self.model, file)
        (self.tmp / "model.pt").write_bytes(file.getvalue())
        self.assertNotIn(b"lockstep_record", file.getvalue())
        pickle.loads(pickle.dumps(self.optimizer)).step()
        torch.save({"optimizer": self.optimizer.state_dict()}, self.tmp / "state.pt")
        self.assertEqual(self.recorded_steps(), [1])

    def test_a_comm_hook_of_ones_own(self):
        def hook(state, bucket):
            state.append(bucket.index())
            return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(
                lambda done: done.value()[0])
        seen = []
        self.record(comm_hook=(seen, hook))
        self.step()
        self.assertEqual(seen, [0])
        self.assertEqual(self.recorded_steps(), [1])

    def test_a_registered_comm_hook_is_told_with_the_way_that_works(self):
        self.model.register_comm_hook(None, lambda state, bucket: bucket.buffer())
        with self.assertRaisesRegex(RuntimeError, r"record\(\.\.\., comm_hook="):
            self.record()
        self.assertFalse((self.tmp / "run").exists())
        self.assertEqual(len(self.model._forward_pre_hooks), 0)

    def test_closures(self):
        self.optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=3)
        recorder = self.record()

        def closure():
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(5, 8)).square().mean()
            loss.backward()
            return loss
        for _ in range(2):
            self.optimizer.step(closure)
        recorder.close()
        self.assertEqual(self.recorded_steps(), [1, 2])
        line = json.loads((self.tmp / "run/rank-0.hashes").read_text().splitlines()[0])
        self.assertTrue(any(".old_dirs.0" in name for name in line["optimizer_state"]))
        result = self.run_program("analyze", self.tmp / "run")
        self.assertEqual(result.code, 0, result.text)

    def test_wrapped_after_record(self):
        self.record(self.net)
        model = torch.nn.parallel.DistributedDataParallel(self.net)
        self.step(model)
        self.assertEqual(self.recorded_steps(), [1])

    def test_accumulation(self):
        recorder = self.record()
        for _ in range(2):
            self.optimizer.zero_grad()
            with self.model.no_sync():
                self.model(torch.randn(5, 8)).mean().backward()
            self.model(torch.randn(5, 8)).mean().backward()
            self.optimizer.step()
        with torch.no_grad():
            self.model(torch.randn(5, 8))
        recorder.close()
        self.assertEqual(self.recorded_steps(), [1, 2])
        self.assertEqual(self.run_program("compare", self.tmp / "run", self.tmp / "run").code, 0)

    def test_hashes_see_signs_places_and_indices(self):
        from lockstep_record import _hash_of
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            values = torch.randn(64, 2048).to(dtype)
            others = [-values, values.flip(0), values.flip(1), values.reshape(2048, 64), values * 2]
            flipped = values.clone()
            flipped.view(torch.uint8).view(-1)[12345] ^= 1
            for other in [*others, flipped]:
                self.assertNotEqual(_hash_of(values), _hash_of(other))
            self.assertEqual(_hash_of(values), _hash_of(values.clone()))
        row = torch.ones(1, 3)
        a, b = (torch.sparse_coo_tensor([[index]], row, (9, 3)) for index in (2, 5))
        self.assertNotEqual(_hash_of(a), _hash_of(b))


if __name__ == "__main__":
    unittest.main()
