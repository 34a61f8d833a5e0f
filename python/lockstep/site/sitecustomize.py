"""Python runs this first in the processes of a program under `lockstep verify -- COMMAND`, which puts
this folder on PYTHONPATH: as soon as torch is imported, the agent is told. Nothing is installed."""
import importlib.abc
import importlib.machinery
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
            sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
            try:
                import agent
            finally:
                sys.path.pop()
            agent.install()
        spec.loader.exec_module = exec_module
        return spec


if "LOCKSTEP_PROGRAM_DIR" in os.environ:
    sys.meta_path.insert(0, AfterTorch())
