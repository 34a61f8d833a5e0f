"""Faults, acted out where their addresses lead: at the begin of a phase, at a collective, at a time. Each leaves a
receipt before it acts, and a file that says that it was reached at all."""
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

from .flight import PHASES, RECEIPT

EXIT = os._exit  # before anybody else's
FIRST_FAULT = 1 << 16  # sim/record/recorder.h
SIGNALS = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "interrupt": signal.SIGINT,
           "segfault": signal.SIGSEGV, "abort": signal.SIGABRT}
# What wakes a stopped rank: nothing of its own runs.
WAKE = "import os, signal, sys, time; time.sleep(float(sys.argv[1])); os.kill(int(sys.argv[2]), signal.SIGCONT)"


class InjectedFault(RuntimeError):
    pass


class Faults:
    def __init__(self, flight):
        self.flight, self.backward_s = flight, 0.0
        self.all = []
        if "LOCKSTEP_PROGRAM_FAULTS" in os.environ:
            with open(os.environ["LOCKSTEP_PROGRAM_FAULTS"], encoding="utf-8") as file:
                self.all = json.load(file)
        for fault in self.all:
            fault["acted"] = None  # the last step in which it did

    def mine(self, *kinds):
        rank = self.flight.rank if self.flight.map is not None else int(os.environ.get("RANK", -1))
        for fault in self.all:
            if fault.get("rank", rank) == rank and (not kinds or fault["kind"] in kinds):
                yield fault

    def due(self, fault):
        step = self.flight.step
        if fault["acted"] is not None and (fault["once"] or fault["acted"] == step):
            return False
        if step > 0 and not fault["first"] <= step <= fault["last"]:
            return False
        if fault["kind"] == "wandering":
            return (step - 1) // fault["every_steps"] % self.flight.world == self.flight.rank
        if fault["kind"] == "periodic_pause" and step % fault["every_steps"]:
            return False
        return self.draw(fault).random() < fault.get("probability", 1)

    def draw(self, fault):
        return random.Random(f"{fault['index']} {self.flight.rank} {self.flight.step}")

    def at_phase(self, phase):
        for fault in self.mine():
            if PHASES.get(fault["phase"]) == phase and (self.flight.step > 0 or phase < 3) and self.due(fault):
                self.act(fault)

    def at_collective(self, sequence, name, bucket):
        for fault in self.mine():
            wanted = fault["collective"]
            here = wanted == sequence or isinstance(wanted, str) and wanted == name.replace("allreduce", "all_reduce")
            if (here or bucket >= 0 and fault["bucket"] == bucket) and self.due(fault):
                self.act(fault)

    def start_clock(self):
        for fault in self.mine():
            if fault["at_ms"] is not None:
                clock = threading.Timer(fault["at_ms"] / 1000, self.act, (fault,))
                clock.daemon = True
                clock.start()

    def leave_receipt(self, fault, duration_s=0.0):
        if fault["acted"] is None and self.flight.here():
            with open(f"{self.flight.folder}/fired-{self.flight.rank}-{fault['index']}", "w") as file:
                file.write(str(self.flight.step))
        fault["acted"] = self.flight.step
        self.flight.append(RECEIPT, FIRST_FAULT + fault["index"], int(duration_s * 1e9))

    def duration_s(self, fault):
        mean, spread, draw = fault.get("duration_ms", 0) / 1000, fault.get("spread", 0.5), self.draw(fault)
        kind = fault.get("distribution", "constant")
        if kind == "uniform":
            return mean * draw.uniform(1 - spread, 1 + spread)
        if kind == "lognormal":
            return mean * draw.lognormvariate(0, spread)
        return mean * draw.paretovariate(spread) if kind == "pareto" else mean

    def act(self, fault):
        kind, duration_s = fault["kind"], self.duration_s(fault)
        if kind in ("slow", "imbalance", "wandering", "skip_backward", "fewer_batches", "mismatched_bucket_cap"):
            return  # not at a moment
        self.leave_receipt(fault, duration_s)
        if kind in SIGNALS:
            os.kill(os.getpid(), SIGNALS[kind])
            time.sleep(60)  # until it is there
        elif kind == "stop":
            if "duration_ms" in fault:
                subprocess.Popen([sys.executable, "-ISc", WAKE, str(duration_s), str(os.getpid())])
            os.kill(os.getpid(), signal.SIGSTOP)
        elif kind == "exception":
            raise InjectedFault("lockstep run --fault exception")
        elif kind == "exit":
            sys.stdout.flush()
            EXIT(fault.get("code", 1))
        elif kind == "deadlock":
            while True:
                time.sleep(3600)
        else:
            time.sleep(duration_s)

    def factor(self):
        """By how much computing is slowed now."""
        for fault in self.mine("slow", "imbalance", "wandering"):
            step = fault["acted"]
            if step == self.flight.step or self.due(fault):
                if step != self.flight.step:
                    self.leave_receipt(fault)
                return fault["factor"]
        return 1

    def slowed(self, forward):
        factor, begin = self.factor(), time.thread_time()
        result = forward()
        if factor > 1:
            time.sleep((factor - 1) * (time.thread_time() - begin))
        return result

    def slowed_backward(self, backward):
        """Before it, by what the one before it took: within it others may wait for this rank already."""
        time.sleep((self.factor() - 1) * self.backward_s)
        begin = time.thread_time()
        result = backward()
        self.backward_s = time.thread_time() - begin
        return result

    def skips_backward(self):
        for fault in self.mine("skip_backward"):
            if self.due(fault):
                self.leave_receipt(fault)
                return True
        return False

    def ends_loader(self, loader, number):
        for fault in self.mine("fewer_batches"):
            if number >= len(loader) - fault.get("batches", 1):
                self.leave_receipt(fault)
                return True
        return False

    def change_construction(self, options):
        for fault in self.mine("mismatched_bucket_cap"):
            self.leave_receipt(fault)
            options["bucket_cap_mb"] = fault["bucket_cap_mb"]
