"""A project of somebody else's, built against what `cmake --install` leaves, and the guide to a
reducer of one's own, whose text is the test."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, read_json

BUILD = pathlib.Path(os.path.realpath(PROGRAM)).parents[1]
GUIDE = ROOT / "docs/own_reducer.md"
GENERATOR = ["-G", "Ninja"] if shutil.which("ninja") else []


def prefixes_of(build):
    """Where this build found its dependencies, if not in the system (scripts/offline)."""
    found = re.search(r"^CMAKE_PREFIX_PATH:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.M)
    return found[1].split(";") if found else []


class Consumer(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = BUILD / "consumer" / "prefix"
        shutil.rmtree(cls.prefix.parent, ignore_errors=True)
        cls.call(cls, "cmake", "--install", BUILD, "--prefix", cls.prefix)

    def call(self, *words, code=0, cwd=None, env=None):
        done = subprocess.run([str(word) for word in words], text=True, capture_output=True,
                              timeout=PATIENCE_S, cwd=cwd, env=env)
        if done.returncode != code:
            raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def build(self, source, build):
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        prefixes = ";".join([str(self.prefix), *prefixes_of(BUILD)])
        self.call("cmake", "-S", source, "-B", build, *GENERATOR, f"-DCMAKE_PREFIX_PATH={prefixes}",
                  "-DCMAKE_BUILD_TYPE=Release", *launcher)
        self.call("cmake", "--build", build)

    def run_own(self, program, *words, code=0):
        result = self.tmp / "result.json"
        self.call(program, "verify", *words, "--json", result, code=code, env=self.env)
        return read_json(result)

    def test_a_project_with_parts_of_its_own(self):
        build = self.prefix.parent / "project"
        source = ROOT / "tests/consumer"
        self.build(source, build)
        self.call(build / "consumer_test", env=self.env)
        own = source / "own.json"
        document = self.run_own(build / "consumer", own)
        self.assertEqual(len(document["runs"]), 3)
        for run in document["runs"]:
            self.assertEqual({lane["verdict"] for lane in run["lanes"].values()}, {"pass"}, run)
            self.assertEqual({lane["control"] for lane in run["lanes"].values()}, {"detected"})
            self.assertTrue(run["again"].startswith(f"{build}/consumer verify "), run["again"])
        # Its claim is judged: these bits are not DDP's, whose buckets are divided before the sum.
        wrong = self.run_own(build / "consumer", own, "--set", '/reducer/same_bits_as="flat"',
                             "--filter", "gloo", code=1)
        self.assertEqual(wrong["runs"][0]["lanes"]["replay"]["verdict"], "fail")
        self.assertEqual(wrong["runs"][0]["lanes"]["float64"]["verdict"], "pass")
        hook = self.run_own(
            build / "consumer", own, "--set", '/reducer={"kind":"bucketed"}', "--set",
            '/comm_hook={"kind":"registered","name":"in_halves"}', "--set", "/lanes=[\"float64\"]")
        self.assertEqual({run["verdict"] for run in hook["runs"]}, {"pass"})
        lost = self.run_own(build / "consumer", own, "--set", "/reducer/name=\"quits\"",
                            "--filter", "gloo", code=3)
        failure = lost["runs"][0]["failure"]
        self.assertEqual(failure["rank"], 1)
        self.assertIn("I quit", failure["message"] + "".join(failure["log_tail"]))

        # Defects of which only lane float64 can tell: each is named where it begins, and why.
        named = self.run_own(build / "consumer", source / "wrong.json")
        self.assertEqual(len(named["runs"]), 52)
        for run in named["runs"]:
            self.assertTrue(run["met"], (run["set"], run["unmet"], run["first_divergence"]))
            if run["first_divergence"]:
                self.assertEqual(run["first_divergence"]["state_kind"], "gradient")

    def test_what_nobody_registered_is_named(self):
        # Bad input: nothing is run.
        document = self.verify_json(ROOT / "tests/consumer/own.json", "--filter", "local", code=2)
        self.assertEqual(document["runs"], [])
        self.assertEqual([error["pointer"] for error in document["errors"]], ["/data/name", "/model/name", "/reducer/name"])
        self.assertIn("is registered in this worker", document["errors"][2]["message"])
        hook = ROOT / "scenarios/features/own_comm_hook.json"
        document = self.verify_json(hook, "--set", "/comm_hook/name=\"mistyped\"", "--set", '/matrix={"/steps": [4]}', code=2)
        self.assertIn("divide_after", document["errors"][0]["message"])

    def test_the_guide_to_a_reducer_of_ones_own(self):
        text = GUIDE.read_text()
        folder = self.tmp / "mine"
        folder.mkdir()
        files = re.findall(r"^`(\S+)`:\n\n```\w*\n(.*?)^```", text, re.M | re.S)
        self.assertEqual([name for name, _ in files], ["CMakeLists.txt", "mine.cc", "mine.json"])
        for name, content in files:
            (folder / name).write_text(content)
        self.assertLessEqual(len(files[1][1].splitlines()), 40)
        env = dict(self.env, CMAKE_PREFIX_PATH=":".join([str(self.prefix), *prefixes_of(BUILD)]))
        if shutil.which("ccache"):
            env["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
        commands = re.findall(r"^```\n\$ (.*?)^```", text, re.M | re.S)
        self.assertEqual(len(commands), 4)
        for block in commands:
            command, _, shown = block.partition("\n")
            if not GENERATOR:
                command = command.replace(" -G Ninja", "")
            code = 1 if "exit 1" in shown else 0
            printed = self.call("bash", "-c", command, cwd=folder, env=env, code=code)
            # Times, versions and last bits differ from machine to machine.
            for line in shown.splitlines():
                if line.startswith(("pass", "fail", "  lane", "  cause", "  first")):
                    self.assertIn(re.sub(r"(; worst|: distance) .*", "", line), printed)


if __name__ == "__main__":
    unittest.main()
