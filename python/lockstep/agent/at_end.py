"""What is done when a process of the program ends, be it a child of multiprocessing."""
from multiprocessing import util


def at_end(close, priority):
    """Those of higher priority first. A child that multiprocessing forks forgets what its parent had registered."""
    def register(_=None):
        util.Finalize(None, close, exitpriority=priority)
    register()
    util.register_after_fork(util, register)  # it keeps no reference to its first argument
