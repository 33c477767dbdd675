"""Requests of copies for damaged replicas, and copies for other nodes.

Contract. ``repair_all`` takes passes over the replicas under repair until none is left: in each,
one step per replica, one request at a time. ``copies_for`` reads what another node requested.
``multiraft.storage.repair.coordinator`` decides the next step; this module says in which order the
steps are taken, and what an answer, its absence or an error leads to. Peers, disk and pauses are
the driver's.

Theory. A step that failed is decided anew in the next pass, by the coordinator, which then asks
another member. A peer that does not reply is left out for the rest of its pass: with one of two
peers hanging, a node with a thousand damaged replicas waits for it once and not a thousand times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from multiraft.errors import Compacted
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.types import Entry
from multiraft.wire.schema import Malformed
from node.errors import is_exhausted, journal_unreadable
from node.event_log import EventLog
from node.peers.errors import NoAnswer

#: Pause between two passes over the groups under repair, in seconds: about the time that an absent
#: peer or a commit of the leader takes.
TURN_S = 0.1


class CopyPeers(Protocol):
    """Requests to other nodes."""

    async def ask(self, peer: int, request: RepairRequest) -> RepairResponse | None:
        """Return the reply of ``peer``; None = it does not know the group. Raises ``NoAnswer``
        without a reply, ``Malformed`` for an invalid one or a damaged copy."""


class RepairSteps:
    """Passes over one node's replicas under repair."""

    def __init__(self, coordinator: RepairCoordinator, peers: CopyPeers,
                 on_thread: Callable[..., Awaitable[Any]], pause: Callable[[float], Awaitable[Any]],
                 damaged: Callable[[CorruptRange], None], request_round: Callable[[], None],
                 log: EventLog):
        """``on_thread(call)`` returns the result of a call that reads the disk. ``damaged`` has the
        replica of a damaged entry repaired."""
        self._coordinator = coordinator
        self._peers = peers
        self._on_thread = on_thread
        self._pause = pause
        self._damaged = damaged
        self._request_round = request_round
        self._log = log
        self._silent: set[int] = set()  # peers that did not reply in this pass over the groups

    async def repair_all(self) -> None:
        """Take one step for each replica under repair, every ``TURN_S`` until none is left. Raises
        ``DiskFailed`` if the disk cannot be read."""
        while self._coordinator.groups:
            self._silent.clear()
            for group in sorted(self._coordinator.groups):
                await self._step(group)
            self._request_round()
            await self._pause(TURN_S)

    async def _step(self, group: int) -> None:
        action = self._coordinator.step(group)
        if isinstance(action, SendRequest):
            await self._ask(action)
        elif isinstance(action, ReplayEntries):
            await self._replay(group, action.job)

    async def _replay(self, group: int, job: ReadJob) -> None:
        try:
            entries = await self._on_thread(job.execute)
        except CorruptRange as error:
            self._damaged(error)
            return
        except Compacted:
            return  # the next pass reads what is left
        except OSError as error:
            if is_exhausted(error):
                return  # the next pass reads again
            raise journal_unreadable(error) from error
        self._coordinator.on_replay_read(group, entries)

    async def _ask(self, action: SendRequest) -> None:
        if action.peer in self._silent:
            return  # one timeout per pass for a node that hangs; the next request asks another
        try:
            response = await self._peers.ask(action.peer, action.request)
        except (NoAnswer, Malformed) as error:
            self._silent.add(action.peer)
            self._log.info("repair_request_failed", extra={
                "group": action.request.group, "peer": action.peer, "reason": str(error)})
            return
        if response is not None:
            self._coordinator.on_response(response)

    async def copies_for(self, request: RepairRequest) -> RepairResponse | None:
        """Return the copies that this node has of the requested entries, and which of them it
        cannot supply; None = it does not have the group in that incarnation. Damage that this read
        finds starts a repair here. Raises ``DiskFailed`` if the disk cannot be read, ``OSError`` if
        no file can be opened now."""
        found = self._coordinator.copies_for(request)
        if found is None:
            return None
        jobs, response = found
        entries: list[Entry] = []
        for job in jobs:
            try:
                entries += await self._on_thread(job.execute)
            except CorruptRange as error:
                self._damaged(error)
            except Compacted:
                continue
            except OSError as error:
                if is_exhausted(error):
                    raise  # ends the connection only: the peer asks another node, or again
                raise journal_unreadable(error) from error
        return self._coordinator.with_entries(response, entries, jobs)
