"""The task that copies the records behind installed snapshots, over bulk connections.

Contract. ``add`` records a group whose replica lacks records. ``run`` is the task. ``answer``
serves records to other nodes. ``record_copies`` decides; this module has the task, the threads and
the connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import trio

from multiraft.storage.errors import CorruptRange
from node.clock import monotonic_ms
from node.loop.disk_space import Space
from node.peers.bulk_channel import Bulk
from node.replicas import record_copies_messages
from node.replicas.record_copies import RecordCopies, Stage
from node.replicas.record_copies_messages import OPERATION, RecordsReply, RecordsRequest

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.io_jobs import StagedWrite
    from multiraft.storage.store import Store


class RecordCopyTask:
    """Task that copies records to this node, and handler of other nodes' requests."""

    def __init__(self, core: MultiRaft, store: Store, bulk: Bulk,
                 submit: Callable[[StagedWrite], None], space: Space,
                 damaged: Callable[[CorruptRange], None], copied: Callable[[int], None],
                 request_round: Callable[[], None], log: logging.Logger):
        """``submit`` takes a staged write to the disk. ``damaged`` has a damaged record repaired,
        ``copied`` those that an answer lacked."""
        self._bulk = bulk
        self._submit = submit
        self._store = store
        self._wanted = trio.Event()
        self._copies = RecordCopies(core, store, self, self._write, trio.to_thread.run_sync,
                                    trio.sleep, monotonic_ms, space, damaged, copied, request_round,
                                    log)
        bulk.handlers[OPERATION] = self.answer

    @property
    def groups(self) -> int:
        """Number of groups whose replica lacks records."""
        return len(self._copies.groups)

    @property
    def indexes_left(self) -> int:
        """Number of indexes at which records are lacking. O(groups that lack records)."""
        return self._copies.indexes_left

    @property
    def copied(self) -> int:
        """Number of records copied since the start."""
        return self._store.repair.records_copied

    @property
    def bytes(self) -> int:
        """Bytes of copies received since the start."""
        return self._copies.bytes

    def add(self, group: int) -> None:
        """Wake the task to copy what the replica of ``group`` lacks."""
        self._copies.add(group)
        self._wanted.set()

    def add_incomplete(self) -> None:
        """Wake the task to copy what the recovered replicas lack, after all were added to the
        core."""
        self._copies.add_incomplete()
        self._wanted.set()

    async def run(self) -> None:
        """Copy records until no replica lacks any, then wait for the next one; until cancelled.
        Raises ``DiskFailed`` if a read or write of the disk fails."""
        while True:
            await self._copies.copy_all()
            await self._wanted.wait()
            self._wanted = trio.Event()

    async def _write(self, stage: Stage) -> None:
        durable = trio.Event()
        staged = stage(durable.set)
        if staged is not None:
            self._submit(staged)
            await durable.wait()

    async def ask(self, peer: int, request: RecordsRequest) -> RecordsReply | None:
        """Return the reply of ``peer`` to a request for records; None = it does not have the group.
        Raises ``NoAnswer`` without a reply, ``Malformed`` for an invalid one or a damaged copy."""
        frame = await self._bulk.ask(peer, record_copies_messages.request_header(request))
        return record_copies_messages.read_reply(request, frame.header, frame.payload)

    async def answer(self, peer: int, header: dict, _payload: memoryview) -> tuple[dict, Sequence]:
        """Return the records that this node has of the indexes that a peer requested, and which of
        them it lacks. Raises ``Malformed`` for an invalid request, ``DiskFailed`` if the disk
        cannot be read, ``OSError`` if no file can be opened now."""
        reply = await self._copies.copies_for(peer, record_copies_messages.read_request(header))
        return record_copies_messages.reply_frame(reply)
