"""What fuzzing has done so far, over all calls of scripts/fuzz --ledger: tests/fuzz/ledger.json, and the
table of docs/fuzzing.md that is made from it."""
import collections
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATH = ROOT / "tests/fuzz/ledger.json"
DOCUMENT = ROOT / "docs/fuzzing.md"
BEGIN, END = "<!-- ledger: begin -->\n", "<!-- ledger: end -->\n"
GOALS = collections.defaultdict(lambda: 1_000_000, folders=50_000)

# `first` and `last`: the commits between which it was executed. Inputs of the corpus that are read
# again at each start count as nothing.
Row = collections.namedtuple("Row", "executions seconds peak_mb findings first last")


def load(path=None):
    """Rows by target."""
    path = path or PATH
    if not path.exists():
        return {}
    return {target: Row(**fields) for target, fields in json.loads(path.read_text()).items()}


def added(row, executions, seconds, peak_mb, findings, commit):
    """The row after another `executions` at `commit`; row: None of a target's first."""
    if row is None:
        return Row(executions, round(seconds), peak_mb, findings, commit, commit)
    return Row(row.executions + executions, row.seconds + round(seconds),
               max(row.peak_mb, peak_mb), row.findings + findings, row.first, commit)


def replace(path, text):
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    os.replace(beside, path)


def table(rows):
    lines = ["| target | executions | of | a second | peak MB | findings | commits |",
             "| --- | --- | --- | --- | --- | --- | --- |"]
    for target, row in sorted(rows.items(), key=lambda item: (item[0] == "folders", item)):
        rate = row.executions / row.seconds if row.seconds else 0
        lines.append(f"| `{target}` | {row.executions:,} | {GOALS[target]:,} | {rate:,.0f} | "
                     f"{row.peak_mb or ''} | {row.findings} | {row.first} to {row.last} |")
    return "\n".join(lines) + "\n"


def with_table(document, rows):
    before, rest = document.split(BEGIN)
    return before + BEGIN + table(rows) + END + rest.split(END)[1]


def save(rows):
    lines = [f'  "{target}": {json.dumps(row._asdict())}' for target, row in sorted(rows.items())]
    replace(PATH, "{\n" + ",\n".join(lines) + "\n}\n")
    replace(DOCUMENT, with_table(DOCUMENT.read_text(), rows))


def add(target, executions, seconds, peak_mb, findings, commit):
    if executions <= 0:
        return
    rows = load()
    rows[target] = added(rows.get(target), executions, seconds, peak_mb, findings, commit)
    save(rows)


def commit_of_tree():
    """The commit of what is built here; None where the tree holds anything else."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout
    own = {str(p.relative_to(ROOT)) for p in (PATH, DOCUMENT)}
    if {line[3:] for line in git("status", "--porcelain").splitlines()} - own:
        return None
    return git("rev-parse", "--short", "HEAD").strip()
