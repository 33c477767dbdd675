"""Checkers of the replicas' logs: the logs agree with each other and with the history.

Theory.  Raft's Log Matching makes the comparison linear: below the highest index at which two logs
have the same term they must be equal; above it their terms differ at every index.  The log that is
most up to date by Raft's rule (last term, last index) holds everything that was committed (Leader
Completeness).  The part that a majority of the voters share with it is durable.  That part is
committed when its last entry is of the last term, or when a checkpoint says so.  Committed entries
are then given to the ledger as the result of one more reader: appends of unknown outcome become "at
offset o" or "never", as etcd's robustness suite does with the logs of its members.

Logs that are compacted begin at different indexes.  What is below a Raft start was committed; its
batches are *records*, and its log starts are in the checkpoint.  The log start of a partition is a
function of the applied index.  So of two checkpoints the later one has the log start of the earlier
one, or a higher one that an entry between them sets.

A gap (cleaned data) and a damaged entry agree with any entry that another replica holds at their
index and term.  An index of which nothing can be read agrees with everything, and its replica
counts as a possible holder: damage is found by other means, and is not divergence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple

from chaos.checkers.checker import Checker
from chaos.checkers.ledger import NOWHERE, UNKNOWN, Evidence, Key
from chaos.history import incarnation_of
from chaos.replicas import DAMAGED, GAP, KEYS_DIFFER, UNREADABLE, Dump, LogBatch, ReplicaLog
from chaos.values import crc_of_key

#: Differences of one pair of logs that are reported.
DIFFERENCES_MAX = 3
_ANYTHING = 1 << 62
#: Log start of a key whose true one is unknown; above all offsets.
UNKNOWN_LOG_START = 1 << 62


class LoneLogStart(NamedTuple):
    """A log start in a checkpoint that neither an entry nor another checkpoint explains."""

    node: int
    partition: int
    log_start: int
    applied: int  # index of the checkpoint
    expected: int  # log start by the checkpoint of ``peer`` and the entries behind it
    peer: int


class GroupLogs:
    """One group's logs on all nodes that were dumped."""

    def __init__(self, group: int, dumps: list[Dump]):
        self.group = group
        self.all = {each.node: each.logs[group] for each in dumps if group in each.logs}
        self.logs = {node: log for node, log in self.all.items() if not log.is_empty}
        self._nodes = {each.node for each in dumps}
        self._unreadable = {each.node for each in dumps if each.unreadable}
        self.best = max(self.logs.values(), default=ReplicaLog(),
                        key=lambda log: (log.term(log.last_index), log.last_index))
        self.durable_end = self._durable_end()
        self.lone_log_starts = [*self._lone_log_starts()]
        #: Partition -> the highest end that a checkpoint has applied.
        self.ends: dict[int, int] = {}
        for log in self.logs.values():
            for partition, extent in log.partitions.items():
                self.ends[partition] = max(extent.next_offset, self.ends.get(partition, 0))

    @property
    def committed_end(self) -> int:
        """Return the last index of the best log that is certainly committed; 0 = none."""
        known = max([0, *(log.commit for log in self.logs.values())])
        best = self.best
        if self.durable_end and best.term(self.durable_end) == best.term(best.last_index):
            known = max(known, self.durable_end)
        return min(known, best.last_index)

    def voters(self) -> list[list[int]]:
        """Return the voters of each half of the configuration in force, as the best log, or else
        the newest checkpoint, knows it. Without either, these are the nodes with a log."""
        if self.best.members:
            voters, _, outgoing = self.best.members[max(self.best.members)]
        else:
            told = [log for log in self.all.values() if log.configuration]
            newest = max(told, key=lambda log: log.commit, default=None)
            voters, _, outgoing = newest.configuration if newest else (sorted(self.logs), [], [])
        return [half for half in (voters, outgoing) if half]

    def holders(self, index: int) -> set[int]:
        """Return nodes that hold, or may hold, the best log's entry at the index: voters without a
        dump and damaged replicas are among them."""
        term = self.best.term(index)
        missing = {node for half in self.voters() for node in half} - self._nodes
        return missing | {node for node, log in self.all.items()
                          if log.quarantined or _reaches(log, index) and
                          log.term(index) in (term, UNREADABLE)}

    def batches(self) -> Iterator[LogBatch]:
        """Yield the batches that a majority holds, in order; a batch that is damaged in the best
        log is taken from another one.  Of those below its Raft start, yield all that any replica
        has."""
        for index in sorted({index for log in self.logs.values() for index in log.records
                             if index < self.best.first_index}):
            batch = self._record(index)
            if batch is not None:
                yield batch
        for index in range(self.best.first_index, self.durable_end + 1):
            batch = self.best.batch(index)
            if batch is None and self.best.contents[index - self.best.first_index] == DAMAGED:
                batch = self._whole(index)
            if batch is not None:
                yield batch

    def log_starts(self) -> dict[int, int]:
        """Return partition -> the highest log start that a committed entry sets. An entry that is
        damaged in the best log is taken from another one. Where no log has all entries that a
        checkpoint has applied, log starts of that checkpoint count as well, if they contradict no
        other one.  O(entries)."""
        found: dict[int, int] = {}
        lone = {(each.node, each.partition) for each in self.lone_log_starts}
        for node, log in self.logs.items():
            if self._log_starts_between(0, log.applied) is not None:
                continue  # the entries themselves tell, below
            for partition, extent in log.partitions.items():
                if (node, partition) not in lone:
                    found[partition] = max(found.get(partition, 0), extent.log_start)
        for log in (self.best, *self.logs.values()):
            for index, rows in log.log_starts.items():
                if index > self.committed_end or not self._is_committed(log, index):
                    continue
                for partition, log_start in rows:
                    found[partition] = max(found.get(partition, 0), log_start)
        return found

    def _is_committed(self, log: ReplicaLog, index: int) -> bool:
        """True if the entry of a log at an index up to ``committed_end`` is the committed one: that
        of the best log, or where that is compacted, one below the log's own commit index."""
        if index < self.best.first_index:
            return index <= log.commit
        return log.term(index) == self.best.term(index)

    @property
    def is_compacted(self) -> bool:
        """True if no log has all entries from index 1 up to the Raft start of the best one."""
        return not any(log.first_index == 1
                       and min(log.commit, log.last_index) + 1 >= self.best.first_index
                       for log in (self.best, *self.logs.values()))

    def _record(self, index: int) -> LogBatch | None:
        """Return the readable batch below the best log's Raft start that a replica has at an index,
        as a record or still in its log; None = none has it."""
        found = (log.records[index].batch if index in log.records
                 else log.batch(index) if index <= log.commit else None
                 for log in self.logs.values())
        return next((batch for batch in found if batch is not None), None)

    def _lone_log_starts(self) -> Iterator[LoneLogStart]:
        """Yield the log starts of checkpoints that the others contradict."""
        order = sorted(self.logs.items(), key=lambda each: (each[1].applied, each[0]))
        for (peer, earlier), (node, later) in combinations(order, 2):
            changed = self._log_starts_between(earlier.applied, later.applied)
            for partition in sorted(earlier.partitions.keys() & later.partitions.keys()):
                before = earlier.partitions[partition].log_start
                now = later.partitions[partition].log_start
                if now < before:  # the later one has applied all that the earlier one has
                    yield LoneLogStart(peer, partition, before, earlier.applied, now, node)
                elif changed is not None and now > before:
                    expected = max(before, changed.get(partition, 0))
                    if now > expected:
                        yield LoneLogStart(node, partition, now, later.applied, expected, peer)

    def _log_starts_between(self, applied: int, end: int) -> dict[int, int] | None:
        """Return partition -> the highest log start that an entry behind the index ``applied``, up
        to ``end``, sets; an opening may set any.  None = no log has all of these entries."""
        log = next((log for log in (self.best, *self.logs.values())
                    if log.first_index <= applied + 1 and log.last_index >= end), None)
        if log is None and applied < end:
            return None
        found: dict[int, int] = {}
        for index in range(applied + 1, end + 1):
            assert log is not None
            if log.contents[index - log.first_index] == DAMAGED:
                return None
            for partition, log_start in log.log_starts.get(index, ()):
                found[partition] = max(found.get(partition, 0), log_start)
            if index in log.opened:
                found[log.opened[index]] = _ANYTHING
        return found

    def lost_records(self) -> Iterator[tuple[int, LogBatch, set[int]]]:
        """Yield (index, batch, nodes that hold it, or may) of each record above the log start of
        its partition that no majority of the voters holds."""
        known = {index for log in self.logs.values() for index in log.records}
        if all(known <= log.records.keys() for log in self.logs.values()):
            return
        log_starts = self.log_starts()
        for index in sorted(known):
            batch = self._record(index)
            if batch is None or self.is_forgotten(batch) or log_starts.get(batch.partition, 0) >= (
                    batch.base_offset + len(batch.values)):
                continue
            holders = {node for node in {node for half in self.voters() for node in half}
                       if self._holds_record(node, index)}
            if any(2 * len(holders & {*half}) <= len(half) for half in self.voters()):
                yield index, batch, holders

    def is_forgotten(self, batch: LogBatch) -> bool:
        """True if no checkpoint that has applied the batch has a state of its partition: a
        committed entry deleted that partition."""
        applied = [log for log in self.logs.values() if log.applied >= batch.index]
        return bool(applied) and not any(batch.partition in log.partitions for log in applied)

    def _holds_record(self, node: int, index: int) -> bool:
        """True if a node holds the record of an index, or may hold it: it has no dump, or lost
        something that it knows of."""
        log = self.all.get(node)
        if node not in self._nodes or node in self._unreadable:
            return True
        if log is None or log.is_empty:
            return False
        return (bool(log.quarantined) or index in log.records or index >= log.first_index
                or log.lacks(index))

    def _whole(self, index: int) -> LogBatch | None:
        """Return the readable batch that another log has at the index and the best log's term; None
        = none has it."""
        term = self.best.term(index)
        found = (log.batch(index) for log in self.logs.values()
                 if term in (log.term(index), UNREADABLE))
        return next((batch for batch in found if batch is not None), None)

    @property
    def is_whole(self) -> bool:
        """True if every entry that a majority holds can be read in some log."""
        return DAMAGED not in self.best.contents or not any(
            self._is_lost(index) for index in range(self.best.first_index, self.durable_end + 1))

    def _is_lost(self, index: int) -> bool:
        """True if no log has a readable entry at the index."""
        for log in (self.best, *self.logs.values()):
            place = index - log.first_index
            if 0 <= place < len(log.terms) and log.contents[place] != DAMAGED:
                return False
        return True

    def _durable_end(self) -> int:
        """Return the last index of the best log up to which a majority of each half of the voters
        holds it, or may hold it."""
        ends = []
        for half in self.voters():
            matches = sorted((self._match(node) for node in half), reverse=True)
            ends.append(matches[len(half) // 2])
        return min([self.best.last_index, *ends])

    def _match(self, node: int) -> int:
        """Return the last index up to which a node's log equals the best one.

        0 without a log; ``_ANYTHING`` for a node without a dump or with a quarantined replica,
        which cannot be judged.
        """
        log = self.all.get(node)
        if node not in self._nodes or log is not None and log.quarantined:
            return _ANYTHING
        if log is None or log.is_empty:
            return 0
        return _last_common(log, self.best)


def _reaches(log: ReplicaLog, index: int) -> bool:
    return not log.is_empty and index <= log.last_index


def _last_common(one: ReplicaLog, other: ReplicaLog) -> int:
    """Return the highest index at which both logs have the same term, or one of them cannot be
    read.  Without one, return the index before both begin, or before which one of them ends: the
    rest is compacted, and was committed."""
    end = index = min(one.last_index, other.last_index)
    first = max(one.first_index, other.first_index)
    while index >= first:
        term = one.term(index)
        if UNREADABLE in (term, other.term(index)) or term == other.term(index):
            return index
        index -= 1
    return min(first - 1, end)


class DivergentLogs(Checker):
    """A18: two replicas of a group hold different entries at one index and term; or hold different
    terms at an index below one at which they hold the same (Log Matching); or different entries at
    an index that both know to be committed, or different records at one below both Raft starts.
    O(entries) per pair."""

    id, name = "A18", "divergent-logs"

    def on_logs(self, group: GroupLogs) -> None:
        for (node, log), (peer, other) in combinations(sorted(group.logs.items()), 2):
            common = _last_common(log, other)
            committed = min(log.commit, other.commit, log.last_index, other.last_index)
            end = max(common, committed)
            for place, (index, why) in enumerate(_differences(log, other, end)):
                if place == DIFFERENCES_MAX:
                    break
                self.found(f"group {group.group}, index {index}: node {node} has "
                           f"{_shown(log, index)}, node {peer} has {_shown(other, index)}: {why}")
            for index in _different_records(log, other)[:DIFFERENCES_MAX]:
                self.found(f"group {group.group}, index {index}: nodes {node} and {peer} have "
                           f"different records")


class DivergentLogStarts(Checker):
    """A18: the checkpoint of a replica has a log start of a partition that another replica, which
    has applied as much or more, does not have; or that is higher than the one of a replica which
    has applied less, and no entry between the two sets it.  O(partitions) per pair."""

    id, name = "A18", "divergent-logs"

    def on_logs(self, group: GroupLogs) -> None:
        for each in group.lone_log_starts:
            self.found(f"group {group.group}: the checkpoint of node {each.node} at index "
                       f"{each.applied} has log start {each.log_start} of partition "
                       f"{each.partition}; by that of node {each.peer} and the entries of the logs "
                       f"it is {each.expected}")


def _different_records(log: ReplicaLog, other: ReplicaLog) -> list[int]:
    """Return the indexes at which two logs have different readable records."""
    if log.records == other.records:
        return []
    return sorted(index for index in log.records.keys() & other.records.keys()
                  if log.records[index] != other.records[index]
                  and None not in (log.records[index].batch, other.records[index].batch))


def _are_equal(log: ReplicaLog, other: ReplicaLog, first: int, end: int) -> bool:
    """True if terms and contents of two logs are equal from ``first`` to ``end``, inclusive;
    compared as memory, since nearly all logs are equal."""
    mine = slice(first - log.first_index, end + 1 - log.first_index)
    others = slice(first - other.first_index, end + 1 - other.first_index)
    return log.terms[mine] == other.terms[others] and log.contents[mine] == other.contents[others]


def _differences(log: ReplicaLog, other: ReplicaLog, end: int) -> Iterator[tuple[int, str]]:
    first = max(log.first_index, other.first_index)
    if _are_equal(log, other, first, end):
        return
    for index in range(first, end + 1):
        place, peer = index - log.first_index, index - other.first_index
        term, peer_term = log.terms[place], other.terms[peer]
        if UNREADABLE in (term, peer_term):
            continue
        if term != peer_term:
            yield index, "another term at or below a common entry, or below both commit indexes"
        elif not _agree(log, place, other, peer):
            yield index, "other contents in the same term"


def _agree(log: ReplicaLog, place: int, other: ReplicaLog, peer: int) -> bool:
    content, peer_content = log.contents[place], other.contents[peer]
    if content == peer_content or DAMAGED in (content, peer_content):
        return True
    return GAP in (log.kinds[place], other.kinds[peer])


def _shown(log: ReplicaLog, index: int) -> str:
    place = index - log.first_index
    return f"{log.kinds[place]} of term {log.terms[place]}, content {log.contents[place]:x}"


class LeaderCompleteness(Checker):
    """A20, as far as logs show it: at an index that one replica knows to be committed, another
    replica holds an entry of a higher term, so the leader of that term was elected without the
    committed entry.  (An entry of a lower term is a suffix that was never committed, on a replica
    that has not received the new one yet.)  O(entries) per pair."""

    id, name = "A20", "leader-completeness"

    def on_logs(self, group: GroupLogs) -> None:
        for node, log in group.logs.items():
            for peer, other in group.logs.items():
                index = self._first(log, other)
                if index:
                    self.found(f"group {group.group}, index {index}: node {node} knows "
                               f"{_shown(log, index)} to be committed, node {peer} has "
                               f"{_shown(other, index)}")

    @staticmethod
    def _first(log: ReplicaLog, other: ReplicaLog) -> int:
        """Return the first index that ``log`` knows to be committed and at which ``other`` has an
        entry of a higher term; 0 = none."""
        first = max(log.first_index, other.first_index)
        end = min(log.commit, log.last_index, other.last_index)
        if log is other or _are_equal(log, other, first, end):
            return 0
        for index in range(first, end + 1):
            term = log.term(index)
            if term != UNREADABLE and other.term(index) > term:
                return index
        return 0


class CommittedIsHeld(Checker):
    """A25, as far as logs show it: an index that a replica knows to be committed is held, after the
    run, by no majority of the voters (those that are damaged, or of which there is no dump, are
    counted as holders).  So is a record above its log start: its segment was removed too early.
    O(voters), O(records) where these differ."""

    id, name = "A25", "early-commit"

    def on_logs(self, group: GroupLogs) -> None:
        commit = max([0, *(log.commit for log in group.logs.values())])
        if commit > group.best.last_index:
            self.found(f"group {group.group}: index {commit} is committed, no log reaches it")
        elif commit > group.durable_end:
            self.found(f"group {group.group}: index {commit} is committed, only the nodes "
                       f"{sorted(group.holders(commit))} hold it; voters {group.voters()}")
        for place, (index, batch, holders) in enumerate(group.lost_records()):
            if place == DIFFERENCES_MAX:
                break
            self.found(f"group {group.group}: the record at index {index}, offset "
                       f"{batch.base_offset} of partition {batch.partition}, is above the log "
                       f"start, and only the nodes {sorted(holders)} hold it; voters "
                       f"{group.voters()}")


class HardStates(Checker):
    """A19, as far as logs show it: the hard states that a replica wrote, over all its restarts, go
    back in term, or name two candidates in one term.  O(hard states)."""

    id, name = "A19", "raft-invariants"

    def on_logs(self, group: GroupLogs) -> None:
        for node, log in group.all.items():
            term, vote = 0, 0
            for now, candidate in log.votes:
                if now < term or now == term and vote not in (0, candidate):
                    self.found(f"group {group.group}: node {node} votes for {candidate} in term "
                               f"{now} after it voted for {vote} in term {term}")
                term, vote = now, candidate


class LogContents(Checker):
    """A29, as far as logs show it: a batch in a partition whose others belong to another key; a key
    in two partitions.  The committed entries are also given to the ledger, so that A1, A2, A4, A11
    to A14, A17, A23, A29, A31 and A32 are found in logs as in reads.  So are committed log starts,
    which alone explain that records are missing.  O(records)."""

    id, name = "A29", "cross-group-leak"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._key_of: dict[int, Key] = {}  # partition -> key
        self._partition_of: dict[int, int] = {}  # key -> partition
        self.ends: dict[int, int] = {}  # key -> end of what majorities hold
        self._groups_of: dict[int, set[int]] = {}  # key -> groups that hold a part of it
        self._groups: set[int] = set()
        self._log_starts: dict[int, int] = {}  # partition -> committed log start, of any group
        self._by_crc: dict[int, Key] = {}
        self._by_incarnation: dict[int, Key] = {}
        self._partitions: set[int] = set()  # that a checkpoint has
        self._compacted: set[int] = set()  # groups of which no log has all entries
        #: Key -> group and index of a batch whose partition no checkpoint has any longer.
        self.forgotten: dict[int, tuple[int, int]] = {}
        self.entries = 0

    def on_logs(self, group: GroupLogs) -> None:
        if not self._by_crc:
            self._by_crc = {crc_of_key(key.name): key for key in self.ledger.by_number}
            self._by_incarnation = {incarnation_of(key.name): key for key in self.ledger.by_number}
        self.entries += sum(len(log.terms) + len(log.records) for log in group.logs.values())
        committed = group.committed_end
        if group.is_whole:
            self._groups.add(group.group)
        log_starts = group.log_starts()
        for partition, log_start in log_starts.items():
            self._raise_log_start(partition, log_start)
        for batch in group.batches():
            key = self._key(batch)
            if key is None:
                continue
            groups = self._groups_of.setdefault(key.number, set())
            groups.add(group.group)
            key.group = group.group if len(groups) == 1 else -1  # it was switched
            self.ends[key.number] = max(self.ends.get(key.number, 0),
                                        batch.base_offset + len(batch.values))
            if group.is_forgotten(batch):
                self.forgotten[key.number] = group.group, batch.index
            if batch.index <= committed:
                self.ledger.place(
                    key, batch.base_offset, list(batch.values), Evidence(-1, True, -1)
                )
        self._take_ends(group, log_starts)
        for log in group.logs.values():
            self._partitions.update(log.partitions)
        if group.is_compacted:
            self._compacted.add(group.group)

    def settle(self) -> None:
        """Set ``UNKNOWN_LOG_START`` for keys of deleted topics whose entries with a log start are
        compacted, and whose partition no checkpoint has: no record of them counts as missing.
        After all logs.  O(keys)."""
        for key in self.ledger.by_number:
            if key.deleted and self._log_start_is_compacted(key):
                key.log_start = UNKNOWN_LOG_START

    def _log_start_is_compacted(self, key: Key) -> bool:
        partition = self._partition_of.get(key.number, incarnation_of(key.name))
        groups = self._groups_of.get(key.number)
        compacted = self._compacted if groups is None else groups & self._compacted
        return bool(compacted) and partition not in self._partitions

    def has_one_group(self, key: Key) -> bool:
        """True if no other group held a part of the key."""
        return len(self._groups_of.get(key.number, ())) < 2

    def _take_ends(self, group: GroupLogs, log_starts: dict[int, int]) -> None:
        """Take the ends of partitions that checkpoints have applied, as far as the log starts: only
        records below these may be in no log."""
        for partition, end in group.ends.items():
            end = min(end, log_starts.get(partition, 0))
            key = self._key_of.get(partition) or self._by_incarnation.get(partition)
            if key is not None:
                self._groups_of.setdefault(key.number, set()).add(group.group)
                self.ends[key.number] = max(self.ends.get(key.number, 0), end)

    def _key(self, batch: LogBatch) -> Key | None:
        """Return the key of a batch's records, and remember it as the key of their partition. None
        for a key that is not in this history; also, after reporting the anomaly, for one that is
        not the partition's."""
        known = self._key_of.get(batch.partition)
        key = self._by_crc.get(batch.key)
        if key is None:
            if known is not None or batch.key == KEYS_DIFFER:
                self._foreign(batch, known, "records of other keys")
            return None
        if known is None and self._partition_of.setdefault(key.number,
                                                           batch.partition) == batch.partition:
            self._key_of[batch.partition] = known = key
            key.log_start = max(key.log_start, self._log_starts.get(batch.partition, 0))
        if known is not key:
            self._foreign(batch, known or key, f"records of {key.name}")
            return None
        return key

    def _raise_log_start(self, partition: int, log_start: int) -> None:
        highest = max(log_start, self._log_starts.get(partition, 0))
        self._log_starts[partition] = highest
        key = self._key_of.get(partition)
        if key is None:  # perhaps no record of it is left in any log
            key = self._by_incarnation.get(partition)
            if key is None or key.number in self._partition_of:
                return
        key.log_start = max(key.log_start, highest)

    def _foreign(self, batch: LogBatch, key: Key | None, what: str) -> None:
        self.found(f"partition {batch.partition} holds {what} at offset {batch.base_offset}", key)

    def has_logs_of(self, key: Key) -> bool:
        """True if logs of all groups that held the key's records were given and can be read. A key
        has several groups when its partition was switched."""
        return self._groups_of.get(key.number, {key.group}) <= self._groups

    def figures(self) -> dict[str, int]:
        if not self._groups:
            return {}
        outcomes = {"unknown_happened": 0, "unknown_never": 0, "unknown_open": 0}
        appends = self.ledger.appends
        for number in range(len(appends)):
            if appends.outcome[number] == UNKNOWN and number not in self.ledger.repeated:
                key = self.ledger.by_number[appends.key[number]]
                happened = appends.base[number] != NOWHERE
                never = "never" if self.has_logs_of(key) else "open"
                outcomes[f"unknown_{'happened' if happened else never}"] += 1
        return {"log_entries": self.entries, "groups": len(self._groups), **outcomes}


def _behind_logs(contents: LogContents, flags: Callable[[Key], bytearray],
                 ) -> Iterator[tuple[Key, int, int]]:
    """Yield (key, offset, end): the end of what a majority of the logs holds, and the first offset
    from there whose flag is set. Only keys that have one, are not deleted, and whose logs are
    whole."""
    for key in contents.ledger.living():
        if contents.has_logs_of(key):
            end = contents.ends.get(key.number, 0)
            offset = flags(key).find(1, end)
            if offset >= 0:
                yield key, offset, end


class LostFromLogs(Checker):
    """A3 in logs: a record that was acknowledged with ``commit`` lies behind all that a majority of
    the replicas of its group holds for its key.  Not judged: keys for which a client asks a
    deletion, keys whose group is unknown, and keys of a group that has an entry which no replica
    can read.  O(keys)."""

    id, name = "A3", "lost-write"

    contents: LogContents  # set by check.check

    def on_end(self, time_us: int) -> None:
        for key, offset, end in _behind_logs(self.contents, attrgetter("acked")):
            value = key.slots[offset]
            self.found(f"value {value} was acknowledged at offset {offset}, and a majority of the "
                       f"logs ends at {end}", key, (self.operation_of(value),))


class TakenFromLogs(Checker):
    """A17 in logs: a record that a reader was shown, whatever its ack level, lies behind all that a
    majority of the replicas of its group holds for its key.  Keys are excepted as for A3.
    O(keys)."""

    id, name = "A17", "read-then-lost"

    contents: LogContents  # set by check.check

    def on_end(self, time_us: int) -> None:
        for key, offset, end in _behind_logs(self.contents, attrgetter("read")):
            value = key.slots[offset]
            self.found(f"offset {offset} was read (value {value}), and a majority of the logs ends "
                       f"at {end}", key, (self.operation_of(value),))


class ForgottenPartition(Checker):
    """A3 in logs: checkpoints have forgotten a partition with records, as if its topic were
    deleted, and no client asked for that.  Not judged: keys that several groups held, because a
    group forgets an epoch whose records are below the log start.  O(keys)."""

    id, name = "A3", "lost-write"

    contents: LogContents  # set by check.check

    def on_end(self, time_us: int) -> None:
        for number, (group, index) in sorted(self.contents.forgotten.items()):
            key = self.ledger.by_number[number]
            if not key.deleted and self.contents.has_one_group(key):
                self.found(f"group {group}: no checkpoint has the partition of the record at index "
                           f"{index}, and its topic was not deleted", key)


CHECKERS = (DivergentLogs, DivergentLogStarts, LeaderCompleteness, CommittedIsHeld, HardStates,
            LogContents, LostFromLogs, TakenFromLogs, ForgottenPartition)
