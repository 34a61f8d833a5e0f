"""python -m lockstep.run_function FILE NAME: calls one function of a file, as one rank of a training."""
import importlib.util
import os
import sys


def main(path, name):
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    getattr(module, name)()


if __name__ == "__main__":
    main(*sys.argv[1:])
