"""Damage of one boot: found by a scrub or a read, and repaired as in the real node.

Contract.  A node whose disk was never damaged must find no damage.  A damaged node is whole again
when a scrub has read its journal and no replica is under repair.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.connections import Connections
from chaos.simulator.node.damage import DiskDamage
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.process import ProcessScheduler
from chaos.simulator.node.round_queue import RoundQueue
from multiraft.raft.joint_quorum import is_voter
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.store import Store
from multiraft.types import Entry

#: Delay of a scrub after bit rot, or after the start of a damaged node.
SCRUB_US = 200_000
#: Interval of the steps of repair.
REPAIR_US = 50_000


class DamageRepair:
    """Repair of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 damage: DiskDamage, raft: MultiRaft, store: Store, worker: DiskWorker,
                 connections: Connections):
        self.coordinator = RepairCoordinator(env.node, store, raft, self._write_record)
        self._node = env.node
        self._process = process
        self._rounds = rounds
        self._damage = damage
        self._raft = raft
        self._store = store
        self._worker = worker
        self._connections = connections
        self._is_due = False
        self._changes_read = -1  # faults whose damage a scrub has read

    def begin(self) -> None:
        """Take the damage that recovery has read into account, and schedule a scrub if there is
        any."""
        self._damage.unread = False
        if self._damage.rotten:
            self.scrub_soon()
        else:
            self._changes_read = self._damage.changes

    # ---- state -----------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """True if no damage is left: a scrub has read the journal since the latest fault, and no
        replica is under repair or quarantined."""
        return (self._changes_read == self._damage.changes and not self.coordinator.groups
                and not any(self._quarantined()))

    @property
    def damaged_voters(self) -> int:
        """Number of replicas on this node that are voters and under repair."""
        return sum(is_voter(self._raft.status.of(group).configuration, self._node)
                   for group in self.coordinator.groups)

    def excuses_quarantine(self, group: int) -> bool:
        """True if the storage has found damage of the group, or has no log of it any longer.

        Otherwise the core quarantined the replica for another reason, because it cannot accept what
        a leader sends; bit rot on the node does not excuse that.
        """
        if not self._damage.rotten:
            return False
        log = self._store.table.logs.get(group)
        return log is None or log.removed or bool(log.quarantined)

    def _quarantined(self) -> Iterator[str]:
        repair = self._store.repair
        return (f"g{group} {repair.quarantined(group).quarantined}"
                for group in repair.quarantined_groups())

    def under_repair(self) -> list[str]:
        """Describe the quarantined replicas of this node; empty = none is."""
        return sorted(self._quarantined())

    # ---- damage that was found -------------------------------------------------------------

    def scrub_soon(self) -> None:
        """Schedule a scrub of the whole journal for ``SCRUB_US`` from now."""
        self._process.later(SCRUB_US, self._scrub)

    def _scrub(self) -> None:
        scrubber = Scrubber(self._store)
        while (job := scrubber.next_job()) is not None:
            job.execute()
            for error in scrubber.done(job):
                self._take(error)
        self._changes_read = self._damage.changes
        self.request()

    def found(self, error: CorruptRange) -> None:
        """Hand damage that a read found to repair.  Raises ``Violation`` if no bits rotted there,
        and the error itself if none ever did on this node."""
        if not self._has_rotted(error):
            raise Violation("NothingIsDamaged", f"n{self._node} reads what never rotted: {error}")
        self._take(error)

    def _has_rotted(self, error: CorruptRange) -> bool:
        """True if bits of the entry have changed, or the entry is known to be missing. For an entry
        that is no longer in the log: if any bit of this node has."""
        log = self._store.table.logs.get(error.group)
        if log is None or not log.index.first_index <= error.index <= log.index.last_index:
            return self._damage.rotten  # the entry was truncated or compacted meanwhile
        position, size = log.index.position(error.index), log.index.size(error.index)
        return error.index in log.missing or self._damage.touches(position, size)

    def _take(self, error: CorruptRange | CorruptFile) -> None:
        if not self._damage.rotten:
            raise error
        self.coordinator.on_damage(error)
        self.request()
        self._rounds.request()

    # ---- steps -----------------------------------------------------------------------------

    def request(self) -> None:
        """Schedule the next steps of repair, unless they are scheduled or no replica needs them."""
        if not self._is_due and self.coordinator.groups:
            self._is_due = True
            self._process.later(REPAIR_US, self._repair)

    def _repair(self) -> None:
        self._is_due = False
        for group in sorted(self.coordinator.groups):
            action = self.coordinator.step(group)
            if isinstance(action, SendRequest):
                self._connections.send_bulk(action.peer, action.request)
            elif isinstance(action, ReplayEntries):
                try:
                    self.coordinator.on_replay_read(group, action.job.execute())
                except CorruptRange as error:
                    self.found(error)
        self._rounds.request()
        self.request()

    def _write_record(self, staged: StagedWrite) -> None:
        self._worker.gather.write(staged)

    # ---- peers -----------------------------------------------------------------------------

    def take_response(self, response: RepairResponse) -> None:
        """Take the copies that a peer has sent."""
        self.coordinator.on_response(response)

    def serve(self, sender: int, request: RepairRequest) -> None:
        """Send copies to a peer that repairs a replica; no reply without a replica of the group."""
        found = self.coordinator.copies_for(request)
        if found is None:
            return  # this node has no replica of the group, or no longer
        jobs, answer = found
        entries: list[Entry] = []
        for job in jobs:
            try:
                entries += job.execute()
            except CorruptRange as error:
                self.found(error)
        self._connections.send_bulk(sender, answer._replace(entries=tuple(entries)))
