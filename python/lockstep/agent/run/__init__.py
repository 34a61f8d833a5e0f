"""What `lockstep run -- COMMAND` needs of a rank: where it is, in the flight recorder's format (docs/records.md), the
faults that it was given, and how it ended. It judges nothing, and the program computes as it would by itself.
`lockstep verify -- COMMAND` watches its ranks in the same way."""
from .. import spawn
from . import gpus
from . import arrivals, ends, faults, gradients, limits, phases, spawned
from .flight import RENDEZVOUS, Flight


def install():
    flight = watch()
    spawn.watch(flight)
    gpus.watch(flight)


def watch():
    flight = Flight()
    flight.faults = faults.Faults(flight)
    for part in (ends, limits, phases, arrivals, gradients, spawned):
        part.watch(flight)
    flight.begin_if_known(RENDEZVOUS)
    return flight
