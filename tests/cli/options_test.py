"""Every option of every form of an invocation (docs/options.md, which is the program's own table) has
an effect here, is refused by name, or stands below with the reason why it changes nothing."""
import gzip
import pathlib
import re
import unittest

from harness import ROOT, TOY, ProgramTest, read_json

SLOW = "scenarios/stragglers/named_compute.json"
TRACE = "golden/data/stragglers/timeline-ST.json.gz"
ONE = ("--set", "/world_size=2", "--set", "/steps=2", "--set", "/reducer/kind=bucketed")
ROW = re.compile(r"\| `lockstep ([a-z ]+)`(?: ([^|]*?))? \| (.*) \|")


def forms():
    """(verb, "with --list") -> options."""
    rows = {}
    for line in (ROOT / "docs/options.md").read_text().splitlines():
        if row := ROW.fullmatch(line):
            rows[row[1], row[2] or ""] = re.findall(r"`(--[a-z-]+)`", row[3])
    return rows


class Case:
    """What is given beside the base, and what must then be so: `check(test, base, result)`."""

    def __init__(self, words, check):
        self.words, self.check = words, check


def writes(option, name="written"):
    def check(test, base, result, path):
        test.assertEqual(result.code, base.code, result.text)
        test.assertTrue(path.exists(), result.text)
        test.assertTrue(path.is_dir() or path.stat().st_size > 0)
    return Case([option, "{tmp}/" + name], check)


def differs(*words):
    """Of verbs whose output is the same each time."""
    def check(test, base, result, path):
        test.assertEqual(result.code, base.code, result.text)
        test.assertNotEqual(timeless(result.out), timeless(base.out), words)
    return Case(words, check)


def says(pattern, *words, code=None):
    def check(test, base, result, path):
        test.assertNotRegex(base.text, pattern)
        test.assertRegex(result.text, pattern)
        test.assertEqual(result.code, base.code if code is None else code, result.text)
    return Case(words, check)


def refused(*words):
    """The value is looked at: one that cannot be is refused, with the option's name."""
    def check(test, base, result, path):
        test.assertEqual(result.code, 2, result.text)
        test.assertIn(words[0], result.err)
    return Case(words, check)


def fewer(test, base, result, path):
    test.assertEqual(result.code, base.code, result.text)
    test.assertLess(len(result.out.splitlines()), len(base.out.splitlines()))


def more(test, base, result, path):
    test.assertEqual(result.code, base.code, result.text)
    test.assertGreater(len(result.out.splitlines()), len(base.out.splitlines()))


def timeless(text):
    return re.sub(r"in [\d.e-]+ s\b", "", text)


def spec(key, value):
    return lambda test, base, result, path: test.assertEqual(
        read_json(path)["spec"][key], value)


# Where there is no GPU it says so; where there is one it runs there.
DEVICE = Case(["--device", "cuda"], lambda test, base, result, path: test.assertTrue(
    result.code == 0 or "device cuda" in result.text or
    (result.code == 2 and "cuda" in result.err), result.text))


def silent(verb):
    """Options of which the same page says that no result shows them, and why."""
    rows = re.findall(r"^\| `(--[a-z-]+)` \| (?:every verb|`lockstep ([a-z ]+)`) \| .+ \|$",
                      (ROOT / "docs/options.md").read_text(), re.M)
    return {option for option, of in rows if of in ("", verb)}


COMMON = {
    "--json": writes("--json"), "--junit": writes("--junit"), "--csv": writes("--csv"),
    "--markdown": writes("--markdown"), "--svg": writes("--svg"), "--trace": writes("--trace"),
    "--out": writes("--out"),
    "--color": says("\x1b\\[", "--color", "always"),
    "--quiet": Case(["--quiet"], fewer), "--verbose": Case(["--verbose"], more),
    "--set": says("nonsense", "--set", "/nonsense=1", code=2),
    "--full": refused("--full"),
    "--data": refused("--data", "{tmp}"),
    "--trust-model": refused("--trust-model", "{tmp}/none.pt"),
    "--filter": says("zzz|^scenario +runs +file +what\n$", "--filter", "zzz", code=4),
    "--device": differs("--device", "cuda"),
    "--annotations": Case(["--annotations", "github"],
                          lambda test, base, result, path: test.assertTrue(
                              (test.tmp / "summary").stat().st_size > 0)),
}


