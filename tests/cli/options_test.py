"""Every option of every form of an invocation (docs/options.md, which is the program's own table) has
an effect here, is refused by name, or stands below with the reason why it changes nothing."""
import gzip
import inspect
import json
import pathlib
import re
import struct
import sys
import unittest

from harness import ROOT, TOY, read_json
from option_walk import Case, OptionWalk, differs, forms, refused, says, spec, writes, DEVICE

SLOW = "scenarios/stragglers/named_compute.json"
RESNET = "scenarios/stragglers/emulated_resnet50.json"
TRACE = "golden/data/stragglers/timeline-ST.json.gz"
ONE = ("--set", "/world_size=2", "--set", "/steps=2", "--set", "/reducer/kind=bucketed")
EMPTY_SHARD = says("no run", "--shard", "2/2", code=4)
SEEN = Case([], lambda test, base, result, path: None)  # the base itself has it, and shows it
# Of a rank of which nothing is known there is no dump.
NO_DUMPS = Case(["--trace", "{tmp}/written/", "--trace-kind", "flight_recorder"],
                lambda test, base, result, path: test.assertEqual(list(path.iterdir()), []))


def write_recording(folder, steps=4, changed_in=0):
    """As lockstep_record.py would leave it, of two ranks; of `changed_in` on, other gradients."""
    folder.mkdir(parents=True)
    (folder / "recording.json").write_text(
        '{"format": "lockstep_recording", "version": 1, "world_size": 2, "name": "made", '
        '"hash_every": 1, "hash": 2, "tensors": false}')
    for rank in range(2):
        events, lines = [], []
        for step in range(1, steps + 1):
            for phase, ms in ((3, 0), (4, 1), (5, 3), (7, 9)):  # load, forward, backward, optimizer
                events.append((step * 20 + ms, 0, 1, phase, step, -1, 0))
            for bucket, kind, ms in ((0, 4, 5), (0, 5, 8)):  # arrival and end of a collective
                events.append((step * 20 + ms, step, kind, 5, step, bucket, (1 << 56) + (6 << 48) + 64))
            events.append((step * 20 + 10, 0, 22, 7, step, -1, 0))
            value = f"{step + 100 * (changed_in and step >= changed_in):016x}"
            kinds = ("gradient", "buffer", "parameter", "optimizer_state")
            lines += [f'{{"step": {step}, ' + ", ".join(f'"{kind}": {{"w": "{value}"}}' for kind in kinds) + "}"]
        events.append((steps * 20 + 11, 0, 20, 7, steps, -1, 0))
        end = lines[-1].replace(', "gradient"', ', "end": true, "gradient"')
        (folder / f"rank-{rank}.hashes").write_text("\n".join([*lines, end]) + "\n")
        events.sort(key=lambda event: event[0])
        head = struct.pack("<QIiiiqqQQ", 0x31305345524b434c, 1, rank, 2, 0, 0, 0, len(events), len(events))
        body = b"".join(struct.pack("<qIHHiiQ", ms * 1_000_000, *rest) for ms, *rest in events)
        (folder / f"rank-{rank}.records").write_bytes(head.ljust(4096, b"\0") + body)
    return folder


