"""`@pytest.mark.lockstep(world_sizes=[2, 3], local_batch_norm=True, limit_s=120)`, as of lockstep.check(): the function
trains, as a script under torchrun would (it calls init_process_group itself), and is run on so many ranks and on one
device in processes of its own. It fails where they differ, and where that could not be decided. It takes no fixtures:
its processes know nothing of pytest.
"""
import sys

import pytest

from lockstep import api

OPTIONS = {"world_sizes", "local_batch_norm", "limit_s"}  # of lockstep.check()


def pytest_configure(config):
    config.addinivalue_line("markers", "lockstep(world_sizes=[2], local_batch_norm=False, limit_s=120): train on several ranks and on one device, "
                                       "and fail unless both give the same weights")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    mark = pyfuncitem.get_closest_marker("lockstep")
    if mark is None:
        return None
    unknown = set(mark.kwargs) - OPTIONS
    if unknown or mark.args:
        pytest.fail(f"lockstep() takes {', '.join(sorted(OPTIONS))} by name; got {', '.join(sorted(unknown)) or mark.args}",
                    pytrace=False)
    if pyfuncitem.fixturenames or pyfuncitem.cls is not None or hasattr(pyfuncitem, "callspec"):
        pytest.fail("a function marked with lockstep takes no fixtures and parameters and is in no class: it runs in "
                    "processes of its own", pytrace=False)
    # In the test's own folder, as scripts find their neighbours.
    result = api.check(sys.executable, "-m", "lockstep.run_function", str(pyfuncitem.path), pyfuncitem.originalname,
                       **mark.kwargs)
    if not result:
        pytest.fail(result.text, pytrace=False)
    return True
