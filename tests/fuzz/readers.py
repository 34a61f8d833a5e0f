"""Which targets read by code that has changed: they get their time in CI, the others a few inputs."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
FUZZ = "tests/fuzz/"
# A reader's own header, and what that takes from its own folder. Further off lies what every reader stands on: its
# changes would be everybody's.
DEPTH = 2


def included(path, root):
    return [name for name in INCLUDE.findall((root / path).read_text()) if (root / name).is_file()]


def with_twin(header, root):
    """A header and the source of the same name."""
    return [name for name in (header, header.removesuffix(".h") + ".cc") if (root / name).is_file()]


def next_depth(path, name, depth):
    """Of a file that `path`, at `depth`, includes; None: too far off."""
    if name.startswith(FUZZ):
        return depth
    if path.startswith(FUZZ):
        return 1
    beside = pathlib.PurePath(path).parent == pathlib.PurePath(name).parent
    return depth + 1 if beside and depth < DEPTH else None


def files_of(target, root=ROOT):
    """Of the tree, by their names within it: the target itself, its reader, and what lies around that."""
    found, waiting = {}, [(f"{FUZZ}target_{target}.cc", 0)]
    while waiting:
        path, depth = waiting.pop()
        if found.get(path, DEPTH + 1) <= depth:
            continue
        found[path] = depth
        for name in included(path, root):
            further = next_depth(path, name, depth)
            if further is not None:
                waiting += [(twin, further) for twin in with_twin(name, root)]
    return set(found)


def seeds_of(target, files):
    return {name for name in files if name.startswith(f"{FUZZ}corpus/{target}/")}


def affected(targets, files, root=ROOT):
    """Those of `targets` whose code or seeds are among the `files`; folders always, which runs all of it."""
    return [target for target in targets
            if target == "folders" or files_of(target, root) & files or seeds_of(target, files)]


def changed_since(commit, root=ROOT):
    """Names of the files that differ from `commit`, new ones included."""
    def git(*words):
        return subprocess.run(["git", "-C", root, *words], capture_output=True, text=True, check=True).stdout.splitlines()
    return set(git("diff", "--name-only", commit)) | set(git("ls-files", "--others", "--exclude-standard"))
