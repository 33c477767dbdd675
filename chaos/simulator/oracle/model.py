"""What a witness of every effect knows: each replica's log as staged and as durable, and the truth.

Contract.  The driver reports effects at the moment they take place (``witness.StateChecker``); this
module keeps what follows from them, in O(1) per entry.  Nothing here asks the code under test what
it believes.

Theory.  A log is represented by one 64-bit *chain* per index: the hash of the entry and of the
chain before it.  Two logs that have equal chains at an index are equal up to it, so log matching,
leader completeness and "committed never changes" are comparisons of two integers.
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
#: Who counts where nobody is known to.
NOBODY = Configuration(())
#: Above all terms.
ANY_TERM = 1 << 63


def chain_of(previous: int, entry: Entry) -> int:
    """The chain at ``entry`` when ``previous`` is the chain before it."""
    hasher = hashlib.blake2b(
        _IDENTITY.pack(previous, entry.term, entry.index, entry.kind, entry.partition,
                       entry.base_offset), digest_size=8)
    hasher.update(entry.payload)
    return int.from_bytes(hasher.digest(), "little")


class LogModel:
    """A log as chains and terms; place i holds index i + 1.  ``members`` is kept for logs that
    entries are appended to: (index, configuration) of each entry that says so."""

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
        """The next entry is ``entry``, and ``chain`` the chain at it: nobody has to read it."""
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
        """What ``write`` does to this log with its first ``count`` entries (None = all)."""
        if write.buried:
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
    buried: bool = False  # a tombstone: the replica's life is over


class ReplicaModel:
    """One group on one node, over all its lives."""

    __slots__ = ("node", "group", "staged", "durable", "hard_state", "durable_hard_state",
                 "pending", "applied", "damaged", "buried", "durably_buried", "installing",
                 "synced", "power_lost", "forgotten", "lost", "last_life", "first", "adopted")

    def __init__(self, node: int, group: GroupModel):
        self.node = node
        self.group = group
        self.staged = LogModel()
        self.durable = LogModel()
        self.hard_state = NO_HARD_STATE
        self.durable_hard_state = NO_HARD_STATE
        self.pending: deque[PendingWrite] = deque()
        self.applied = 0
        #: There is a tombstone and nothing else, as staged and as durable.
        self.buried = self.durably_buried = False
        #: What was durable when it was removed, until it is a replica with entries again.
        self.last_life = LogModel()
        self.installing = 0  # index of the snapshot that a crash may have installed or not
        #: Relaxed: entries that a power loss leaves; whether there was one; what such took, and the
        #: term up to which this voter may have helped leaders that lack it: until it had it again.
        self.synced = 0
        self.power_lost = False
        self.forgotten: dict[int, int] = {}  # chain -> term
        #: Chains that were durable here until damage took them; until it is repaired.
        self.lost: set[int] = set()
        self.damaged = False  # quarantined: whatever it led, it leads no more
        #: Who the members are where its log says nothing: it was here from the beginning, or a
        #: leader wanted it, and it knows nobody until it hears of them.
        self.first = group.initial if node in group.initial.voters else NOBODY
        #: (index, configuration) that it goes by, perhaps before that entry is staged.
        self.adopted = (0, self.first)

    def __repr__(self) -> str:
        return f"n{self.node} g{self.group.group}"

    def stage(self, sequence: int, write: GroupWrite) -> PendingWrite:
        """The log in memory moves; the chains of the new entries are computed from their bytes."""
        log, mark = self.staged, write.mark
        buried = mark is not None and mark.kind == EntryKind.TOMBSTONE
        if buried:
            left = replica_records.parse_tombstone(mark.term, mark.index, mark.payload)
            write = write._replace(hard_state=left.hard_state)
            log.drop_from(1)
            self.applied, self.adopted = 0, (0, self.first)
        self.buried = buried
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
                               tuple(log.terms[first:]), write.hard_state, buried)
        self.pending.append(pending)
        return pending

    def settle(self, sequence: int) -> None:
        """The writes up to ``sequence`` are on the disk."""
        while self.pending and self.pending[0].sequence <= sequence:
            write = self.pending.popleft()
            if write.buried or write.chains:
                self.last_life = self.durable.copy() if write.buried else LogModel()
            self.durable.put(write)
            self._remember(write.chains)
            self.durably_buried = write.buried
            if write.hard_state is not None:
                self.durable_hard_state = write.hard_state

    def _remember(self, chains: tuple[int, ...]) -> None:
        for chain in self.forgotten.keys() & chains if self.forgotten else ():
            self.forgotten[chain] = min(self.forgotten[chain], self.hard_state.term)

    def forget(self, chains: Iterable[int]) -> None:
        """Relaxed: a loss of power took these."""
        self.forgotten |= dict.fromkeys(chains, ANY_TERM)

    def restart(self, log: LogModel, hard_state: HardState, applied: int) -> None:
        """A new life begins with what recovery found."""
        self.staged, self.durable = log, log.copy()
        self.hard_state = self.durable_hard_state = hard_state
        self.pending.clear()
        self.applied = applied
        self.adopted = (0, self.first)
        self.installing = 0
        self.synced, self.power_lost = log.last_index, False  # recovery writes all of it anew
        self.buried = self.durably_buried = False
        self.last_life = LogModel()

    def lose(self, log: LogModel) -> None:
        """Damage has left this of what was durable, perhaps with the help of a loss of power."""
        if self.power_lost:
            self.forget_unsynced(log)
        self.lost.update(chain for index, chain in enumerate(self.durable.chains, 1)
                         if not log.holds(index, chain))

    def repaired(self) -> None:
        """It is a replica like any other."""
        self.damaged = False
        self.lost.clear()

    def forget_unsynced(self, log: LogModel) -> None:
        """Relaxed, and the power was lost at a disk that is damaged besides: records that were not
        synced and that recovery did not find may be gone for that."""
        entries = self.group.entries
        self.forget(
            chain for index, chain in enumerate(self.durable.chains[self.synced:], self.synced + 1)
            if entries[chain].kind == EntryKind.DATA and not log.holds(index, chain))

    def tombstones(self) -> list[HardState]:
        """Of those that a restart may find: the durable one, and those in flight."""
        return [self.durable_hard_state] * self.durably_buried + [
            write.hard_state for write in self.pending if write.buried]

    def restart_buried(self, hard_state: HardState) -> None:
        """A new life finds the tombstone, and nothing else."""
        self.restart(LogModel(), hard_state, 0)
        self.buried = self.durably_buried = True

    def configuration(self) -> Configuration:
        """Who counts, by this replica's log."""
        return self.staged.members[-1][1] if self.staged.members else self.first

    def adopt(self, configuration: Configuration, index: int) -> None:
        """It goes by that of ``index`` from now on."""
        self.adopted = index, configuration
        self.group.seen.setdefault(index, set()).add(configuration)

    def configurations(self) -> list[Configuration]:
        """The one of its log, and one that it goes by while its disk has not been given it."""
        index, adopted = self.adopted
        is_ahead = index > (self.staged.members[-1][0] if self.staged.members else 0)
        return [self.configuration(), adopted] if is_ahead else [self.configuration()]


