"""Emulated compute: gradients are ready when the plan says, and layers can be measured."""
import json
import os
import signal
import statistics
import struct
import subprocess
import time
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, TOY, ProgramTest, descendants, needs_quiet_machine, rank_of

MLP = "scenarios/stragglers/emulated_mlp.json"
PHASE_BEGIN, PARAMETER_READY, PRIMARY_DONE = 1, 2, 19  # sim/record/recorder.h
BACKWARD = 5


def events(path):
    """Time in ns, kind, phase, step and subject of each event of a rank, oldest first."""
    data = path.read_bytes()
    capacity, appended = struct.unpack_from("<QQ", data, 40)
    found = []
    for place in range(min(capacity, appended)):
        time, _, kind, phase, step, subject, _ = struct.unpack_from("<qIHHiiQ", data,
                                                                    4096 + 32 * place)
        found.append((time, kind, phase, step, subject))
    return sorted(found)


def lateness_ms(plan, path, first_step=2):
    """Of each gradient of the primary run, how much later than planned it was ready. The first
    step does not count: memory is handed out in it, and buckets are made."""
    planned, late, begin = list(plan["ready_ms"].values()), [], 0
    for time, kind, phase, step, subject in events(path):
        if kind == PRIMARY_DONE:
            break
        if kind == PHASE_BEGIN and phase == BACKWARD:
            begin = time
        if kind == PARAMETER_READY and step >= first_step:
            late.append((time - begin) / 1e6 - planned[subject])
    return late


def before_others():
    """Other work on this machine must not count, as far as we may say so."""
    if os.geteuid() == 0:
        os.nice(-20)


class Emulation(ProgramTest):
    def lateness(self, out, *more):
        result = self.run_program("verify", MLP, "--filter", "bucketed", "--keep", "--out", out,
                                  *more, preexec_fn=before_others)
        self.assertEqual(result.code, 0, result.text)
        plan = json.loads((out / "0001" / "plan.json").read_text())
        return [late for rank in range(3)
                for late in lateness_ms(plan, out / "0001" / f"rank-{rank}.records")]

    # Other work on this machine disturbs a run, not every run.
    @needs_quiet_machine
    def test_gradients_are_ready_when_the_plan_says(self):
        median = percentile_99 = 1e9
        for attempt in range(8):
            late = self.lateness(self.tmp / f"out-{attempt}", "--set", "/steps=20", "--set",
                                 '/lanes=["replica"]')
            self.assertEqual(len(late), 3 * 19 * 8)
            self.assertGreaterEqual(min(late), 0)
            median = min(median, statistics.median(late))
            percentile_99 = min(percentile_99, statistics.quantiles(late, n=100)[98])
            if median <= 0.2 and percentile_99 <= 2:
                return
        self.assertLessEqual(median, 0.2)
        self.assertLessEqual(percentile_99, 2)

    # As a device that nobody gives work meanwhile; the others wait in their reducers.
    def test_a_stopped_rank_is_later_by_that(self):
        out = self.tmp / "out"
        with subprocess.Popen([PROGRAM, "verify", MLP, "--filter", "bucketed", "--keep", "--out",
                               str(out), "--set", '/lanes=["replica"]', "--set", "/steps=1",
                               "--set", "/compute/backward_ms=3000"],
                              cwd=ROOT, env=self.env, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as program:
            rank = self.wait_for_backward(program.pid, out / "0001" / "rank-1.records")
            os.kill(rank, signal.SIGSTOP)
            time.sleep(0.3)
            os.kill(rank, signal.SIGCONT)
            program.wait(timeout=PATIENCE_S)
        self.assertEqual(program.returncode, 0)
        plan = json.loads((out / "0001" / "plan.json").read_text())
        late = lateness_ms(plan, out / "0001" / "rank-1.records", first_step=1)
        self.assertGreater(late[-1], 290)

    def wait_for_backward(self, launcher, records):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            ranks = [pid for pid in descendants(launcher) if rank_of(pid) == 1]
            if ranks and records.exists() and records.stat().st_size > 4096 and any(
                    kind == PHASE_BEGIN and phase == BACKWARD
                    for _, kind, phase, _, _ in events(records)):
                return ranks[0]
            time.sleep(0.02)
        self.fail("rank 1 came to no backward")

    def test_layers_are_measured_and_then_emulated(self):
        profile = self.tmp / "toy.profile"
        result = self.run_program("profile", TOY, "--out", profile, "--repetitions", 5)
        self.assertEqual(result.code, 0, result.text)
        self.assertRegex(result.out, r"toy.profile: 2 layers, forward [0-9.]+ ms, backward [0-9.]+"
                                     r" ms with 20 samples, median of 5\n")
        layers = json.loads(profile.read_text())["layers"]
        self.assertTrue(all(layer["forward_ms"] > 0 and layer["backward_ms"] > 0
                            for layer in layers), layers)
        compute = json.dumps({"kind": "emulated", "profile": str(profile)})
        document = self.verify_json(TOY, "--set", f"/compute={compute}")
        self.assertEqual(document["verdict"], "pass")
        other = self.run_program("verify", TOY, "--set", f"/compute={compute}", "--set",
                                 "/model/activation=tanh")
        self.assertEqual(other.code, 2)
        self.assertIn("the profile does not suit: it was measured on model", other.text)

    def test_profile_says_what_it_cannot_do(self):
        for args, said in (((MLP, "--out", self.tmp / "a"), "2 runs are selected"),
                           ((TOY, "--out", "/proc/nope"), "--out /proc/nope"),
                           ((TOY,), "--out is required"),
                           ((TOY, "--out", self.tmp / "a", "--device", "cuda"), "measured on the cpu"),
                           ((TOY, "--out", self.tmp / "a", "--repetitions", 0), "--repetitions")):
            result = self.run_program("profile", *args)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(said, result.text)


if __name__ == "__main__":
    unittest.main()
