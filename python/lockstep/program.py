"""The C++ program of this package: where it lies, and `lockstep` on PATH."""
import os
import pathlib
import shutil
import sys


def path():
    """LOCKSTEP_PROGRAM, or the program installed in this package, or of a build of the source tree that this
    package lies in. Raises FileNotFoundError."""
    given = os.environ.get("LOCKSTEP_PROGRAM")
    if given:
        found = shutil.which(given)
        if found is None:
            raise FileNotFoundError(f"LOCKSTEP_PROGRAM is {given}, which is no program")
        return found
    package = pathlib.Path(__file__).resolve().parent
    tree = package.parents[1]
    for place in (package / "bin/lockstep", tree / "build/release/bin/lockstep", tree / "build/test/bin/lockstep"):
        if os.access(place, os.X_OK):
            return str(place)
    raise FileNotFoundError(f"the program lockstep is not in {package / 'bin'}: install it by `pip install .`, or set "
                            "LOCKSTEP_PROGRAM")


def main():
    """Becomes the program; does not return."""
    try:
        program = path()
    except FileNotFoundError as error:
        sys.exit(f"lockstep: error: {error}")
    os.execv(program, ["lockstep", *sys.argv[1:]])