# Files and folders that one run can leave all at once, and what marks the others left in them.
LEFT = {"--json": "result.json", "--junit": "junit.xml", "--csv": "table.csv",
        "--markdown": "table.md", "--svg": "picture.svg", "--trace": "trace.json",
        "--export": "export/0001", "--save-weights": "weights.safetensors", "--out": "out"}
MARKED = {"--color": ["always"], "--annotations": ["github"], "--keep": [], "--metrics": [],
          "--seed": ["7"]}


class Options(ProgramTest):
    def setUp(self):
        super().setUp()
        self.env["GITHUB_STEP_SUMMARY"] = str(self.tmp / "summary")
        self.count = 0

    def walk(self, verb, what, base, own=None, same=()):
        """`base`: words behind the verb; `own`: what differs from COMMON; `same`: no effect."""
        cases = {**COMMON, **(own or {})}
        options = forms()[verb, what]
        begin = self.run_program(*verb.split(), *base)
        self.assertIn(begin.code, (0, 1, 3), begin.text)
        for option in options:
            if option in silent(verb) or option in same:
                continue
            with self.subTest(verb=verb, what=what, option=option):
                self.assertIn(option, cases, "say what it does")
                self.count += 1
                folder = self.tmp / f"case{self.count}"
                folder.mkdir()
                words = [str(word).replace("{tmp}", str(folder)) for word in cases[option].words]
                (self.tmp / "summary").write_text("")
                result = self.run_program(*verb.split(), *base, *words)
                cases[option].check(self, begin, result, folder / "written")

    def walk_runs(self, verb, what, base, own, same=()):
        """As walk(), of verbs whose every call is a run: what can be given together is."""
        options = forms()[verb, what]
        words, folder = list(base), self.tmp / f"together{self.count}"
        self.count += 1
        folder.mkdir()
        (self.tmp / "summary").write_text("")
        together = [option for option in options
                    if option in {**LEFT, **MARKED} and option not in {*own, *same}]
        for option in together:
            value = [folder / LEFT[option].removesuffix("/0001")] if option in LEFT else MARKED[option]
            words += [option, *value]
        result = self.run_program(*verb.split(), *words)
        self.assertEqual(result.code, 0, result.text)
        for option in together:
            with self.subTest(verb=verb, what=what, option=option):
                if option in LEFT:
                    self.assertTrue((folder / LEFT[option]).exists(), result.text)
                marks = {"--color": "\x1b[" in result.out,
                         "--annotations": (self.tmp / "summary").stat().st_size > 0,
                         "--keep": any((folder / "out").rglob("plan.json")),
                         "--metrics": "--metrics" in own or self.has(folder, '"phases": ['),
                         "--seed": self.has(folder, '"seed": 7')}
                self.assertTrue(marks.get(option, True), result.text)
        self.walk(verb, what, base, own, {*same, *together})

    @staticmethod
    def has(folder, text):
        return text in (folder / "result.json").read_text()

    def kept(self, *args):
        out = self.tmp / "kept"
        self.run_program("verify", *args, "--keep", "--out", out)
        return out

    def test_the_table_is_there(self):
        self.assertGreater(len(forms()), 20)
        self.assertIn("--junit", forms()["analyze", "of kept runs"])

    def test_readers_of_runs(self):
        out = self.kept(SLOW, *ONE, "--set", "/steps=6", "--set", "/compute/backward_ms=20",
                        "--set", "/compute/forward_ms=10", "--set", '/expect={"verdict": "pass"}')
        self.walk("analyze", "of kept runs", [out], {
            "--metrics": Case(["--metrics", "--json", "{tmp}/written"], writes("").check),
            "--machine": refused("--machine", "{tmp}/none"),
            "--svg-step": refused("--svg-step", "999", "--svg", "{tmp}/s.svg")},
            same={"--machine"})
        missing = self.run_program("analyze", out, "--machine", "/none")
        self.assertEqual(missing.code, 2, missing.text)
        self.walk("whatif", "", [out], {"--fix-rank": refused("--fix-rank", "77")})
        self.walk("calibrate", "without --out", [out], {"--cores": differs("--cores", "77")})
        self.walk("calibrate", "with --out", [out, "--out", self.tmp / "machine"], {
            "--out": Case([], lambda test, base, result, path: test.assertTrue(
                (test.tmp / "machine").exists())),
            "--cores": Case(["--cores", "77"], lambda test, base, result, path: test.assertIn(
                "77", (test.tmp / "machine").read_text()))})

    def test_readers_of_traces(self):
        self.walk("analyze", "of a trace", [TRACE])
        text = self.tmp / "trace.json"
        text.write_bytes(gzip.decompress((ROOT / TRACE).read_bytes()))
        for words in (["--svg", self.tmp / "x.svg"], ["--trace", self.tmp / "x"], ["--metrics"],
                      ["--annotations", "github"], ["--machine", "none"]):
            result = self.run_program("analyze", text, "--json", self.tmp / "x.json", *words)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(words[0], result.err)

    def test_scenarios_that_are_looked_at(self):
        found = {"--seed": differs("--seed", "7"), "--device": differs("--device", "auto")}
        self.walk("scenario explain", "", [TOY, *ONE], found)
        self.walk("scenario check", "", [TOY])
        self.walk("scenario list", "", [TOY], {"--filter": differs("--filter", "zzz")})

    def test_runs(self):
        nobody = {
            "--shard": says("is empty", "--shard", "2/2", code=4),
            "--last-failed": says("failed last", "--last-failed", code=4),
            "--baseline": says("none.json", "--baseline", "{tmp}/none.json", code=2),
            "--device": DEVICE,
            "--fail-fast": Case(
                ["--fail-fast", "--jobs", "1", "--set", '/matrix={"/seed": [1, 2]}', "--set",
                 '/mutants=[{"kind": "wrong_divisor"}]', "--json", "{tmp}/written"],
                lambda test, base, result, path: test.assertEqual(
                    len(read_json(path)["not_run"]), 1))}
        self.walk_runs("verify", "on this machine", [TOY, *ONE], nobody)
        # What it adds is the same code; it prints an explanation of each run, at any rate.
        self.walk_runs("run", "on this machine", [TOY, *ONE], nobody, same={"--verbose"})
        for verb in ("verify", "run"):
            self.walk(verb, "with --list", [TOY, "--list"], {
                "--list": Case([], lambda test, base, result, path: test.assertIn(
                    "toy_model", result.out)),
                "--shard": nobody["--shard"], "--last-failed": nobody["--last-failed"]},
                same={"--seed", "--device"})  # named and counted, no more

    def test_worker(self):
        alone = [TOY, "--nodes", "1", "--ranks-per-node", "2", *ONE[2:]]
        self.walk_runs("worker", "", alone, {
            "--device": DEVICE,
            "--launcher": says("slurm|SLURM", "--launcher", "slurm", code=2),
            "--nodes": Case([], lambda test, base, result, path: None),
            "--ranks-per-node": Case([], lambda test, base, result, path: test.assertIn(
                "2 ranks", result.text)),
            "--filter": says("the selection has 0", "--filter", "zzz", code=2),
            "--node-rank": says("--node-rank 1 with --nodes 1", "--node-rank", "1", code=2),
            "--job-key-file": Case(["--job-key-file", "{tmp}/none"],
                                   lambda test, base, result, path: test.assertEqual(
                                       result.code, 2, result.text)),
            "--interface": says("no such interface", "--interface", "none", code=2)})

    def test_hosts_get_every_option(self):
        shell, log = self.tmp / "shell", self.tmp / "log"
        shell.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
        shell.chmod(0o700)
        given = {"--annotations": ["github"], "--color": ["always"], "--data": ["d"],
                 "--device": ["auto"], "--filter": ["f"], "--full": [], "--hosts": ["b"],
                 "--interface": ["i"], "--json": ["j"], "--junit": ["u"], "--keep": [],
                 "--master-port": ["7"], "--metrics": [], "--out": ["o"], "--quiet": [],
                 "--ranks-per-host": ["3"], "--remote-shell": [f"{shell} x"], "--seed": ["7"],
                 "--set": ["/steps=2"], "--trust-model": ["t"], "--verbose": []}

        def told(words):
            log.write_text("")
            result = self.run_program(*words)
            self.assertEqual(result.code, 0, result.text)
            return log.read_text()
        for verb in ("verify", "run"):
            base = {"--hosts": ["a"], "--remote-shell": [str(shell)]}
            plain = told([verb, TOY, *(word for item in base.items() for word in (item[0], *item[1]))])
            for option in forms()[verb, "with --hosts"]:
                with self.subTest(verb=verb, option=option):
                    asked = {**base, option: given[option]}
                    words = [word for item in asked.items() for word in (item[0], *item[1])]
                    self.assertNotEqual(told([verb, TOY, *words]), plain)

    def test_campaigns(self):
        shard = {"--shard": says("fewer runs", "--shard", "2/2", code=2)}
        # All runs of these are as expected, so that none is told in full nor ends the rest.
        same = {"--verbose", "--fail-fast"}
        for what, base, own in (
                ("of random faults", ["--seeds", "1"], {"--seeds": None, **shard}),
                ("with --draw", ["--enumerate", "--draw", "1"],
                 {"--enumerate": None, "--draw": None, **shard}),
                ("with --clean", ["--clean", "1"], {"--clean": None}),
                ("with --mutants", ["--mutants", "1"], {"--mutants": None})):
            given = {option: case or Case([], lambda test, base, result, path: None)
                     for option, case in own.items()}
            self.walk_runs("campaign", what, base, given, same)
        for options in (["--mutants", "1", "--junit", self.tmp / "x"], ["--clean", "1", "--shard", "1/1"],
                        ["--enumerate", "--seed", "3"], ["--clean", "1", "--seeds", "3"]):
            result = self.run_program("campaign", *options)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(options[-2], result.err)

    def test_explorations(self):
        base = ["scenarios/explore/toy.json", "--set", "/reducer/kind=bucketed"]
        seen = Case([], lambda test, base, result, path: None)
        common = {"--device": DEVICE, "--preemptions": refused("--preemptions", "65")}
        self.walk_runs("explore", "of drawn schedules", [*base, "--schedules", "20"], {
            **common, "--all": Case(["--all", "--json", "{tmp}/written"], spec("all", True)),
            "--schedules": seen})
        self.walk_runs("explore", "with --replay", [*base, "--replay", "5"], {
            **common, "--replay": seen})

    def test_a_selection_without_a_run_is_said_in_json_too(self):
        for verb in ("verify", "simulate", "explore"):
            path = self.tmp / f"{verb}.json"
            result = self.run_program(verb, TOY, "--filter", "zzz", "--json", path)
            self.assertEqual(result.code, 4, result.text)
            self.assertIn("nothing selected: no ", result.err)
            self.assertTrue(path.exists())

    def test_what_other_kinds_of_input_are_refused_by(self):
        """Every verb on every kind of input that it does not read: exit 2, and the input named."""
        out = self.kept(TOY, *ONE)
        result = self.tmp / "result.json"
        self.run_program("verify", TOY, *ONE, "--json", result)
        inputs = {"a run": out / "0001", "an invocation": out, "a result": result, "a trace": TRACE,
                  "a name": "toy_model", "standard input": "-", "records": out / "0001/rank-0",
                  "a scenario": TOY, "a folder": "scenarios/equivalence",
                  "a checkpoint": "golden/data/none.safetensors"}
        reads = {"scenarios": {"a scenario", "a folder"}, "runs": {"a run", "an invocation"}}
        verbs = {"verify": "scenarios", "run": "scenarios", "explore": "scenarios",
                 "simulate": "scenarios", "sweep": "scenarios", "scenario check": "scenarios",
                 "scenario list": "scenarios", "scenario explain": "scenarios",
                 "whatif": "runs", "calibrate": "runs", "analyze": "runs"}
        for verb, kind in verbs.items():
            for name, path in inputs.items():
                if name in reads[kind] or (verb, name) == ("analyze", "a trace"):
                    continue
                with self.subTest(verb=verb, input=name):
                    done = self.run_program(*verb.split(), path)
                    self.assertEqual(done.code, 2, done.text)
                    self.assertIn(pathlib.Path(path).name, done.err)


if __name__ == "__main__":
    unittest.main()
