"""Scripts that count their GPUs (--pretend-gpus): on one device there is one, of which the script makes what it would make of it, and
its loaders give the batch of all ranks, whoever divides it; what some scripts do alone where there are several is told."""
import os
import subprocess
import unittest

from program_test import PROGRAM, PYTHON, ROOT, script
from run_faults_test import OTHERS
from together import TogetherTest

SPAWNING = """
import argparse, socket, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
class Points(Dataset):
    def __init__(self): self.x = torch.randn(24, 6, generator=torch.Generator().manual_seed(1))
    def __len__(self): return len(self.x)
    def __getitem__(self, place): return self.x[place], self.x[place].sum()[None]

def train(gpu, gpus_of_host, options):
    dist.init_process_group("nccl", init_method=options.url, world_size=options.world_size, rank=gpu)
    torch.manual_seed(3)
    options.batch_size = int(options.batch_size / gpus_of_host)
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)).cuda(gpu)
    model = nn.parallel.DistributedDataParallel(net, device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), {rate})
    sampler = DistributedSampler(Points())
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(Points(), options.batch_size, {order}):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x.cuda(gpu)), y.cuda(gpu)).backward()
            optimizer.step()

if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = "tcp://127.0.0.1:%d" % free.getsockname()[1]
    options = argparse.Namespace(batch_size=10, world_size={hosts}, url=url)
    gpus_of_host = torch.cuda.device_count()
    {before}
    options.world_size *= gpus_of_host
    torch.multiprocessing.spawn(train, nprocs=gpus_of_host, args=(gpus_of_host, options))
"""
DEALT = script(begin="gpus = torch.cuda.device_count()").replace("batch_size=12)", "batch_size=4, sampler=torch.utils.data.distributed.DistributedSampler(x))").replace(
    "    x, y = x[rank::world], y[rank::world]\n", "").replace("lr=0.01", "lr={rate}")

FUTURES = """
from lockstep.agent import on_cpu
class Work:
    waited = False
    def get_future(self): raise RuntimeError("not implemented")
    def wait(self): self.waited = True
    def result(self): return 5 if self.waited else 0
class Recorder:
    end = {"on_cpu": True}
on_cpu.watch_futures(Recorder, Work)
print(Work().get_future().wait())
Recorder.end["on_cpu"] = False  # it has asked for Gloo, and would fail without lockstep
try: Work().get_future()
except RuntimeError: print("refused")
"""


def spawning(rate="0.1", order="sampler=sampler", hosts=1, before="pass"):
    return SPAWNING.format(rate=rate, order=order, hosts=hosts, before=before)


# As of fused losses: what adds up a gradient is asked for by its device and dtype, in a backward.
CHUNKED = """class Chunked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out, y):
        ctx.save_for_backward(out, y)
        return (out - y).square().mean()
    @staticmethod
    def backward(ctx, above):
        out, y = ctx.saved_tensors
        total = torch.zeros(out.shape, device="cuda", dtype=torch.float32)
        return 2 * above / out.numel() * total.addmm_((out - y).float(), torch.eye(out.shape[1], device="cuda")), None
"""


