"""`lockstep compare` of checkpoints, and `--save-weights`. The .safetensors files are written here, by
struct and json: the format is that simple, and its library is not among Debian's packages (a file of
the library's own is read in tests/sim/tools/compare). Files of PyTorch: tests/python/checkpoints_test.py."""
import json
import resource
import struct
import unittest

from harness import TOY, ProgramTest, read_json


def safetensors(tensors):
    """{name: list of floats, or (dtype, shape, bytes)} as the bytes of a file."""
    header, data = {}, b""
    for name, value in tensors.items():
        if isinstance(value, list):
            value = ("F32", [len(value)], struct.pack(f"<{len(value)}f", *value))
        dtype, shape, content = value
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def read_safetensors(path):
    """{name: (dtype, shape, bytes)}"""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}


class Compare(ProgramTest):
    def save(self, name, tensors):
        path = self.tmp / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(safetensors(tensors))
        return path

    def compare(self, *args, code=0):
        path = self.tmp / "result.json"
        result = self.run_program("compare", *args, "--json", path)
        self.assertEqual(result.code, code, result.text)
        return result, read_json(path) if code != 2 else None

    def test_equal(self):
        a = self.save("a.safetensors", {"w": [1, 2], "b": [3]})
        b = self.save("b.safetensors", {"b": [3], "w": [1, 2]})
        result, document = self.compare(a, b)
        self.assertEqual(result.out.splitlines()[-1],
                         "pass: 2 tensors, 3 elements compared bit for bit, 0 differ")
        self.assertEqual(document["verdict"], "pass")
        self.assertEqual(document["files"][0]["equal"], 2)
        quiet, _ = self.compare(a, b, "-q")
        self.assertEqual(len(quiet.out.splitlines()), 1)

    def test_first_difference(self):
        a = self.save("a.safetensors", {"same": [5], "w": [1, 2, 3]})
        b = self.save("b.safetensors", {"same": [5], "w": [1, 2.0000002, 4]})
        result, document = self.compare(a, b, code=1)
        self.assertIn("first difference  w float32 [3], element [1]", result.out)
        self.assertIn("0x40000000", result.out)
        self.assertIn("1 ulp; 2 of 3 elements differ, at most 4,194,304 ulp", result.out)
        self.assertIn("largest error  1 in w, 0.25 of its tensor's largest number", result.out)
        self.assertEqual(result.out.splitlines()[-1], "fail: 1 of 2 tensors; exit 1")
        (tensor,) = document["files"][0]["tensors"]
        self.assertEqual(tensor["difference"]["first"]["element"], [1])
        self.assertEqual(tensor["difference"]["relative_error"], 0.25)

    def test_tolerance(self):
        a = self.save("a.safetensors", {"w": [1.00001, 2]})
        b = self.save("b.safetensors", {"w": [1, 2]})
        result, document = self.compare(a, b, "--rtol", "1e-4")
        self.assertIn("pass: 1 tensor, 2 elements compared within rtol 0.0001, atol 0; 1 is not the",
                      result.out)
        self.assertEqual(document["files"][0]["tensors"][0]["outcome"], "close")
        self.compare(a, b, "--rtol", "1e-6", code=1)
        self.compare(a, b, "--atol", "1e-4")
        self.compare(a, b, "--rtol", "-1", code=2)

    def test_names_shapes_dtypes(self):
        a = self.save("a.safetensors", {"x": [1, 2], "y": [1], "only": [1]})
        b = self.save("b.safetensors", {"x": ("F32", [1, 2], bytes(8)), "new": [1],
                                        "y": ("I32", [1], bytes(4))})
        result, _ = self.compare(a, b, code=1)
        for line in ("only in A  only", "only in B  new", "other shape  x A [2] B [1, 2]",
                     "other dtype  y A float32 B int32"):
            self.assertIn(line, result.out)
        verbose, _ = self.compare(a, b, "-v", code=1)
        self.assertRegex(verbose.out, r"x +float32 +\[2\] .* other_shape")

    def test_prefix_of_ddp(self):
        a = self.save("a.safetensors", {"fc.weight": [1], "fc.bias": [2]})
        b = self.save("b.safetensors", {"module.fc.weight": [1], "module.fc.bias": [2]})
        result, document = self.compare(a, b)
        self.assertIn("names  2 names of B begin with module.", result.out)
        self.assertEqual(document["files"][0]["module_prefix_in_b"], 2)

    def test_key(self):
        a = self.save("a.safetensors", {"state_dict/w": [1], "optimizer/w": [5]})
        b = self.save("b.safetensors", {"w": [1]})
        self.compare(a, b, "--key-a", "state_dict")
        self.compare(a, b, "--key-a", "optimizer", code=1)
        result, _ = self.compare(a, b, "--key", "model", code=2)
        self.assertIn("expected a path that begins with optimizer, state_dict", result.err)

    def test_folders_by_relative_name(self):
        for step in (2, 10):
            for rank in (0, 1):
                name = f"step-{step}/rank-{rank}.safetensors"
                self.save(f"a/{name}", {"w": [step, rank]})
                self.save(f"b/{name}", {"w": [step, rank if (step, rank) != (10, 1) else 7]})
        result, document = self.compare(self.tmp / "a", self.tmp / "b", code=1)
        self.assertEqual([file["name"] for file in document["files"]],
                         [f"step-{s}/rank-{r}.safetensors" for s in (2, 10) for r in (0, 1)])
        self.assertIn("fail: 1 of 4 tensors, 1 of 4 files; exit 1", result.out)
        self.assertIn("fail  step-10/rank-1.safetensors", result.out)
        self.save("b/extra.safetensors", {"w": [1]})
        result, _ = self.compare(self.tmp / "a", self.tmp / "b", code=1)
        self.assertIn("extra.safetensors (only in B)", result.out)

    def test_bad_input(self):
        good = self.save("good.safetensors", {"w": [1]})
        bad = self.tmp / "bad.pt"
        bad.write_bytes(b"\xff" * 100)
        (self.tmp / "folder").mkdir()
        for args in ((good, bad), (bad, good), (good, self.tmp / "absent"), (good, self.tmp),
                     (self.tmp / "folder", self.tmp / "folder"), (good,), ("/dev/zero", good),
                     (good, good, "--json", "/proc/nope/x")):
            result = self.run_program("compare", *args)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn("error: ", result.err)

    def test_nothing_to_compare(self):
        empty = self.save("empty.safetensors", {})
        result, document = self.compare(empty, empty, code=4)
        self.assertIn("nothing to compare", result.out)
        self.assertIsNone(document["verdict"])

    def test_a_large_file_is_mapped(self):
        """1 GiB, compared by a process that may have 128 MiB of its own."""
        path = self.tmp / "large.safetensors"
        size = 1 << 30
        header = json.dumps({"w": {"dtype": "F32", "shape": [size // 4],
                                   "data_offsets": [0, size]}}).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + size)  # zeros, which take no space
        own = 128 << 20
        result = self.run_program("compare", path, path, "-q", preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_DATA, (own, own)))
        self.assertEqual(result.code, 0, result.text)

    def test_schema(self):
        schema = json.loads(self.run_program("schema", "--compare").out)
        a = self.save("a.safetensors", {"w": [1, float("nan")], "x": [1]})
        _, document = self.compare(a, self.save("b.safetensors", {"w": [1, 2]}), code=1)
        self.assertEqual(set(document) - {"verdict"}, set(
            schema["required"] + schema["anyOf"][0]["required"]) - {"verdict"})
        self.assertEqual(document["files"][0]["tensors"][0]["difference"]["first"]["a_value"], "NaN")


