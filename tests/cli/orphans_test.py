"""No process of a run outlives its launcher, whenever that is killed. LOCKSTEP_ORPHAN_KILLS says how
often it is tried (50), LOCKSTEP_ORPHAN_SEED when."""
import os
import pathlib
import random
import signal
import subprocess
import time
import unittest

from harness import PROGRAM, ROOT, TOY, ProgramTest, alive

KILLS = int(os.environ.get("LOCKSTEP_ORPHAN_KILLS", "50"))
SEED = int(os.environ.get("LOCKSTEP_ORPHAN_SEED", "1"))
SIDE_BY_SIDE = 5
LATEST = 2.0  # s: the zygote is loading, ranks are forked, meet, build, step


def marked_processes():
    """Pids by the mark in their environment: workers inherit it, whoever their parent is."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            if word.startswith(b"LOCKSTEP_TEST_MARK=") and alive(int(entry.name)):
                found.setdefault(word.split(b"=")[1].decode(), []).append(int(entry.name))
    return found


class Orphans(ProgramTest):
    def start(self, mark):
        env = {**self.env, "LOCKSTEP_TEST_MARK": mark}
        return subprocess.Popen([PROGRAM, "verify", TOY, "--set", "/steps=200000"], cwd=ROOT,
                                env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def test_nobody_is_left_one_second_after_the_launcher(self):
        moments = random.Random(SEED)
        for wave in range(0, KILLS, SIDE_BY_SIDE):
            runs = []
            for number in range(wave, min(wave + SIDE_BY_SIDE, KILLS)):
                mark = f"{os.getpid()}-{number}"
                runs.append((time.monotonic() + moments.uniform(0, LATEST), mark, self.start(mark)))
            for moment, mark, launcher in sorted(runs, key=lambda run: run[0]):
                time.sleep(max(0.0, moment - time.monotonic()))
                launcher.send_signal(signal.SIGKILL)
                launcher.wait()
            time.sleep(1)
            ours = f"{os.getpid()}-"
            left = {mark: pids for mark, pids in marked_processes().items()
                    if mark.startswith(ours)}
            for pids in left.values():
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            self.assertEqual(left, {}, f"seed {SEED}, wave {wave}")


if __name__ == "__main__":
    unittest.main()
