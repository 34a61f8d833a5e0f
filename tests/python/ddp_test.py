"""Exported c10d runs, trained once more by PyTorch's DistributedDataParallel: every bit is the same.
Skipped (exit code 77) where this Python's torch is not the LibTorch that lockstep is linked with."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cli"))
import script_model_test  # noqa: E402
from harness import LINEAR, TOY, ProgramTest  # noqa: E402

C10D = ("/reducer/kind=c10d", '/communicator={"kind":"c10d","algorithm":"ring"}')
MATRIX = "scenarios/equivalence/mlp_matrix.json"
# Small buckets, so that the order of addition shows.
SMALL = ("/world_size=3", "/reducer/bucket_cap_mb=0.001", "/reducer/first_bucket_mb=0.00001")
VIEW, NO_VIEW = (f"/reducer/gradient_as_bucket_view={word}" for word in ("true", "false"))
# Scenario and what pins its matrix; where axes are left, each run is compared.
CASES = [
    (LINEAR,),
    (TOY,),
    (MATRIX, *SMALL, NO_VIEW, "/zero_grad=zero",
     '/optimizer={"kind":"sgd","lr":0.05,"momentum":0.9}'),
    (MATRIX, *SMALL, VIEW, "/zero_grad=none", '/optimizer={"kind":"adam","lr":0.002}'),
    ("scenarios/gallery/auto_encoder.json", "/world_size=4"),
    ("scenarios/gallery/auto_encoder_3_ranks.json",),
    ("scenarios/gallery/batch_norm.json", "/world_size=3"),
    ("scenarios/gallery/batch_norm_frozen.json", "/world_size=3", "/model/norm=frozen"),
    ("scenarios/gallery/branches_routed.json", "/world_size=3", VIEW, "/zero_grad=none"),
    ("scenarios/gallery/branches_same.json", NO_VIEW, "/zero_grad=zero"),
    ("scenarios/gallery/cifar_cnn.json", "/reducer/bucket_cap_mb=0.05"),
    ("scenarios/gallery/cifar_cnn_3_ranks.json",),
    ("scenarios/gallery/mnist_convnet.json", "/world_size=3"),
    ("scenarios/gallery/mnist_distributed_sampler.json",),
    ("scenarios/gallery/embedding.json", "/world_size=3"),
    ("scenarios/gallery/gpt.json", "/world_size=3", "/reducer/bucket_cap_mb=0.02"),
    ("scenarios/features/accumulation.json", "/accumulate_steps=3", VIEW, "/zero_grad=zero"),
    ("scenarios/features/accumulation_unused.json",),
    ("scenarios/features/every_micro_batch_synchronized.json", "/accumulate_steps=2"),
    ("scenarios/features/every_micro_batch_unused.json", "/data/block=6"),
    ("scenarios/features/frozen_parameters.json", "/zero_grad=none"),
    ("scenarios/features/sparse_gradients.json", "/world_size=4", "/accumulate_steps=2",
     '/optimizer={"kind":"sgd","lr":0.5}'),
    ("scenarios/features/sparse_gradients.json", "/world_size=3", "/accumulate_steps=1",
     VIEW, '/optimizer={"kind":"adagrad","lr":0.05}'),
    ("scenarios/features/two_dtypes.json", "/world_size=3"),
    ("scenarios/features/channels_last.json", "/world_size=3", NO_VIEW),
    ("scenarios/features/channels_last.json", "/world_size=6", VIEW),
    ("scenarios/features/memory_formats.json", "/world_size=3",
     "/model/memory_format=transposed", '/checkpoint={"kind":"none"}'),
    ("scenarios/features/memory_formats.json", "/world_size=3",
     "/model/memory_format=sliced", '/checkpoint={"kind":"none"}'),
    ("scenarios/features/ignored_parameters.json", "/world_size=3", VIEW, "/zero_grad=zero",
     "/accumulate_steps=2"),
    ("scenarios/features/ignored_parameters.json", "/world_size=3", NO_VIEW, "/zero_grad=none",
     "/accumulate_steps=1", '/optimizer={"kind":"sgd","lr":0.05,"momentum":0.9}'),
    ("scenarios/features/outputs_in_containers.json", "/world_size=3", NO_VIEW,
     '/optimizer={"kind":"adam","lr":0.01}'),
    ("scenarios/features/outputs_in_object.json", "/world_size=3",
     "/reducer/find_unused_parameters=false"),
    ("scenarios/features/activation_checkpointing.json", "/world_size=3", VIEW, "/zero_grad=zero",
     "/accumulate_steps=2", '/optimizer={"kind":"sgd","lr":0.05,"momentum":0.9}'),
    ("scenarios/features/activation_checkpointing.json", "/world_size=3", NO_VIEW,
     "/zero_grad=none", "/accumulate_steps=1", '/optimizer={"kind":"adam","lr":0.01}'),
    ("scenarios/features/activation_checkpointing_unused.json", "/world_size=3",
     "/model/checkpointing=non_reentrant"),
    ("scenarios/features/buffer_hook.json", "/world_size=3", VIEW,
     '/optimizer={"kind":"adam","lr":0.01}'),
    ("scenarios/features/wrapped_modules.json", "/world_size=3", VIEW, "/zero_grad=zero",
     "/accumulate_steps=2", '/optimizer={"kind":"adam","lr":0.01}'),
    ("scenarios/features/comm_hooks.json", '/comm_hook={"kind":"allreduce"}', VIEW),
    ("scenarios/features/join.json", VIEW, "/zero_grad=zero"),
    ("scenarios/features/join.json", NO_VIEW, "/zero_grad=none", "/accumulate_steps=1"),
    ("scenarios/features/join_buffers.json",),
    ("scenarios/features/join_divisors.json", '/loss={"kind":"mse"}'),
    ("scenarios/features/join_unused.json",),
    ("scenarios/features/static_graph.json", VIEW, "/zero_grad=zero"),
    ("scenarios/data/distributed_sampler.json",),
    ("scenarios/data/loader_workers.json", "/data/workers=4"),
    ("scenarios/data/uneven_shards.json", "/split/kind=manual"),
    ("scenarios/gallery/resnet18.json",),
    ("scenarios/gallery/resnet18_batch_norm.json",),
    ("scenarios/gallery/resnet18_group_norm.json",),
    ("scenarios/gallery/zero.json", "/world_size=3", "/optimizer_sharding/broadcast=per_rank"),
    ("scenarios/training/post_local_sgd.json",),
    ("scenarios/training/averaged_every_step.json", "/world_size=3"),
    ("scenarios/training/optimizers.json", "/world_size=3"),
    ("scenarios/training/clipping.json", "/world_size=3",
     '/clipping={"kind":"norm","max_norm":0.05}'),
    ("scenarios/training/lr_schedules.json", '/lr_schedule={"kind":"exponential","gamma":0.8}'),
]
HALVES = ("scenarios/features/comm_hooks.json", '/comm_hook={"kind":"fp16"}')
REFUSED = "Invalid scalar type"
SKIPPED = 77


class Parity(ProgramTest):
    def verify(self, scenario, *sets, options=()):
        args = [word for value in (*C10D, *sets) for word in ("--set", value)]
        return self.run_program("verify", scenario, *args, *options)

    def export(self, scenario, *sets, options=()):
        # What the scenario expects of c10d is its own test's affair: bits are compared either way.
        folder = self.tmp / f"export-{len(list(self.tmp.iterdir()))}"
        result = self.verify(scenario, *sets, options=(*options, "--export", folder))
        self.assertNotIn(result.code, (2, 4), result.text)
        self.assertTrue((folder / "0001/manifest.json").exists(), result.text)
        return folder

    def peer(self, *folders):
        done = subprocess.run([sys.executable, HERE / "ddp_peer.py", *folders], text=True,
                              capture_output=True, timeout=240)
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout.strip())
        return done.returncode, done.stderr + done.stdout

    def test_every_bit_is_the_same(self):
        folders = [self.export(*case) for case in CASES]
        code, text = self.peer(*folders)
        print(text)
        self.assertEqual(code, 0, text)
        last = text.strip().split("\n")[-1].split()
        self.assertEqual(last[0], last[2], text)  # "23 of 23 runs equal ..."
        self.assertGreaterEqual(int(last[0]), len(CASES))

    def test_halves_are_equal_or_refused_by_both(self):
        """Debian's ProcessGroupGloo of 2.14 adds no halves; ours does on all versions."""
        folders = [self.export(*HALVES, VIEW, "/reducer/kind=bucketed",
                               '/communicator={"kind":"gloo","algorithm":"ring"}')]
        refused = REFUSED in self.verify(*HALVES, NO_VIEW).text
        if not refused:
            folders.append(self.export(*HALVES, NO_VIEW))
        code, text = self.peer(*folders)
        self.assertEqual(code, 2 if refused else 0, text)
        self.assertEqual(REFUSED in text, refused, text)

    def test_a_script_module(self):
        scenario, module = self.tmp / "scenario.json", self.tmp / "net.pt"
        scenario.write_text(script_model_test.SCENARIO)
        subprocess.run([sys.executable, "-B", script_model_test.MAKE, module], check=True)
        folder = self.export(scenario, options=("--trust-model", module))
        code, text = self.peer(folder)
        self.assertEqual(code, 0, text)

    def test_one_flipped_bit_is_found(self):
        folder = self.export(TOY, "/steps=2")
        manifest = json.loads((folder / "0001/manifest.json").read_text())
        damaged = manifest["final"]["parameters"][1]
        path = folder / "0001" / damaged["file"]
        content = bytearray(path.read_bytes())
        content[-4] ^= 1  # the lowest bit of the last number
        path.write_bytes(content)
        code, text = self.peer(folder)
        self.assertEqual(code, 1, text)
        self.assertIn(f"{damaged['name']}[{damaged['shape'][0] - 1}]", text)

    def test_other_settings_give_other_bits(self):
        folder = self.export(TOY, "/steps=2")
        path = folder / "0001/manifest.json"
        path.write_text(path.read_text().replace('"lr": 0.001', '"lr": 0.0010001'))
        code, text = self.peer(folder)
        self.assertEqual(code, 1, text)

    def test_what_ddp_has_not_is_said(self):
        folder = self.export(TOY, "/reducer/kind=flat")
        code, text = self.peer(folder)
        self.assertEqual(code, 3, text)
        self.assertIn("reducer flat is not DDP", text)

    def test_a_folder_without_export_is_bad_input(self):
        self.assertEqual(self.peer(self.tmp)[0], 2)


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print(f"skipped: {sys.executable} has no torch")
        sys.exit(SKIPPED)
    result = unittest.main(exit=False).result
    for _, reason in result.skipped:
        print(reason)
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
