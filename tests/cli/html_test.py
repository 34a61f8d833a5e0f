"""The report of --html in a real browser: opened from the disk, zoomed, sorted, read aloud; nothing is
asked for, names that look like markup do nothing, ten thousand collectives are drawn at once."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, needs_browser
from harness import ProgramTest, needs_quiet_machine, read_json

KILL = ("run", "scenarios/faults/kill.json", "--set", "/world_size=3", "--set", "/faults/0/phase=backward")
WRONG = ("verify", "scenarios/mutants/b01_wrong_divisor.json", "scenarios/mutants/b05_fp16_overflow.json")
NAMES = ["<script>window.broken = 1</script>", "</script><script>window.broken = 2</script>",
         "<img src=x onerror='window.broken = 3'>", "\"'&amp;]]>-->", "gnp.\u202etxt", "line\u2028end"]


# Ranks 0 and 1 are a group, and so are 2 and 3.
MESH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    net(torch.ones(1, 2)).sum().backward()
    dist.all_reduce(torch.ones(3), group=pairs[rank // 2])
    optimizer.step()
"""


def safetensors(path, value):
    header, data = {}, b""
    for name in NAMES:
        header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        data += struct.pack("<f", value)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_long_recording(folder, ranks=4, steps=100, buckets=100):
    """As lockstep_record.py would leave it: steps * buckets collectives, in which each rank is in turn."""
    folder.mkdir()
    (folder / "recording.json").write_text(json.dumps({
        "format": "lockstep_recording", "version": 1, "world_size": ranks, "name": "long", "hash_every": 1,
        "hash": 2, "tensors": False}))
    for rank in range(ranks):
        events, sequence = [], 0
        for step in range(1, steps + 1):
            begin = step * 200_000
            events += [(begin + us, 0, 1, phase, step, -1, 0)
                       for phase, us in ((3, 0), (4, 1000), (5, 30_000), (7, 180_000))]
            for bucket in range(buckets):
                sequence += 1
                arrival = begin + 40_000 + bucket * 1300 + rank * 37
                events += [(arrival, sequence, 4, 5, step, bucket, 1 << 20),
                           (arrival + 1100, sequence, 5, 5, step, bucket, 1 << 20)]
            events.append((begin + 190_000, 0, 22, 7, step, -1, 0))
        events.append((steps * 200_000 + 191_000, 0, 20, 7, steps, -1, 0))
        events.sort(key=lambda event: event[0])
        head = struct.pack("<QIiiiqqQQ", 0x31305345524b434c, 1, rank, ranks, 0, 0, 0, len(events), len(events))
        body = b"".join(struct.pack("<qIHHiiQ", us * 1000, *rest) for us, *rest in events)
        (folder / f"rank-{rank}.records").write_bytes(head.ljust(4096, b"\0") + body)


class WithoutBrowser(unittest.TestCase):
    def test_that_it_is_missing_is_a_failure_in_ci(self):
        """And the reason of a skip elsewhere."""
        for ci, word in (("true", "AssertionError"), ("", "SkipTest")):
            done = subprocess.run([sys.executable, "-B", "-c", "from browser import needs_browser; needs_browser()"],
                                  cwd=pathlib.Path(__file__).parent, capture_output=True, text=True,
                                  env={"PATH": "/nowhere", "CI": ci})
            self.assertIn(word, done.stderr)
            self.assertIn("chromedriver is not installed", done.stderr)


