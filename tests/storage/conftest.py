"""Fixtures of storage tests: a directory on the machine's disk, and one on a simulated one."""

from __future__ import annotations

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.filesystem import RealFilesystem


@pytest.fixture(params=["real", "simulated"])
def disk(request, tmp_path):
    """(filesystem, an empty directory's path)"""
    if request.param == "real":
        return RealFilesystem(), str(tmp_path / "node")
    return SimulatedFilesystem(), "/node"


@pytest.fixture
def simulated() -> SimulatedFilesystem:
    return SimulatedFilesystem()
