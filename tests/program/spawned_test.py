"""`lockstep run --spawns`: ranks that the program starts itself are found, and how each ended; without the option they are
refused with a sentence, under every verb. With PyTorch of LOCKSTEP_PEER_PYTHON."""
import unittest

import run_faults_test
from run_faults_test import PROGRAM, PYTHON, subprocess

SCRIPT = """
import multiprocessing, time, torch, torch.distributed as dist
from torch import nn

def train(rank, world):
    dist.init_process_group("gloo", rank=rank, world_size=world)
    net = nn.parallel.DistributedDataParallel(nn.Linear(7, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(1, 7):
        optimizer.zero_grad()
        net(torch.randn(3, 7)).sum().backward()
        optimizer.step()
        {end}
    dist.destroy_process_group()

if __name__ == "__main__":
    {start}
"""
SPAWN = "torch.multiprocessing.spawn(train, args=(2,), nprocs=2)"
FORK = """ranks = [multiprocessing.get_context("fork").Process(target=train, args=(rank, 3)) for rank in range(3)]
    for rank in ranks: rank.start()
    for rank in ranks: rank.join()"""


def script(start=SPAWN, end="pass"):
    return SCRIPT.format(start=start, end=end)


class SpawnedRanks(run_faults_test.RunTest):
    def test_all_end_well_however_they_are_started(self):
        for start in (SPAWN, FORK):
            with self.subTest(start):
                code, found = self.run_text(script(start), "--spawns", world=3)
                self.assertEqual(code, 0, self.said)
                self.assertEqual([(rank["end"], rank["last_step"]) for rank in found["ranks"]], [("exit code 0", 6)] * 3)

    def test_who_was_first_and_who_because_of_it(self):
        for start in (SPAWN, FORK):
            with self.subTest(start):
                found = self.fails("kill rank=2 step=3", "crash", 2, 3, "--spawns", text=script(start), world=3)
                self.assertEqual(found["failure"]["victims"], [0, 1])
                self.assertEqual(found["ranks"][2]["end"], "SIGKILL (9)")
                for victim in (0, 1):  # before the program ended them, they said what they had noticed
                    self.assertIn("onnection", found["ranks"][victim]["error"])
        self.fails("exit rank=0 step=2 code=7", "exit", 0, 2, "--spawns", text=script(), world=3)
        self.assertIn("exited with code 7", self.said)

    def test_an_exception_of_its_function(self):
        code, found = self.run_text(script(end="if rank == 1 and step == 2: raise ValueError('bad sample')"), "--spawns")
        self.assertEqual(code, 1, self.said)
        self.assertEqual((found["failure"]["kind"], found["failure"]["rank"]), ("exception", 1), self.said)
        self.assertEqual(found["ranks"][1]["line"], "train.py:13")

    def test_a_stopped_rank(self):
        found = self.fails("stop rank=1 step=2", "hang", 1, 2, "--spawns", "--hang-after", "3", text=script(), world=3)
        self.assertEqual(found["failure"]["victims"], [0, 2])
        self.assertIn("stopped (state T)", found["failure"]["message"])

    def test_whom_the_program_ends_itself(self):
        """It waits for none but rank 0, and ends the other, which is at work."""
        start = FORK.replace("for rank in ranks: rank.join()", "ranks[0].join(); ranks[1].terminate(); ranks[2].join()")
        code, found = self.run_text(script(start, end="if step == 6 and rank == 1: time.sleep(60)"), "--spawns", world=3)
        self.assertEqual(code, 3, self.said)
        self.assertEqual([rank["end"] for rank in found["ranks"]], ["exit code 0", "ended by the program", "exit code 0"])

    def test_that_fails_before_it_starts_any(self):
        code, found = self.run_text(script("raise SystemExit('no data')"), "--spawns")
        self.assertEqual(code, 3, self.said)
        self.assertIn("ended with exit code 1, and no rank had failed: no data", found["inconclusive"])

    def test_another_number_of_ranks(self):
        code, found = self.run_text(script(FORK), "--spawns", world=5)
        self.assertEqual(code, 3, self.said)
        self.assertIn("ran 3 ranks where 5 were asked for", found["inconclusive"])

    def test_the_reason_is_what_the_program_prints_of_a_rank(self):
        """After the rank has ended, and after all that it had printed, however long it takes to print it."""
        path = self.folder / "train.py"
        slow = f"try: {SPAWN}\n    except Exception: time.sleep(4); raise"
        path.write_text(script(slow, end="print('a model'); step == 2 and 1 / 0"))
        ran = subprocess.run([PROGRAM, "verify", "--spawns", "--", PYTHON, str(path)], capture_output=True, text=True, timeout=600,
                             env=self.environment)
        self.assertEqual(ran.returncode, 3, ran.stdout)
        self.assertIn("the program ended with exit code 1: ZeroDivisionError: division by zero", ran.stdout)

    def test_that_are_started_again(self):
        """All that the program does is waited for, and what is judged is one training."""
        path = self.folder / "train.py"
        path.write_text(script(f"{SPAWN}; {SPAWN}"))
        ran = subprocess.run([PROGRAM, "verify", "--spawns", "--", PYTHON, str(path)], capture_output=True, text=True, timeout=600,
                             env=self.environment)
        self.assertEqual(ran.returncode, 3, ran.stdout)
        self.assertIn("it starts its ranks more than once, and one training is judged", ran.stdout)
        self.assertNotIn("pass", ran.stdout)

    def test_without_the_option(self):
        path = self.folder / "train.py"
        for verb, start in (("verify", SPAWN), ("run", FORK), ("sweep", FORK)):
            path.write_text(script(start))
            with self.subTest(verb=verb, start=start):
                ran = subprocess.run([PROGRAM, verb, "--", PYTHON, str(path)], capture_output=True, text=True,
                                     timeout=600, env=self.environment)
                self.assertEqual(ran.returncode, 3, ran.stdout)
                self.assertIn("the program starts its ranks itself (mp.spawn or the like): say --spawns", ran.stdout)


if __name__ == "__main__":
    unittest.main()
