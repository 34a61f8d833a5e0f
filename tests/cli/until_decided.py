"""Runs `lockstep` with the words that follow, for a machine that has other work too: runs of which the
program itself says that the machine was too busy to tell (`undecided` is `busy_machine`) are repeated,
four times at most, each time after a longer rest. Everything else stands at once. Exit code 77, skipped,
where some need a quieter machine still."""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

RESTS_S = (2, 5, 10, 20)
SKIPPED = 77


def run(words):
    with tempfile.TemporaryDirectory(prefix="lockstep-folder-") as folder:
        path = pathlib.Path(folder) / "result.json"
        code = subprocess.run([*words, "--json", path], check=False).returncode
        return code, json.loads(path.read_text()) if path.exists() else {}


def undecided(document):
    """What to repeat; nothing where the answer has another reason than the machine."""
    runs = document.get("runs", [])
    if document.get("exit_code") != 3 or any(run.get("met", False) is False for run in runs):
        return []
    doubtful = [run for run in runs if run["met"] is None]
    if any(run["undecided"] != "busy_machine" for run in doubtful):
        return []
    return [shlex.split(run["again"])[1:] for run in doubtful]


def main(program, *words):
    code, document = run([program, *words])
    left = undecided(document)
    for rest_s in RESTS_S:
        if not left:
            return code
        print(f"a busy machine decided {len(left)} runs: again in {rest_s} s", flush=True)
        time.sleep(rest_s)
        code, still = 0, []
        for words in left:
            one_code, document = run([program, *words])
            if one_code == 3 and undecided(document):
                still.append(words)
            elif one_code != 0:
                return one_code
        left = still
    if not left:
        return code
    print("skipped: these need a quieter machine:")
    for words in left:
        print("  lockstep", shlex.join(words))
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
