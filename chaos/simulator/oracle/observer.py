"""State checker: receives every effect, updates the model, and checks the invariants.

Contract.  Calls come at the moment of the effect, in the order of effects.  The state checker never
changes what the system under test does.  O(1) per effect for each invariant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle import partition_invariants
from chaos.simulator.oracle.invariants import ALL, HOOKS, Invariant, OffsetsDense
from chaos.simulator.oracle.model import NO_HARD_STATE, NOBODY, GroupModel, LogModel, ReplicaModel
from chaos.simulator.oracle.operations import AppendOperation, ReadOperation
from chaos.simulator.oracle.partition_invariants import log_starts_of
from multiraft.raft.log_reader import GroupRestored
from multiraft.raft.messages import Append, GroupMessage, Message
from multiraft.raft.ready import Writes
from multiraft.types import Entry, EntryKind, HardState


class DamagedEntry(NamedTuple):
    """An entry that a restarted node knows to have stored, and cannot read."""

    index: int
    term: int  # 0 = unknown; the entry is known to be committed
    in_question: bool  # may have been truncated: a committed entry of its index replaces it


class StateChecker:
    """Model and invariants of one run.

    With ``check_invariants`` False it only tracks what is committed, and checks no invariant except
    the one that maintains the partitions of the model.
    """

    def __init__(self, groups: Iterable[GroupModel], check_invariants: bool = True):
        self.groups = {group.group: group for group in groups}
        self.leader_changes = 0
        self.is_judging = check_invariants
        #: Partition -> its log start, by the committed entries of all groups.
        self.log_starts: dict[int, int] = {}
        #: Takes (partition, log start, its end) of a committed entry, before it counts; it may
        #: raise ``Violation``.
        self.on_log_start: Callable[[int, int, int], None] = lambda _partition, _start, _end: None
        #: node -> replicas with writes since the node's last sync
        self._unsynced: dict[int, dict[int, ReplicaModel]] = {}
        invariants: list[Invariant] = [
            kind()
            for kind in ((*ALL, *partition_invariants.ALL) if check_invariants else (OffsetsDense,))
        ]
        self._hooks: dict[str, tuple[Callable[..., None], ...]] = {
            hook: tuple(getattr(one, hook) for one in invariants if hasattr(one, hook))
            for hook in HOOKS}
        #: ``on_send`` by type of message.
        self._sent = {kind: tuple(one.on_send for one in invariants
                                  if kind in one.messages)
                      for kind in GroupMessage.__args__}

    def _ask(self, hook: str, *arguments: object) -> None:
        for check in self._hooks[hook]:
            check(*arguments)

    def replica(self, node: int, group: int) -> ReplicaModel:
        return self.groups[group].replica(node)

    # ---- the disk --------------------------------------------------------------------------

    def staged(self, node: int, writes: Writes) -> None:
        checks = self._hooks["on_stage"]
        for write in writes.groups:
            replica = self.replica(node, write.group)
            if write.drop_from:
                self._follows(replica, write.drop_from, replica.staged.last_index + 1)
                if write.drop_from == replica.staged.last_index + 1:
                    # Truncation at the end of the log, as head recovery does it: nothing is lost.
                    write = write._replace(drop_from=0)
            before, entries = replica.hard_state, write.entries
            if entries and not write.drop_from:
                self._follows(replica, entries[0].index, entries[0].index)
            pending = replica.stage(writes.sequence, write)
            if entries and entries[-1].index != replica.staged.last_index:
                raise Violation("LogHasNoHoles", f"{replica} stages up to index "
                                f"{entries[-1].index}, its log ends at {replica.staged.last_index}")
            for check in checks:
                check(replica, pending, before)

    @staticmethod
    def _follows(replica: ReplicaModel, index: int, highest: int) -> None:
        last = replica.staged.last_index
        if not 0 < index <= min(highest, last + 1):
            raise Violation("LogHasNoHoles", f"{replica} writes at index {index}, its log ends at "
                            f"{last}")

    def durable(self, node: int, writes: Writes) -> None:
        unsynced = self._unsynced.setdefault(node, {})
        for write in writes.groups:
            replica = unsynced[write.group] = self.replica(node, write.group)
            replica.make_durable(writes.sequence)

    def synced(self, node: int) -> None:
        """Record that everything written on the node is synced (relaxed durability).  O(replicas
        written to)."""
        for replica in self._unsynced.pop(node, {}).values():
            replica.synced = replica.durable.last_index

    def power_lost(self, node: int) -> None:
        """Record that the next recovery of the node may lack unsynced records (relaxed
        durability)."""
        for group in self.groups.values():
            if node in group.replicas:
                group.replicas[node].power_lost = True

    def recovered(self, node: int, group: int, restored: GroupRestored,
                  entries: Iterable[Entry | DamagedEntry], damaged: bool = False,
                  known: LogModel | None = None, knows_its_damage: bool = False) -> LogModel:
        """Compare a recovered replica with the model, begin a new boot of it there, and return the
        recovered log. Raises ``Violation``.

        ``entries`` are all verified entries that follow ``known``, and the damaged ones among them;
        without ``known`` they follow what is compacted. ``damaged``: the replica is quarantined.
        ``knows_its_damage``: the replica knows every entry that it lost, and has lost nothing else.
        """
        replica = self.replica(node, group)
        first_index = restored.bounds.first_index
        if first_index - 1 > replica.group.commit:
            raise Violation("CommittedNeverChanges", f"{replica} says that {first_index - 1} are "
                            f"compacted, {replica.group.commit} are committed")
        log = known if known is not None else replica.group.log_at(first_index - 1)
        for entry in entries:
            if isinstance(entry, DamagedEntry):
                chain = _chain_of_damaged(replica.group, entry)
                if not replica.group.follows(chain, log):
                    log = replica.group.log_at(entry.index - 1)
                log.append_known(chain, replica.group.entries[chain])
            else:
                if damaged:  # otherwise ``on_recover`` compares the whole log
                    self._ask("on_found", replica, entry)
                replica.group.entries.setdefault(log.append(entry), entry)
        if first_index > 1:  # a snapshot names the members at its index
            replica.first = replica.group.initial
        hard_state = HardState(*restored.hard_state)
        if log.last_index != restored.bounds.last_index:
            raise Violation("LogHasNoHoles", f"{replica} says its log ends at "
                            f"{restored.bounds.last_index}, {log.last_index} entries can be read")
        if not damaged or knows_its_damage:
            self._ask("on_recover", replica, log, restored)
        if damaged:
            replica.lose(log)
        else:
            replica.repaired()
        replica.restart(log, hard_state, restored.applied)
        replica.damaged = damaged
        return log

    def installing(self, node: int, group: int, index: int, term: int) -> None:
        """Check a snapshot at (index, term) that is about to replace the replica's log: it must be
        committed, and newer than the log. Raises ``Violation``."""
        replica = self.replica(node, group)
        committed = replica.group.committed
        if index > len(committed) or replica.group.entries[committed[index - 1]].term != term:
            raise Violation("SnapshotsAreCommitted", f"{replica} installs {index}@{term}")
        if replica.pending or index <= replica.applied \
                or replica.staged.holds(index, committed[index - 1]):
            raise Violation("SnapshotsAreNews", f"{replica} installs {index}@{term}, it applied "
                            f"{replica.applied} and its log has that entry or is being written")
        replica.installing = index

    def installed(self, node: int, group: int) -> None:
        """Replace the log of the model by the snapshot that ``installing`` named, because that is
        durable."""
        replica = self.replica(node, group)
        index, replica.first = replica.installing, replica.group.initial
        # Term and vote may change while the snapshot becomes durable.
        hard_states = (replica.hard_state, replica.durable_hard_state, replica.pending.copy())
        replica.restart(replica.group.log_at(index), replica.hard_state, index)
        replica.hard_state, replica.durable_hard_state, replica.pending = hard_states

    # ---- messages and commits ----------------------------------------------------------------

    def sent(self, node: int, to: int, message: Message) -> None:
        kind = type(message)
        if kind not in self._sent:
            return  # a message that belongs to no group
        group = self.groups.get(message.group)
        replica = group.replicas.get(node) if group is not None else None
        if replica is None:
            return
        if kind is Append:
            self.leads(replica, message.term)
            self._commit(replica, message.commit, message.term)
        for check in self._sent[kind]:
            check(replica, to, message)

    def created(self, node: int, group: int, restored: GroupRestored) -> None:
        """Check an empty replica that was created where the node had none, or a tombstone, whose
        hard state it must have. Raises ``Violation``."""
        replica = self.replica(node, group)
        if restored.bounds.last_index or replica.staged.last_index:
            raise Violation("LivesAreApart", f"{replica} is created with a log that ends at "
                            f"{restored.bounds.last_index}, the one before it at "
                            f"{replica.staged.last_index}")
        if HardState(*restored.hard_state) != replica.hard_state:
            raise Violation("TermMonotonic", f"{replica} is created with hard state "
                            f"{restored.hard_state}, its tombstone had {replica.hard_state}")
        replica.applied = 0
        replica.first, replica.adopted = NOBODY, (0, NOBODY)
        replica.damaged = bool(restored.quarantined)

    def absent(self, node: int, here: Iterable[int], tombstones: Mapping[int, HardState],
               damaged: bool) -> None:
        """Check the groups without a replica after a recovery, and begin a new boot of them in the
        model. Raises ``Violation`` when a replica or its tombstone is gone.

        ``here`` are the groups with a replica; ``tombstones`` holds the hard states of tombstones.
        With ``damaged`` the disk may have lost other replicas and tombstones.
        """
        for number, group in self.groups.items():
            replica = group.replicas.get(node)
            if number in here or replica is None:
                continue
            left, known = tombstones.get(number, NO_HARD_STATE), replica.tombstones()
            if known and (left in known or damaged):
                replica.restart_removed(left)
                continue
            used = replica.durable.last_index or replica.durable_hard_state != NO_HARD_STATE
            if used and damaged:
                replica.lose(LogModel())
                replica.restart(LogModel(), left, 0)
                replica.damaged = replica.is_tombstone = True  # its configuration counts no longer
                continue
            if known:
                raise Violation("TermMonotonic", f"{replica} was removed with hard state {known}, "
                                f"its tombstone has {left}")
            if used:
                raise Violation("DurableSurvives", f"{replica} is gone, and nobody removed it")
            replica.restart_removed(left)

    def wiped(self, node: int) -> None:
        """Record that the node lost its disk permanently.

        Its entries still count as held, because its acknowledgements were true when it sent them.
        """
        for group in self.groups.values():
            if node in group.replicas:
                group.replicas[node].is_tombstone = True

    def forgotten(self, node: int) -> None:
        """Begin all replicas of a node anew, empty: it takes part under its old id with an empty
        directory, which its peers should have refused."""
        for group in self.groups.values():
            if node in group.replicas:
                group.replicas[node].restart(LogModel(), NO_HARD_STATE, 0)

    @property
    def first_leaders(self) -> int:
        """Number of groups that have had a leader; their first leader is no change of leaders."""
        return sum(1 for group in self.groups.values() if group.leaders)

    def leads(self, replica: ReplicaModel, term: int) -> None:
        if replica.group.leaders.get(term) != replica.node:
            self.leader_changes += 1
            self._ask("on_leader", replica, term)

    def committed(self, node: int, group: int, first: int, last: int) -> None:
        """Check the entries first..last, which ``node`` applies now, as committed and as applied in
        order. Raises ``Violation``."""
        replica = self.replica(node, group)
        self._commit(replica, last, replica.hard_state.term)
        self._ask("on_apply", replica, first, last)
        replica.applied = last

    def _commit(self, replica: ReplicaModel, index: int, term: int) -> None:
        if not index:
            return
        group, chains = replica.group, replica.staged.chains
        if index > len(chains):
            raise Violation("CommittedNeverChanges", f"{replica} takes index {index} as committed, "
                            f"its log ends at {replica.staged.last_index}")
        committed = group.committed
        added = index - len(committed)
        if added > 0:
            committed.extend(chains[len(committed):index])
            group.commit_marks.append((term, index))
            for chain in committed[-added:]:
                if group.entries[chain].kind == EntryKind.LOG_START:
                    self._raise_log_starts(group.entries[chain])
        for check in self._hooks["on_commit"]:
            check(replica, index, added if added > 0 else 0)

    def _raise_log_starts(self, entry: Entry) -> None:
        for partition, log_start in log_starts_of(entry):
            if log_start > self.log_starts.get(partition, 0):
                self.on_log_start(partition, log_start, self.committed_end(partition))
                self.log_starts[partition] = log_start

    def confirmed(self, node: int, group: int, index: int, floor: int) -> None:
        """Check a confirmed linearizable read that started when ``floor`` was committed. Raises
        ``Violation`` if ``index``, at which it is answered, is lower."""
        if index < floor:
            raise Violation("ReadsAreLinearizable", f"n{node} answers a read of g{group} at index "
                            f"{index}, {floor} was committed before it was asked")

    def end_confirmed(self, node: int, partition: int, end: int, floor: int) -> None:
        """Check a linearizable answer that a partition ends at ``end``; ``floor`` was its committed
        end when it was asked. Raises ``Violation`` for a lower end."""
        if self.is_judging and end < floor:
            raise Violation("ReadsAreLinearizable", f"n{node} says that partition {partition} ends "
                            f"at {end}, {floor} were committed before it was asked")

    def end_served(self, node: int, partition: int, end: int) -> None:
        """Check the end of a partition in the answer to a fetch. Raises ``Violation`` if it is not
        committed."""
        if self.is_judging and end > (committed := self.committed_end(partition)):
            raise Violation("CommittedIsServed", f"n{node} says that partition {partition} ends at "
                            f"{end}, committed are {committed}")

    def range_refused(self, node: int, partition: int, offset: int, log_start: int) -> None:
        """Check a definite answer that an offset does not exist, and that its partition begins at
        ``log_start``. Raises ``Violation`` unless the offset is below a log start that is
        committed: readers ask for committed offsets and for the end behind them alone."""
        committed = self.log_starts.get(partition, 0)
        if self.is_judging and not offset < log_start <= committed:
            raise Violation("ReadNeverUnread", f"n{node} says that offset {offset} of partition "
                            f"{partition} does not exist, and that it begins at {log_start}; its "
                            f"committed log start is {committed}")

    def deletion_answered(self, node: int, partition: int, before_offset: int,
                          log_start: int) -> None:
        """Check the answer of a node that records below ``before_offset`` (-1 = all) are deleted,
        and that their partition begins at ``log_start``. Raises ``Violation``."""
        committed = self.log_starts.get(partition, 0)
        if self.is_judging and not before_offset <= log_start <= committed:
            raise Violation("DeletedIsCommitted", f"n{node} says that partition {partition} begins "
                            f"at {log_start} after the deletion up to {before_offset}; its "
                            f"committed log start is {committed}")

    def committed_end(self, partition: int) -> int:
        """Return the end of a partition by what is committed, in whatever group. O(groups)."""
        return max((group.partitions[partition].next_offset for group in self.groups.values()
                    if partition in group.partitions), default=0)

    # ---- clients -----------------------------------------------------------------------------

    def acked(self, group: int, append: AppendOperation) -> None:
        """Check an append that a client takes as acknowledged. Raises ``Violation``.

        ``group`` is where the client believes the partition to be; the partition may be in another
        group.
        """
        believed = self.groups[group]
        if append.partition not in believed.partitions:
            believed = next((each for each in self.groups.values()
                             if append.partition in each.partitions), believed)
        self._ask("on_ack", believed, append)

    def read(self, group: int, read: ReadOperation) -> None:
        """Check a fetch that a node serves. Raises ``Violation``."""
        committed = self.log_starts.get(read.partition, 0)
        if self.is_judging and not read.log_start <= min(committed, read.offset):
            raise Violation("LogStartsAreCommitted", f"n{read.node} serves offset {read.offset} of "
                            f"partition {read.partition}, and says that it begins at "
                            f"{read.log_start}; its committed log start is {committed}")
        self._ask("on_read", self.groups[group], read)

    def converged(self, live: list[int]) -> None:
        for group in self.groups.values():
            self._ask("on_converged", group, live)


def _chain_of_damaged(group: GroupModel, entry: DamagedEntry) -> int:
    """Return the chain at the damaged entry, or at the committed entry that repair will put
    there."""
    if not entry.term or (entry.in_question and entry.index <= group.commit):
        return group.committed[entry.index - 1]
    return group.chain_at[entry.index, entry.term]