class Options(OptionWalk):
    def test_the_table_is_there(self):
        self.assertGreater(len(forms()), 20)
        self.assertIn("--junit", forms()["analyze", "of kept runs"])

    def test_readers_of_runs(self):
        # One bucket: of several sizes a busy machine may fit no bandwidth, and then no cores.
        out = self.kept(SLOW, *ONE, "--set", "/steps=6", "--set", "/compute/backward_ms=20",
                        "--set", "/reducer/bucket_cap_mb=1", "--set", "/reducer/first_bucket_mb=1",
                        "--set", "/compute/forward_ms=10", "--set", '/expect={"verdict": "pass"}')
        self.walk("analyze", "of kept runs", [out], {
            "--metrics": Case(["--metrics", "--json", "{tmp}/written"], writes("").check),
            "--machine": refused("--machine", "{tmp}/none"),
            "--svg-step": refused("--svg-step", "999", "--svg", "{tmp}/s.svg")},
            same={"--machine"})
        missing = self.run_program("analyze", out, "--machine", "/none")
        self.assertEqual(missing.code, 2, missing.text)
        self.walk("whatif", "", [out], {"--fix-rank": refused("--fix-rank", "77")})
        published = [RESNET, "--table", "golden/data/published/resnet50_dgx_v100.json"]
        self.walk("calibrate", "on a published table", published, {
            "--table": SEEN,
            "--machine": differs("--machine", "dgx_v100"),
            "--set": differs("--set", "/compute/forward_ms=20"),
            "--out": writes("--out")})
        unsaid = self.run_program("calibrate", *published)
        self.assertIn("the links are not given (--machine)", unsaid.out)
        self.walk("calibrate", "without --out", [out], {"--cores": differs("--cores", "77")})
        self.walk("calibrate", "with --out", [out, "--out", self.tmp / "machine"], {
            "--out": Case([], lambda test, base, result, path: test.assertTrue(
                (test.tmp / "machine").exists())),
            "--cores": Case(["--cores", "77"], lambda test, base, result, path: test.assertIn(
                "77", (test.tmp / "machine").read_text()))})

    def test_traces_of_torch_profiler(self):
        first = (ROOT / "tests/fuzz/corpus/kineto/training.json").read_text()
        ranks = [self.tmp / f"rank{rank}.json" for rank in (0, 1)]
        ranks[0].write_text(first)
        ranks[1].write_text(first.replace('"rank": 0', '"rank": 1'))
        machine = self.tmp / "machine"
        read = lambda word: lambda test, base, result, path: test.assertIn(word, machine.read_text())  # noqa: E731
        self.walk("calibrate", "of traces, without --out", ranks, {
            "--cores": differs("--cores", "77"), "--machine": differs("--machine", "25gbe")})
        self.walk("calibrate", "of traces, with --out", [*ranks, "--out", machine], {
            "--out": Case([], lambda test, base, result, path: test.assertTrue(machine.exists())),
            "--cores": Case(["--cores", "77"], read("77")),
            "--machine": Case(["--machine", "25gbe"], read("3125"))})
        for words, said in (([ranks[0]], "links are not known: 1 of 2 ranks"),
                            ([*ranks, "--machine", "25gbe", "--cores", "2"], "--cores has no effect"),
                            ([ranks[0], ranks[0]], "rank 0 has several traces")):
            result = self.run_program("calibrate", *words)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(said, result.err)

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
                ("with --clean", ["--clean", "1"], {"--clean": None, **shard}),
                ("with --mutants", ["--mutants", "1"], {"--mutants": None, **shard})):
            given = {option: case or Case([], lambda test, base, result, path: None)
                     for option, case in own.items()}
            self.walk_runs("campaign", what, base, given, same)
        for options in (["--mutants", "1", "--junit", self.tmp / "x"], ["--clean", "1", "--draw", "1"],
                        ["--enumerate", "--seed", "3"], ["--clean", "1", "--seeds", "3"]):
            result = self.run_program("campaign", *options)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(options[-2], result.err)

    def test_soaks(self):
        out = self.tmp / "soak"
        base = ["--slices", "1", "--only", "explore", "--jobs", "2", "--out", out]
        from_seed = lambda seed: lambda test, base, result, path: test.assertIn(  # noqa: E731
            f'"seed":{seed},', (out / "ledger.jsonl").read_text())
        self.walk_runs("soak", "of seeds", base, {
            **dict.fromkeys(("--slices", "--only", "--jobs"), SEEN),
            "--out": Case([], lambda test, base, result, path: test.assertTrue((out / "soak.md").exists())),
            "--seed": Case(["--seed", "70001"], from_seed(70001)),
            "--hours": refused("--hours", "0"),
            "--shard": Case(["--shard", "2/2"], lambda test, base, result, path: test.assertTrue(
                (out / "2-of-2/ledger.jsonl").exists()))})
        self.walk("soak", "with --merge", ["--merge", out], {"--merge": SEEN})
        for words, said in ((["--merge", self.tmp / "none"], "no ledger"), (["--out", out, "--only", "naps"], "no kind of work"),
                            (["--out", out, "--only", "clean,clean"], "twice"), ([], "--out FOLDER"),
                            (["--out", out, "--shard", "auto"], "no launcher says")):
            result = self.run_program("soak", *words)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(said, result.err)

    def test_explorations(self):
        base = ["scenarios/explore/toy.json", "--set", "/reducer/kind=bucketed"]
        seen = Case([], lambda test, base, result, path: None)
        common = {"--device": DEVICE, "--preemptions": refused("--preemptions", "65"), "--shard": EMPTY_SHARD}
        self.walk_runs("explore", "of drawn schedules", [*base, "--schedules", "20"], {
            **common, "--all": Case(["--all", "--json", "{tmp}/written"], spec("all", True)),
            "--schedules": seen})
        self.walk_runs("explore", "with --replay", [*base, "--replay", "5"], {
            **common, "--replay": seen})

    def test_explorations_of_every_schedule(self):
        base = ["scenarios/explore/toy.json", "--set", "/reducer/kind=bucketed", "--exhaustive",
                "--schedules", "20", "--set", "/steps=1", "--set", "/world_size=2"]
        self.walk("explore", "with --exhaustive", base, {
            "--device": DEVICE, "--preemptions": refused("--preemptions", "65"), "--shard": EMPTY_SHARD,
            "--all": Case(["--all", "--json", "{tmp}/written"], spec("all", True)),
            "--exhaustive": SEEN, "--schedules": SEEN}, same={"--seed"})

    def test_sweeps(self):
        base = [TOY, "--caps", "0.00001", "--worlds", "2", "--reducers", "bucketed", "--rounds", "1",
                "--steps", "2", "--warmup", "1", "--allow-busy", "--vary", "/reducer/gradient_as_bucket_view=[false]"]
        given = dict.fromkeys([word for word in base if word.startswith("--")], SEEN)
        self.walk_runs("sweep", "", base, {
            **given, "--device": DEVICE,
            "--baseline": says("none.json", "--baseline", "{tmp}/none.json", code=2),
            "--reference": says("none.json", "--reference", "{tmp}/none.json", code=2),
            "--threshold": says("step_ms<=1e-06: fail", "--threshold", "step_ms<=0.000001", code=1)})
        path = self.tmp / "swept.json"
        self.assertEqual(self.run_program("sweep", *base, "--json", path).code, 0)
        swept = read_json(path)["sweep"]
        self.assertEqual([swept[key] for key in ("rounds", "steps", "warmup", "runs")], [1, 2, 1, 1])
        (line,) = swept["combinations"]
        self.assertEqual((line["label"], line["varied"]),
                         ("world_size=2 reducer=bucketed bucket_cap_mb=1e-05 gradient_as_bucket_view=false",
                          {"/reducer/gradient_as_bucket_view": False}))

    def test_collectives(self):
        base = ["all_reduce", "--communicators", "shm:rank_order", "--world-size", "3", "--min-bytes", "8",
                "--max-bytes", "32", "--factor", "4", "--dtype", "float64", "--iterations", "3", "--warmup",
                "2", "--timeout-ms", "20000"]
        given = dict.fromkeys([word for word in base if word.startswith("--")], SEEN)
        self.walk_runs("collective", "", base, given)
        path = self.tmp / "measured.json"
        self.assertEqual(self.run_program("collective", *base, "--json", path).code, 0)
        measured = read_json(path)["collective"]
        asked = {"world_size": 3, "dtype": "float64", "iterations": 3, "warmup": 2}
        self.assertEqual({key: measured[key] for key in asked}, asked)
        (one,) = measured["communicators"]
        self.assertEqual((one["label"], [size["bytes"] for size in one["sizes"]]), ("shm:rank_order", [8, 32]))
        late = self.run_program("collective", *base[:-1], "0")
        self.assertEqual(late.code, 2, late.text)

    def test_profiles_and_data(self):
        out = self.tmp / "toy.profile"
        self.walk("profile", "", [TOY, "--out", out], {
            "--out": Case([], lambda test, base, result, path: test.assertTrue(out.exists())),
            "--filter": says("0 runs are selected", "--filter", "zzz", code=2),
            "--device": says("measured on the cpu", "--device", "cuda", code=2),
            "--repetitions": says("median of 3", "--repetitions", "3")})
        files = {}
        for name, words in (("base", []), ("--samples", ["--samples", "30"]), ("--seed", ["--seed", "3"])):
            folder = self.tmp / name.strip("-")
            result = self.run_program("data", "mnist", folder, *words)
            self.assertEqual(result.code, 0, result.text)
            files[name] = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
        self.assertEqual({*forms()["data", ""]}, {*files} - {"base"})
        self.assertEqual(len(set(files.values())), 3)

    def test_schemas(self):
        printed = {self.run_program("schema").out}
        options = forms()["schema", ""]
        for option in options:
            result = self.run_program("schema", option)
            self.assertEqual(result.code, 0, result.text)
            printed.add(result.out)
        self.assertEqual(len(printed), len(options) + 1)
        self.assertEqual(self.run_program("schema", *options[:2]).code, 2)

    def test_help(self):
        """Of a verb in two ways; no part of it is empty, and no flag is left out."""
        for verb in ("verify", "schema", "scenario", "man"):
            shown = self.run_program(verb, "--help")
            self.assertEqual(self.run_program("help", verb).out, shown.out)
            self.assertNotRegex(shown.out, r"(?m)^\w[\w ]*\n *$")
        self.assertEqual(self.run_program("help").out, self.run_program("--help").out)
        self.assertIn("--result", self.run_program("schema", "--help").out)
        self.assertNotIn("scenario expects", self.run_program("man", "--help").out)
        self.assertEqual(self.run_program("help", "nothing").code, 2)

    def test_help_tells_the_exit_codes_of_the_verb_itself(self):
        """Of verdicts only where there is one; a folder is a FOLDER everywhere."""
        for verb, word in (("doctor", "this machine can verify"), ("profile", "written"), ("worker", "of rank 0 died"),
                           ("scenario", "wrong with these"), ("scenario list", "wrong with these")):
            codes = self.run_program(*verb.split(), "--help").out.split("Exit codes")[1]
            self.assertIn(word, codes)
            self.assertEqual("a run did not" in codes, verb == "worker", codes)
        man = self.run_program("man").out
        self.assertIn("FOLDER", man)
        self.assertNotRegex(man, r"\bDIR\b")

    def test_an_option_given_twice_is_refused(self):
        result = self.run_program("verify", TOY, "--out", self.tmp / "a", "--out", self.tmp / "b", "--list")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("--out: given 2 times; expected once", result.err)

    def test_checkpoints(self):
        for name, seed in (("a", 1), ("b", 2)):
            self.run_program("verify", TOY, *ONE, "--seed", seed, "--save-weights", self.tmp / f"{name}.safetensors")
        base = [self.tmp / "a.safetensors", self.tmp / "b.safetensors"]
        own = {"--atol": says("pass: ", "--atol", "1e9", code=0), "--rtol": says("pass: ", "--rtol", "1e30", code=0)}
        for key in ("--key", "--key-a", "--key-b"):
            own[key] = says("none", key, "none", code=2)
        self.walk("compare", "of checkpoints", base, own)

    def test_programs(self):
        script = self.tmp / "train"
        script.write_text('#!/bin/sh\n[ "$1" = slow ] && sleep 30\n'
                          "echo gpus=$LOCKSTEP_PROGRAM_PRETEND_GPUS seed=$LOCKSTEP_PROGRAM_SEED hook=$LOCKSTEP_PROGRAM_LOSSY_HOOK\n"
                          f"echo gpus=$LOCKSTEP_PROGRAM_PRETEND_GPUS >>{self.tmp}/seen\nexit 5\n")
        pretends = Case(["--pretend-gpus"], lambda test, base, result, path: test.assertIn("gpus=1", (test.tmp / "seen").read_text()))
        script.chmod(0o700)
        self.walk("program", "", [script], {
            "--world-sizes": says("^3 ranks", "--world-sizes", "3", code=3),
            "--spawns": says("the program ended with exit code 5", "--spawns", code=3),
            "--drill": refused("--drill", "--no-drill"), "--no-drill": refused("--no-drill", "--drill"),
            "--pretend-gpus": says("gpus=1", "--pretend-gpus", code=3),
            "--local-batch-norm": refused("--local-batch-norm", "--drill"),  # tests/program/local_batch_norm_test.py
            "--seed": says("seed=7", "--seed", "7", code=3),
            "--hook-error": says("hook=1", "--hook-error", "0.1", code=3),
            "--hook-owed": says("hook=1", "--hook-owed", "2", code=3),
            "--limit": says("had not ended after 1 s", "--limit", "1", "slow", code=3)})
        (self.tmp / "seen").unlink()
        self.walk("program-run", "", [script], {
            "--world-size": says("^3 ranks", "--world-size", "3"),
            "--trace-kind": NO_DUMPS,
            "--fault": says('fault "kill rank=1 step=3": never acted', "--fault", "kill rank=1 step=3"),
            "--spawns": says("the program that starts the ranks ended with exit code 5", "--spawns", code=3),
            "--pretend-gpus": pretends,
            "--timeout-scale": refused("--timeout-scale", "0"), "--hang-after": refused("--hang-after", "0"),
            "--gradients": Case(["--gradients", "{tmp}/written"], lambda test, base, result, path:
                                test.assertTrue(path.is_dir())),
            "--follow": says("none/gradients-0.jsonl", "--gradients", "{tmp}/following", "--follow", "{tmp}/none", code=2),
            "--limit": says("several are at the same place", "--limit", "1", "slow", code=3)})
        (self.tmp / "seen").unlink()
        self.walk("program-analyze", "", [script], {
            "--world-size": says("^3 ranks", "--world-size", "3"),
            "--trace-kind": NO_DUMPS,
            "--spawns": says("the program that starts the ranks ended with exit code 5", "--spawns", code=3),
            "--pretend-gpus": pretends,
            "--timeout-scale": refused("--timeout-scale", "0"), "--hang-after": refused("--hang-after", "0"),
            "--limit": says("several are at the same place", "--limit", "1", "slow", code=3)})
        self.walk("program-sweep", "", [script], {
            "--worlds": says("^3 ranks", "--worlds", "3", code=3),
            "--spawns": says("the program ended with exit code 5", "--spawns", code=3),
            "--pretend-gpus": says("gpus=1", "--pretend-gpus", code=3),
            "--limit": says("had not ended after 1 s", "--limit", "1", "slow", code=3),
            "--allow-busy": Case(["--allow-busy", "--json", "{tmp}/written"], lambda test, base, result, path:
                                 test.assertTrue(read_json(path)["allow_busy"])),
            "--predict": says("one cap is measured", "--predict", "--caps", "25", code=2),
            "--calibration": says("2 world sizes are measured", "--predict", "--calibration", "{tmp}/calibration",
                                  "--worlds", "2,3", code=2),
            **{name: refused(name, "0") for name in ("--caps", "--steps", "--warmup", "--rounds")}})

    def test_scenarios_of_programs(self):
        script, path = self.tmp / "train", self.tmp / "x.json"
        script.write_text('#!/bin/sh\necho seed=$LOCKSTEP_PROGRAM_SEED\necho over\nexit 5\n')
        script.chmod(0o700)
        path.write_text(json.dumps({"name": "x", "program": {"command": [str(script)]}}))
        first = Case(["--fail-fast", "--set", '/matrix={"/world_size": [2, 3]}', "--json", "{tmp}/written"],
                     lambda test, base, result, path: test.assertEqual(read_json(path)["not_run"], 1))

        def trusted(verb):
            return {"--trust-programs": Case([], lambda test, base, result, path_: test.assertIn(
                "it runs a command", test.run_program(verb, path).err))}
        own = {"--fail-fast": first, "--filter": says("zzz", "--filter", "zzz", code=4)}
        self.walk("verify", "of programs", [path, "--trust-programs"], {**own, **trusted("verify"), "--seed": says("seed=7", "--seed", "7", code=3)})
        listed = {"--list": SEEN, "--trust-programs": SEEN, "--filter": says("no scenario name", "--filter", "zzz", code=4),
                  "--seed": refused("--seed", "-1")}
        for verb in ("verify", "run"):
            self.assertRegex(self.run_program(verb, path, "--list").text,
                             "scenario +runs +what\nx +1" if verb == "verify" else 'no "faults"')
        self.walk("verify", "of programs with --list", [path, "--list", "--trust-programs"], listed)
        self.walk("scenario check", "of programs", [path], {"--seed": refused("--seed", "-1")})
        self.walk("scenario list", "of programs", [path], {"--filter": differs("--filter", "zzz")})
        self.walk("sweep", "of a program", [path, "--trust-programs"], {
            **trusted("sweep"),
            "--worlds": says("^3 ranks", "--worlds", "3", code=3),
            "--allow-busy": Case(["--allow-busy", "--json", "{tmp}/written"], lambda test, base, result, path:
                                 test.assertTrue(read_json(path)["allow_busy"])),
            **{name: refused(name, "0") for name in ("--caps", "--steps", "--warmup", "--rounds")}})
        path.write_text(json.dumps({"name": "x", "program": {"command": [str(script)]}, "faults": []}))
        self.walk("run", "of programs", [path, "--trust-programs"], {
            **own, **trusted("run"), "--seed": refused("--seed", "7"), "--trace-kind": NO_DUMPS})
        self.walk("run", "of programs with --list", [path, "--list", "--trust-programs"], listed)

    def test_dumps(self):
        dump = self.tmp / "dump_0"
        dump.write_text('{"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "d", "ranks": "[0]"}}, "entries": []}')
        self.walk("explain", "", [dump], {
            "--json": Case(["--json", "{tmp}/written"], writes("").check),
            "--scenario": says("no scenario was written", "--scenario", "{tmp}/written")})

    def test_recordings(self):
        a, b = write_recording(self.tmp / "a"), write_recording(self.tmp / "b", changed_in=3)
        self.assertEqual(self.run_program("compare", a, a).code, 0)
        self.walk("compare", "of recordings", [a, b], {
            "--rtol": says("--rtol", "--rtol", "0.1", code=2), "--atol": says("--atol", "--atol", "0.1", code=2)})
        self.walk("analyze", "of a recording", [write_recording(self.tmp / "c", steps=12)], {
            "--metrics": Case(["--metrics", "--json", "{tmp}/written"], writes("").check)})

    def test_every_form_is_walked_here(self):
        text = inspect.getsource(sys.modules[__name__])
        elsewhere = {("simulate", "with --predict"), ("simulate", "without --predict")}  # simulate_uses_test.cc
        in_loops = {(verb, what) for verb in ("verify", "run") for what in ("with --list", "with --hosts")}
        in_loops |= {("campaign", what) for verb, what in forms() if verb == "campaign"}
        in_loops |= {("data", ""), ("schema", "")}
        for verb, what in sorted(forms().keys() - elsewhere - in_loops):
            self.assertRegex(text, rf'walk(_runs)?\("{verb}", "{re.escape(what)}"', (verb, what))

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
