"""Nodes of a development cluster are ended on a full file system."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_cli.dev_cluster import DevCluster
from tests import needs
from tests.admin_cli.conftest import end, fake_node_command
from tests.ports import free_base_port

TAKES_THE_MACHINE = True

DISK_BYTES = 1 << 20


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A small file system in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)],
                   check=True)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small(disk, environ, cluster) -> Iterator[DevCluster]:
    """A cluster of fake nodes that run, with its files on the small file system."""
    made = DevCluster(disk / "cluster", cluster.connect_over_tcp, environ,
                      command=fake_node_command)
    made.create(3, 4, 3, free_base_port(3))
    try:
        made.up()
        yield made
    finally:
        (disk / "filler").unlink(missing_ok=True)
        end(made)


def fill(disk: Path) -> None:
    """Write until there is no space left."""
    with open(disk / "filler", "wb", buffering=0) as filler, \
            pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        while True:
            filler.write(bytes(4096))


@needs.root("a file system cannot be mounted here")
@pytest.mark.parametrize("end_it", [lambda dev: dev.down(), lambda dev: dev.stop(2),
                                    lambda dev: dev.kill(2)], ids=["down", "stop", "kill"])
def test_nodes_are_ended_on_a_full_file_system(small, disk, end_it):
    fill(disk)
    end_it(small)
    states = {node.id: node.state for node in small.status()}
    assert states[2] == "dead", "it could not be recorded that this was wanted"
    assert small.unrecorded.errno == errno.ENOSPC
    (disk / "filler").unlink()
    small.up()
    assert {node.state for node in small.status()} == {"running"}
