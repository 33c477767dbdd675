"""What single tests need of the machine: where it is not there they are skipped, and the reason is
the command that brings it.

`make test` itself installs what may be installed (``deploy/machine.sh``); nobody gets a container
engine or a service manager by running tests.
"""

from __future__ import annotations

import os

import pytest

from chaos.backends import host
from chaos.backends.backend import BackendError

#: A skipped test is no passed one.
SKIPPED = "SKIPPED, NOT PASSED: "
#: How a test that takes root is run.
AS_ROOT = "Run as root: make test"


def root(why: str) -> pytest.MarkDecorator:
    """Marks tests that take root."""
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"{SKIPPED}{why}. {AS_ROOT}")


def commands(*names: str) -> None:
    """Skips a test on a machine that does not have all of these commands."""
    lacking = host.lacking(*names)
    if lacking:
        pytest.skip(f"{SKIPPED}{lacking}")


def faults(cluster, *kinds: str) -> None:
    """Skips a test on a machine that cannot do all of these faults to a cluster."""
    why = [f"{kind}: {cluster.left_out[kind]}" for kind in kinds if kind in cluster.left_out]
    if why:
        pytest.skip(SKIPPED + "; ".join(why) + ("" if host.is_root() else f". {AS_ROOT}"))


def no_engine(error: BackendError) -> None:
    """Skips a test because there is no engine to run containers, or nothing to make an image of."""
    pytest.skip(f"NO CONTAINER WAS TESTED, THIS IS NOT A PASS: {error}")