class Html(ProgramTest):
    @classmethod
    def setUpClass(cls):
        needs_browser()
        cls.folder = tempfile.TemporaryDirectory(prefix="lockstep-browser-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.browser = Browser(cls.folder.name)
        cls.addClassCleanup(cls.browser.close)

    def page(self, *words, code=None):
        """Opened; what was printed, and the result."""
        path, result = self.tmp / "report.html", self.tmp / "result.json"
        end = words.index("--") if "--" in words else len(words)
        done = self.run_program(*words[:end], "--html", path, "--json", result, *words[end:])
        if code is not None:
            self.assertEqual(done.code, code, done.text)
        self.assertTrue(path.exists(), done.text)
        self.browser.open(path)
        self.assertEqual(self.browser.requests(), [path.as_uri()])
        self.assertEqual(self.browser.console(), [])
        return done, read_json(result)

    def js(self, expression, *arguments):
        return self.browser.run(f"return {expression}", *arguments)

    def shown_range(self):
        data = self.js("({...document.querySelector('canvas').dataset})")
        return float(data["beginMs"]), float(data["endMs"])

    def width(self):
        begin, end = self.shown_range()
        return end - begin

    def column(self, section, number):
        return self.js("[...document.querySelectorAll(`section[aria-labelledby=section-${arguments[0]}] tbody tr`)]"
                       ".map(row => row.children[arguments[1]].textContent)", section, number)

    def test_says_what_the_terminal_says(self):
        done, result = self.page(*KILL, code=0)
        self.assertEqual(self.js("document.getElementById('text').textContent"), done.out)
        self.assertEqual(self.js("document.getElementById('verdict').textContent"), done.out.splitlines()[-1])
        self.assertEqual(self.js("JSON.parse(document.getElementById('result').textContent)"), result)
        self.assertEqual(self.js("document.title"), "lockstep run: " + done.out.splitlines()[-1])
        commands = self.js("[...document.querySelectorAll('.commands code')].map(one => one.textContent)")
        self.assertEqual(commands[0], f"lockstep {' '.join(KILL)} --html {self.tmp}/report.html "
                                      f"--json {self.tmp}/result.json")
        self.assertIn(result["runs"][0]["again"], commands)

    def test_colours_are_left_out_of_the_text(self):
        done, _ = self.page(*KILL, "--color", "always")
        self.assertIn("\x1b[", done.out)
        self.assertNotIn("[3", self.js("document.getElementById('text').textContent"))

    def test_timeline_begins_where_it_failed(self):
        _, result = self.page(*KILL, code=0)
        failure = result["runs"][0]["failure"]
        self.assertIn(f"rank {failure['rank']}: {failure['kind']}, step {failure['step']}",
                      self.js("document.querySelector('canvas').getAttribute('aria-label')"))
        step = self.js("document.querySelector('input[type=number]').value")
        self.assertEqual(int(step), failure["step"])
        begin, end = self.shown_range()
        self.assertGreater(begin, 0)
        self.browser.focus("canvas")
        self.browser.press("0")
        whole = self.width()
        self.assertEqual(self.shown_range()[0], 0)
        self.assertGreater(whole, end - begin)
        self.browser.press("g")
        self.assertEqual(self.shown_range(), (begin, end))

    def test_zooms_by_button_key_wheel_and_bucket(self):
        self.page(*KILL)
        self.browser.focus("canvas")
        self.browser.press("0")
        widths = [self.width()]
        self.browser.click(".bar button:nth-last-of-type(2)")  # Zoom in
        widths.append(self.width())
        self.browser.focus("canvas")
        self.browser.press("+")
        widths.append(self.width())
        self.browser.wheel("canvas", -240)
        widths.append(self.width())
        self.assertEqual(widths, sorted(widths, reverse=True))
        self.assertEqual(len(set(widths)), 4)
        self.browser.press("0")
        self.browser.click(".view table tbody tr:last-child button")
        said = self.js("document.querySelector('.said').textContent")
        self.assertRegex(said, r"bucket \d+: [\d.]+ ms between the first rank and the last, rank \d")
        self.assertLess(self.width(), widths[0])
        self.browser.press("0", "Down", ".", "Enter")
        self.assertRegex(self.js("document.querySelector('.said').textContent"), "ms between the first rank")
        self.assertLess(self.width(), widths[0])
        self.assertEqual(self.browser.console(), [])

    def test_what_never_ended_can_be_seen(self):
        """Though it begins where the last sign of its rank is."""
        self.page(*KILL)
        data = {"world_size": 2, "tick_ns": 100_000, "focus": {"ranks": [1]}, "phase_words": ["load", "forward"],
                "phases": [[1, 1, 0, 100], [1, 1, 0, 90]],
                "collectives": [[1, "all_reduce", 0, 8, 1, [100, 100, None, None], None]]}
        seen = self.js("(events => [events.lanes[0].lanes[0].bars[0], events])(new RunEvents(arguments[0]))", data)
        self.assertEqual((seen[0]["begin"], seen[0]["end"], seen[0]["open"]), (10, 11, True))
        self.assertEqual((seen[1]["end"], seen[1]["lanes"][1]["lanes"]), (11, []))

    def test_collectives_of_some_ranks_are_drawn_and_listed(self):
        script, python = self.tmp / "train.py", os.environ.get("LOCKSTEP_PEER_PYTHON", "/usr/bin/python3")
        script.write_text(MESH)
        self.page("run", "--world-size", "4", "--fault", "kill rank=3 step=2 phase=forward", "--", python, script, code=1)
        self.assertIn("rank 3: crash, step 2", self.js("document.querySelector('canvas').getAttribute('aria-label')"))
        rows = sorted(zip(*(self.column("timeline", place) for place in (0, 1, 2, 5))))  # name, ranks, bytes, never entered by
        self.assertEqual(rows, [("all reduce 2 of group 1", "0 1", "12", ""), ("all reduce 2 of group 2", "2 3", "12", "3")])
        self.browser.focus("canvas")
        self.browser.press("0", ".")
        said = "document.querySelector('.said').textContent"
        self.assertRegex(self.js(said), r"^rank 3, step 1, all reduce 1 of group 2 \(ranks 2 3\), 12 B: arrives")
        self.browser.press("Up", "0", ".", ".")
        self.assertRegex(self.js(said), r"^rank 2, step 2, .*never entered by rank 3, never ends$")
        self.browser.click(".view table tbody tr:last-child button")
        self.assertRegex(self.js(said), "^all reduce 2 of group [12]: ")
        self.assertEqual(self.browser.console(), [])

    def test_dumps_of_a_hang_have_a_timeline(self):
        folder = self.tmp / "dumps"
        folder.mkdir()
        for rank in range(3):
            entries = [{"record_id": s, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": s, "p2p_seq_id": 0,
                        "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + s * 10**8 + rank * 10**6,
                        "input_sizes": [[8]], "input_dtypes": ["Float"], "state": "scheduled" if s == 40 else "completed",
                        "retired": s != 40, "timeout_ms": 1000, "is_p2p": False} for s in range(1, 40 + (rank != 1))]
            (folder / f"_dump_{rank}.json").write_text(json.dumps(
                {"version": "2.9", "entries": entries, "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}}))
        self.page("explain", folder, code=1)
        self.assertIn("rank 1: never entered, part 2", self.js("document.querySelector('canvas').getAttribute('aria-label')"))
        self.assertEqual(self.column("timeline", 4)[-1], "1")
        self.assertIn("Each rank's times are those of its own clock.", self.js("document.querySelector('.note').textContent"))
        begin, end = self.shown_range()
        self.browser.focus("canvas")
        self.browser.press("p")
        self.assertLess(self.shown_range()[0], begin)
        self.assertEqual(self.browser.console(), [])

    def test_tables_sort_by_click_and_by_key(self):
        _, result = self.page(*WRONG)
        names = sorted({run["name"] for run in result["runs"]})
        head = "section[aria-labelledby=section-runs] thead th:nth-of-type(1)"
        sort = "document.querySelector(arguments[0]).getAttribute('aria-sort')"
        self.assertEqual(self.js(sort, head), "none")
        self.browser.click(head + " button")
        self.assertEqual(self.js(sort, head), "ascending")
        self.assertEqual(self.column("runs", 1)[0], names[0])
        self.browser.focus(head + " button")
        self.browser.press("Enter")
        self.assertEqual(self.js(sort, head), "descending")
        self.assertEqual(self.column("runs", 1)[0], names[-1])
        self.browser.press("Space")
        self.assertEqual(self.js(sort, head), "ascending")

    def test_evidence_to_the_last_bit(self):
        _, result = self.page(*WRONG)
        text = self.js("document.querySelector('section[aria-labelledby=section-evidence]').textContent")
        first = result["runs"][0]["first_divergence"]
        for value in (first["tensor"], first["run_bits"], first["golden_bits"], str(first["run_value"]),
                      first["cause"]):
            self.assertIn(value, text)

    def test_for_screen_readers(self):
        self.page(*WRONG)
        self.assertEqual(self.js("document.documentElement.lang"), "en")
        self.assertEqual(self.js("document.querySelectorAll('h1').length"), 1)
        self.assertGreater(self.js("document.querySelectorAll('table').length"), 3)
        self.assertEqual(self.js("[...document.querySelectorAll('table')].filter(one => !one.caption).length"), 0)
        self.assertEqual(self.js("document.querySelectorAll('th[scope=col]:not([aria-sort])').length"), 0)
        self.assertEqual(self.js("[...document.querySelectorAll('button')].filter(one => "
                                 "!one.textContent && !one.getAttribute('aria-label')).length"), 0)
        self.assertEqual(self.js("[...document.querySelectorAll('[aria-labelledby], [aria-describedby]')].filter("
                                 "one => !document.getElementById(one.getAttribute('aria-labelledby') || "
                                 "one.getAttribute('aria-describedby'))).length"), 0)

    def test_light_and_dark(self):
        self.page(*KILL)
        seen = {}
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.browser.run_async("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
            seen[scheme] = self.js("getComputedStyle(document.body).backgroundColor + ' ' + [...document."
                                   "querySelector('canvas').getContext('2d').getImageData(1, 1, 1, 1).data]")
        self.browser.scheme("light")
        self.assertEqual(seen["light"], "rgb(255, 255, 255) 255,255,255,255")
        self.assertEqual(seen["dark"], "rgb(20, 24, 31) 20,24,31,255")

    def test_hostile_names_do_nothing(self):
        folder = self.tmp / "<script>window.broken = 4<!--"
        folder.mkdir()
        a, b = folder / "a.safetensors", folder / "b'\">.safetensors"
        safetensors(a, 1.0)
        safetensors(b, 2.0)
        done, result = self.page("compare", a, b, "--verbose", code=1)
        self.assertEqual(self.js("JSON.parse(document.getElementById('result').textContent)"), result)
        self.assertEqual(self.js("document.getElementById('text').textContent"), done.out)
        for _ in range(3):  # what is inside is made when it is opened
            self.browser.run("document.querySelectorAll('details').forEach(one => { one.open = true; });"
                             "document.querySelectorAll('[aria-expanded=false]').forEach(one => one.click())")
        self.assertIsNone(self.js("window.broken"))
        self.assertEqual(self.js("[document.images.length, document.scripts.length]"), [0, 4])
        text = self.js("document.getElementById('report').textContent")
        for name in NAMES:
            self.assertIn(name.replace("\u202e", "\\u202e").replace("\u2028", "\\u2028"), text)
        for hidden in "\u202e\u2028":
            self.assertNotIn(hidden, self.js("document.body.innerText"))
        page = (self.tmp / "report.html").read_text()
        self.assertEqual(page.count("<script"), 4)
        self.assertEqual(page.count("</script"), 4)

    def test_the_policy_lets_no_other_script_in(self):
        self.page(*KILL)
        self.browser.run("const made = document.createElement('script'); made.textContent = 'window.broken = 5';"
                         "document.body.append(made); document.body.insertAdjacentHTML('beforeend', "
                         "'<img src=\"https://example.org/x\">')")
        self.assertIsNone(self.js("window.broken"))
        self.assertEqual(len(self.browser.console()), 2)  # both are refused, and told

    @needs_quiet_machine
    def test_ten_thousand_collectives(self):
        recording = self.tmp / "recording"
        if not recording.exists():
            write_long_recording(recording)
        self.page("analyze", recording, code=0)
        drawn = self.js("JSON.parse(document.getElementById('timelines').textContent)[0].collectives.length")
        self.assertEqual(drawn, 10_000)
        times = self.js("Object.fromEntries([...performance.getEntriesByType('paint'), "
                        "...performance.getEntriesByType('mark')].map(one => [one.name, one.startTime]))")
        self.assertLessEqual(times["first-contentful-paint"], 1000, times)
        self.assertLessEqual(times["timeline drawn"], 1000, times)
        frames = self.browser.run_async("""
            const done = arguments[0], canvas = document.querySelector('canvas'), times = [];
            const key = key => canvas.dispatchEvent(new KeyboardEvent('keydown', {key}));
            const next = () => {
              if (times.length > 20) return done(times.slice(1).map((time, i) => time - times[i]));
              key(['+', 'ArrowRight', '-', '0'][times.length % 4]);
              requestAnimationFrame(time => { times.push(time); requestAnimationFrame(next); });
            };
            next();""")
        self.assertLess(sorted(frames)[len(frames) // 2], 100, frames)  # two frames each

    def test_refused_before_anything_runs(self):
        for path, words in ((self.tmp / "none/report.html", ()),
                            (self.tmp / "same", ("--json", self.tmp / "same"))):
            done = self.run_program(*KILL, "--html", path, *words)
            self.assertEqual(done.code, 2, done.text)
            self.assertIn("--html", done.err)
            self.assertEqual(done.out, "")
            self.assertFalse(path.exists())
        self.assertEqual(list(self.tmp.glob("*unfinished*")), [])


if __name__ == "__main__":
    unittest.main()
