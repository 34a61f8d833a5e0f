"""A program of zygote_test.py: writes what it sees of its process, and what it draws, to the folder that it is given."""
import sys

BEFORE = [name for name in ("torch", "numpy", "threading", "random", "json", "logging") if name in sys.modules]
import gc
import json
import os
import random
import signal
import threading
import torch
import torch.distributed

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # PyTorch 2 imports more with the first
FOLDERS = ("MASTER_PORT", "LOCKSTEP_PROGRAM_DIR")  # of each run its own
seen = {
    "argv": sys.argv, "orig_argv": sys.orig_argv[:-1], "path": [place for place in sys.path if "/tmp" not in place],
    "name": __name__, "file": __file__, "is main": vars(sys.modules["__main__"]) is globals(),
    "flags": str(sys.flags), "warnings": sys.warnoptions, "imported before": BEFORE,
    "environment": {name: value for name, value in os.environ.items() if name not in FOLDERS},
    "folder": os.getcwd(), "umask": os.umask(0o022), "nice": os.nice(0), "torch": torch.__spec__.origin,
    "standard files": [os.path.basename(os.readlink(f"/proc/self/fd/{n}")) for n in (0, 1, 2)],
    "open files": len(os.listdir("/proc/self/fd")), "leads its group": os.getpgid(0) == os.getpid(),
    "parent": open(f"/proc/{os.getppid()}/comm", encoding="utf-8").read(),
    "signals": [str(signal.getsignal(number)) for number in range(1, 32)],
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "threads": len(os.listdir("/proc/self/task")),
    "is main thread": threading.current_thread() is threading.main_thread(),
    "threads of torch": [torch.get_num_threads(), torch.get_num_interop_threads()],
    "dtype": str(torch.get_default_dtype()), "collects": [gc.isenabled(), gc.get_threshold()],
    "stdout": [sys.stdout.line_buffering, sys.stdout.encoding], "bad fork": torch.cuda._is_in_bad_fork(),
}
drawn = {"torch": torch.rand(1, dtype=torch.float64).item(), "seed": torch.initial_seed(), "random": random.random(),
         "hash of a string": hash("word"), "system": os.urandom(8).hex()}
if "numpy" in sys.modules:
    drawn["numpy"] = sys.modules["numpy"].random.random()
with open(f"{sys.argv[1]}/{os.environ['RANK']}.json", "w", encoding="utf-8") as file:
    json.dump({"seen": seen, "drawn": drawn}, file)