class Gpus(TogetherTest):
    def verify(self, text, *options, python=PYTHON):
        if python == PYTHON and "--spawns" not in options:
            return self.verify_text(text, "--pretend-gpus", "--no-drill", *options)
        self.apart()
        path = self.folder / "train.py"
        path.write_text(text)
        ran = subprocess.run([PROGRAM, "verify", "--pretend-gpus", "--no-drill", *options, "--", python, path], capture_output=True,
                             text=True, timeout=600, env=self.environment)
        self.assertEqual(list(self.left.iterdir()), [], "nothing is left behind")
        return ran.returncode, ran.stdout + ran.stderr

    def test_a_script_that_spawns_a_rank_for_each_gpu_and_divides_its_batch(self):
        """As PyTorch's imagenet example does. Three do not divide the batch, so that 9 of 10 samples are in a step."""
        code, said = self.verify(spawning(), "--spawns", "--world-sizes", "2,3")
        self.assertEqual(code, 0, said)
        self.assertNotIn("note: one device was given", said)
        self.assertNotIn("GPUs to the script", said)

    def test_its_mistakes(self):
        for text, cause in ((spawning(rate="0.05 * options.world_size"), "lr_scaled"),
                            (spawning(order="shuffle=True"), "same_samples")):
            with self.subTest(cause):
                code, said = self.verify(text, "--spawns")
                self.assertEqual(code, 1, said)
                self.assertIn(f"cause {cause}", said)

    def test_a_number_of_ranks_that_nobody_started(self):
        code, said = self.verify(spawning(hosts=2), "--spawns")
        self.assertEqual(code, 3, said)
        self.assertIn("it waits for 4 ranks where lockstep has started 2", said)

    def test_what_is_made_of_the_number_of_gpus(self):
        code, said = self.verify(DEALT.format(rate="0.01 * gpus"))
        self.assertEqual(code, 1, said)
        self.assertIn("cause lr_scaled", said)

    def test_a_script_that_wants_several(self):
        for refuses in ("assert gpus > 1", "gpus > 1 or exit()"):
            with self.subTest(refuses):
                code, said = self.verify(DEALT.format(rate="0.01").replace("device_count()", f"device_count()\n{refuses}"))
                self.assertEqual(code, 0, said)
                self.assertIn("note: one device reported 2 GPUs to the script, which does not train with one", said)
        code, said = self.verify(spawning(before="assert gpus_of_host > 1, 'one'"), "--spawns")
        self.assertEqual(code, 3, said)
        self.assertIn("AssertionError: one; with 2 GPUs reported, the program ended with exit code 1: RuntimeError: it waits for 2 ranks", said)

    @unittest.skipUnless(OTHERS, "LOCKSTEP_TORCH_PYTHONS names no Python with another PyTorch")
    def test_a_mesh_of_gpus(self):
        """That begins the process group itself, by what it has imported from torch.distributed."""
        text = DEALT.format(rate="0.01").replace('dist.init_process_group("gloo")', "from torch.distributed.device_mesh import init_device_mesh\n"
                                                 "mesh = init_device_mesh('cuda', (int(__import__('os').environ['WORLD_SIZE']),))")
        for python in OTHERS:
            with self.subTest(python):
                code, said = self.verify(text, python=python)
                self.assertEqual(code, 0, said)

    def test_futures_of_works_of_nccl(self):
        """Gloo has none of a reduce_scatter, say."""
        self.apart()
        ran = subprocess.run([PYTHON, "-c", FUTURES], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
        self.assertEqual(ran.stdout.split(), ["5", "refused"], ran.stderr)

    def test_data_parallel_is_the_module_alone(self):
        code, said = self.verify(DEALT.format(rate="0.01").replace(
            "model = DistributedDataParallel(net)",
            "model = DistributedDataParallel(net.cuda()) if world > 1 else nn.DataParallel(net, device_ids=[0]).cuda()"))
        self.assertEqual(code, 0, said)

    def test_a_backward_asks_for_a_device_and_a_dtype(self):
        """The script's own, or a forward that is made once more within it (activation checkpoints)."""
        text = DEALT.format(rate="0.1").replace("for x, y in loader", CHUNKED + "for x, y in loader")
        again = ("import functools\nfrom torch.utils.checkpoint import checkpoint\nnet[0].forward = functools.partial(checkpoint, "
                 "lambda x, own=net[0].forward: torch.softmax(own(x), 1, dtype=torch.float32), use_reentrant=False)\nmodel = ")
        for changed in (text.replace("nn.functional.mse_loss(model(x), y)", "Chunked.apply(model(x), y)"),
                        DEALT.format(rate="0.1").replace("model = ", again)):
            for python in (PYTHON, *OTHERS):
                with self.subTest(python):
                    code, said = self.verify(changed, python=python)
                    self.assertEqual(code, 0, said)
                    self.assertIn("lane float64  pass", said)


if __name__ == "__main__":
    unittest.main()
