"""Time-outs of the program's groups, scaled as asked for: all ranks meet first, for as long as the program itself
would wait, so that who starts late is not blamed for it."""
import datetime
import functools
import inspect
import os

from .flight import CONSTRUCTION, RENDEZVOUS

DEFAULT = datetime.timedelta(minutes=30)  # PyTorch's over Gloo


def watch(flight):
    import torch
    import torch.distributed as dist
    if not dist.is_available():
        return
    scale = float(os.environ.get("LOCKSTEP_PROGRAM_TIMEOUT_SCALE", "1"))
    flight.timeout_ms, flight.group_timeouts_ms = -1, {}
    watch_groups(flight, dist.distributed_c10d, scale)
    if scale != 1:
        watch_monitored_barrier(dist, scale)
    init = dist.distributed_c10d.init_process_group
    signature = inspect.signature(init)

    @functools.wraps(init)
    def initialized(*args, **kwargs):
        flight.open(rank_in(signature, args, kwargs))  # if nothing has told it yet
        flight.enter(RENDEZVOUS)  # again: until here it only prepared
        flight.faults.at_phase(RENDEZVOUS)
        result = init(*args, **kwargs)
        flight.open(dist.get_rank())
        if flight.here():
            flight.note("facts", {"torch": str(torch.__version__), "tap": flight.arrivals.kind,
                                  "backend": str(dist.get_backend()), "world": dist.get_world_size(),
                                  "timeout_ms": flight.timeout_ms})
            flight.faults.start_clock()
            flight.enter(CONSTRUCTION)
        return result
    dist.init_process_group = dist.distributed_c10d.init_process_group = initialized


def watch_monitored_barrier(dist, scale):
    """Its time-out is its own."""
    barrier = dist.monitored_barrier
    signature = inspect.signature(barrier)

    @functools.wraps(barrier)
    def met(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.arguments["timeout"] = (given.arguments.get("timeout") or DEFAULT) * scale
        return barrier(*given.args, **given.kwargs)
    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = met


def rank_in(signature, args, kwargs):
    try:
        return int(signature.bind(*args, **kwargs).arguments.get("rank", -1))
    except (TypeError, ValueError):
        return -1  # PyTorch says what is wrong


def watch_groups(flight, c10d, scale):
    make = c10d._new_process_group_helper
    signature = inspect.signature(make)

    @functools.wraps(make)
    def made(*args, **kwargs):
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        timeout = given.arguments.get("timeout") or DEFAULT
        given.arguments["timeout"] = timeout * scale
        if not given.arguments["global_ranks_in_group"]:  # the group of all
            flight.timeout_ms = int(timeout.total_seconds() * scale * 1000)
            if scale != 1:
                meet(given.arguments["store"], given.arguments["group_rank"], given.arguments["group_size"])
        answer = make(*given.args, **given.kwargs)
        group = answer[0] if isinstance(answer, tuple) else answer
        if given.arguments["global_ranks_in_group"] and group in c10d._pg_names:
            flight.group_timeouts_ms[str(c10d._pg_names[group])] = int(timeout.total_seconds() * scale * 1000)
        return answer
    c10d._new_process_group_helper = made


def meet(store, rank, ranks):
    store.set(f"lockstep/{rank}", "here")
    store.wait([f"lockstep/{other}" for other in range(ranks)])
