"""Model of a cluster: each replica's log as staged and as durable, and the committed log.

Contract.  The driver reports effects when they take place (``observer.StateChecker``); this module
computes their consequences, in O(1) per entry.  It never asks the code under test for its state.

Theory.  A log is represented by one 64-bit *chain* per index: the hash of the entry and of the
chain before it.  Two logs that have equal chains at an index are equal up to it.  Log matching,
leader completeness and "committed never changes" are therefore comparisons of two integers.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.ready import GroupWrite
from multiraft.types import Configuration, Entry, EntryKind, HardState

_IDENTITY = struct.Struct("<QQQBQq")  # chain before, term, index, kind, partition, base offset
NO_HARD_STATE = HardState(0, 0)
#: Configuration of a replica that knows no members.
NOBODY = Configuration(())
#: Above all terms.
ANY_TERM = 1 << 63


def chain_of(previous: int, entry: Entry) -> int:
    """Return the chain at ``entry``, when ``previous`` is the chain before it."""
    hasher = hashlib.blake2b(
        _IDENTITY.pack(previous, entry.term, entry.index, entry.kind, entry.partition,
                       entry.base_offset), digest_size=8)
    hasher.update(entry.payload)
    return int.from_bytes(hasher.digest(), "little")


class LogModel:
    """Log as chains and terms; place i holds index i + 1.

    ``members`` holds (index, configuration) of the configuration entries, for logs that entries are
    appended to.
    """

    __slots__ = ("chains", "terms", "members")

    def __init__(self, chains: Sequence[int] = (), terms: Sequence[int] = ()):
        self.chains = list(chains)
        self.terms = list(terms)
        self.members: list[tuple[int, Configuration]] = []

    @property
    def last_index(self) -> int:
        return len(self.chains)

    def chain(self, index: int) -> int:
        return self.chains[index - 1] if index else 0

    def holds(self, index: int, chain: int) -> bool:
        chains = self.chains
        return index <= len(chains) and (chains[index - 1] if index else 0) == chain

    def append(self, entry: Entry) -> int:
        chains = self.chains
        chain = chain_of(chains[-1] if chains else 0, entry)
        chains.append(chain)
        self.terms.append(entry.term)
        if entry.kind == EntryKind.MEMBERSHIP:
            self.members.append((entry.index, joint_quorum.decode(entry.payload)))
        return chain

    def append_known(self, chain: int, entry: Entry) -> None:
        """Append ``entry``, whose chain is already known to be ``chain``."""
        self.chains.append(chain)
        self.terms.append(entry.term)
        if entry.kind == EntryKind.MEMBERSHIP:
            self.members.append((len(self.chains), joint_quorum.decode(entry.payload)))

    def drop_from(self, first_gone: int) -> None:
        del self.chains[first_gone - 1:]
        del self.terms[first_gone - 1:]
        while self.members and self.members[-1][0] >= first_gone:
            self.members.pop()

    def put(self, write: PendingWrite, count: int | None = None) -> None:
        """Apply ``write`` with its first ``count`` entries (None = all): drop the suffix that it
        drops, then append. New configuration entries are not added to ``members``."""
        if write.is_tombstone:
            self.drop_from(1)
        if write.drop_from:
            self.drop_from(write.drop_from)
        self.chains.extend(write.chains[:count])
        self.terms.extend(write.terms[:count])

    def copy(self) -> LogModel:
        same = LogModel(self.chains, self.terms)
        same.members = self.members[:]
        return same


class PendingWrite(NamedTuple):
    """One group's part of a write that is not known to be durable yet."""

    sequence: int
    drop_from: int
    chains: tuple[int, ...]
    terms: tuple[int, ...]
    hard_state: HardState | None
    is_tombstone: bool = False  # the write is a tombstone: the replica is removed
    follows_tombstone: bool = False  # staged while a tombstone was not durable yet


