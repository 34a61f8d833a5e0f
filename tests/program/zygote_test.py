"""Forked ranks answer as fresh processes do: what a script sees of its process is the same, what processes draw
differs, and where a fork would not do, fresh processes are started, with the reason.
With PyTorch of LOCKSTEP_PEER_PYTHON, and of other Pythons (LOCKSTEP_TORCH_PYTHONS, separated by colons)."""
import glob
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from folders import FolderTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("LOCKSTEP_PROGRAM", str(ROOT / "build/test/bin/lockstep"))
PEER = os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
OTHERS = [path for path in os.environ.get("LOCKSTEP_TORCH_PYTHONS", "").split(":") if path]
HERE = pathlib.Path(__file__).parent

TRAINING = """
import os
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group("gloo")
{seed}
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
{model}
for _ in range(3):
    optimizer.zero_grad()
    net(torch.ones(6, 4)).sum().backward()
    {after}
    optimizer.step()
"""
BY_HAND = "for p in net.parameters(): dist.all_reduce(p.grad); p.grad /= dist.get_world_size()"


def training(begin="", seed="torch.manual_seed(1)", model="", after=BY_HAND):
    return begin + TRAINING.format(seed=seed, model=model, after=after)


def processes_with(word):
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if word in pathlib.Path(path).read_text(errors="replace"):
                found.append(int(path.split("/")[2]))
        except OSError:  # it has ended
            pass
    return [pid for pid in found if pid != os.getpid()]


class Zygote(FolderTest):
    def setUp(self):
        super().setUp()
        self.environment.pop("PYTHONHASHSEED", None)

    def verify(self, *command, options=(), **variables):
        """The result, as --json writes it, and the text."""
        path = self.folder / "result.json"
        ran = subprocess.run([PROGRAM, "verify", "--json", str(path), *options, "--", *map(str, command)],
                             capture_output=True, text=True, timeout=600, env={**self.environment, **variables})
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return json.loads(path.read_text()), ran.stdout + ran.stderr

    def verify_text(self, text, options=(), **variables):
        path = self.folder / "train.py"
        path.write_text(text)
        return self.verify(PEER, path, options=options, **variables)

    def probed(self, python, options=(), words=(), **variables):
        """By rank, what the script of process_facts.py sees."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        result, text = self.verify(python, *words, HERE / "process_facts.py", folder, options=options, **variables)
        self.assertEqual(result["processes"], "fresh" if options else "forked", text)
        found = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
        for rank in found:
            rank["seen"]["argv"][1] = ""
        return [rank["seen"] for rank in found], [rank["drawn"] for rank in found]

    def test_a_script_sees_what_it_sees_in_a_fresh_process(self):
        for python in (PEER, *OTHERS):
            with self.subTest(python):
                forked, drawn = self.probed(python, words=["-u", "-W", "once"])
                fresh, _ = self.probed(python, options=["--fresh-processes"], words=["-u", "-W", "once"])
                self.maxDiff = None
                for one, other in zip(forked, fresh):
                    self.assertEqual(one, other)
                for name, value in drawn[0].items():
                    self.assertNotEqual(value, drawn[1][name], f"{name}: both ranks draw the same")

    def test_hashes_that_are_given_are_the_same_on_all_ranks(self):
        _, drawn = self.probed(PEER, PYTHONHASHSEED="7")  # so they are forked of one zygote
        self.assertEqual(drawn[0].pop("hash of a string"), drawn[1].pop("hash of a string"))
        for name, value in drawn[0].items():
            self.assertNotEqual(value, drawn[1][name], f"{name}: both ranks draw the same")

    def test_weights_without_a_seed_are_found_to_differ(self):
        result, text = self.verify_text(training(seed=""), PYTHONHASHSEED="7")
        self.assertEqual(result["processes"], "forked", text)
        self.assertEqual(result["worlds"][0]["lanes"]["replica"]["cause"], "different_start", text)

    def test_one_serves_all_world_sizes(self):
        result, text = self.verify_text(training(), options=["--world-sizes", "2,3"])
        self.assertEqual((result["processes"], result["why_fresh"]), ("forked", None), text)
        self.assertEqual([world["lanes"]["replica"]["verdict"] for world in result["worlds"]], ["pass", "pass"], text)
        self.assertNotIn("note:", text)

    def test_variables_set_before_the_import_reach_it(self):
        begin = "import os; os.environ['TORCH_SHOW_CPP_STACKTRACES'] = '1'\n"
        result, text = self.verify_text(training(begin))
        self.assertEqual(result["processes"], "fresh", text)
        self.assertIn("the script changes the environment (TORCH_SHOW_CPP_STACKTRACES) before it imports torch", text)
        self.assertEqual(result["worlds"][0]["lanes"]["replica"]["verdict"], "pass", text)
        # Where the process group is, no import reads.
        result, text = self.verify_text(training("import os; os.environ['MASTER_ADDR'] = 'localhost'\n"))
        self.assertEqual(result["processes"], "forked", text)

    def test_a_module_of_the_script_comes_before_that_of_python(self):
        (self.folder / "difflib.py").write_text("OWN = 1\n")
        for begin in ("import difflib; difflib.OWN\n", ""):
            with self.subTest(begin):
                result, text = self.verify_text(training(begin))
                self.assertEqual(result["worlds"][0]["lanes"]["replica"]["verdict"], "pass", text)
                self.assertEqual(result["why_fresh"], "the script has a module difflib of its own", text)

    def test_errors_are_those_of_the_script(self):
        for after, sentence in (("raise ValueError('here')", "rank 0 ended with exit code 1: ValueError: here"),
                                ("os._exit(9)", "ended with exit code 9"),
                                ("os.kill(os.getpid(), 11)", "ended with signal 11")):
            with self.subTest(sentence):
                result, text = self.verify_text(training(after=f"if dist.get_rank() == 0: {after}"))
                self.assertEqual(result["processes"], "forked", text)
                self.assertIn(sentence, text)

    def test_the_end_of_a_rank_loses_nothing(self):
        lines = self.folder / "of_the_end.txt"
        end = f"""
