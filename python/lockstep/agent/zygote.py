"""A Python that imports torch once and of which ranks are forked: the user's own command line, held up while Python
starts (sitecustomize). In each rank that start goes on, so that the script runs as it would in a fresh process.

What a fork would answer otherwise than a fresh process is put right here: draws without a seed, the environment, and
what the script does before it imports torch. Modules imported ahead are out of sys.modules until the script asks for
them; where it would get others, or sets variables first that their import may read, the rank ends with a reason and
lockstep starts fresh processes. Hashes of strings differ between the zygotes of a verdict, as between processes."""
import atexit
import gc
import os
import sys
import types
from importlib.machinery import PathFinder

RANK_VARIABLES = {"MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
                  "LOCKSTEP_PROGRAM_MET"}  # no import reads
CANNOT = 75  # exit code of a rank that must be a fresh process
PR_SET_PDEATHSIG = 1
is_rank = False


class Channel:
    """The Python end of lockstep's datagrams (sim/launch/protocol.h): byte strings, each after its length."""

    def __init__(self, fd):
        import socket
        self.socket = socket.socket(fileno=fd)

    def send(self, *fields):
        texts = [os.fsencode(field) for field in fields]
        self.socket.send(b"\0" + b"".join(len(text).to_bytes(4, sys.byteorder) + text for text in texts))

    def receive(self):
        """Nothing: lockstep wants no more, or is gone."""
        data, more = b"", True
        while more:
            piece = self.socket.recv(1 << 17)
            data, more = data + piece[1:], piece[:1] == b"\1"
        fields = []
        while data:
            end = 4 + int.from_bytes(data[:4], sys.byteorder)
            fields.append(os.fsdecode(data[4:end]))
            data = data[end:]
        return fields


class Before:
    """What importing may change."""

    def __init__(self):
        self.modules, self.path, self.environ = set(sys.modules), list(sys.path), dict(os.environ)

    def root_of(self, name):
        """The outermost package of a module that was imported since."""
        parts = name.split(".")
        return next((root for root in (".".join(parts[:n]) for n in range(1, len(parts))) if root not in self.modules),
                    name)


def origin_of(spec):
    return None if spec is None else spec.origin or list(spec.submodule_search_locations or [])


def is_found_on_path(spec):
    """So that another may come before it, as none can before a module built in, frozen or made at run time."""
    return spec is not None and (os.path.isabs(spec.origin or "") or bool(spec.submodule_search_locations))


class Kept:
    """Finds modules that are here already."""

    def __init__(self, before, with_torch):
        self.before, self.with_torch, self.groups = before, with_torch, {}
        self.added, self.environ = [place for place in sys.path if place not in before.path], dict(os.environ)
        for name in [name for name in sys.modules if name not in before.modules]:
            root = before.root_of(name)
            spec = getattr(sys.modules.get(root), "__spec__", None)
            if root in self.groups or is_found_on_path(spec):
                self.groups.setdefault(root, {})[name] = sys.modules[name]
        self.origins = {root: origin_of(group[root].__spec__) for root, group in self.groups.items()}

    def begin(self):
        """In a rank: as if nothing had been imported."""
        for group in self.groups.values():
            for name in group:
                del sys.modules[name]
        sys.path[:] = self.before.path
        self.folder, self.started = os.environ["LOCKSTEP_PROGRAM_DIR"], dict(os.environ)
        sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name not in self.groups:
            return None
        spec = self.checked(name, path)
        kept = self.groups[name][name]
        own = kept.__spec__
        spec.loader = spec.loader or types.SimpleNamespace()  # a package without a file has none
        spec.loader.create_module = lambda spec: kept

        def exec_module(module):
            module.__spec__ = own
            self.restore(name)
        spec.loader.exec_module = exec_module
        return spec

    def checked(self, root, path):
        """A fresh process, too, would import this very file."""
        spec = PathFinder.find_spec(root, path)
        if origin_of(spec) != self.origins[root]:
            self.give_up(f"the script has a module {root} of its own")
        return spec

    def restore(self, root):
        """With torch comes all that it has imported itself."""
        self.check_variables(root)
        roots = [one for one in self.groups if one in self.with_torch] if root == "torch" else [root]
        for one in roots:
            if os.path.dirname(str(self.origins[one])) not in self.added:
                self.checked(one, getattr(sys.modules.get(one.rpartition(".")[0]), "__path__", None))
        for one in roots:
            for name, module in self.groups.pop(one).items():
                sys.modules.setdefault(name, module)
        if root == "torch":
            sys.path.extend(self.added)
            of_import = {name: value for name, value in self.environ.items()
                         if self.before.environ.get(name) != value and name not in self.started}
            os.environ.update(of_import)
            self.started.update(of_import)  # which is no change of the script's
        seed_anew(root)

    def check_variables(self, root):
        if root in sys.stdlib_module_names:
            return
        names = set(self.started) | set(os.environ)
        changed = sorted(name for name in names - RANK_VARIABLES if self.started.get(name) != os.environ.get(name))
        if changed:
            self.give_up(f"the script changes the environment ({changed[0]}) before it imports {root}")

    def give_up(self, why):
        with open(os.path.join(self.folder, "fresh"), "w", encoding="utf-8", errors="replace") as file:
            file.write(why)
        sys.stdout.flush()
        os._exit(CANNOT)


