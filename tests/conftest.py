"""Settings that every test shares: Hypothesis profiles, and who has the machine.

The default profile is derandomized and small, so that two runs of ``make test`` do the same; set
``HYPOTHESIS_PROFILE=long`` to search.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

settings.register_profile("short", derandomize=True, max_examples=50, deadline=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=2000, deadline=None, print_blob=True)
# With a bug planted the first failure is enough: nobody reads the smallest one.
settings.register_profile("planted", settings.get_profile("short"),
                          phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


@pytest.fixture(scope="module", autouse=True)
def machine(request) -> Iterator[None]:
    """A module with ``TAKES_THE_MACHINE = True`` mounts file systems or runs an engine of
    containers; of several test processes one at a time does (a mount that another one's namespace
    has copied cannot be taken away)."""
    if not getattr(request.module, "TAKES_THE_MACHINE", False):
        yield
        return
    with open(Path(tempfile.gettempdir()) / "multiraft-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
