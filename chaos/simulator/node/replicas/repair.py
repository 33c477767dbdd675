"""Damage of one boot: found by a scrub or a read, and repaired by the product's steps.

Contract.  What is asked of which peer, in which order and at which pace, and what a reply leads to,
is the product's own (``node/replicas/repair_steps.py``).  A node whose disk was never damaged must
find no damage.  A damaged node is whole again when a scrub has read its journal and no replica is
under repair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.coroutines import raise_error, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.event_log import TraceLog
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.peers.bulk_channel import BulkChannel
from chaos.simulator.node.replicas.damage import DiskDamage
from multiraft.errors import MultiRaftError
from multiraft.raft.joint_quorum import is_voter
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
)
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.store import Store
from node.replicas import repair_messages
from node.replicas.repair_messages import OPERATION
from node.replicas.repair_steps import RepairSteps

#: Delay of a scrub after bit rot, or after the start of a damaged node.
SCRUB_US = 200_000


class DamageRepair:
    """Repair of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 damage: DiskDamage, raft: MultiRaft, store: Store, worker: DiskWorker,
                 bulk: BulkChannel, threads: SimulatedThreads):
        self.coordinator = RepairCoordinator(env.node, store, raft, self._write_record)
        self._node = env.node
        self._process = process
        self._rounds = rounds
        self._damage = damage
        self._raft = raft
        self._store = store
        self._worker = worker
        self._bulk = bulk
        self._is_running = False
        self._steps = RepairSteps(self.coordinator, self, threads.run, threads.pause, self.found,
                                  rounds.request, TraceLog(env))
        bulk.handlers[OPERATION] = self._answer
        self._changes_read = -1  # faults whose damage a scrub has read

    def begin(self) -> None:
        """Start to repair the damage that recovery has found, and schedule a scrub if there is
        any."""
        self._damage.unread = False
        if self._damage.rotten:
            self.scrub_soon()
        else:
            self._changes_read = self._damage.changes
        self.request()

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

    def records_copied(self, group: int) -> None:
        """Have records repaired that an answer with copies lacked."""
        self.coordinator.on_records_copied(group)
        self.request()

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
        """Start to repair the damaged replicas, unless that is under way or none is damaged."""
        if not self._is_running and self.coordinator.groups:
            self._is_running = True
            self._process.later(0, self._run)

    def _run(self) -> None:
        start(self._steps.repair_all(), self._process.later, self._ended)

    def _ended(self, value: None, error: MultiRaftError | None) -> None:
        raise_error(value, error)
        self._is_running = False
        self.request()

    def _write_record(self, staged: StagedWrite) -> None:
        self._worker.gather.write(staged)

    # ---- peers -----------------------------------------------------------------------------

    async def ask(self, peer: int, request: RepairRequest) -> RepairResponse | None:
        """Return the reply of ``peer`` to a request for copies."""
        reply = await self._bulk.ask(peer, repair_messages.request_header(request))
        return repair_messages.read_response(request, reply.header, memoryview(reply.payload))

    async def _answer(self, _peer: int, header: dict,
                      _payload: memoryview) -> tuple[dict, Sequence]:
        response = await self._steps.copies_for(repair_messages.read_request(header))
        return repair_messages.response_frame(response)
