"""Runs the fuzzers that scripts/fuzz has built, some at a time, and says what each has done.

What they find lies in build/fuzz/findings, with the command that shows it again; what they learn of
the readers in build/fuzz/corpus, where the next call goes on."""
import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests/fuzz"
sys.path.insert(0, str(HERE))
import ledger  # noqa: E402
import readers  # noqa: E402

WORK = ROOT / "build/fuzz"
LONGEST_INPUT = 1 << 20
USUAL_INPUT = 1 << 14
LONG_SHARE = 20  # one execution of so many may be of the longest inputs: they take their time
LONGEST_S = 30  # beside other work; by itself, of the processor's time, no input may take as many as
LONGEST_CPU_S = 10
MOST_FINDINGS = 5  # of a target: it is run no further then
FEW_RUNS = 20_000

# What the tree holds anyway; files up to 100 kB.
SHIPPED = {
    "scenario": ["scenarios/*/*.json", "bench/scenarios/*.json"],
    "program_scenario": ["examples/scenarios/*.json"],
    "golden": ["golden/data/*.json"],
    "published": ["golden/data/published/*.json"],
    "parameters": ["golden/data/published/*parameters.json"],
    "weights": ["tests/sim/tools/compare/data/*.pt", "tests/sim/tools/compare/data/*.safetensors"],
    "zip": ["tests/sim/tools/compare/data/*.pt"],
    "archive": ["tests/sim/tools/compare/data/*.pt"],
    "checkpoint": ["scenarios/checkpoint/saved/*"],
}
# Words beside those of json.dict and of the seeds themselves.
DICTIONARIES = {"weights": "checkpoint", "pickle": "checkpoint", "zip": "checkpoint", "archive": "checkpoint",
                "door": "job", "member": "job", "link": "job", "store": "job", "wire": "job",
                "notice": "job", "log": "log", "dump_pickle": "checkpoint"}

# `replayed`: of the executions those of inputs that were in the corpus before.
Result = collections.namedtuple("Result", "target executions replayed seconds fresh rss findings")


class Stop:
    """Set by the first Ctrl-C or SIGTERM: what runs says what it did, and nothing new begins."""

    def __init__(self):
        self.asked = False
        self.lock = threading.Lock()
        self.children = set()

    def ask(self, *_):
        self.asked = True
        for child in list(self.children):
            child.send_signal(signal.SIGINT)

    def run(self, command, **how):
        """The exit code of a child and what it said; None where nothing is begun any more."""
        with self.lock:
            if self.asked:
                return None, ""
            # In a group of its own: a terminal's Ctrl-C comes once, through ask(). Not in a session: with autogroups a
            # session's niceness begins anew.
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, **how)
            self.children.add(child)
            if self.asked:  # in between
                child.send_signal(signal.SIGINT)
        try:
            said = child.communicate()[1] or b""
        finally:
            self.children.discard(child)
        return child.returncode, said.decode("utf-8", "replace")


STOP = Stop()


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__.split("\n")[0])
    much = parser.add_mutually_exclusive_group()
    much.add_argument("--seconds", type=float, help="for each target (60)")
    much.add_argument("--hours", type=float, help="for all together")
    much.add_argument("--runs", type=int, help="executions of each target; of folders a twentieth")
    parser.add_argument("--ledger", action="store_true",
                        help="with what tests/fuzz/ledger.json has: --runs is what each target shall "
                             "have had in all, and what is done now is added to it")
    parser.add_argument("--since", metavar="COMMIT",
                        help="only targets that read by code changed since then (scripts/fuzz --changed), and folders")
    parser.add_argument("--at-most", type=float, metavar="SECONDS",
                        help="for all together: each target gets less of --seconds where they are many; with --since, "
                             "others fill it where they are few, in turn by --seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="so many at a time")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--list", action="store_true", help="names of targets")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all, and folders")
    options = parser.parse_args()
    if options.ledger and options.seed:
        parser.error("--ledger counts executions that were not there before: it takes no --seed")
    return options


def known_targets():
    return sorted(p.stem.removeprefix("target_") for p in HERE.glob("target_*.cc"))


def copy_seeds(target, seeds):
    folder = seeds / target
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in SHIPPED.get(target, []):
        for path in ROOT.glob(pattern):
            if path.is_file() and 0 < path.stat().st_size <= 100_000:
                shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    return folder


def quoted(word):
    return '"' + "".join(f"\\x{b:02x}" if b < 0x20 or b > 0x7e or b in b'"\\' else chr(b)
                         for b in word) + '"'


def dictionary(target, folders):
    """json.dict and the strings of the seeds, or a binary format's own."""
    path = WORK / "dictionaries" / f"{target}.dict"
    path.parent.mkdir(parents=True, exist_ok=True)
    if target in DICTIONARIES:
        return HERE / f"{DICTIONARIES[target]}.dict"
    words = collections.Counter()
    for folder in folders:
        for seed in sorted(folder.glob("*")):
            words.update(set(re.findall(rb'"([ -~]{1,40}?)"', seed.read_bytes())))
    lines = [quoted(b'"' + word + b'"') for word, _ in words.most_common(400)]
    path.write_text((HERE / "json.dict").read_text() + "\n".join(lines) + "\n")
    return path


