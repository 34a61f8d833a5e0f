"""examples/invariant.py as a module, which its tests call without another start of torch."""
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def example():
    spec = importlib.util.spec_from_file_location("example_invariant", ROOT / "examples/invariant.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
