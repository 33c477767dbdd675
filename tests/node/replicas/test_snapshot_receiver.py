"""Steps of the download of a snapshot."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.core import crc32c
from multiraft.storage.snapshot_download import SnapshotDownload
from multiraft.types import METADATA_GROUP
from node.peers.errors import NoAnswer
from node.replicas.snapshot_messages import Chunk
from node.replicas.snapshot_receiver import FREE_FACTOR, SnapshotReceiver
from tests.node.replicas.snapshot_doubles import tail_at
from tests.node.steps import at_once, run

LEADER, DIRECTORY, BYTES_MAX = 2, "/node", 1000
DATA = bytes(range(100))


def chunk(offset: int, length: int = 40, **changed) -> Chunk:
    values = {"index": 7, "term": 3, "total": len(DATA), "crc": crc32c(DATA), "offset": offset,
              "data": DATA[offset:offset + length]}
    return Chunk(**{**values, **changed})


WHOLE = (chunk(0), chunk(40), chunk(80))


class Follower:
    """A node that downloads; each request gets the next of ``replies``."""

    def __init__(self, *replies, filesystem: SimulatedFilesystem | None = None):
        self.replies = [*replies]
        self.asked: list[tuple[int, int]] = []
        self.installed: list[bytes] = []
        self.failures: list[str] = []
        self.resumed = 0
        self.states = {METADATA_GROUP: tail_at(1)}
        self.filesystem = filesystem or SimulatedFilesystem()
        self.filesystem.make_directory(DIRECTORY)
        self.space = SimpleNamespace(full=False, free=FREE_FACTOR * len(DATA))
        self.file = SnapshotDownload(self.filesystem, DIRECTORY, BYTES_MAX)
        self.receiver = SnapshotReceiver(METADATA_GROUP, self.states, self, at_once, self.file,
                                         self.space, self.install, BYTES_MAX, self)

    async def ask(self, peer, request):
        assert peer == LEADER
        self.asked.append((request.index, request.offset))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def install(self, download) -> None:
        self.installed.append(bytes(download.data))

    def info(self, event: str, *, extra: dict) -> None:
        assert event == "snapshot_download_resumed"
        self.resumed += 1

    def warning(self, event: str, *, extra: dict) -> None:
        assert event == "snapshot_download_failed" and extra["peer"] == LEADER
        self.failures.append(extra["reason"])

    def receive(self) -> list[str]:
        """Process an offer, and return why the download failed; empty = it did not."""
        run(self.receiver.process(LEADER))
        failures, self.failures = self.failures, []
        return failures

    @property
    def kept(self) -> bytes:
        """The part of a download that is on disk."""
        found = SnapshotDownload(self.filesystem, DIRECTORY, BYTES_MAX).load()
        return bytes(found.data) if found is not None else b""


def test_a_download_requests_what_it_lacks_until_it_is_whole():
    follower = Follower(*WHOLE)
    assert not follower.receive()
    assert follower.asked == [(0, 0), (7, 40), (7, 80)]
    assert follower.installed == [DATA]
    assert follower.receiver.received is None and not follower.kept


def test_a_leader_without_a_snapshot_costs_nothing_of_what_arrived():
    follower = Follower(chunk(0), None)
    follower.receive()
    assert not follower.installed and follower.kept == DATA[:40]


def test_a_download_that_breaks_off_resumes_at_the_next_offer_and_after_a_restart():
    follower = Follower(chunk(0), NoAnswer("gone"), chunk(40), NoAnswer("gone"))
    for _ in range(2):
        assert follower.receive() == ["gone"]
    again = Follower(chunk(80), filesystem=follower.filesystem)
    run(again.receiver.resume())
    assert again.resumed == 1 and again.receiver.received.data == DATA[:80]
    again.receive()
    assert follower.asked == [(0, 0), (7, 40), (7, 40), (7, 80)] and again.asked == [(7, 80)]
    assert again.installed == [DATA]


@pytest.mark.parametrize("changed", [{"index": 8}, {"term": 4}, {"crc": 1}])
def test_no_chunk_of_another_snapshot_is_appended(changed):
    """It begins another download, if it is a first chunk."""
    follower = Follower(chunk(0), chunk(0, **changed), NoAnswer("gone"))
    assert follower.receive() == ["gone"]
    assert follower.receiver.received.data == DATA[:40] and follower.kept == DATA[:40]
    assert follower.asked[2] == (changed.get("index", 7), 40)
    follower = Follower(chunk(0), chunk(40, **changed))
    assert follower.receive()
    assert follower.receiver.received is None and not follower.kept


@pytest.mark.parametrize("wrong", [
    chunk(39), chunk(80), chunk(40, total=99), chunk(40, data=b""), chunk(40, data=bytes(61))])
def test_a_chunk_that_does_not_continue_the_download_drops_it(wrong):
    follower = Follower(chunk(0), wrong)
    assert follower.receive()
    assert follower.receiver.received is None and not follower.kept


def test_a_whole_download_with_a_wrong_crc_is_dropped_and_not_installed():
    follower = Follower(chunk(0), chunk(40), chunk(80, data=bytes(20)))
    assert follower.receive() == ["the CRC of the snapshot does not match"]
    assert not follower.installed and not follower.kept


def test_a_snapshot_above_the_limit_is_refused_and_drops_nothing():
    follower = Follower(chunk(0), chunk(40, total=BYTES_MAX + 1))
    assert "limit" in follower.receive()[0]
    assert follower.kept == DATA[:40]


def test_a_download_is_dropped_once_the_log_has_reached_its_index():
    follower = Follower(chunk(0), None)
    follower.receive()
    follower.states[METADATA_GROUP] = tail_at(6)
    run(follower.receiver.process(0))
    assert follower.kept
    follower.states[METADATA_GROUP] = tail_at(7)
    run(follower.receiver.process(0))
    assert follower.receiver.received is None and not follower.kept


@pytest.mark.parametrize(("full", "free"), [(True, 1 << 40), (False, FREE_FACTOR * 100 - 1)])
def test_records_have_precedence_over_the_file_of_a_download(full, free):
    follower = Follower(*WHOLE)
    follower.space.full, follower.space.free = full, free
    written: list[str] = []
    follower.filesystem.create = written.append
    follower.receive()
    assert follower.installed == [DATA] and not written