import atexit, ctypes, sys
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(libc.fopen({os.fsencode(lines)!r}, b"a"))
file = os.open({str(lines)!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
class Last:
    def __del__(self, write=os.write, file=file): write(file, b"of an object\\n")
last = Last()
atexit.register(libc.fputs, b"of a stream\\n", stream)
if dist.get_rank() == 1: sys.exit(7)
"""
        result, text = self.verify_text(training() + end)
        self.assertEqual(result["processes"], "forked", text)
        self.assertIn("rank 1 exited with code 7", text)
        said = lines.read_text().splitlines()
        self.assertEqual(said.count("of a stream"), said.count("of an object"), said)
        self.assertGreaterEqual(len(said), 4, said)

    def test_nothing_outlives_lockstep(self):
        path = self.folder / "sleep_long.py"
        path.write_text(f"open({str(self.folder)!r} + '/begun', 'w').close()\nimport time; time.sleep(600)")
        with subprocess.Popen([PROGRAM, "verify", "--", PEER, str(path)], env=self.environment,
                              stdout=subprocess.DEVNULL) as run:
            while not (self.folder / "begun").exists():
                time.sleep(0.05)
            self.assertGreaterEqual(len(processes_with(str(path))), 3)
            run.send_signal(signal.SIGKILL)
        until = time.monotonic() + 60
        while processes_with(str(path)) and time.monotonic() < until:
            time.sleep(0.05)
        self.assertEqual(processes_with(str(path)), [])

    def test_a_zygote_that_fails_is_no_verdict(self):
        package = self.folder / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('broken')")
        result, text = self.verify_text("print('done')", PYTHONPATH=str(self.folder))
        self.assertEqual((result["verdict"], result["processes"]), ("inconclusive", "fresh"), text)
        self.assertIn("note: each rank was a fresh Python: torch cannot be imported ahead: ImportError: broken", text)


if __name__ == "__main__":
    unittest.main()
