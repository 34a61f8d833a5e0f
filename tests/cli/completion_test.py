"""`lockstep completion` and `lockstep man`, as shells and man read them."""
import shutil
import subprocess
import unittest

from harness import PATIENCE_S, ProgramTest


class Completion(ProgramTest):
    def script(self, shell):
        result = self.run_program("completion", shell)
        self.assertEqual(result.code, 0, result.text)
        path = self.tmp / shell
        path.write_text(result.out)
        return path

    def complete(self, *words):
        """What bash would offer for the last of `words`."""
        if not hasattr(self, "bash"):
            self.bash = self.script("bash")
        line = " ".join(f"'{word}'" for word in ("lockstep", *words))
        done = subprocess.run(
            ["bash", "-c", f"source {self.bash}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; "
             "_lockstep; printf '%s\\n' \"${COMPREPLY[@]}\""],
            cwd=self.tmp, capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.stderr, "")
        return [word for word in done.stdout.split("\n") if word]

    def test_bash_reads_it(self):
        done = subprocess.run(["bash", "-n", self.script("bash")], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_verbs_options_values_and_files(self):
        self.assertIn("verify", self.complete("ver"))
        self.assertNotIn("run", self.complete("ver"))
        self.assertEqual(self.complete("scenario", "ch"), ["check"])
        self.assertEqual(self.complete("verify", "--jun"), ["--junit"])
        self.assertEqual(self.complete("verify", "--color", "al"), ["always"])
        self.assertEqual(self.complete("verify", "--seed", ""), [])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        (self.tmp / "a file.json").write_text("")
        self.assertEqual(self.complete("verify", "a"), ["a file.json"])
        self.assertEqual(self.complete("verify", "x.json", "--junit", "a f"), ["a file.json"])
        self.assertEqual(self.complete("schema", "--res"), ["--result"])  # of a group of options

    def test_every_option_of_every_verb_is_there(self):
        for verb in ("verify", "run", "campaign", "sweep", "simulate", "collective", "worker"):
            offered = self.complete(verb, "--")
            for line in self.run_program(verb, "--help").out.split("\n"):
                for word in line.replace(",", " ").split()[:2]:
                    if line.startswith("  -") and word.startswith("--"):
                        self.assertIn(word, offered, verb)

    def test_zsh_and_fish_read_theirs(self):
        for shell in ("zsh", "fish"):
            path = self.script(shell)
            self.assertIn("verify", path.read_text())
            if shutil.which(shell):
                done = subprocess.run([shell, "-n", path], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_another_shell_is_bad_input(self):
        self.assertEqual(self.run_program("completion", "tcsh").code, 2)


class Man(ProgramTest):
    def test_it_renders_without_a_warning(self):
        page = self.run_program("man").out
        if shutil.which("groff") is None:
            self.skipTest("no groff")
        done = subprocess.run(["groff", "-man", "-Tascii", "-ww", "-rLL=100n"], input=page,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for words in ("LOCKSTEP(1)", "lockstep verify", "lockstep scenario check", "--junit",
                      "Exit codes", "XDG_STATE_HOME"):
            self.assertIn(words, subprocess.run(["col", "-bx"], input=done.stdout, text=True,
                                                capture_output=True).stdout)


if __name__ == "__main__":
    unittest.main()
