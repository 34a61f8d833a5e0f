"""Walks the options of a form of an invocation (docs/options.md, which is the program's own table):
each has an effect here, is refused by name, or is given with the reason why it changes nothing."""
import html
import json
import re

from harness import ROOT, ProgramTest, read_json

ROW = re.compile(r"\| `lockstep ([a-z -]+)`(?: ([^|]*?))? \| (.*) \|")


def forms():
    """(verb, "with --list") -> options."""
    rows = {}
    for line in (ROOT / "docs/options.md").read_text().splitlines():
        if row := ROW.fullmatch(line):
            rows[row[1], row[2] or ""] = re.findall(r"`(--[a-z-]+)`", row[3])
    return rows


class Case:
    """What is given beside the base (nothing: the base has the option), and what must then be so: `check(test, base, result, path)`."""

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


def page(test, base, result, path):
    """Of --html: the answer that was printed, and the result, which tables are made of."""
    test.assertEqual(result.code, base.code, result.text)
    text = path.read_text()
    test.assertIn("default-src 'none'", text)
    test.assertIn(html.escape(result.out.splitlines()[-1], quote=False), text)
    found = json.loads(text.split('<script type="application/json" id="result">')[1].split("</script>")[0])
    test.assertIsInstance(found, dict)


COMMON = {
    "--html": Case(["--html", "{tmp}/written"], page),
    "--json": writes("--json"), "--junit": writes("--junit"), "--csv": writes("--csv"),
    "--markdown": writes("--markdown"), "--svg": writes("--svg"), "--trace": writes("--trace"),
    "--trace-kind": Case(["--trace", "{tmp}/written/", "--trace-kind", "flight_recorder"],
                         lambda test, base, result, path: test.assertTrue(
                             (path / "_dump_0").stat().st_size > 0, result.text)),
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
LEFT = {"--json": "result.json", "--html": "report.html", "--junit": "junit.xml", "--csv": "table.csv",
        "--markdown": "table.md", "--svg": "picture.svg", "--trace": "trace.json",
        "--export": "export/0001", "--save-weights": "weights.safetensors", "--out": "out"}
MARKED = {"--color": ["always"], "--annotations": ["github"], "--keep": [], "--metrics": [],
          "--seed": ["7"]}


class OptionWalk(ProgramTest):
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
                result = self.run_program(*verb.split(), *base, *words) if words else begin
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
