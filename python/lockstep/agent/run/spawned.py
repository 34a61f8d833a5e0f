"""Of a program that starts its ranks itself (`lockstep run --spawns`): how each of its children ended, and which of them
it ended itself. Before it can end the others because of one it waits a moment, so that they notice by themselves."""
import json
import multiprocessing.connection
import multiprocessing.process
import os
import signal
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

    def tell(self, line):
        if self.flight.map is None:  # of a rank they are helpers
            with self.lock, open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def ended(self, pid, status):
        killed = os.WIFSIGNALED(status)
        self.tell({"pid": pid, "signal": os.WTERMSIG(status) if killed else 0,
                   "exit_code": -1 if killed else os.WEXITSTATUS(status), "sent": 0})
        others = [child for child in list(multiprocessing.process._children) if child._popen.pid != pid]
        is_rank = len(others) < len(multiprocessing.process._children)
        if status and is_rank and pid not in self.sent and not self.waited and self.flight.map is None:
            self.waited = True
            wait_for([child.sentinel for child in others])

    def end(self, pid, number):
        if pid is None:
            return  # it was not started
        self.sent.add(pid)
        self.tell({"pid": pid, "signal": 0, "exit_code": 0, "sent": int(number)})


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
    Process.terminate, Process.kill = told(Process.terminate, signal.SIGTERM), told(Process.kill, signal.SIGKILL)


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