class SaveWeights(ProgramTest):
    ADAM = '/optimizer={"kind":"adam","lr":0.002}'

    def save(self, name, *args, code=0):
        path = self.tmp / name
        result = self.run_program("verify", TOY, "--set", "/steps=2", "--set", "/world_size=2",
                                  "--set", self.ADAM, "--save-weights", path, *args)
        self.assertEqual(result.code, code, result.text)
        return path

    def test_the_same_run_twice_and_both_formats(self):
        first = self.save("first.safetensors")
        self.assertEqual({name: entry[:2] for name, entry in read_safetensors(first).items()},
                         {"fc1.weight": ("F32", [10, 10]), "fc1.bias": ("F32", [10]),
                          "fc2.weight": ("F32", [5, 10]), "fc2.bias": ("F32", [5])})
        second = self.save("second.pt")
        result = self.run_program("compare", second, first, "--key-a", "state_dict")
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("pass: 4 tensors", result.out)
        again = self.save("again.pt")
        self.assertEqual(again.read_bytes(), second.read_bytes())
        state = self.run_program("compare", second, again, "--key", "optimizer/state/0", "-v")
        for word in ("exp_avg", "exp_avg_sq", "step"):
            self.assertRegex(state.out, rf"(?m)^{word} +float32")
        other = self.save("other.pt", "--set", "/seed=7")
        self.assertEqual(self.run_program("compare", second, other).code, 1)
        self.assertEqual(sorted(p.name for p in self.tmp.iterdir() if p.name != "state"),
                         ["again.pt", "first.safetensors", "other.pt", "second.pt"])

    def test_beside_an_export(self):
        path = self.save("w.safetensors", "--export", self.tmp / "export")
        content = (self.tmp / "export/0001/final.parameter.0.npy").read_bytes()
        self.assertTrue(content.endswith(read_safetensors(path)["fc1.weight"][2]))

    def test_bad_input(self):
        for path in ("w.bin", "nowhere/w.pt"):
            self.save(path, code=2)
        result = self.run_program("verify", TOY, "--set", '/matrix={"/world_size":[2,4]}',
                                  "--save-weights", self.tmp / "w.pt")
        self.assertEqual(result.code, 2)
        self.assertIn("a file holds one run, not 2", result.err)

    def test_a_run_that_breaks_down_leaves_none(self):
        path = self.tmp / "w.pt"
        result = self.run_program("run", "scenarios/equivalence/toy_model.json", "--set",
                                  "/world_size=2", "--set",
                                  '/faults=[{"kind": "kill", "rank": 1, "step": 2}]',
                                  "--save-weights", path)
        self.assertNotEqual(result.code, 0, result.text)
        self.assertIn("did not reach its end, and left no weights", result.err)
        self.assertFalse(path.exists())


if __name__ == "__main__":
    unittest.main()
