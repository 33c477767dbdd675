"""Order of the installation of a snapshot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.storage.chunked_cbor import dumps
from multiraft.storage.snapshot_download import PartialSnapshot
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.metadata.state_machine import MetadataState
from node.replicas.snapshot_installer import SnapshotInstaller
from node.replicas.snapshot_state import capture, encode
from tests.node.replicas.snapshot_doubles import Core, tail_at
from tests.node.steps import Lock, Reply, Steps, at_once, run


def download(applied: int = 7) -> PartialSnapshot:
    data = encode(capture(Core(applied), tail_at(applied), MetadataState()))
    return PartialSnapshot(applied, 3, len(data), 0, bytearray(data))


class Follower:
    """A node whose parts record the order in which they hear of an installation."""

    def __init__(self, on_thread=at_once, write_now=None):
        self.order: list[str] = []
        self.alone = Lock()
        self.core = Core(1)
        self.core.install_snapshot = lambda *_: self.order.append("core")
        checkpoints = SimpleNamespace(alone=self.alone, write_now=write_now or self.write_now)
        self.is_tombstone_durable = True
        store = SimpleNamespace(install=lambda *_: self.order.append("store"),
                                is_tombstone_durable=lambda _: self.is_tombstone_durable)
        self.installer = SnapshotInstaller(
            self.core, store, checkpoints,
            MetadataState.restore, lambda _: self.order.append("state"), on_thread,
            lambda: self.order.append("round"), lambda _: self.order.append("installed"))

    def write_now(self, encoded) -> None:
        assert self.alone.is_held and encoded == dumps(MetadataState().snapshot())
        self.order.append("checkpoint")


def test_a_snapshot_is_durable_before_consensus_and_other_parts_learn_of_it():
    follower = Follower()
    run(follower.installer.install(download()))
    assert follower.order == ["store", "state", "checkpoint", "core", "installed", "round"]
    assert not follower.alone.is_held


def test_a_snapshot_that_the_core_does_not_need_changes_nothing():
    follower = Follower()
    follower.core.willing = False
    run(follower.installer.install(download()))
    assert follower.order == ["round"]


def test_a_snapshot_waits_for_the_tombstone_of_an_earlier_replica():
    follower = Follower()
    follower.is_tombstone_durable = False
    run(follower.installer.install(download()))
    assert follower.order == ["round"]
    follower.is_tombstone_durable = True
    run(follower.installer.install(download()))
    assert follower.order[1:4] == ["store", "state", "checkpoint"]


def test_the_core_is_asked_after_the_thread_has_decoded_and_not_before():
    async def on_thread(call, *arguments):
        await Reply()
        return call(*arguments)

    follower = Follower(on_thread)
    steps = Steps(follower.installer.install(download()))
    follower.core.willing = False
    steps.resume(None)
    assert steps.is_done and follower.order == ["round"]


def test_consensus_learns_nothing_of_a_snapshot_whose_checkpoint_failed():
    def refuse(_encoded):
        raise DiskFailed("refused")

    follower = Follower(write_now=refuse)
    with pytest.raises(DiskFailed):
        run(follower.installer.install(download()))
    assert follower.order == ["store", "state"]


@pytest.mark.parametrize("data", [b"", b"\xff", dumps([1, [[], [], []], 2]), dumps("text")])
def test_bytes_that_are_no_snapshot_change_nothing(data):
    follower = Follower()
    with pytest.raises(Malformed):
        run(follower.installer.install(PartialSnapshot(7, 3, len(data), 0, bytearray(data))))
    assert follower.order == []


def test_a_snapshot_of_another_index_than_it_is_called_changes_nothing():
    follower = Follower()
    whole = download(6)
    whole.index = 7
    with pytest.raises(Malformed, match="a snapshot of 6, called 7"):
        run(follower.installer.install(whole))
    assert follower.order == []
