"""The repair of damaged replicas from their peers, over bulk connections.

Contract. ``on_damage`` records damage that a read found. ``run`` is the task that requests copies
from peers, one request at a time, until no repairable replica is quarantined. ``answer`` serves
copies to other nodes. ``repair_steps`` has the order of the steps; this module has the task, the
threads and the connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import trio

from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
)
from node.peers.bulk_channel import Bulk
from node.replicas import repair_messages
from node.replicas.repair_messages import OPERATION
from node.replicas.repair_steps import RepairSteps


class Repairs:
    """Task that repairs this node's quarantined replicas from copies of its peers."""

    def __init__(self, repairer: RepairCoordinator, bulk: Bulk, request_round: Callable[[], None],
                 log: logging.Logger):
        self._repairer = repairer
        self._bulk = bulk
        self._request_round = request_round
        self._log = log
        self._wanted = trio.Event()
        self._steps = RepairSteps(repairer, self, trio.to_thread.run_sync, trio.sleep,
                                  self.on_damage, request_round, log)
        self.found = 0  # damaged entries found since the start
        bulk.handlers[OPERATION] = self.answer

    @property
    def waiting(self) -> int:
        """Number of replicas under repair."""
        return len(self._repairer.groups)

    @property
    def repaired(self) -> int:
        """Number of replicas repaired since the start."""
        return self._repairer.repaired

    def on_damage(self, error: CorruptRange | CorruptFile) -> None:
        """Quarantine the replica of a damaged entry and wake the repair task, which fetches a copy
        from a peer. For a damaged checkpoint, which the scrub finds, another one is written."""
        if isinstance(error, CorruptFile):
            self._log.warning("checkpoint_damaged", extra={"path": error.path})
        else:
            self.found += 1
        self._repairer.on_damage(error)
        self._wanted.set()
        self._request_round()

    def add_quarantined(self) -> None:
        """Put the recovered replicas that are quarantined under repair, after all replicas were
        added to the core."""
        self._repairer.add_quarantined()
        if self._repairer.groups:
            self._wanted.set()

    def on_records_copied(self, group: int) -> None:
        """Request the records from all members that an answer with copies lacked."""
        self._repairer.on_records_copied(group)
        if self._repairer.groups:
            self._wanted.set()

    def on_replica_created(self, group: int) -> None:
        """Start the repair of a new replica if it begins as a recovering head."""
        self._repairer.on_replica_created(group)
        if self._repairer.groups:
            self._wanted.set()

    async def run(self) -> None:
        """Repair the damaged replicas until none is left, then wait for the next damage; until
        cancelled. Raises ``DiskFailed`` if a read or write of the disk fails."""
        if self._repairer.groups:
            self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            await self._steps.repair_all()

    async def ask(self, peer: int, request: RepairRequest) -> RepairResponse | None:
        """Return the reply of ``peer`` to a request for copies; None = it does not know the group.
        Raises ``NoAnswer`` without a reply, ``Malformed`` for an invalid one or a damaged copy."""
        frame = await self._bulk.ask(peer, repair_messages.request_header(request))
        return repair_messages.read_response(request, frame.header, frame.payload)

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, Sequence]:
        """Return the copies that this node has of the entries that a peer requested, and which of
        them it cannot supply. Damage that this read finds starts a repair here. Raises
        ``Malformed`` for an invalid request, ``DiskFailed`` if the disk cannot be read, ``OSError``
        if no file can be opened now."""
        response = await self._steps.copies_for(repair_messages.read_request(header))
        return repair_messages.response_frame(response)
