"""`lockstep verify -- COMMAND`: correct programs pass, planted mistakes are found with step, entry and cause,
what cannot be compared is inconclusive, and nothing is left behind."""
import glob
import json
import signal
import subprocess
import time
import unittest

from folders import FolderTest
from together import PROGRAM, PYTHON, ROOT, TogetherTest

# A correct training by hand; the lines in braces make others of it.
SCRIPT = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
{begin}
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(3)
x = torch.randn(48, 6)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=12)
net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), {layer}, nn.Linear(5, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for x, y in loader:
    x, y = x[rank::world], y[rank::world]
    optimizer.zero_grad()
    {forward}
    loss.backward()
    optimizer.step()
{end}
dist.destroy_process_group()
"""


def script(begin="", layer="nn.Identity()", forward="loss = nn.functional.mse_loss(model(x), y)", end=""):
    return SCRIPT.format(begin=begin, layer=layer, forward=forward, end=end)


class ScriptTest(TogetherTest):
    """Of tests that hand a script of their own to the program."""

    def called(self, verb, text, *options):
        self.apart()
        path = self.folder / "train.py"
        path.write_text(text)
        return subprocess.run([PROGRAM, verb, *options, "--", PYTHON, path], capture_output=True, text=True, timeout=600,
                              env=self.environment)

    def verified(self, text, expected, *options):
        """On three ranks: what it said, once it ended as expected."""
        code, said = self.verify_text(text, "--world-sizes", "3", *options)
        self.assertEqual(code, expected, said)
        return said


class Programs(FolderTest):
    def verify(self, *command, options=()):
        ran = subprocess.run([PROGRAM, "verify", *map(str, options), "--", *map(str, command)], capture_output=True,
                             text=True, timeout=600, env=self.environment)
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return ran.returncode, ran.stdout + ran.stderr

    def verify_text(self, text, options=()):
        path = self.folder / "train.py"
        path.write_text(text)
        return self.verify(PYTHON, path, options=options)

    def test_a_correct_program_passes_and_both_controls_fail(self):
        code, text = self.verify(PYTHON, ROOT / "examples/toy_ddp.py")
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("control failed, as it must"), text.count("  lane "), text)
        self.assertGreaterEqual(text.count("  lane "), 2, text)

    def test_a_planted_mistake_is_found_and_told(self):  # all of them: gallery_test.py
        code, text = self.verify(PYTHON, ROOT / "examples/toy_ddp.py", "--bug", "divided_twice")
        self.assertEqual(code, 1, text)
        self.assertIn("fail: step 1, gradient of 0.weight\n      cause divided_twice: ", text)
        self.assertIn("to do: leave the division", text)

    def test_words_of_the_command_stay_as_they_are(self):
        words = ["[1,2]", "[a]", "[]", "", "--q=[1,2]", "--", "--world-sizes", "x y"]
        begin = f"import sys\nassert sys.argv[1:] == {words!r}, sys.argv"
        path = self.folder / "train.py"
        path.write_text(script(begin=begin))
        code, text = self.verify(PYTHON, path, *words)
        self.assertEqual(code, 0, text)

    def test_processes_with_one_rank_accuse_nobody(self):
        """As where a script sets what MPI says of a process that mpirun did not start."""
        begin = "import os\nos.environ.update(RANK='0', WORLD_SIZE='1', MASTER_PORT=str(20000 + os.getpid() % 20000))"
        code, text = self.verify_text(script(begin=begin))
        self.assertEqual(code, 3, text)
        self.assertIn("two of its processes have one rank", text)

    def test_what_scripts_ask_of_a_gpu_has_an_answer(self):
        begin = ("assert torch.cuda.memory_stats()['allocated_bytes.all.current'] == 0\n"
                 "assert torch.cuda.amp.GradScaler().state_dict()['scale'] == 65536.0\n"
                 "assert torch.cuda.current_stream().device.type == 'cpu'")
        code, text = self.verify_text(script(begin=begin), options=["--pretend-gpus"])
        self.assertEqual(code, 0, text)

    def test_results_are_written(self):
        report, junit = self.folder / "result.json", self.folder / "result.xml"
        code, text = self.verify(PYTHON, ROOT / "examples/toy_ddp.py", "--bug", "divided_twice",
                                 options=["--quiet", "--json", report, "--junit", junit])
        self.assertEqual((code, text), (1, "fail; exit 1\n"))
        found = json.loads(report.read_text())["worlds"][0]["lanes"]
        self.assertEqual(found["replica"]["verdict"], "pass")
        self.assertEqual([found["float64"][key] for key in ("verdict", "control", "step", "entry", "cause")],
                         ["fail", "detected", 1, "gradient of 0.weight", "divided_twice"])
        self.assertIn('failures="1"', junit.read_text())
        code, text = self.verify(PYTHON, ROOT / "examples/toy_ddp.py", options=["--json", "/proc/none/x"])
        self.assertEqual(code, 2, text)

    def test_ranks_that_draw_their_own_data_hand_it_to_one_device(self):
        code, text = self.verify_text(script(), options=["--world-sizes", "3"])  # slices by hand
        self.assertEqual(code, 0, text)
        self.assertIn("lane float64  pass: 4 steps", text)
        self.assertIn("note: one device was given the ranks' first weights, inputs and targets", text)
        own = script().replace("torch.manual_seed(3)", "torch.manual_seed(3 + rank)").replace(
            "x, y = x[rank::world], y[rank::world]", "x = torch.randn(4, 6); y = x.sum(1, keepdim=True)")
        in_turn = own.replace("    loss.backward()", """
    for part in range(12 // world):
        with (model.no_sync() if (part + 1) * world < 12 else contextlib.nullcontext()):
            (nn.functional.mse_loss(model(torch.randn(4, 6)), torch.randn(4, 1)) / (12 // world)).backward()
""").replace("    loss = nn.functional.mse_loss(model(x), y)\n", "").replace("import torch,", "import contextlib, torch,")
        shared = script().replace("x[rank::world], y[rank::world]", "x[rank * 3:rank * 3 + 6], y[rank * 3:rank * 3 + 6]")
        for text, codes in ((own, 0), (in_turn, 0), (shared, 3), (in_turn.replace("/ (12 // world)", "/ 12"), 1),
                            # Its own count of samples is not that of the larger batch.
                            (own.replace("mse_loss(model(x), y)", "mse_loss(model(x), y, reduction='sum') / len(y)"), 3),
                            (own.replace("nn.functional.mse_loss(model(x), y)", "(model(x) - y).square().mean()"), 3)):
            with self.subTest(text[-500:]):
                code, said = self.verify_text(text)
                self.assertEqual(code, codes, said)
                self.assertIn("lane replica  pass", said)

    def test_what_cannot_be_compared_accuses_nobody(self):
        code, text = self.verify_text(script(layer="nn.RReLU()"))
        self.assertEqual(code, 3, text)

    def test_sixteen_bits_are_no_mistake(self):
        forward = ("with torch.autocast('cpu', dtype=torch.bfloat16): out = model(x)\n"
                   "    loss = nn.functional.mse_loss(out.float(), y)")
        text = script(forward=forward).replace("x, y = x[rank::world], y[rank::world]", "pass").replace(
            "batch_size=12)", "batch_size=4, sampler=torch.utils.data.distributed.DistributedSampler(x))")
        code, said = self.verify_text(text)
        self.assertEqual(code, 0, said)

    def test_a_program_for_gpus_runs_on_the_cpu(self):
        text = script(begin="torch.cuda.set_device(0)\ntorch.zeros(2, device='cuda:0')").replace('"gloo"', '"nccl"').replace(
            "DistributedDataParallel(net)", "DistributedDataParallel(net.cuda(), device_ids=[rank])").replace(
            "x, y = x[rank::world], y[rank::world]", "x, y = x.to(rank), y.cuda(non_blocking=True)").replace(
            "batch_size=12)", "batch_size=4, sampler=torch.utils.data.distributed.DistributedSampler(x))").replace(
            "optimizer.step()", "optimizer.step(); dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)")
        code, said = self.verify_text(text)
        self.assertEqual(code, 0, said)
        self.assertIn("note: its CUDA devices were the CPU, its NCCL was Gloo", said)
        demanding = text.replace("torch.cuda.set_device(0)", "assert torch.cuda.is_available()")
        code, said = self.verify_text(demanding)
        self.assertEqual(code, 3, said)
        self.assertIn("asked whether there are GPUs: try --pretend-gpus", said)
        self.assertIn("last lines of its log", said)
        code, said = self.verify_text(demanding, options=["--pretend-gpus"])
        self.assertEqual(code, 0, said)

    def test_a_program_that_cannot_run_in_double_keeps_its_other_lanes(self):
        code, said = self.verify_text(script(begin="torch.cuda.is_available()\nassert torch.ones(1).dtype == torch.float32"))
        self.assertEqual(code, 3, said)
        self.assertNotIn("GPUs", said, "that has nothing to do with it")
        self.assertIn("lane replica  pass", said)
        self.assertIn("only in its own dtypes", said)
        code, said = self.verify_text(script().replace("    optimizer.step()\n", "    optimizer.step()\n    if rank and x.dtype is torch.float64: break\n"))
        self.assertEqual(code, 3, said)
        self.assertIn("in double, rank 1 exited after 2 collectives, while rank 0 waited", said)
        self.assertNotIn("only in its own dtypes", said, "it left by no error")
        code, said = self.verify_text(script(begin="assert torch.ones(1).dtype == torch.float32",
                                             end="net[0].bias.data += rank; optimizer.zero_grad(); optimizer.step()"))
        self.assertEqual(code, 1, said)

    def test_a_program_that_runs_in_no_dtypes_ends_by_its_own_error(self):
        checks = "assert torch.ones(1).dtype == torch.float32"
        code, said = self.verify_text(script(begin=f"{checks}\nraise ValueError('no data')"))
        self.assertEqual(code, 3, said)
        self.assertRegex(said, "in its own dtypes, rank . ended with exit code 1: ValueError: no data; in double, rank . .*AssertionError")
        code, said = self.verify_text(script(begin=f"{checks}\nimport nothing_of_the_kind").replace("torch.float32", "None"))
        self.assertNotIn("in its own dtypes", said, "that is the same twice")

    def test_one_device_that_resumes_what_the_ranks_saved_accuses_nobody(self):
        path = self.folder / "state.pt"
        saving = script(begin="import os", end=f"if rank == 0 and world > 1: torch.save(net.state_dict(), '{path}')").replace(
            "model = Dist", f"if os.path.exists('{path}'): net.load_state_dict(torch.load('{path}'))\nmodel = Dist")
        done = saving.replace("\nmodel = Dist", "; exit()\nmodel = Dist")  # no epoch is left to train
        for text in (saving, saving.replace("net.state_dict()", "{'net': 1}"), done):  # the second it cannot load
            path.unlink(missing_ok=True)
            with self.subTest(text):
                code, said = self.verify_text(text)
                self.assertEqual(code, 3, said)
                self.assertIn("one device resumed from what the ranks' run had saved", said)

    def test_bad_programs_get_a_sentence(self):
        cases = {"import nothing_of_the_kind": "No module named 'nothing_of_the_kind'",
                 "print('done')": "ran no backward and no optimizer step",
                 script(begin="raise SystemExit(7)"): "ended with exit code 7",
                 "import sys\nsys.stderr.write('no data\\n\\nnanobind: leaked 1 types!\\n - leaked type \"x\"\\n'); sys.exit(1)":
                 "ended with exit code 1: no data\n",
                 "raise ValueError('no driver\\nask the maker')": "exit code 1: ValueError: no driver ... ask the maker\n",
                 script(begin="import os; os.kill(os.getpid(), 11)"): "ended with signal 11",
                 script(end="if rank == 1: net(x).sum().backward(); optimizer.step()"): "optimizer steps",
                 "import torch\nx = torch.ones(2, requires_grad=True)\nx.sum().backward()": "rank"}
        for text, sentence in cases.items():
            with self.subTest(sentence):
                code, said = self.verify_text(text)
                self.assertEqual(code, 3, said)
                self.assertIn(sentence, said)

    def test_a_command_that_hides_the_agent_is_told(self):
        path = self.folder / "train.py"
        path.write_text(script())
        for command in ([PYTHON, "-I", path], ["env", f"PYTHONPATH={self.folder}", PYTHON, path]):
            for verb in ("verify", "sweep"):
                with self.subTest(verb=verb, command=command):
                    ran = subprocess.run([PROGRAM, verb, "--", *command], capture_output=True, text=True, timeout=120, env=self.environment)
                    said = ran.stdout + ran.stderr
                    self.assertEqual(ran.returncode, 3, said)
                    self.assertIn("no Python that it started has loaded lockstep's agent", said)

    def test_what_is_not_there_is_bad_input(self):
        for command, sentence in ((["/no/such/program"], "/no/such/program: no such program"),
                                  (["no-such-program"], "no such program on PATH"),
                                  ([PYTHON, "-u", "/no/such/script.py"], "/no/such/script.py: no such file")):
            for verb in ("verify", "run", "sweep"):
                with self.subTest(verb=verb, command=command):
                    ran = subprocess.run([PROGRAM, verb, "--", *command], capture_output=True, text=True, timeout=60)
                    self.assertEqual(ran.returncode, 2, ran.stdout + ran.stderr)
                    self.assertIn(sentence, ran.stderr)

    def test_sparse_gradients_are_judged(self):
        sparse = script(layer="nn.Identity()").replace(
            "nn.Linear(6, 5)", "Table()").replace("Adam(model.parameters(), lr=0.01)", "SGD(model.parameters(), lr=0.1)").replace(
            "dist.init", "class Table(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.rows = nn.Embedding(9, 5, sparse=True)\n"
            "    def forward(self, x):\n"
            "        return self.rows((x[:, 0].abs() * 4).long().clamp(max=8))\n"
            "dist.init")
        code, said = self.verify_text(sparse)
        self.assertEqual(code, 0, said)
        code, said = self.verify_text(sparse.replace("optimizer.step()", "net[0].rows.weight.grad.mul_(world); optimizer.step()"))
        self.assertEqual(code, 1, said)
        self.assertIn("gradient of 0.rows.weight", said)

    def test_a_rank_that_leaves_its_loop_early_is_named_long_before_the_limit(self):
        begun = time.monotonic()
        code, said = self.verify_text(script(begin="steps = 0", end="    steps += 1\n    if rank == 2 and steps == 2: break\ndist.barrier()"), ["--world-sizes", "3"])
        self.assertEqual(code, 1, said)
        self.assertIn("broke off: ranks called different collectives: ranks 0 and 1 called all_reduce", said)
        self.assertIn("rank 2 called barrier", said)
        self.assertLess(time.monotonic() - begun, 60, said)

    def test_an_exception_is_a_rank_s_unless_all_or_one_device_end_by_it(self):
        raised = script(end="    if {who}: raise ValueError(f'sample {{x.sum()}}')")
        code, said = self.verify_text(raised.format(who="rank == 1"))
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"broke off: rank 1 ended by an exception in load of step 2: ValueError: sample")
        code, said = self.verify_text(raised.format(who="rank == 0"))
        self.assertEqual(code, 3, said)
        self.assertIn("so does one device", said)

    def test_who_sleeps_longer_than_a_deadlock_is_waited_for(self):
        slow = script(begin="import time", end="    if rank == 1 and not hasattr(net, 'slept'): net.slept = time.sleep(8)")
        code, said = self.verify_text(slow)
        self.assertEqual(code, 0, said)

    def test_a_hang_ends_at_its_limit(self):
        code, said = self.verify_text("import time; time.sleep(600)", options=["--limit", "2"])
        self.assertEqual(code, 3, said)
        self.assertIn("had not ended after 2 s (--limit)", said)

    def test_where_ranks_are_that_the_limit_finds_at_work(self):
        endless = script(begin="import itertools").replace("in loader:", "in itertools.cycle(loader):")
        code, said = self.verify_text(endless, options=["--limit", "12"])
        self.assertEqual(code, 3, said)
        self.assertRegex(said, r"had not ended after 12 s \(--limit\); ranks were at work: ranks? [01].* of step \d+")

    def test_a_signal_ends_all(self):
        path = self.folder / "sleep.py"
        path.write_text("import time; time.sleep(600)")
        with subprocess.Popen([PROGRAM, "verify", "--", PYTHON, str(path)], stdout=subprocess.PIPE,
                              env=self.environment) as run:
            while not glob.glob(str(self.left / "*/*/rank-1.log")):
                time.sleep(0.05)
            run.send_signal(signal.SIGTERM)
            self.assertEqual(run.wait(60), 128 + signal.SIGTERM)
        self.assertEqual(list(self.left.iterdir()), [])

    def test_bad_options_are_named(self):
        for options, sentence in ((["--world-sizes", "1"], "expected an integer from 2 to 64"),
                                  (["--limit", "soon"], "expected a number from 1"),
                                  (["--no-such-option"], "unknown option --no-such-option")):
            with self.subTest(options[0]):
                code, said = self.verify("/bin/true", options=options)
                self.assertEqual(code, 2, said)
                self.assertIn(sentence, said)

    def test_scenario_files_behind_two_dashes_are_scenarios(self):
        code, said = self.verify("no_such_scenario.json")
        self.assertEqual(code, 2, said)
        self.assertIn("no such file", said)


if __name__ == "__main__":
    unittest.main()
