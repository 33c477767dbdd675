"""Settings of all tests: Hypothesis profiles, and exclusive use of the machine.

The default profile is derandomized and small, so that two runs of ``make test`` do the same; set
``HYPOTHESIS_PROFILE=long`` to search.

A module with ``TAKES_THE_MACHINE = True`` mounts file systems or runs a container engine; only one
such module runs at a time (a mount that another process's namespace has copied cannot be removed).
One process of a test run gets all of them, and begins with them: four processes that wait for each
other would leave cores idle, and the longest modules must not be the last.

A module with ``STORY = True`` has steps instead of tests (``tests/stories.py``).
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from xdist.scheduler import LoadFileScheduling

from tests import machine_lock, stories

settings.register_profile("short", derandomize=True, max_examples=50, deadline=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=2000, deadline=None, print_blob=True)
# With a planted bug the first failure is enough: it is not shrunk.
settings.register_profile("planted", settings.get_profile("short"),
                          phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))


MACHINE = re.compile(r"^TAKES_THE_MACHINE = True$", re.MULTILINE)


#: Standard error as it was before pytest captured it.
TERMINAL = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the terminal for the one line that tests print: what they wait for."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        config.stash[TERMINAL] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close what ``pytest_configure`` opened."""
    if TERMINAL in config.stash:
        os.close(config.stash[TERMINAL])
        del config.stash[TERMINAL]


@pytest.fixture(scope="module", autouse=True)
def machine(request) -> Iterator[None]:
    """Hold the lock of the machine while a module that takes it runs: other test runs may exist."""
    if not getattr(request.module, "TAKES_THE_MACHINE", False):
        yield
        return
    terminal = request.config.stash[TERMINAL]
    name = f"pid {os.getpid()} in {request.config.rootpath}: {request.node.nodeid}"
    with machine_lock.held(name, lambda text: os.write(terminal, f"\n{text}\n".encode())):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Put modules that take the machine first, and steps of stories in their order.  Other tests
    keep the given order, which a plugin may have shuffled."""
    yield
    items.sort(key=lambda item: not getattr(item.getparent(pytest.Module).obj,
                                            "TAKES_THE_MACHINE", False))
    items[:] = stories.in_order(items)


def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadFileScheduling | None:
    """Return a scheduler that runs a file in one process, and all that take the machine in the same
    one."""
    return ByFileAndMachine(config, log) if config.getvalue("dist") == "loadfile" else None


class ByFileAndMachine(LoadFileScheduling):
    """``--dist loadfile`` with one unit of work for all files that take the machine."""

    def _split_scope(self, nodeid: str) -> str:
        name = super()._split_scope(nodeid)
        return "the machine" if takes_the_machine(self.config.rootpath / name) else name


@functools.cache
def takes_the_machine(path: Path) -> bool:
    """Return True if a test module says so; read as text, because the scheduler imports none."""
    return MACHINE.search(path.read_text(encoding="utf-8")) is not None