def seed_anew(root):
    """What a fresh import draws from the system. The module `random` does so at each fork by itself."""
    if root in ("numpy", "torch") and "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if root == "torch":
        sys.modules["torch"].default_generator.seed()


def import_ahead():
    """Torch, and the names of what came with it."""
    import torch
    import torch.distributed
    with_torch = set(sys.modules)
    gc.freeze()  # no collection of a rank, nor its end, needs to look at these
    if hasattr(torch, "_disable_dynamo"):  # then the first optimizer of a program imports it
        import torch._dynamo
    return torch, with_torch


def unfit(torch):
    """Why no process should be forked from here; or nothing."""
    if len(os.listdir("/proc/self/task")) > 1:
        return "importing torch has started a thread"
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    if torch.cuda.is_initialized() or any(os.readlink(link).startswith("/dev/nvidia") for link in links
                                          if os.path.islink(link)):
        return "importing torch has initialised CUDA"
    return ""


def keep_temporary_folder():
    """torch.distributed.nn has one that each process would remove at its end."""
    folder = getattr(sys.modules.get("torch.distributed.nn.jit.instantiator"), "_TEMP_DIR", None)
    if folder is not None:
        folder._finalizer.detach()


def end_without_destructors(libc):
    """Those of what was imported ahead take 0.3 s, most of it for copies of memory that the processes shared. Python's own end
    and what the script registers come before, as do streams of C, which _exit() would leave unwritten."""
    if hasattr(libc, "on_exit"):
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)


def become_rank(middle, launcher, log, variables):
    import ctypes
    import time
    while os.getppid() == middle:
        time.sleep(0.0002)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
    end_without_destructors(libc)
    if os.getppid() != int(launcher):  # it is gone, or cannot take children of others
        os._exit(1)
    os.setpgid(0, 0)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (1, 2):
        os.dup2(file, standard)
    os.close(file)
    for text in variables:
        name, equals, value = text.partition("=")
        if equals:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)
    keep_temporary_folder()


def fork_rank(channel, launcher, log, *variables):
    """True in the rank. A process between the two ends at once, so that the rank becomes lockstep's own child."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return False
    middle = os.getpid()
    if os.fork():
        os._exit(0)
    become_rank(middle, launcher, log, variables)
    return True


def clear_script():
    """The last of all that is done at the exit of a rank. Python would do it, but of objects that were frozen it collects none,
    and the module of the script is one: what it holds, as files that were not closed, would never be."""
    import threading
    if is_rank and threading.active_count() == 1:
        names = sys.modules["__main__"].__dict__
        for name in [name for name in names if not name.startswith("__")]:
            names[name] = None
        gc.collect()


def end():
    atexit._run_exitfuncs()
    os._exit(0)


def serve(fd):
    """Returns in ranks alone: what finds the modules that are here. Python would run the script after an error."""
    channel = None
    atexit.register(clear_script)
    try:
        before = Before()
        channel = Channel(fd)
        return serve_until_forked(channel, before)
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
        sys.stderr.flush()
        if channel is not None:
            channel.send("unfit", f"{type(error).__name__}: {error}")
        os._exit(1)


def serve_until_forked(channel, before):
    try:
        torch, with_torch = import_ahead()
    except Exception as error:
        channel.send("unfit", f"torch cannot be imported ahead: {type(error).__name__}: {error}")
        end()
    why = unfit(torch)
    kept = Kept(before, with_torch)
    os.environ.clear()
    os.environ.update(before.environ)
    channel.send("unfit" if why else "ready", why)
    while True:
        sys.stdout.flush()
        sys.stderr.flush()
        message = channel.receive()
        if not message:
            end()
        if fork_rank(channel, *message):
            global is_rank
            is_rank = True
            kept.begin()
            channel.send("rank", str(os.getpid()))
            channel.socket.close()
            return kept
