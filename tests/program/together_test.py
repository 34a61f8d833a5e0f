"""Verdicts that are made together are those of each script alone, and every test says what its own are."""
import re
import unittest

import together
from program_test import script
from together import Asked, TogetherTest, Verdict, verdicts_of


class Verdicts(unittest.TestCase):
    def test_scripts_that_end_otherwise_disturb_no_other(self):
        summed = script(forward="loss = nn.functional.mse_loss(model(x), y, reduction='sum')")
        asked = [Asked("import torch\nraise SystemExit(7)", ()), Asked(script(), ("--world-sizes", 3)),
                 Asked("import os, torch\nos.kill(os.getpid(), 9)", ()), Asked(summed, ("--no-drill",)),
                 Asked("import torch, time\ntime.sleep(600)", ("--limit", 4)), Asked("import torch\nsys.exit()", ()),
                 Asked(script(begin="assert __file__.endswith('train.py') and 'code' not in globals()"), ())]
        found = verdicts_of(asked)
        self.assertEqual([verdict.code for verdict in found], [3, 0, 3, 1, 3, 3, 0], found)
        for verdict, said in zip(found, ("ended with exit code 7", "3 ranks\n", "ended with signal 9", "cause summed_loss: ",
                                         "had not ended after 4 s", "NameError: name 'sys' is not defined", "2 ranks\n")):
            self.assertIn(said, verdict.said)
            self.assertEqual((verdict.result["exit_code"], verdict.left), (verdict.code, []))
        self.assertEqual([world["world_size"] for world in found[1].result["worlds"]], [3])
        self.assertEqual(found[3].result["worlds"][0]["lanes"]["float64"]["cause"], "summed_loss")

    def test_an_option_that_scenarios_do_not_have_is_refused(self):
        with self.assertRaises(KeyError):
            verdicts_of([Asked(script(), ("--spawns",))])


class Of(unittest.TestCase):
    """With verdicts that are made up: a text is its exit code, and says itself."""

    def setUp(self):
        self.made, self.left, self.ran = [], [], []
        self.addCleanup(setattr, together, "verdicts_of", together.verdicts_of)
        together.verdicts_of = self.make

    def make(self, asked):
        self.made.append([one.text for one in asked])
        return [Verdict(int(one.text), f"said {one.text}", {}, self.left) for one in asked]

    def run_tests(self, names=("test_one", "test_loop", "test_apart")):
        ran = self.ran

        class Tests(TogetherTest):
            def test_one(self):
                for text in ("1", "0", "1"):
                    code, said = self.verify_text(text)
                    self.assertEqual((str(code), said), (text, f"said {text}"))

            def test_loop(self):
                for expected, text in ((0, "2"), (3, "3"), (0, "4"), (5, "5")):
                    with self.subTest(text):
                        self.assertEqual(self.verify_text(text)[0], expected)

            def test_apart(self):
                self.verify_text("6")
                self.apart()
                ran.append(self)
                self.assertEqual(self.verify_text("7")[0], 0)
        result = unittest.TestResult()
        unittest.TestSuite(map(Tests, names)).run(result)
        self.assertEqual(result.errors, [])
        return [re.sub(r"(\w+) .*?(\[.*\])?$", r"\1\2", str(test)) for test, _ in result.failures]

    def test_each_failure_is_of_its_own_script(self):
        self.assertEqual(self.run_tests(), ["test_loop[2]", "test_loop[4]", "test_apart"])
        self.assertEqual(self.made, [["6", "2", "3", "4", "5", "1"], ["0"], ["7"]])
        self.assertEqual(len(self.ran), 1)

    def test_what_was_not_selected_is_not_made(self):
        self.assertEqual(self.run_tests(["test_one"]), [])
        self.assertEqual(self.made, [["1"], ["0"]])

    def test_what_is_left_behind_is_a_failure(self):
        self.left = ["file"]
        self.assertEqual(len(self.run_tests(["test_one", "test_apart"])), 2)


if __name__ == "__main__":
    unittest.main()
