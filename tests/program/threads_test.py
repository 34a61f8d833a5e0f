"""Each row of docs/threads.md: what people saw, the command, and what it says. A sample of them; all with
LOCKSTEP_THREADS=all (a minute and a half)."""
import os
import pathlib
import subprocess
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PYTHON = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")  # one that has torch
ALL = os.environ.get("LOCKSTEP_THREADS") == "all"

VERIFY = ("verify", "--world-sizes", "3", "--")
RUN = ("run", "--world-size", "3", "--timeout-scale", "0.002")
THREADS = (PYTHON, "tests/program/threads.py")
TOY = (PYTHON, "examples/toy_ddp.py")
# What the page says, exit code, words of the answer, and the command.
ROWS = {
    "rounding": (0, "pass: ", ("verify", "scenarios/equivalence/rounding.json")),
    "two_ranks": (0, "pass: ", ("verify", "scenarios/equivalence/exact.json")),
    "half_batches": (0, "lane float64  pass", (*VERIFY, *THREADS, "plain")),
    "same_loss": (0, "lane float64  pass", (*VERIFY, *THREADS, "adam")),
    "sharded": (0, "lane float64  pass", (*VERIFY, *THREADS, "fully_shard")),
    "replaced": (1, "cause parameter_replaced", (*VERIFY, *TOY, "--bug", "parameter_replaced")),
    "unused": (1, "cause unused_parameter", (*VERIFY, *TOY, "--bug", "unused_parameter")),
    "past_ddp": (1, "cause module_past_ddp", (*VERIFY, *TOY, "--bug", "module_past_ddp")),
    "flag_after_forward": (1, "cause no_sync_at_step", (*VERIFY, *THREADS, "flag_after_forward")),
    "off_by_one": (1, "cause no_sync_at_step", (*VERIFY, *THREADS, "no_sync_off_by_one")),
    "mean_of_means": (1, "cause mean_of_means", (*VERIFY, *THREADS, "mean_of_means")),
    "read_early": (0, "fail, as expected", ("verify", "scenarios/mutants/b63_read_before_wait.json")),
    "uneven": (1, "rank 0 exited after 1 collective, while rank 1 waited", ("run", "--timeout-scale", "0.002", "--", *THREADS, "uneven_iterable")),
    "frozen": (1, "rank 1 never entered all_reduce", (*RUN, "--fault", "stop rank=1 step=2", "--", *THREADS, "plain")),
    "straggler": (0, "rank 1 is late: compute in backward",
                  ("run", "--world-size", "3", "--fault", "slow rank=1 factor=30", "--", *TOY)),
    "resumed": (1, "cause loader_state_lost", (*VERIFY, PYTHON, "examples/best_model.py", "--bug", "loader_state_lost")),
}
NEWER = {"sharded": (2, 6)}  # than this PyTorch
SAMPLE = ("mean_of_means", "flag_after_forward", "uneven")
WATCHDOG = """[rank{0}]:[E626 06:24:44.903881913 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=22, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.
"""
GLOO = "[rank{0}]: RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"


def version():
    said = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                          timeout=300, check=True).stdout
    return tuple(int(part) for part in said.split(".")[:2])


class Threads(FolderTest):
    def said(self, *command):
        ran = subprocess.run([PROGRAM, *map(str, command)], capture_output=True, text=True, timeout=600, cwd=ROOT,
                             env={**self.environment, "OMP_NUM_THREADS": "1"})
        return ran.returncode, ran.stdout + ran.stderr

    def test_each_is_told_as_the_page_says(self):
        for name in ROWS if ALL else SAMPLE:
            with self.subTest(name):
                code, words, command = ROWS[name]
                if name in NEWER and version() < NEWER[name]:
                    continue
                exit_code, text = self.said(*command)
                self.assertEqual(exit_code, code, text)
                self.assertIn(words, text)

    def test_logs_that_name_nobody_accuse_nobody(self):
        for line in (WATCHDOG, GLOO):
            log = self.folder / "job.log"
            log.write_text("".join(line.format(rank) for rank in range(4)))
            code, text = self.said("explain", log)
            self.assertEqual(code, 3, text)
            self.assertIn("undecided", text)

    def test_the_page_has_all_of_them(self):
        page = (ROOT / "docs/threads.md").read_text()
        for name, (_, words, command) in ROWS.items():
            with self.subTest(name):
                self.assertIn(" ".join(command).replace(PYTHON, "python3"), page)


if __name__ == "__main__":
    unittest.main()
