"""Snapshots of groups with partitions: contents, order of downloads and of the installation."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.core import crc32c
from multiraft.storage.chunked_cbor import dumps, loads
from multiraft.storage.snapshot_download import PartialSnapshot
from multiraft.storage.store import CopyState
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.peers.errors import NoAnswer
from node.replicas import group_downloads, group_snapshot
from node.replicas.group_downloads import GroupDownloads
from node.replicas.group_snapshot_installer import GroupSnapshotInstaller
from node.replicas.snapshot_messages import Chunk
from node.replicas.snapshot_state import encode
from tests.node.replicas.snapshot_doubles import Core, tail_at
from tests.node.steps import Lock, Reply, Steps, at_once, run

GROUP, LEADER, OTHER = 5, 2, 3
TERMS = ((4, 2), (6, 3))


def image(applied: int = 7, group: int = GROUP, terms=(4, TERMS)) -> PartialSnapshot:
    store = SimpleNamespace(partition_states={group: tail_at(applied, group)},
                            record_terms=lambda *_: terms)
    data = encode(group_snapshot.capture(Core(applied), store, group))
    return PartialSnapshot(applied, 3, len(data), crc32c(data), bytearray(data))


def test_what_a_leader_captures_is_what_a_follower_decodes():
    decoded = group_snapshot.decode(GROUP, image())
    assert (decoded.group, decoded.bounds, decoded.configuration_index) == (GROUP, (8, 3, 7), 2)
    assert decoded.configuration == ((1, 2), (3,), ())
    assert decoded.partition_states.applied_index == 7
    assert (decoded.first_index, decoded.terms) == (4, TERMS)
    assert group_snapshot.decode(GROUP, image(terms=(8, ()))).terms == ()


@pytest.mark.parametrize("terms", [
    (0, TERMS), (4, ()), (5, TERMS), (8, TERMS), (9, ()), (4, ((4, 2), (8, 3))),
    (4, ((4, 2), (4, 3))), (4, ((4, 3), (6, 2))), (4, ((4, 2), (6, 4)))])
def test_terms_that_are_none_of_the_snapshot_are_refused(terms):
    with pytest.raises(Malformed, match="the terms of a snapshot"):
        group_snapshot.decode(GROUP, image(terms=terms))


def test_terms_that_are_not_known_are_taken():
    assert group_snapshot.decode(GROUP, image(terms=(4, ((4, 0), (5, 2), (6, 0), (7, 3)))))


def test_bytes_of_another_group_or_index_or_of_no_snapshot_are_refused():
    with pytest.raises(Malformed, match="a snapshot of group 5 at 7, called 6 at 7"):
        group_snapshot.decode(6, image())
    late = image(6)
    late.index = 7
    with pytest.raises(Malformed, match="a snapshot of group 5 at 6, called 5 at 7"):
        group_snapshot.decode(GROUP, late)
    values = loads(bytes(image().data))
    for wrong in (b"", b"\xff", dumps("text"), dumps([*values[:3], [4]])):
        with pytest.raises(Malformed):
            group_snapshot.decode(GROUP, PartialSnapshot(7, 3, len(wrong), 0, bytearray(wrong)))


class Follower:
    """A node whose parts record the order in which they hear of an installation."""

    def __init__(self, write_installed=None):
        self.order: list = []
        self.core = Core(1)
        self.core.install_snapshot = self.install_snapshot
        self.alone = Lock()
        self.write = write_installed
        self.core.set_records_left = lambda group, left: self.order.append(("left", group, left))
        self.tombstones: set[int] = set()  # groups with one that is not durable
        store = SimpleNamespace(install=self.install, copied=lambda _: CopyState(3, 2, 5),
                                is_tombstone_durable=lambda group: group not in self.tombstones)
        self.installer = GroupSnapshotInstaller(
            self.core, store, self, lambda: None,
            lambda snapshot: self.order.append(("installed", snapshot.group)))

    def install(self, group, bounds, *replica, terms, first_index, committed) -> None:
        assert group in self.core.installing, "its log may change meanwhile"
        self.order.append(("store", group, terms, first_index, committed))

    def install_snapshot(self, group, *replica) -> None:
        self.core.installing.discard(group)
        self.order.append(("core", group))

    async def write_installed(self) -> None:
        assert self.alone.is_held
        if self.write is not None:
            await self.write()
        self.order.append("checkpoint")


def decoded(*groups: int) -> list:
    return [group_snapshot.decode(group, image(group=group)) for group in groups]


def test_several_snapshots_share_a_checkpoint_that_is_durable_before_consensus_learns_of_any():
    follower = Follower()
    run(follower.installer.install(decoded(5, 6)))
    assert follower.order == [
        ("store", 5, TERMS, 4, 1), ("store", 6, TERMS, 4, 1), "checkpoint",
        ("core", 5), ("left", 5, 7), ("installed", 5), ("core", 6), ("left", 6, 7),
        ("installed", 6)]


def test_without_a_snapshot_that_the_core_takes_no_checkpoint_is_written():
    follower = Follower()
    follower.core.willing = False
    run(follower.installer.install(decoded(5, 6)))
    assert follower.order == []


def test_a_snapshot_waits_for_the_tombstone_of_an_earlier_replica():
    follower = Follower()
    follower.tombstones = {5}
    run(follower.installer.install(decoded(5, 6)))
    assert ("core", 6) in follower.order and ("core", 5) not in follower.order
    assert 5 not in follower.core.installing, "it takes messages"


def test_a_replica_that_is_removed_while_the_checkpoint_is_written_learns_nothing():
    async def write() -> None:
        await Reply()

    follower = Follower(write)
    steps = Steps(follower.installer.install(decoded(5, 6)))
    follower.core.installing.discard(5)
    steps.resume(None)
    assert steps.is_done and [each[0] for each in follower.order[3:]] == [
        "core", "left", "installed"] and follower.order[3] == ("core", 6)


def test_consensus_learns_nothing_of_snapshots_whose_checkpoint_failed():
    async def write() -> None:
        raise DiskFailed("refused")

    follower = Follower(write)
    with pytest.raises(DiskFailed):
        run(follower.installer.install(decoded(5)))
    assert [each[0] for each in follower.order] == ["store"]


class Downloader:
    """A node with offers, and leaders that serve snapshots in chunks of 64 bytes."""

    def __init__(self):
        self.images = {group: image(group=group) for group in range(1, 9)}
        self.silent: set[int] = set()
        self.breaks_at: dict[int, int] = {}
        self.asked: list[tuple[int, int, int]] = []
        self.batches: list[list[int]] = []
        self.failures: list[tuple[int, int]] = []
        space = SimpleNamespace(full=False, free=1 << 40)
        self.downloads = GroupDownloads({}, self, at_once, space,
                                        self.install, 1 << 20, self)

    async def ask(self, peer, request):
        self.asked.append((peer, request.group, request.offset))
        if peer in self.silent or self.breaks_at.get(request.group) == request.offset:
            raise NoAnswer("gone")
        served = self.images.get(request.group)
        if served is None:
            return None
        return Chunk(served.index, served.term, served.total, served.crc, request.offset,
                     bytes(served.data[request.offset:request.offset + 64]))

    async def install(self, batch) -> None:
        self.batches.append([each.group for each in batch])

    def warning(self, event: str, *, extra: dict) -> None:
        assert event == "snapshot_download_failed"
        self.failures.append((extra["group"], extra["peer"]))

    def process(self, *offers: tuple[int, int]) -> list[list[int]]:
        for group, leader in offers:
            self.downloads.offer(group, leader)
        run(self.downloads.process_all())
        assert not self.downloads.waiting
        batches, self.batches = self.batches, []
        return batches


def test_offers_are_processed_in_order_and_what_arrived_is_installed_together():
    node = Downloader()
    assert node.process((1, LEADER), (4, OTHER), (2, LEADER)) == [[1, 4, 2]]


def test_a_leader_that_does_not_answer_costs_one_request():
    node = Downloader()
    node.silent.add(LEADER)
    assert node.process((1, LEADER), (4, OTHER), (2, LEADER)) == [[4]]
    assert node.failures == [(1, LEADER)] and len([1 for peer, *_ in node.asked if peer == 2]) == 1
    node.silent.clear()
    assert node.process((1, LEADER), (2, LEADER)) == [[1, 2]]


def test_a_group_of_which_the_leader_has_no_snapshot_holds_up_no_other():
    node = Downloader()
    del node.images[1]
    assert node.process((1, LEADER), (2, LEADER)) == [[2]]


def test_a_download_that_broke_off_resumes_at_the_next_offer_of_its_group():
    node = Downloader()
    node.breaks_at[1] = 64
    assert node.process((1, LEADER)) == []
    node.breaks_at.clear()
    assert node.process((1, OTHER)) == [[1]]
    assert node.asked[:3] == [(LEADER, 1, 0), (LEADER, 1, 64), (OTHER, 1, 64)]


def test_bytes_that_are_no_snapshot_of_the_group_are_not_installed():
    node = Downloader()
    node.images[1] = image(group=2)
    assert node.process((1, LEADER)) == [] and node.failures == [(1, LEADER)]


def test_batches_are_bounded_in_snapshots_and_in_bytes(monkeypatch):
    monkeypatch.setattr(group_downloads, "BATCH_MAX", 2)
    node = Downloader()
    assert node.process(*[(group, LEADER) for group in range(1, 6)]) == [[1, 2], [3, 4], [5]]
    monkeypatch.setattr(group_downloads, "BATCH_BYTES_MAX", 1)
    assert node.process(*[(group, LEADER) for group in range(1, 4)]) == [[1], [2], [3]]


def test_offers_above_the_limit_wait_for_their_repetition(monkeypatch):
    monkeypatch.setattr(group_downloads, "OFFERS_MAX", 2)
    node = Downloader()
    assert node.process((1, LEADER), (2, LEADER), (3, LEADER), (1, OTHER)) == [[1, 2]]
    assert (OTHER, 1, 0) in node.asked


def test_offers_that_leaders_repeat_meanwhile_do_not_delay_the_installation():
    """Each download takes longer than the time between two offers of a group."""
    node = Downloader()
    serve = node.ask

    async def ask(peer, request):
        for group in (1, 2, 3):
            node.downloads.offer(group, LEADER)
        return await serve(peer, request)

    node.ask = ask
    assert node.process((1, LEADER), (2, LEADER), (3, LEADER)) == [[1, 2, 3]]
    assert node.process((1, LEADER)) == [[1, 2, 3]], "they may be offered again"