class ReplicaModel:
    """One group on one node, over all boots, removals and returns."""

    __slots__ = (
        "node",
        "group",
        "staged",
        "durable",
        "hard_state",
        "durable_hard_state",
        "pending",
        "applied",
        "damaged",
        "is_tombstone",
        "is_durable_tombstone",
        "installing",
        "synced",
        "power_lost",
        "forgotten",
        "lost",
        "last_incarnation",
        "first",
        "adopted",
    )

    def __init__(self, node: int, group: GroupModel):
        self.node = node
        self.group = group
        self.staged = LogModel()
        self.durable = LogModel()
        self.hard_state = NO_HARD_STATE
        self.durable_hard_state = NO_HARD_STATE
        self.pending: deque[PendingWrite] = deque()
        self.applied = 0
        #: The replica is a tombstone, as staged and as durable.
        self.is_tombstone = self.is_durable_tombstone = False
        #: The durable log when the replica was removed, until a new replica has entries that were
        #: staged after that.  Rounds that waited for a hung disk end at once, and the replies of
        #: the removed replica leave behind all of them.
        self.last_incarnation = LogModel()
        self.installing = 0  # index of the snapshot that a crash may have installed or not
        #: Relaxed durability: the highest synced index; True after a power loss; the entries that
        #: power losses took.  Leaders up to the term of such an entry may lack it, because this
        #: voter may have elected them before it got the entry back in that term.
        self.synced = 0
        self.power_lost = False
        self.forgotten: dict[int, int] = {}  # chain -> term
        #: Chains that were durable here until they were damaged; cleared by repair.
        self.lost: set[int] = set()
        self.damaged = False  # quarantined: it no longer leads
        #: Configuration before the first configuration entry of its log: the initial one, or
        #: ``NOBODY`` for a replica that a leader created later.
        self.first = group.initial if node in group.initial.voters else NOBODY
        #: (index, configuration) in force, perhaps before that entry is staged.
        self.adopted = (0, self.first)

    def __repr__(self) -> str:
        return f"n{self.node} g{self.group.group}"

    def stage(self, sequence: int, write: GroupWrite) -> PendingWrite:
        """Apply a write to the staged log, and return it as pending until ``make_durable``. The
        chains of the new entries are computed from their bytes."""
        log, record = self.staged, write.lifecycle_record
        is_tombstone = record is not None and record.kind == EntryKind.TOMBSTONE
        if is_tombstone:
            left = replica_records.parse_tombstone(record.term, record.index, record.payload)
            write = write._replace(hard_state=left.hard_state)
            log.drop_from(1)
            self.applied, self.adopted = 0, (0, self.first)
        self.is_tombstone = is_tombstone
        follows_tombstone = any(each.is_tombstone for each in self.pending)
        if write.drop_from:
            log.drop_from(write.drop_from)
        first, entries, chain_at = len(log.chains), self.group.entries, self.group.chain_at
        for entry in write.entries:
            chain = log.append(entry)
            entries[chain] = entry
            chain_at.setdefault((entry.index, entry.term), chain)
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        pending = PendingWrite(sequence, write.drop_from, tuple(log.chains[first:]),
                               tuple(log.terms[first:]), write.hard_state, is_tombstone,
                               follows_tombstone)
        self.pending.append(pending)
        return pending

    def make_durable(self, sequence: int) -> None:
        """Apply the pending writes up to ``sequence`` to the durable log and hard state."""
        while self.pending and self.pending[0].sequence <= sequence:
            write = self.pending.popleft()
            if write.is_tombstone:
                self.last_incarnation = self.durable.copy()
            elif write.chains and not write.follows_tombstone:
                self.last_incarnation = LogModel()
            self.durable.put(write)
            self._remember(write.chains)
            self.is_durable_tombstone = write.is_tombstone
            if write.hard_state is not None:
                self.durable_hard_state = write.hard_state

    def _remember(self, chains: tuple[int, ...]) -> None:
        for chain in self.forgotten.keys() & chains if self.forgotten else ():
            self.forgotten[chain] = min(self.forgotten[chain], self.hard_state.term)

    def forget(self, chains: Iterable[int]) -> None:
        """Record entries, by their chains, that a power loss with relaxed durability took."""
        self.forgotten |= dict.fromkeys(chains, ANY_TERM)

    def restart(self, log: LogModel, hard_state: HardState, applied: int) -> None:
        """Begin a new boot with the recovered log, which counts as durable and synced; pending
        writes are dropped."""
        self.staged, self.durable = log, log.copy()
        self.hard_state = self.durable_hard_state = hard_state
        self.pending.clear()
        self.applied = applied
        self.adopted = (0, self.first)
        self.installing = 0
        self.synced, self.power_lost = log.last_index, False  # recovery syncs all of the log
        self.is_tombstone = self.is_durable_tombstone = False
        self.last_incarnation = LogModel()

    def lose(self, log: LogModel) -> None:
        """Record the durable entries that ``log``, the recovered one, lacks as damaged; after a
        power loss the unsynced ones also as forgotten."""
        if self.power_lost:
            self.forget_unsynced(log)
        self.lost.update(chain for index, chain in enumerate(self.durable.chains, 1)
                         if not log.holds(index, chain))

    def repaired(self) -> None:
        """Record that the replica is no longer quarantined and has lost nothing."""
        self.damaged = False
        self.lost.clear()

    def forget_unsynced(self, log: LogModel) -> None:
        """Record unsynced records that ``log``, recovered from a damaged disk after a power loss,
        lacks as forgotten, because the power loss may be the reason."""
        entries = self.group.entries
        self.forget(
            chain for index, chain in enumerate(self.durable.chains[self.synced:], self.synced + 1)
            if entries[chain].kind == EntryKind.DATA and not log.holds(index, chain))

    def tombstones(self) -> list[HardState]:
        """Return the hard states of the tombstones that a restart may find: durable or in flight.
        Empty = it must find none."""
        return [self.durable_hard_state] * self.is_durable_tombstone + [
            write.hard_state for write in self.pending if write.is_tombstone]

    def restart_removed(self, hard_state: HardState) -> None:
        """Begin a new boot in which the replica is a tombstone with this hard state."""
        self.restart(LogModel(), hard_state, 0)
        self.is_tombstone = self.is_durable_tombstone = True

    def configuration(self) -> Configuration:
        """Return the newest configuration of the staged log; without an entry of one, that before
        its first."""
        return self.staged.members[-1][1] if self.staged.members else self.first

    def adopt(self, configuration: Configuration, index: int) -> None:
        """Record that the configuration of entry ``index`` is in force on this replica."""
        self.adopted = index, configuration
        self.group.seen.setdefault(index, set()).add(configuration)

    def configurations(self) -> list[Configuration]:
        """Return the newest configuration of the staged log, and the one in force if its entry is
        not staged yet.
        """
        index, adopted = self.adopted
        is_ahead = index > (self.staged.members[-1][0] if self.staged.members else 0)
        return [self.configuration(), adopted] if is_ahead else [self.configuration()]


