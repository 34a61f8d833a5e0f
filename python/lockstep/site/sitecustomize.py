"""Python runs this first in the processes of a program under `lockstep verify -- COMMAND`, which puts
this folder on PYTHONPATH: as soon as torch is imported, the agent is told. Nothing is installed."""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys


class AfterTorch(importlib.abc.MetaPathFinder):
    """Stays where it is: many ask for torch by find_spec() before they import it."""

    def __init__(self, find):
        self.find = find

    def find_spec(self, name, path=None, target=None):
        spec = self.find(name, path) if name == "torch" else None
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            load_agent().install()
        spec.loader.exec_module = exec_module
        return spec


def load_agent(part="__init__", name="_lockstep_agent"):
    """By its file, under a name that no program has: many have an `agent.py` of their own."""
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent")
    inside = [folder] if part == "__init__" else None
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, part + ".py"),
                                                  submodule_search_locations=inside)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def say_loaded(folder):
    """A command that sets PYTHONPATH, or python -I, would go without a word."""
    try:
        open(os.path.join(folder, "agent"), "ab").close()
    except OSError:  # a process that outlives the run
        pass


def begin():
    find = importlib.machinery.PathFinder.find_spec
    if "LOCKSTEP_ZYGOTE" in os.environ:  # a descriptor; returns in ranks alone
        find = load_agent("zygote", "_lockstep_zygote").serve(int(os.environ.pop("LOCKSTEP_ZYGOTE"))).find_spec
    if "LOCKSTEP_PROGRAM_DIR" in os.environ:
        say_loaded(os.environ["LOCKSTEP_PROGRAM_DIR"])
        sys.meta_path.insert(0, AfterTorch(find))
    if "LOCKSTEP_PROGRAM_SCALED_OPTIONS" in os.environ:
        load_agent("options", "_lockstep_options").watch()


begin()