class BatchModel(NamedTuple):
    """A committed batch."""

    index: int
    base_offset: int
    count: int
    producer: tuple[int, int]  # id, epoch
    base_sequence: int
    payload: bytes


class PartitionModel:
    """The committed contents of a partition."""

    __slots__ = ("partition", "next_offset", "batches")

    def __init__(self, partition: int):
        self.partition = partition
        self.next_offset = 0
        self.batches: dict[int, BatchModel] = {}  # by base offset


def is_majority(configuration: Configuration, nodes: Sequence[int]) -> bool:
    """Counted by hand: more than half of the voters, and of the outgoing ones."""
    halves = [half for half in (configuration.voters, configuration.outgoing) if half]
    return bool(halves) and all(2 * len({*half} & {*nodes}) > len(half) for half in halves)


class GroupModel:
    """The truth about one group: who led, who voted, what is committed."""

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
        self._configured = 0  # entries up to which that is known

    @property
    def commit(self) -> int:
        return len(self.committed)

    def replica(self, node: int) -> ReplicaModel:
        """The replica on a node; it may be its first."""
        found = self.replicas.get(node)
        if found is None:
            found = self.replicas[node] = ReplicaModel(node, self)
        return found

    def log_at(self, index: int) -> LogModel:
        """The committed log up to there."""
        log = LogModel()
        for chain in self.committed[:index]:
            log.append_known(chain, self.entries[chain])
        return log

    def follows(self, chain: int, log: LogModel) -> bool:
        """Whether ``chain`` may come next: a committed one follows the committed log alone."""
        index = log.last_index
        return (index >= self.commit or chain != self.committed[index]
                or log.holds(index, self.committed[index - 1] if index else 0))

    def configuration(self) -> Configuration:
        """Who counts, by what is committed.  Amortised O(1): what is committed stays so."""
        committed = self.committed
        while self._configured < len(committed):
            entry = self.entries[committed[self._configured]]
            if entry.kind == EntryKind.MEMBERSHIP:
                self._configuration = joint_quorum.decode(entry.payload)
            self._configured += 1
        return self._configuration

    def configurations(self) -> list[Configuration]:
        """All by which somebody may go: the committed one, and that of each log, on its way to the
        disk or not; who knows of no members elects nobody.  O(replicas)."""
        return [self.configuration(), *[each for replica in self.replicas.values()
                                        if not replica.buried for each
                                        in replica.configurations() if each != NOBODY]]

    def configurations_at(self, index: int) -> list[Configuration]:
        """Those that anybody ever went by at ``index``: of one that was lost or dropped somebody
        may have heard; 0 = the first."""
        if not index:
            return [self.initial]
        return sorted(self.seen.get(index, ()))

    def configurations_from(self, replica: ReplicaModel, index: int) -> list[Configuration]:
        """Those under which ``index`` may have been committed in the replica's term: the one in
        force there and those behind it in its log or in its leader's.  A leader goes by the last
        one of its log also while its disk is busy and the entry is not staged yet (paper 6: as soon
        as it is in the log, committed or not)."""
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
        """Nodes whose disk holds the log that ends with ``chain`` at ``index``, or held it before a
        relaxed node's loss of power, or before damage that is not repaired: what it said of it was
        true, and may come late."""
        return [node for node, replica in self.replicas.items()
                if replica.durable.holds(index, chain) or chain in replica.forgotten
                or chain in replica.lost]

    def is_enough(self, replica: ReplicaModel, index: int, holders: Sequence[int]) -> bool:
        """Whether these are a majority under a configuration that may have decided."""
        return any(is_majority(configuration, holders)
                   for configuration in self.configurations_from(replica, index))

    def committed_before_term(self, term: int) -> int:
        """Highest index known to be committed by a leader of a term below ``term``."""
        for mark_term, index in reversed(self.commit_marks):
            if mark_term < term:
                return index
        return 0

    def batch_of(self, entry: Entry) -> BatchModel:
        """A committed DATA entry as a batch."""
        assert entry.kind == EntryKind.DATA and entry.batch is not None, entry
        info = entry.batch
        return BatchModel(entry.index, entry.base_offset, info.count,
                          (info.producer_id, info.producer_epoch), info.base_sequence,
                          bytes(entry.payload))
