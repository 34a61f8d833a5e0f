"""`lockstep verify --export FOLDER`: what it leaves, and which folders it refuses."""
import ast
import json
import struct
import unittest

from harness import TOY, ProgramTest, read_json


def read_npy(path):
    """(description, numbers) of a .npy file of float32, without NumPy."""
    content = path.read_bytes()
    assert content[:8] == b"\x93NUMPY\x01\x00", path
    (length,) = struct.unpack("<H", content[8:10])
    assert (10 + length) % 64 == 0, path
    numbers = content[10 + length:]
    return (ast.literal_eval(content[10:10 + length].decode()),
            struct.unpack(f"<{len(numbers) // 4}f", numbers))


class Export(ProgramTest):
    def export(self, *sets):
        folder = self.tmp / "new" / "export"
        args = [word for value in sets for word in ("--set", value)]
        result = self.run_program("verify", TOY, *args, "--export", folder)
        self.assertEqual(result.code, 0, result.text)
        return folder

    def test_a_folder_for_each_run_with_every_rank_s_samples(self):
        folder = self.export("/steps=2", '/matrix={"/world_size":[2,4]}')
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["0001", "0002"])
        for name, ranks in (("0001", 2), ("0002", 4)):
            self.assertEqual(read_json(folder / name / "manifest.json")["set"],
                             {"/world_size": str(ranks)})
            order = read_json(folder / name / "order.json")
            self.assertEqual([len(step) for step in order], [ranks] * 2)
            self.assertEqual([i for rank in order[0] for i in rank], list(range(20 * ranks)))

    def test_tensors_are_npy_files_that_fit_the_manifest(self):
        folder = self.export("/steps=2") / "0001"
        manifest = read_json(folder / "manifest.json")
        named = set()
        for when in ("initial", "final"):
            entries = [e for key, group in manifest[when].items() if key != "reducer_data"
                       for e in group]
            for entry in entries + manifest["data"]:
                description, numbers = read_npy(folder / entry["file"])
                self.assertEqual(description, {"descr": "<f4", "fortran_order": False,
                                               "shape": tuple(entry["shape"])})
                named.add(entry["file"])
        self.assertEqual(named, {p.name for p in folder.glob("*.npy")})
        self.assertEqual([e["name"] for e in manifest["final"]["parameters"]],
                         ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"])
        self.assertEqual(manifest["final"]["reducer_data"]["parameters"], 4)

    def test_final_weights_are_initial_ones_after_the_optimizer(self):
        folder = self.export("/steps=1") / "0001"
        lr = read_json(folder / "manifest.json")["scenario"]["optimizer"]["lr"]
        self.assertEqual(lr, 0.001)
        before, after, gradient = (read_npy(folder / f"{what}.3.npy")[1] for what in
                                   ("initial.parameter", "final.parameter", "final.gradient"))
        for i, weight in enumerate(before):
            self.assertNotEqual(after[i], weight)
            self.assertAlmostEqual(after[i], weight - lr * gradient[i], places=7)

    def test_threads_export_too(self):
        folder = self.export("/steps=1", "/communicator/kind=local") / "0001"
        self.assertEqual(json.loads((folder / "manifest.json").read_text())["version"], 1)

    def test_bad_folders_are_bad_input_and_nothing_runs(self):
        (self.tmp / "file").write_text("x")
        (self.tmp / "full").mkdir()
        (self.tmp / "full/thing").write_text("x")
        for path in (self.tmp / "file", self.tmp / "file/below", self.tmp / "full", "/proc/none",
                     ""):
            result = self.run_program("verify", TOY, "--export", path)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn("--export", result.text)
            self.assertIn("nothing was run", result.text)
        self.assertEqual((self.tmp / "full/thing").read_text(), "x")


if __name__ == "__main__":
    unittest.main()