class Fuzzer:
    """One target, begun again after each finding until its time or number of runs is over."""

    def __init__(self, target, options, programs, seeds, scratch):
        self.target, self.options, self.scratch = target, options, scratch
        self.program = programs / f"fuzz_{target}"
        self.corpus = WORK / "corpus" / target
        self.corpus.mkdir(parents=True, exist_ok=True)
        self.findings = WORK / "findings"
        self.findings.mkdir(parents=True, exist_ok=True)
        own = HERE / "corpus" / target
        self.seeds = [f for f in (own, copy_seeds(target, seeds)) if f.is_dir()]
        self.words = dictionary(target, self.seeds)

    def run(self):
        """Short inputs mostly, which are quick, then long ones."""
        began = time.monotonic()
        total = collections.Counter()
        found = []
        whole = runs_left(self.target, self.options) if self.options.runs else self.options.per_target
        few = self.options.runs and self.options.runs < FEW_RUNS  # seeds are most of them
        for longest, share in ((USUAL_INPUT, 0 if few else whole - whole / LONG_SHARE),
                               (LONGEST_INPUT, whole)):
            while len(found) < MOST_FINDINGS and not STOP.asked:
                left = share - (counted(total, self.options) if self.options.runs
                                else time.monotonic() - began)
                if left < 1:
                    break
                kind = "-runs" if self.options.runs else "-max_total_time"
                if self.options.runs and self.options.ledger:
                    left += self.corpus_size()
                code, text = self.once(longest, f"{kind}={int(left)}")
                total["replayed"] += replayed(text)
                for name in ("number_of_executed_units", "new_units_added"):
                    total[name] += stat(text, name)
                total["rss"] = max(total["rss"], stat(text, "peak_rss_mb"))
                if code == 0 or STOP.asked:
                    break
                finding = self.keep(text)
                if finding:
                    found.append(finding)
        return Result(self.target, total["number_of_executed_units"], total["replayed"],
                      time.monotonic() - began, total["new_units_added"], total["rss"], found)

    def corpus_size(self):
        return sum(1 for folder in (self.corpus, *self.seeds) for _ in folder.iterdir())

    def once(self, longest, limit):
        prefix = self.findings / f"{self.target}-"
        command = [self.program, f"-max_len={longest}", f"-dict={self.words}",
                   f"-timeout={LONGEST_S}", "-rss_limit_mb=3072", "-malloc_limit_mb=1024",
                   f"-artifact_prefix={prefix}", "-print_final_stats=1", "-reload=0",
                   "-entropic=0",  # its bookkeeping takes more than most of our readers
                   f"-report_slow_units={LONGEST_S}", f"-seed={self.options.seed}", limit,
                   self.corpus, *self.seeds]
        return STOP.run(command, env=environment(self.scratch), stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE)

    def is_quick_alone(self, path):
        """Of an input that took long beside other work."""
        child = subprocess.Popen([self.program, "-timeout=300", path], env=environment(self.scratch),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        return status == 0 and usage.ru_utime + usage.ru_stime < LONGEST_CPU_S

    def keep(self, text):
        """The input's path; beside it what was said. Nothing: it was the machine that was slow."""
        written = re.findall(r"Test unit written to (\S+)", text)
        path = pathlib.Path(written[-1]) if written else self.findings / f"{self.target}-no-input"
        if "-timeout-" in path.name and self.is_quick_alone(path):
            path.unlink()
            return None
        path.with_name(path.name + ".log").write_text(text[-50_000:])
        return path


def environment(scratch):
    common = "symbolize=1:print_stacktrace=1"
    return {**os.environ, "LOCKSTEP_FUZZ_FOLDER": scratch, "UBSAN_OPTIONS": common,
            # Without the stacks of what was allocated, a sixth of all time; who shows a finding again
            # by its command gets them.
            "ASAN_OPTIONS": f"{common}:quarantine_size_mb=32:malloc_context_size=0:"
                            "detect_stack_use_after_return=0"}


def stat(text, name):
    found = re.findall(rf"stat::{name}:\s+(\d+)", text)
    return int(found[-1]) if found else 0


def replayed(text):
    """How many inputs libFuzzer read from its folders before it made any itself."""
    found = re.search(r"^#(\d+)\tINITED", text, re.MULTILINE)
    return int(found[1]) if found else stat(text, "number_of_executed_units")


def counted(total, options):
    """Executions that count towards --runs."""
    return total["number_of_executed_units"] - (total["replayed"] if options.ledger else 0)


def runs_left(target, options):
    """Of --runs; of folders a twentieth."""
    wanted = options.runs if target != "folders" else max(1, options.runs // 20)
    if not options.ledger:
        return wanted
    row = ledger.load().get(target)
    return wanted - row.executions if row else wanted


def side_by_side(works, jobs, options):
    """Results in the order of their ends."""
    waiting, results, lock = list(works), [], threading.Lock()

    def worker():
        while True:
            with lock:
                if not waiting or STOP.asked:
                    return
                work = waiting.pop(0)
            result = work()
            with lock:
                results.append(result)
                print(line_of(result), flush=True)
                if options.ledger:
                    ledger.add(result.target, result.executions - result.replayed, result.seconds,
                               result.rss, len(result.findings), options.commit)

    threads = [threading.Thread(target=worker) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def line_of(result):
    rate = result.executions / result.seconds if result.seconds else 0
    return (f"{result.target:<14}{result.executions:>12,}{rate:>12,.0f}{result.fresh:>12,}"
            f"{result.rss:>10,}{len(result.findings):>10}")


def fuzz_folders(program, options):
    """Whether nothing was found."""
    summary = WORK / "folders.json"
    summary.unlink(missing_ok=True)
    command = [sys.executable, "-B", HERE / "folders.py", "--program", program,
               "--findings", WORK / "findings", "--summary", summary]
    if options.runs:
        command += ["--runs", runs_left("folders", options)]
    else:
        command += ["--seconds", int(options.per_target)]
    if options.ledger:  # cases follow from their numbers: on with those that were not there yet
        row = ledger.load().get("folders")
        command += ["--first", row.executions if row else 0]
    elif options.seed:
        command += ["--seed", options.seed]
    code, _ = STOP.run([str(word) for word in command])
    if code is None or not summary.exists():
        return STOP.asked
    if options.ledger:
        ledger.add("folders", commit=options.commit, **json.loads(summary.read_text()))
    return code == 0


def seconds_of_each(options, targets):
    each = options.seconds or 60
    if options.hours:
        each = options.hours * 3600 * options.jobs / max(1, len(targets))
    if options.at_most:
        each = min(each, options.at_most * options.jobs / max(1, len(targets)))
    return each


def minutes(options):
    """How many targets get their whole time."""
    return int(options.at_most * options.jobs // (options.seconds or 60)) if options.at_most else 0


def in_turn(targets, count, number):
    """As many of them, others for another number."""
    begin = number % max(1, len(targets))
    return (targets[begin:] + targets[:begin])[:max(0, count)]


def how_to_replay(results, programs):
    for result in results:
        for path in result.findings:
            program = programs / f"fuzz_{result.target}"
            print(f"again: {os.path.relpath(program, ROOT)} {path}    ({path}.log)")


def main():
    options = arguments()
    known = known_targets()
    if options.list:
        print("\n".join([*known, "folders"]))
        return 0
    wrong = [t for t in options.targets if t not in [*known, "folders"]]
    if wrong:
        print(f"error: there is no target {', '.join(wrong)}; there are {', '.join(known)}, folders",
              file=sys.stderr)
        return 2
    targets = options.targets or [*known, "folders"]
    if options.since:
        changed = readers.affected(targets, readers.changed_since(options.since))
        print(f"read by code changed since {options.since}: {', '.join(changed) or 'nothing'}", flush=True)
        targets = changed + in_turn([t for t in targets if t not in changed], minutes(options) - len(changed), options.seed)
    options.per_target = seconds_of_each(options, targets)
    options.commit = ledger.commit_of_tree() if options.ledger else None
    if options.ledger and not options.commit:
        print("error: --ledger names the commit that was fuzzed, and the tree has uncommitted changes",
              file=sys.stderr)
        return 2
    if options.ledger and options.runs:
        targets = [t for t in targets if runs_left(t, options) > 0]
    signal.signal(signal.SIGINT, STOP.ask)
    signal.signal(signal.SIGTERM, STOP.ask)
    programs = pathlib.Path(os.environ["LOCKSTEP_FUZZERS"])
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="lockstep-fuzz-", dir=memory) as scratch:
        seeds = pathlib.Path(scratch) / "seeds"  # another call may run beside this one
        subprocess.run([programs / "fuzz_seeds", seeds], check=True, env=environment(scratch))
        print(f"{'target':<14}{'executions':>12}{'a second':>12}{'new inputs':>12}"
              f"{'peak MB':>10}{'findings':>10}")
        fuzzers = [Fuzzer(t, options, programs, seeds, scratch) for t in targets if t != "folders"]
        results = side_by_side([f.run for f in fuzzers], options.jobs, options)
    how_to_replay(results, programs)
    failed = any(r.findings for r in results)
    idle = [r.target for r in results if r.executions == 0 and not STOP.asked]
    if idle:
        print(f"error: nothing was executed of {', '.join(idle)}", file=sys.stderr)
    if "folders" in targets and not STOP.asked:
        failed = not fuzz_folders(os.environ["LOCKSTEP_PROGRAM"], options) or failed
    return 1 if failed or idle else 0


if __name__ == "__main__":
    sys.exit(main())
