"""A rank's records: a mapped ring of events, so that they survive the death of the process."""
import faulthandler
import json
import mmap
import os
import signal
import struct
import threading
import time

# sim/record/recorder.h, scenarios/base/phase.h
EVENT = struct.Struct("<qIHHiiQ")  # time_ns sequence kind phase step subject value
HEADER = struct.Struct("<QIiiiqqQQ")
HEADER_BYTES, APPENDED_AT, MAGIC = 4096, 48, 0x31305345524B434C
RENDEZVOUS, CONSTRUCTION, LOAD, FORWARD, BACKWARD, WAIT, OPTIMIZER, _, TEARDOWN = range(1, 10)
PHASES = {"rendezvous": 1, "construction": 2, "load": 3, "forward": 4, "backward": 5, "wait": 6, "optimizer": 7,
          "teardown": 9}
PHASE_BEGIN, ARRIVAL, END, RECEIPT, PRIMARY_DONE, FINISHED, ERROR, STEP_END = 1, 4, 5, 15, 19, 20, 21, 22
ALIVE, GROUP_ARRIVAL, GROUP_END = 30, 31, 32  # of programs alone
CAPACITY = 1 << 17  # events of 32 bytes; more than that many: the oldest are gone
STACK_SIGNAL = signal.SIGRTMIN + 7  # as of our own workers: where are you?
QUIET_NS = 200_000_000  # after so long without an event a sign of life is one


def core_wait_ns(thread, process=None):
    """For how long a thread, or another process's first, was ready and had no core, as the kernel counts it."""
    try:
        with open(f"{process or f'/proc/self/task/{thread}'}/schedstat", "rb") as file:
            return int(file.read(96).split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def children_of(thread):
    """Its child processes; none where the kernel does not list them."""
    try:
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except (OSError, ValueError):
        return []


class HelpersWait:
    """For how long a child process (of a loader's workers) was ready and had no core since the last look, at most: a
    rank waits for one of them at a time."""

    def __init__(self):
        self.known = {}

    def since(self, thread):
        now = {child: core_wait_ns(thread, f"/proc/{child}") for child in children_of(thread)}
        fresh = max((waited - self.known.get(child, 0) for child, waited in now.items()), default=0)
        self.known = now
        return max(0, fresh)


class Flight:
    """Opened by the first event of which the rank is known, in the process that trains."""

    def __init__(self):
        self.folder = os.environ["LOCKSTEP_PROGRAM_DIR"]
        self.world = int(os.environ["LOCKSTEP_PROGRAM_WORLD"])
        self.lock = threading.RLock()
        self.map, self.pid, self.rank, self.closed = None, 0, -1, False
        self.appended = self.newest_ns = self.step = self.phase = 0
        self.caught = self.broken = None  # of ends.py: facts of an error
        self.faults, self.helpers, self.helpers_ns, self.load_ns = None, HelpersWait(), 0, 0

    def begin_if_known(self, phase):
        """A program that spawns its ranks says later which rank this is."""
        if "RANK" in os.environ:
            self.open(int(os.environ["RANK"]))
            self.enter(phase)

    def open(self, rank):
        if self.map is not None or not 0 <= rank < self.world:
            return
        try:
            descriptor = os.open(f"{self.folder}/rank-{rank}.records", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return  # another process of this rank has it: a helper of the program imports torch as well
        size = HEADER_BYTES + CAPACITY * EVENT.size
        os.posix_fallocate(descriptor, 0, size)
        mapped = mmap.mmap(descriptor, size)
        os.close(descriptor)
        HEADER.pack_into(mapped, 0, MAGIC, 1, rank, self.world, 0, 0, 0, CAPACITY, 0)
        self.rank, self.pid, self.map = rank, os.getpid(), mapped
        self.stack = open(f"{self.folder}/rank-{rank}.stack", "w", encoding="utf-8")
        self.note("process", {"pid": self.pid})
        faulthandler.register(STACK_SIGNAL, self.stack, all_threads=False)

    def here(self):
        """Not in a loader's workers and other children."""
        return self.map is not None and not self.closed and self.pid == os.getpid()

    def append(self, kind, subject=-1, value=0, sequence=0):
        if not self.here():
            return
        with self.lock:
            self.newest_ns = time.monotonic_ns()
            at = HEADER_BYTES + self.appended % CAPACITY * EVENT.size
            EVENT.pack_into(self.map, at, self.newest_ns, sequence & 0xFFFFFFFF, kind, self.phase, self.step, subject,
                            value)
            self.appended += 1
            struct.pack_into("<Q", self.map, APPENDED_AT, self.appended)

    def waited_ns(self):
        return core_wait_ns(self.pid) + self.helpers_ns

    def enter(self, phase):
        if self.phase == LOAD and self.here():
            self.count_helpers()
        self.phase = phase
        self.append(PHASE_BEGIN, value=self.waited_ns())
        if phase == LOAD:
            self.load_ns = self.newest_ns

    def count_helpers(self):
        """What it may have waited for while it loaded: one that had no core for half of that time might have been ahead
        of it at all times, as those of other ranks are."""
        loaded, waited = time.monotonic_ns() - self.load_ns, self.helpers.since(self.pid)
        self.helpers_ns += loaded if loaded // 2 < waited < loaded else waited

    def end_step(self):
        if not self.here():
            return
        self.caught = self.broken = None  # whatever it was, it goes on
        others = sum(core_wait_ns(thread) for thread in os.listdir("/proc/self/task") if thread != str(self.pid))
        self.append(STEP_END, value=self.waited_ns(), sequence=others // 1000)

    def alive(self):
        """Still at work where nothing else is recorded, as in an evaluation."""
        if time.monotonic_ns() - self.newest_ns > QUIET_NS:
            self.append(ALIVE)

    def note(self, name, facts):
        """A small file beside the records. An exception's text may hold what no UTF-8 can: half of a pair."""
        path = f"{self.folder}/rank-{self.rank}.{name}.json"
        with open(path + ".new", "w", encoding="utf-8", errors="replace") as file:
            json.dump(facts, file, ensure_ascii=False)
        os.replace(path + ".new", path)