class BatchModel(NamedTuple):
    """Committed batch."""

    index: int
    base_offset: int
    count: int
    producer: tuple[int, int]  # id, epoch
    base_sequence: int
    payload: bytes


class PartitionModel:
    """Committed contents of a partition."""

    __slots__ = ("partition", "next_offset", "batches")

    def __init__(self, partition: int):
        self.partition = partition
        self.next_offset = 0
        self.batches: dict[int, BatchModel] = {}  # by base offset


def is_majority(configuration: Configuration, nodes: Sequence[int]) -> bool:
    """True if ``nodes`` include a majority of the voters, and one of the outgoing voters if there
    are some.

    False without voters.  The rule is written again here, so that the model does not share a bug of
    the product's quorum.
    """
    halves = [half for half in (configuration.voters, configuration.outgoing) if half]
    return bool(halves) and all(2 * len({*half} & {*nodes}) > len(half) for half in halves)


class GroupModel:
    """Truth about one group: leaders, votes, and the committed log."""

    __slots__ = ("group", "initial", "replicas", "leaders", "votes", "chain_at", "entries",
                 "committed", "commit_marks", "partitions", "seen", "_configured",
                 "_configuration")

    def __init__(self, group: int, voters: tuple[int, ...]):
        self.group = group
        self.initial = Configuration(voters)
        self.replicas = {node: ReplicaModel(node, self) for node in voters}
        self.leaders: dict[int, int] = {}  # term -> node
        self.votes: dict[tuple[int, int], int] = {}  # (term, voter) -> candidate
        self.chain_at: dict[tuple[int, int], int] = {}  # (index, term) -> chain, staged first
        self.entries: dict[int, Entry] = {}  # chain -> entry
        self.committed: list[int] = []  # chains; place i holds index i + 1
        self.commit_marks: list[tuple[int, int]] = []  # (leader's term, index), both ascending
        self.partitions: dict[int, PartitionModel] = {}
        self.seen: dict[int, set[Configuration]] = {}  # by index of the entry
        self._configuration = self.initial
        self._configured = 0  # committed entries that ``_configuration`` covers

    @property
    def commit(self) -> int:
        return len(self.committed)

    def replica(self, node: int) -> ReplicaModel:
        """Return the replica on a node; create its model at the first call."""
        found = self.replicas.get(node)
        if found is None:
            found = self.replicas[node] = ReplicaModel(node, self)
        return found

    def log_at(self, index: int) -> LogModel:
        """Return a copy of the committed log up to ``index``.  O(index)."""
        log = LogModel()
        for chain in self.committed[:index]:
            log.append_known(chain, self.entries[chain])
        return log

    def follows(self, chain: int, log: LogModel) -> bool:
        """True if the entry of ``chain`` may come behind ``log``: a committed entry follows only
        the committed log."""
        index = log.last_index
        return (index >= self.commit or chain != self.committed[index]
                or log.holds(index, self.committed[index - 1] if index else 0))

    def configuration(self) -> Configuration:
        """Return the newest committed configuration.  Amortised O(1), because committed entries
        stay so.
        """
        committed = self.committed
        while self._configured < len(committed):
            entry = self.entries[committed[self._configured]]
            if entry.kind == EntryKind.MEMBERSHIP:
                self._configuration = joint_quorum.decode(entry.payload)
            self._configured += 1
        return self._configuration

    def configurations(self) -> list[Configuration]:
        """Return all configurations that may be in force on a replica: the committed one, and those
        of each log, staged or not.

        A replica without known members elects no leader, so ``NOBODY`` is left out.  O(replicas).
        """
        return [self.configuration(), *[each for replica in self.replicas.values()
                                        if not replica.is_tombstone for each
                                        in replica.configurations() if each != NOBODY]]

    def configurations_at(self, index: int) -> list[Configuration]:
        """Return all configurations that were in force at ``index`` on any replica, in truncated
        logs as well, because other nodes may have seen them.  Index 0 is the initial one.
        """
        if not index:
            return [self.initial]
        return sorted(self.seen.get(index, ()))

    def configurations_from(self, replica: ReplicaModel, index: int) -> list[Configuration]:
        """Return the configurations under which ``index`` may have been committed in the replica's
        term.

        These are the one in force at ``index``, and the later ones in its log and in its leader's
        log.  A configuration is in force on a leader as soon as it is in the log (paper 6), which
        is before its entry is staged if the disk is busy.
        """
        found = []
        leader = self.replicas.get(self.leaders.get(replica.hard_state[0], 0), replica)
        if leader.adopted[0] >= index:
            found.append(leader.adopted[1])
        for log in {id(replica.staged): replica.staged, id(leader.staged): leader.staged}.values():
            members = [(0, self.initial), *log.members]
            below = [at for at, (where, _) in enumerate(members) if where <= index]
            found += [configuration for _, configuration in members[below[-1]:]]
        return found

    def durable_holders(self, index: int, chain: int) -> list[int]:
        """Return the nodes with a durable log that ends with ``chain`` at ``index``.

        Nodes that lost the entry in a relaxed power loss, or in damage that is not repaired, are
        included: their acknowledgements were true, and may arrive late.
        """
        return [node for node, replica in self.replicas.items()
                if replica.durable.holds(index, chain) or chain in replica.forgotten
                or chain in replica.lost]

    def is_enough(self, replica: ReplicaModel, index: int, holders: Sequence[int]) -> bool:
        """True if ``holders`` are a majority under a configuration by which ``index`` may have been
        committed in the replica's term."""
        return any(is_majority(configuration, holders)
                   for configuration in self.configurations_from(replica, index))

    def committed_before_term(self, term: int) -> int:
        """Return the highest index known to be committed by a leader of a term below ``term``; 0 =
        none."""
        for mark_term, index in reversed(self.commit_marks):
            if mark_term < term:
                return index
        return 0

    def batch_of(self, entry: Entry) -> BatchModel:
        """Return a DATA entry as a batch."""
        assert entry.kind == EntryKind.DATA and entry.batch is not None, entry
        info = entry.batch
        return BatchModel(entry.index, entry.base_offset, info.count,
                          (info.producer_id, info.producer_epoch), info.base_sequence,
                          bytes(entry.payload))
