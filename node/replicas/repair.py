"""The repair of damaged replicas from their peers, over bulk connections.

Contract. ``on_damage`` records damage that a read found. ``run`` is the task that requests copies
from peers, one request at a time, until no repairable replica is quarantined. ``answer`` serves
copies to other nodes. ``multiraft.storage.repair.coordinator`` decides the next step; this module
executes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from multiraft.core import frame_entries, parse_entries
from multiraft.errors import Compacted, CorruptEntry
from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.repair.coordinator import (
    ENTRIES_PER_REQUEST,
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.types import Entry
from multiraft.wire.schema import Malformed
from node.errors import is_exhausted, journal_unreadable
from node.peers.bulk_channel import Bulk, NoAnswer

OPERATION = "repair"
#: Pause between two passes over the groups under repair, in seconds: about the time that an absent
#: peer or a commit of the leader takes.
TURN_S = 0.1
_U64 = (1 << 64) - 1


class Repairs:
    """Task that repairs this node's quarantined replicas from copies of its peers."""

    def __init__(self, repairer: RepairCoordinator, bulk: Bulk, request_round: Callable[[], None],
                 log: logging.Logger):
        self._repairer = repairer
        self._bulk = bulk
        self._request_round = request_round
        self._log = log
        self._wanted = trio.Event()
        self._silent: set[int] = set()  # peers that did not reply in this pass over the groups
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

    def on_replica_created(self, group: int) -> None:
        """Start the repair of a new replica if it begins as a recovering head."""
        self._repairer.on_replica_created(group)
        if self._repairer.groups:
            self._wanted.set()

    async def run(self) -> None:
        """Take one step for each replica under repair, every ``TURN_S`` until none is left, then
        wait for the next damage; until cancelled. Raises ``DiskFailed`` if a read or write of the
        disk fails."""
        if self._repairer.groups:
            self._wanted.set()
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            while self._repairer.groups:
                self._silent.clear()
                for group in sorted(self._repairer.groups):
                    await self._step(group)
                self._request_round()
                await trio.sleep(TURN_S)

    async def _step(self, group: int) -> None:
        action = self._repairer.step(group)
        if isinstance(action, SendRequest):
            await self._ask(action)
        elif isinstance(action, ReplayEntries):
            try:
                entries = await trio.to_thread.run_sync(action.job.execute)
            except CorruptRange as error:
                self.on_damage(error)
                return
            except OSError as error:
                if is_exhausted(error):
                    return  # the next turn reads again
                raise journal_unreadable(error) from error
            self._repairer.on_replay_read(group, entries)

    async def _ask(self, ask: SendRequest) -> None:
        request = ask.request
        if ask.peer in self._silent:
            return  # one timeout per pass for a node that hangs; the next request asks another
        try:
            frame = await self._bulk.ask(ask.peer, {
                "op": OPERATION, "group": request.group, "incarnation": request.incarnation,
                "wanted": list(map(list, request.wanted)), "term": request.term})
            answer = _read_answer(request, frame.header, frame.payload)
        except (NoAnswer, Malformed) as error:
            self._silent.add(ask.peer)
            self._log.info("repair_request_failed", extra={
                "group": request.group, "peer": ask.peer, "reason": str(error)})
            return
        if answer is not None:
            self._repairer.on_response(answer)

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, list]:
        """Return the copies that this node has of the entries that a peer requested, and which of
        them it cannot supply. Damage that this read finds starts a repair here. Raises
        ``Malformed`` for an invalid request, ``DiskFailed`` if the disk cannot be read, ``OSError``
        if no file can be opened now."""
        request = _read_request(header)
        found = self._repairer.copies_for(request)
        if found is None:
            return {"op": OPERATION, "known": False}, []
        jobs, answer = found
        entries: list[Entry] = []
        for job in jobs:
            try:
                entries += await trio.to_thread.run_sync(job.execute)
            except CorruptRange as error:
                self.on_damage(error)
            except Compacted:
                continue
            except OSError as error:
                if is_exhausted(error):
                    raise  # ends the connection only: the peer asks another node, or again
                raise journal_unreadable(error) from error
        buffers = frame_entries(entries, 0, 0)[0] if entries else []
        return {"op": OPERATION, "known": True, "leads": answer.leads,
                "absent": list(map(list, answer.absent)),
                "compacted": list(map(list, answer.compacted))}, buffers


def _read_request(header: dict) -> RepairRequest:
    group: Any = header.get("group")
    incarnation: Any = header.get("incarnation")
    term = header.get("term", 0)  # nodes of earlier builds do not say it
    # Incarnation 0 stands for a group without a replica here, which has no entries to request.
    for value, least in ((group, 0), (incarnation, 1), (term, 0)):
        if type(value) is not int or not least <= value <= _U64:
            raise Malformed("a repair request without group and incarnation, or with a wrong term")
    return RepairRequest(group, incarnation, _places(header.get("wanted")), term)


def _read_answer(request: RepairRequest, header: dict,
                 payload: memoryview) -> RepairResponse | None:
    """Decode the reply of a peer; None = the peer does not know the group. Raises ``Malformed`` for
    invalid fields or a damaged copy."""
    if header.get("op") != OPERATION or not header.get("known"):
        return None
    try:
        entries = tuple(parse_entries(payload)) if len(payload) else ()
    except CorruptEntry as error:
        raise Malformed(f"a copy from a peer: {error}") from error
    return RepairResponse(request.group, request.incarnation, entries,
                          _places(header.get("absent")), header.get("leads") is True,
                          _places(header.get("compacted", [])), request.wanted)


def _places(rows: object) -> tuple[tuple[int, int], ...]:
    if type(rows) is not list or len(rows) > ENTRIES_PER_REQUEST:
        raise Malformed(f"more than {ENTRIES_PER_REQUEST} entries in a repair")
    for row in rows:
        if (type(row) is not list or len(row) != 2
                or not all(type(value) is int and 0 <= value <= _U64 for value in row)):
            raise Malformed(f"no (index, term): {row!r:.60}")
    return tuple((index, term) for index, term in rows)
