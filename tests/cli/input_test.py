"""Bad input from outside: exit 2, the file's name, the place, and nothing run."""
import re
import unittest

from harness import LINEAR, ROOT, ProgramTest, read_json


class BadInput(ProgramTest):
    def setUp(self):
        super().setUp()
        self.seed = (ROOT / LINEAR).read_text()

    def refuse(self, name, data, place=True):
        path = self.tmp / f"{name}.json"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        result = self.run_program("verify", path)
        self.assertEqual(result.code, 2, result.text)
        self.assertIn(path.name, result.text)
        if place:
            self.assertRegex(result.text, r"\.json:\d+:\d+: error: ")
        return result.text

    def test_truncated(self):
        self.refuse("truncated", '{ "name": "x", ')

    def test_unknown_key_suggests(self):
        text = self.refuse("unknown", self.seed.replace('"world_size"', '"wrld_size"', 1))
        self.assertIn('did you mean "world_size"', text)

    def test_wrong_type(self):
        bad = re.sub(r'"world_size"\s*:\s*\d+', '"world_size": "four"', self.seed, count=1)
        self.assertIn("four", self.refuse("type", bad))

    def test_duplicate_key(self):
        bad = self.seed.replace('"world_size"', '"world_size": 2, "world_size"', 1)
        self.refuse("duplicate", bad)

    def test_deep_nesting_empty_and_binary(self):
        self.refuse("deep", "[" * 200000, place=False)
        self.refuse("empty", "", place=False)
        self.refuse("binary", b"\x00\xff\x7fELF" * 500, place=False)

    def test_result_file_tells_the_errors(self):
        path = self.tmp / "bad.json"
        path.write_bytes(self.seed.replace('"world_size"', '"wrld_size"', 1).encode())
        out = self.tmp / "result.json"
        result = self.run_program("verify", path, "--json", out)
        self.assertEqual(result.code, 2)
        errors = read_json(out)["errors"]
        self.assertTrue(any(e["line"] > 0 and "wrld_size" in e["message"] for e in errors), errors)

    def test_command_line(self):
        for args in (["verify", self.tmp / "none.json"],
                     ["verify", LINEAR, "--set", "/world_size=-3"],
                     ["verify", LINEAR, "--set", "/world_size=100000000"],
                     ["verify", LINEAR, "--set", "/world_size=3"],  # 20 samples on 3 ranks
                     ["verify", LINEAR, "--set", "/world_size"],
                     ["verify", LINEAR, "--set", "/no/such=1"],
                     ["verify", LINEAR, "--set", "/timeouts/collective_ms=9999999999999"],
                     ["verify", LINEAR, "--no-such-option"],
                     ["verfy", LINEAR],
                     ["verify"],
                     ["verify", LINEAR, "--json", "/proc/nope/x.json"],
                     ["verify", LINEAR, "--out", LINEAR],
                     ["verify", LINEAR, "--set", "/communicator/kind=c10d", "--set",
                      "/communicator/algorithm=bcube"]):
            result = self.run_program(*args)
            self.assertEqual(result.code, 2, f"{args}: {result.text}")
            self.assertTrue(result.text.strip(), args)

    def test_help_of_every_verb(self):
        top = self.run_program("--help")
        self.assertEqual(top.code, 0)
        for verb in ("verify", "scenario", "schema", "doctor", "version"):
            self.assertRegex(top.out, rf"(?m)^\s+{verb}\b")
            result = self.run_program(verb, "--help")
            self.assertEqual(result.code, 0, verb)
            self.assertGreater(len(result.out), 80)

    def test_schema_and_explain(self):
        for args in (["schema"], ["schema", "--result"]):
            result = self.run_program(*args)
            self.assertEqual(result.code, 0)
            self.assertIn("draft-07", result.out)
        first = self.run_program("scenario", "explain", LINEAR)
        self.assertEqual(first.code, 0, first.text)
        self.assertEqual(first.out, self.run_program("scenario", "explain", LINEAR).out)
        self.assertEqual(self.run_program("scenario", "check", LINEAR).code, 0)
        self.assertEqual(self.run_program("scenario", "list", "scenarios").code, 0)


if __name__ == "__main__":
    unittest.main()
