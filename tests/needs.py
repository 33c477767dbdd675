"""Requirements of single tests on the machine: without them a test is skipped, and the reason is
the command that installs them.

`make test` installs packages that it may install (``deploy/machine.sh``), but never a container
engine or a service manager.
"""

from __future__ import annotations

import os

import pytest

from chaos.backends import host
from chaos.backends.backend import BackendError

#: A skipped test is no passed one.
SKIPPED = "SKIPPED, NOT PASSED: "
#: Command that runs a test that needs root.
AS_ROOT = "Run as root: make test"


def root(why: str) -> pytest.MarkDecorator:
    """Mark a test that needs root."""
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"{SKIPPED}{why}. {AS_ROOT}")


def commands(*names: str) -> None:
    """Skip a test on a machine without one of these commands."""
    lacking = host.lacking(*names)
    if lacking:
        pytest.skip(f"{SKIPPED}{lacking}")


def faults(cluster, *kinds: str) -> None:
    """Skip a test on a machine that cannot inject all of these faults."""
    why = [f"{kind}: {cluster.left_out[kind]}" for kind in kinds if kind in cluster.left_out]
    if why:
        pytest.skip(SKIPPED + "; ".join(why) + ("" if host.is_root() else f". {AS_ROOT}"))


def no_engine(error: BackendError) -> None:
    """Skip a test without a container engine or without the files of an image."""
    pytest.skip(f"NO CONTAINER WAS TESTED, THIS IS NOT A PASS: {error}")
