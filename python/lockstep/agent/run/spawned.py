"""Of a program that starts its ranks itself (`lockstep run --spawns`): how each of its children ended, and which of them
it ended itself. Before it can end the others because of one it waits a moment, so that they notice by themselves."""
import contextlib
import json
import multiprocessing.connection
import multiprocessing.process
import os
import signal
import subprocess
import threading
import time

from . import ends

NOTICE_S = 2.5  # less than lockstep itself waits
Process = multiprocessing.process.BaseProcess


class Children:
    """One JSON line each, by the process that started them."""

    def __init__(self, flight):
        self.flight, self.lock = flight, threading.Lock()
        self.path = f"{flight.folder}/children.jsonl"
        self.sent, self.waited = set(), False
        self.opened = {}  # by pid: of subprocess.Popen, as torchrun starts its ranks

    def tell(self, line):
        if self.flight.map is None:  # of a rank they are helpers
            with self.lock, open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def ended(self, pid, status):
        killed = os.WIFSIGNALED(status)
        self.tell({"pid": pid, "signal": os.WTERMSIG(status) if killed else 0,
                   "exit_code": -1 if killed else os.WEXITSTATUS(status), "sent": 0})
        children = {child._popen.pid: child.sentinel for child in list(multiprocessing.process._children)}
        is_rank = pid in children or pid in self.opened
        self.opened.pop(pid, None)
        if not status or not is_rank or pid in self.sent or self.waited or self.flight.map is not None:
            return
        self.waited = True
        with contextlib.ExitStack() as opened:
            wait_for([sentinel for child, sentinel in children.items() if child != pid] +
                     [descriptor_of(child, opened) for child in self.opened])

    def end(self, pid, number):
        if pid is None:
            return  # it was not started
        self.sent.add(pid)
        self.tell({"pid": pid, "signal": 0, "exit_code": 0, "sent": int(number)})


def descriptor_of(pid, opened):
    """Of a child that is not waited for yet: ready once it has ended."""
    descriptor = os.pidfd_open(pid)
    opened.callback(os.close, descriptor)
    return descriptor


def wait_for(sentinels):
    until = time.monotonic() + NOTICE_S
    while sentinels and time.monotonic() < until:
        ready = multiprocessing.connection.wait(sentinels, until - time.monotonic())
        sentinels = [sentinel for sentinel in sentinels if sentinel not in ready]


def watch(flight):
    if "LOCKSTEP_PROGRAM_SPAWNS" not in os.environ:
        return
    watch_function(flight)
    children, wait = Children(flight), os.waitpid

    def waited(pid, options):
        found, status = wait(pid, options)
        if found:
            children.ended(found, status)
        return found, status
    os.waitpid = waited

    def told(end, number):
        def ending(process):
            children.end(process.pid, number)
            end(process)
        return ending
    watch_opened(children)
    for name in ("kill", "killpg"):
        setattr(os, name, signalling(children, getattr(os, name)))
    Process.terminate, Process.kill = told(Process.terminate, signal.SIGTERM), told(Process.kill, signal.SIGKILL)


def signalling(children, send):
    def sending(pid, number):
        if pid in children.opened and number:
            children.end(pid, number)
        return send(pid, number)
    return sending


def watch_opened(children):
    """A process that is told its rank by its environment."""
    Popen = subprocess.Popen
    begin, handle, send = Popen.__init__, Popen._handle_exitstatus, Popen.send_signal

    def init(self, *args, **kwargs):
        begin(self, *args, **kwargs)
        if "RANK" in (kwargs.get("env") or ()):
            children.opened[self.pid] = self

    def handled(self, status, *rest, **kwargs):
        handle(self, status, *rest, **kwargs)
        if self.pid in children.opened and self.returncode is not None:
            children.ended(self.pid, status)

    def sent(self, number):
        if self.pid in children.opened and self.returncode is None:
            children.end(self.pid, number)
        return send(self, number)
    Popen.__init__, Popen._handle_exitstatus, Popen.send_signal = init, handled, sent


def watch_function(flight):
    """What the function of a rank raises never comes to sys.excepthook."""
    run = Process.run

    def running(process):
        try:
            run(process)
        except SystemExit as error:
            if error.__context__ is not None:  # what torch.multiprocessing.spawn caught
                ends.leave(flight, error.__context__)
            raise
        except Exception as error:
            ends.leave(flight, error)
            raise
    Process.run = running
