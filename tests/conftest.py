"""Settings that every test shares: Hypothesis profiles, and who has the machine.

The default profile is derandomized and small, so that two runs of ``make test`` do the same; set
``HYPOTHESIS_PROFILE=long`` to search.

A module with ``TAKES_THE_MACHINE = True`` mounts file systems or runs an engine of containers, and
one at a time does so (a mount that another process's namespace has copied cannot be taken away).
Of the processes of one run the same one has them all, and begins with them: four that wait for each
other would leave the cores idle, and the longest modules are not to be the last.

A module with ``STORY = True`` has steps instead of tests (``tests/stories.py``).
"""

from __future__ import annotations

import fcntl
import functools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadFileScheduling

from tests import stories

settings.register_profile("short", derandomize=True, max_examples=50, deadline=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=2000, deadline=None, print_blob=True)
# With a bug planted the first failure is enough: nobody reads the smallest one.
settings.register_profile("planted", settings.get_profile("short"),
                          phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


MACHINE = re.compile(r"^TAKES_THE_MACHINE = True$", re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def machine(request) -> Iterator[None]:
    """Holds the lock of the machine while a module that takes it runs: there may be other runs."""
    if not getattr(request.module, "TAKES_THE_MACHINE", False):
        yield
        return
    with open(Path(tempfile.gettempdir()) / "multiraft-tests.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Modules that take the machine first, stories as they are written; the rest as it is, or as
    somebody else has mixed it."""
    yield
    items.sort(key=lambda item: not getattr(item.getparent(pytest.Module).obj,
                                            "TAKES_THE_MACHINE", False))
    items[:] = stories.in_order(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadFileScheduling | None:
    """A file is run by one process, and those that take the machine by the same one."""
    return ByFileAndMachine(config, log) if config.getvalue("dist") == "loadfile" else None


class ByFileAndMachine(LoadFileScheduling):
    """``--dist loadfile`` with one unit of work for all files that take the machine."""

    def _split_scope(self, nodeid: str) -> str:
        name = super()._split_scope(nodeid)
        return "the machine" if takes_the_machine(self.config.rootpath / name) else name


@functools.cache
def takes_the_machine(path: Path) -> bool:
    """Whether a module of tests says so; read as text, since who hands out work imports none."""
    return MACHINE.search(path.read_text(encoding="utf-8")) is not None
