"""How a rank ended: as soon as it is known, before its connections close."""
import builtins
import contextlib
import os
import sys
import time

from ..at_end import at_end
from .flight import ERROR, FINISHED, PRIMARY_DONE

MOST = 4000  # characters of an error's text


def watch(flight):
    before = sys.excepthook

    def ended(kind, error, trace):
        leave(flight, error)
        before(kind, error, trace)
    sys.excepthook = ended
    leave_code = os._exit

    def exited(code):
        if code == 0:
            at_exit(flight)
        elif flight.here():
            note_exit(flight)
            record(flight, flight.caught or flight.broken)
        leave_code(code)
    os._exit = exited
    watch_exits(flight)
    at_end(lambda: at_exit(flight), 5)


def watch_exits(flight):
    """Scripts and libraries (hydra) catch what ended a rank, print it, and call one of these."""
    def noting(leave_script):
        def left(code=None):
            if code not in (None, 0) and flight.here():
                note_exit(flight)
            leave_script(code)
        return left
    sys.exit = noting(sys.exit)
    for name in ("exit", "quit"):
        if hasattr(builtins, name):
            setattr(builtins, name, noting(getattr(builtins, name)))


def note_exit(flight):
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, SystemExit):
        flight.caught = facts_of(flight, error)


@contextlib.contextmanager
def noting_breaks(flight):
    """What ends a forward, a backward or a collective ended the rank, if no step ends after it: whoever caught it."""
    try:
        yield
    except Exception as error:
        if flight.here():
            flight.broken = facts_of(flight, error)
        raise


def user_line(error):
    """The innermost line of its traceback that is no library's."""
    trace, line = error.__traceback__, ""
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if "/torch/" not in name and "/site-packages/" not in name and not name.startswith("<") \
                and not name.startswith(os.path.dirname(os.path.dirname(__file__))):
            line = f"{os.path.basename(name)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def is_in_distributed(error):
    """Was it torch.distributed that raised it, as of a collective of some ranks, or of monitored_barrier?"""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and "/torch/distributed/" in trace.tb_frame.f_code.co_filename


def leave(flight, error):
    if flight.here() and not isinstance(error, SystemExit):
        record(flight, facts_of(flight, error))


def facts_of(flight, error):
    waits = flight.arrivals.oldest()
    facts = {"type": type(error).__name__, "text": str(error)[:MOST], "line": user_line(error), "phase": flight.phase,
             "step": flight.step, "sequence": -1, "bucket": -1, "waited_ms": -1,
             "in_group": bool(flight.arrivals.open_in) or is_in_distributed(error)}
    if waits is not None:
        facts.update(sequence=waits[0], bucket=waits[1], waited_ms=(time.monotonic_ns() - waits[2]) // 1_000_000)
    return facts


def record(flight, facts):
    if facts is not None:
        flight.append(ERROR, -1, flight.waited_ns())
        flight.note("error", facts)
        flight.closed = True


def at_exit(flight):
    if not flight.here():
        return
    # Of a program that has an excepthook of its own.
    error = sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, SystemExit):
        return leave(flight, error)
    if flight.caught or flight.broken:
        return record(flight, flight.caught or flight.broken)
    flight.append(PRIMARY_DONE)
    flight.append(FINISHED)
    flight.closed = True
