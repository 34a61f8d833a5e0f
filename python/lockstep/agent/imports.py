"""What is to be watched in modules that a program may never import, and whose import takes time."""
import importlib.abc
import importlib.machinery
import sys


class After(importlib.abc.MetaPathFinder):
    def __init__(self, name, action):
        self.name, self.action = name, action

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self.action(module)
        spec.loader.exec_module = exec_module
        return spec


def after_import(name, action):
    if name in sys.modules:
        action(sys.modules[name])
    else:
        sys.meta_path.insert(0, After(name, action))


def replace(name, function, other):
    """One of torch.distributed's functions, wherever a module of it has it by name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed") and vars(module).get(name) is function:
            setattr(module, name, other)
