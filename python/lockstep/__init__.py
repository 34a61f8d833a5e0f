"""Does data-parallel training give the weights of one device?

    import lockstep
    result = lockstep.check("train.py", world_sizes=[2, 3])
    lockstep.assert_equivalent("train.py", "--epochs", "1")

Both run the program `lockstep` of this package (`lockstep verify -- COMMAND`), which starts the script unmodified on several
ranks and on one device. With pytest, `@pytest.mark.lockstep(world_sizes=[2, 3])` does it to a function that trains.
Importing this imports no torch; the script's own is used.
"""
from lockstep.api import EquivalenceError, Lane, Result, World, assert_equivalent, check

__all__ = ["EquivalenceError", "Lane", "Result", "World", "assert_equivalent", "check"]
