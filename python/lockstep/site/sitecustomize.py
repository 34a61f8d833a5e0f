"""Python runs this first in the processes of a program under `lockstep verify -- COMMAND`, which puts
this folder on PYTHONPATH: as soon as torch is imported, the agent is told. Nothing is installed."""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


class AfterTorch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            load_agent().install()
        spec.loader.exec_module = exec_module
        return spec


def load_agent():
    """By its file, under a name that no program has: many have an `agent.py` of their own."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent")
    spec = importlib.util.spec_from_file_location("_lockstep_agent", os.path.join(folder, "__init__.py"),
                                                  submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if "LOCKSTEP_PROGRAM_DIR" in os.environ:
    sys.meta_path.insert(0, AfterTorch())
