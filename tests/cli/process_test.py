"""Ranks that die, hang and lose their launcher: named, ended, never left behind."""
import os
import resource
import signal
import subprocess
import time
import unittest

from harness import (PATIENCE_S, PROGRAM, ROOT, TOY, ProgramTest, alive, descendants,
                     needs_quiet_machine, rank_of, read_json)


class Processes(ProgramTest):
    def start_long(self, *args):
        path = self.tmp / "long.json"
        process = subprocess.Popen([PROGRAM, "verify", TOY, "--set", "/steps=200000", "--json",
                                    str(path), *args], cwd=ROOT, env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            ranks = {rank_of(pid): pid for pid in descendants(process.pid)}
            ranks.pop(None, None)
            if len(ranks) == 4:
                time.sleep(0.3)
                return process, ranks, path
            time.sleep(0.02)
        process.kill()
        self.fail(f"ranks not found; exit {process.poll()}: {process.communicate()[0]}")

    def end_of(self, process, timeout=15):
        try:
            return process.communicate(timeout=timeout)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail("still running")

    @needs_quiet_machine
    def test_killed_rank_is_named(self):
        for chosen in (0, 2):
            process, ranks, path = self.start_long()
            os.kill(ranks[chosen], signal.SIGKILL)
            start = time.monotonic()
            text = self.end_of(process)
            self.assertEqual(process.returncode, 3, text)
            self.assertLess(time.monotonic() - start, 5)
            failure = read_json(path)["runs"][0]["failure"]
            self.assertEqual(failure["rank"], chosen)
            self.assertEqual(failure["kind"], "crash")
            self.assertEqual(failure["signal"], 9)
            self.assertLess(failure["detected_ms"], 100)
            self.assertEqual([d["state"] for d in failure["explanation"]["doing"]
                              if d["rank"] == chosen], ["killed by SIGKILL (9)"])
            self.assertIn(f"rank {chosen}", text)

    def test_stopped_rank_is_a_hang(self):
        process, ranks, path = self.start_long(
            "--set", "/timeouts/collective_ms=1000", "--set", "/timeouts/construction_ms=1000",
            "--set", "/timeouts/step_ms=1500", "--set", "/timeouts/rendezvous_ms=5000")
        os.kill(ranks[1], signal.SIGSTOP)
        text = self.end_of(process, timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 3, text)
        failure = read_json(path)["runs"][0]["failure"]
        self.assertEqual(failure["rank"], 1, failure)
        self.assertEqual(failure["kind"], "hang", failure)
        self.assertEqual(failure["stack"], [])  # one that is stopped is not continued for it
        explanation = failure["explanation"]
        doing = {doing["rank"]: doing for doing in explanation["doing"]}
        self.assertEqual(doing[1]["state"], "stopped (state T)")
        self.assertIn("stopped (state T)", failure["message"])
        self.assertTrue(explanation["waited"], failure)
        self.assertGreaterEqual(explanation["waited_ms"], 900)

    def test_ctrl_c(self):
        process, ranks, path = self.start_long()
        kids = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        text = self.end_of(process, timeout=PATIENCE_S)
        self.assertEqual(process.returncode, 130, text)
        time.sleep(0.5)
        self.assertEqual([pid for pid in kids if alive(pid)], [])
        read_json(path)

    def test_ctrl_c_at_any_moment_is_130(self):
        """As a terminal sends it: to all processes of the group, one that is just being started too."""
        for try_ in range(24):
            process = subprocess.Popen(
                [PROGRAM, "sweep", "scenarios/sweeps/mlp.json", "--caps", "1,4", "--rounds", "50", "--quiet"], cwd=ROOT,
                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            self.addCleanup(process.stdout.close)
            time.sleep(0.01 * try_)
            os.killpg(process.pid, signal.SIGINT)
            text = self.end_of(process, timeout=PATIENCE_S)
            self.assertIn(process.returncode, (130, -signal.SIGINT), text)

    def test_a_limit_of_memory_ends_in_a_sentence(self):
        # Libraries that cannot be loaded; threads and OpenBLAS's buffers that cannot be had; enough.
        for kilobytes in (300_000, 600_000, 700_000, 800_000, 3_000_000):
            bound = (kilobytes * 1024, kilobytes * 1024)
            result = subprocess.run(
                [PROGRAM, "verify", TOY, "--set", "/world_size=2"], cwd=ROOT, env=self.env,
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                preexec_fn=lambda bound=bound: resource.setrlimit(resource.RLIMIT_AS, bound))
            text = result.stdout + result.stderr
            if kilobytes == 3_000_000:
                self.assertEqual(result.returncode, 0, text)
                continue
            # Debian's LibTorch maps 600 MB; others more.
            self.assertEqual(result.returncode, 3, f"{kilobytes} kB: {text}")
            self.assertRegex(text, "ulimit -v|cannot allocate|failed to map")
            self.assertNotIn("rank ", text)

    def test_a_limit_of_memory_is_no_fault_of_rank_0(self):
        for kilobytes in (400_000, 700_000):
            bound = (kilobytes * 1024, kilobytes * 1024)
            path = str(self.tmp / f"{kilobytes}.json")
            result = subprocess.run(
                [PROGRAM, "verify", TOY, "--fresh-processes", "--json", path], cwd=ROOT, env=self.env,
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                preexec_fn=lambda bound=bound: resource.setrlimit(resource.RLIMIT_AS, bound))
            self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
            failure = read_json(path)["runs"][0]["failure"]
            self.assertIsNone(failure["rank"], failure)
            self.assertRegex(" ".join([failure["message"], *failure["log_tail"]]),
                             "ulimit -v|cannot allocate|failed to map")


if __name__ == "__main__":
    unittest.main()
