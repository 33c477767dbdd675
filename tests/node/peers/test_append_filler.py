"""Entries of appends: from memory, or read from the disk while this node leads."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from multiraft.core import frame_entries
from multiraft.errors import Compacted
from multiraft.raft.messages import Append
from multiraft.storage.errors import CorruptRange
from multiraft.types import Entry, EntryKind
from node.errors import DiskFailed
from node.peers.append_filler import COLD_APPENDS_MAX, AppendFiller
from tests.node.steps import Reply, Steps, run

PEER, TERM, FIRST_HOT = 2, 4, 10
HOT, COLD = Append(1, 1, TERM, 9, 1, 11, 0), Append(1, 1, TERM, 2, 1, 5, 0)


def entries(first: int, last: int) -> list[Entry]:
    return [Entry(EntryKind.METADATA, 1, 1, 1, index, payload=b"x") for index in
            range(first, last + 1)]


class Leader:
    """A leader of term 4; entries below index 10 are on disk only."""

    def __init__(self, problem: Exception | None = None):
        self.problem = problem
        self.term, self.is_up, self.slow = TERM, True, False
        self.sent: list[tuple[int, Append, bytes]] = []
        self.damage: list[CorruptRange] = []
        self.queued = 0
        self.filler = AppendFiller(SimpleNamespace(status=self), self, self, self.read,
                                   self.damage.append, self.count)

    def leads(self, group: int, term: int) -> bool:
        return term == self.term

    def framed(self, group: int, first: int, last: int):
        return frame_entries(entries(first, last), 0, 0)[0] if first >= FIRST_HOT else None

    def read_job(self, group: int, first: int, last: int):
        if isinstance(self.problem, Compacted):
            raise self.problem
        return first, last

    async def read(self, job):
        if self.slow:
            await Reply()
        if self.problem is not None:
            raise self.problem
        return entries(*job)

    def is_connected(self, peer: int) -> bool:
        return self.is_up

    def send_cold(self, peer: int, message: Append, buffers) -> None:
        self.sent.append((peer, message, b"".join(buffers)))

    def count(self) -> None:
        self.queued += 1


def test_entries_in_memory_leave_at_once():
    leader = Leader()
    buffers = leader.filler.fill(PEER, HOT)
    assert b"".join(buffers) == b"".join(frame_entries(entries(10, 11), 0, 0)[0])
    assert not leader.filler.cold and not leader.queued


def test_entries_on_disk_are_read_and_follow_in_order():
    leader = Leader()
    later = COLD._replace(last_index=6)
    assert leader.filler.fill(PEER, COLD) is None
    assert leader.filler.fill(PEER, later) is None
    assert leader.queued == 2
    while leader.filler.cold:
        assert run(leader.filler.send_next())
    assert [(peer, message) for peer, message, _ in leader.sent] == [(PEER, COLD), (PEER, later)]
    assert leader.sent[0][2] == b"".join(frame_entries(entries(3, 5), 0, 0)[0])


def test_a_leadership_that_is_over_sends_no_entries():
    """The log may hold another leader's entries at these indexes."""
    leader = Leader()
    leader.filler.fill(PEER, COLD)
    leader.term = TERM + 1
    assert leader.filler.fill(PEER, HOT) is None and len(leader.filler.cold) == 1
    assert run(leader.filler.send_next())
    assert not leader.sent


@pytest.mark.parametrize("changed", [{"term": TERM + 1}, {"is_up": False}])
def test_a_leadership_or_connection_that_ends_during_the_read_sends_nothing(changed):
    leader = Leader()
    leader.slow = True
    leader.filler.fill(PEER, COLD)
    steps = Steps(leader.filler.send_next())
    for name, value in changed.items():
        setattr(leader, name, value)
    steps.resume(None)
    assert steps.is_done and not leader.sent and not leader.filler.cold


def test_damage_is_reported_and_a_compacted_entry_is_not():
    damage = CorruptRange(1, 3, "crc")
    for problem, reported in ((damage, [damage]), (Compacted("gone"), [])):
        leader = Leader(problem)
        leader.filler.fill(PEER, COLD)
        assert run(leader.filler.send_next())
        assert leader.damage == reported and not leader.sent and not leader.filler.cold


def test_a_read_without_descriptors_is_tried_again_and_a_broken_disk_is_not():
    leader = Leader(OSError(errno.EMFILE, "Too many open files"))
    leader.filler.fill(PEER, COLD)
    assert not run(leader.filler.send_next())
    leader.problem = None
    assert run(leader.filler.send_next())
    assert [message for _, message, _ in leader.sent] == [COLD]
    leader.problem = OSError(errno.EIO, "broken")
    leader.filler.fill(PEER, COLD)
    with pytest.raises(DiskFailed):
        run(leader.filler.send_next())


def test_appends_beyond_the_queue_are_dropped():
    leader = Leader()
    for _ in range(COLD_APPENDS_MAX + 1):
        assert leader.filler.fill(PEER, COLD) is None
    assert len(leader.filler.cold) == leader.queued == COLD_APPENDS_MAX
