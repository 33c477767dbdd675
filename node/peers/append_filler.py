"""Filling of appends with the entries that they announce, from memory or from the disk.

Contract. ``fill`` returns the entries of an append that leaves now: the very buffers that the
journal received. An append whose entries are no longer in memory is queued, and ``send_next`` reads
its entries and sends it. Disk, connections and pauses are the driver's.

Invariants. An append of a term is filled only while this node leads the group in that term: after a
change of term the log may hold other entries at these indexes. This is checked before and after a
read.

Theory. Losing a message is always safe, so an append is dropped when its leadership is over, when
its entries were compacted or are damaged, and when too many are queued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from multiraft.core import frame_entries
from multiraft.errors import Compacted
from multiraft.raft.messages import Append
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.types import Entry
from node.errors import is_exhausted, journal_unreadable

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Cold appends that wait for the reader task; further ones are dropped, and the core sends them
#: again.
COLD_APPENDS_MAX = 1024


class AppendSender(Protocol):
    """Connections to the peers."""

    def is_connected(self, peer: int) -> bool:
        """Return True if an append can be sent to ``peer``."""

    def send_cold(self, peer: int, message: Append, buffers: Sequence) -> None:
        """Send an append with its entries, in a frame of its own."""


class AppendFiller:
    """Entries of the appends that one node sends."""

    def __init__(self, core: MultiRaft, store: Store, peers: AppendSender,
                 read: Callable[[ReadJob], Awaitable[Sequence[Entry]]],
                 damaged: Callable[[CorruptRange], None], queued: Callable[[], None]):
        """``read`` executes a job. ``queued()`` is called for each append that ``send_next`` has to
        send. ``damaged`` receives the damage that a read found."""
        #: Appends whose entries have to be read: (peer, append).
        self.cold: deque[tuple[int, Append]] = deque()
        self._core = core
        self._store = store
        self._peers = peers
        self._read = read
        self._damaged = damaged
        self._on_queued = queued

    def fill(self, peer: int, message: Append) -> Sequence | None:
        """Return the buffers of the append's entries; None = it is queued for ``send_next``, or
        dropped."""
        # The log is read only now, so this node must still lead in the term of the message.
        if not self._core.status.leads(message.group, message.term):
            return None
        buffers = self._store.framed(message.group, message.prev_index + 1, message.last_index)
        if buffers is None and len(self.cold) < COLD_APPENDS_MAX:
            self.cold.append((peer, message))
            self._on_queued()
        return buffers

    async def send_next(self) -> bool:
        """Read the entries of the first queued append and send it, unless it is of no use any
        longer. Return False if there is no descriptor or memory for the read now; the append stays
        queued. Raises ``DiskFailed`` if the disk cannot be read."""
        peer, message = self.cold.popleft()
        if not self._is_wanted(peer, message):
            return True
        try:
            job = self._store.read_job(message.group, message.prev_index + 1, message.last_index)
            buffers = frame_entries(await self._read(job), 0, 0)[0]
        except Compacted:
            return True  # the core detects it by itself, and offers a snapshot
        except CorruptRange as error:
            self._damaged(error)
            return True
        except OSError as error:
            if not is_exhausted(error):
                raise journal_unreadable(error) from error
            self.cold.appendleft((peer, message))
            return False
        if self._is_wanted(peer, message):
            self._peers.send_cold(peer, message, buffers)
        return True

    def _is_wanted(self, peer: int, message: Append) -> bool:
        return (self._peers.is_connected(peer)
                and self._core.status.leads(message.group, message.term))
