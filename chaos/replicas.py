"""Dumps of each node's logs, taken from its disk after a run and read back for the checkers.

Contract.  ``dump`` runs ``multiraft log inspect --json --payload`` on a data directory, which may
be a copy and must not be in use, reconstructs the logs as a recovery would from the journal
(dropped suffixes, tombstones, copies of damaged entries, snapshots), and writes one file per node
into ``replicas/`` of the run's folder.  ``load`` reads such a file.  Both raise ``BadDump``.

The file: a line with ``node``, ``run`` and ``groups`` (as the newest checkpoint has them), then a
JSON array per entry, by group and index:

    [group, index, term, kind, content, partition, base offset, key, values]

``content`` is a CRC over the entry's contents, -1 = its payload is damaged here; where nothing can
be read at an index, the term is ``null``.  ``key`` is the key that the records of a batch name
(``values.crc_of_key``), -1 = they do not agree, -2 = none of this run; ``values`` are ranges
[first, count].  Kind ``gap`` stands for data that a cleaner removed: its (index, term) is still
known, and whatever any other replica holds there agrees with it.  The values of a ``log_start``
are pairs [partition, new log start].  Rows with kind ``vote`` have the hard states in the order of
writing: term, and the candidate as content.  Rows with kind ``record`` are batches below the Raft
start, from the journal or a cold segment; only those are kept whose terms the checkpoint confirms.

Contract of compaction.  A log begins at the Raft start of the newest checkpoint.  Of the entries
below it, batches are records, and the others have left their effects in ``partitions``, the states
of that checkpoint.
"""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from chaos import values
from chaos.history import CORRUPT
from multiraft import core
from multiraft.client import FetchedBatch
from multiraft.errors import CodecError

#: The command of this interpreter; a run in containers passes its own.
INSPECT = (sys.executable, "-m", "admin_cli", "log", "inspect")
#: Exit codes of the command with which its output is complete.
_WITH_ROWS = (0, 1)

UNREADABLE = -1  # term of an index of which nothing can be read
DAMAGED = -1  # content of an entry whose payload cannot be trusted
KEYS_DIFFER, NO_KEY = -1, -2

GAP, DATA, VOTE, MEMBERSHIP, LOG_START = "gap", "data", "vote", "membership", "log_start"
OPEN, RECORD = "partition_open", "record"
INDEXED = (DATA, "noop", MEMBERSHIP, OPEN, "partition_seal", LOG_START, "metadata",
           "clock", "partition_delete", "compact", "producers_expire", GAP)
#: Kinds of files whose entries are in the order of the journal, and of those that have copies.
SEGMENT, COLD_SEGMENT = "segment", "cold segment"
TORN = "torn tail"

#: Payload of a ``log_start`` of version 2: version and number of rows; per row the partition, its
#: new log start and the bytes from there on.
_LOG_START_HEAD = struct.Struct("<II")
_LOG_START_ROW = struct.Struct("<Qqq")


class BadDump(Exception):
    """Raised for a data directory that cannot be inspected, or a file that is no dump."""


class LogBatch(NamedTuple):
    """The records of a data entry."""

    index: int
    partition: int
    base_offset: int
    key: int  # ``values.crc_of_key``, or KEYS_DIFFER or NO_KEY
    values: tuple[int, ...]


class PartitionExtent(NamedTuple):
    """Offsets of a partition in a group, as the newest checkpoint has applied them."""

    start_offset: int
    log_start: int
    next_offset: int


class Record(NamedTuple):
    """A batch below the Raft start; None = its payload is damaged here."""

    term: int
    content: int
    batch: LogBatch | None


def _numbers() -> array:
    return array("q")


#: An entry without records.
_NO_BATCH = (0, -1, NO_KEY, -1, 0)


@dataclass(slots=True)
class Batches:
    """Records of a log's entries, in columns beside those of the log."""

    partition: array = field(default_factory=_numbers)
    base_offset: array = field(default_factory=_numbers)
    key: array = field(default_factory=_numbers)
    first: array = field(default_factory=_numbers)  # place of the first value; -1 = no records
    count: array = field(default_factory=_numbers)
    values: array = field(default_factory=_numbers)  # of dropped entries too

    def append(self) -> None:
        """Append an entry without records."""
        for column, value in zip(self._columns(), _NO_BATCH, strict=True):
            column.append(value)

    def set(self, place: int, batch: LogBatch | None) -> None:
        """Set the records of the entry at a place; None = it has none."""
        row = _NO_BATCH
        if batch is not None:
            row = (batch.partition, batch.base_offset, batch.key, len(self.values),
                   len(batch.values))
            self.values.extend(batch.values)
        for column, value in zip(self._columns(), row, strict=True):
            column[place] = value

    def cut(self, begin: int, end: int) -> None:
        """Remove the entries at places [begin, end)."""
        for column in self._columns():
            del column[begin:end]

    def _columns(self) -> tuple[array, ...]:
        return self.partition, self.base_offset, self.key, self.first, self.count


@dataclass(slots=True)
class ReplicaLog:
    """One group's log on one node.  Place i of the columns is index ``first_index + i``."""

    first_index: int = 1
    terms: array = field(default_factory=_numbers)
    contents: array = field(default_factory=_numbers)
    kinds: list[str] = field(default_factory=list)
    batches: Batches = field(default_factory=Batches)
    members: dict[int, list[list[int]]] = field(default_factory=dict)  # voters, learners, outgoing
    #: Index -> (partition, new log start) of each partition that the entry names.
    log_starts: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)  # index -> partition that it opens
    votes: list[tuple[int, int]] = field(default_factory=list)  # (term, candidate), as written
    commit: int = 0  # as the newest checkpoint has it
    applied: int = 0
    configuration: list[list[int]] = field(default_factory=list)  # of the checkpoint
    quarantined: str = ""
    removed: bool = False
    prev_term: int = UNREADABLE  # of the index before the first one; UNREADABLE = not known
    records: dict[int, Record] = field(default_factory=dict)  # by index, below the first one
    uncopied: list[tuple[int, int]] = field(default_factory=list)  # first and last index
    missing: set[int] = field(default_factory=set)  # damaged entries that the checkpoint knows
    partitions: dict[int, PartitionExtent] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """True if the replica has no log: neither entries, nor a compacted part."""
        return not self.terms and (self.removed or self.first_index <= 1)

    @property
    def last_index(self) -> int:
        return self.first_index + len(self.terms) - 1

    def term(self, index: int) -> int:
        """Return the term at an index, or before the first one; ``UNREADABLE`` where nothing can be
        read, and outside of the log."""
        place = index - self.first_index
        if place == -1:
            return self.prev_term
        return self.terms[place] if 0 <= place < len(self.terms) else UNREADABLE

    def batch(self, index: int) -> LogBatch | None:
        """Return the records at an index; None unless it is a data entry that can be read."""
        place, columns = index - self.first_index, self.batches
        if not 0 <= place < len(self.terms) or columns.first[place] < 0:
            return None
        first = columns.first[place]
        return LogBatch(index, columns.partition[place], columns.base_offset[place],
                     columns.key[place],
                     tuple(columns.values[first:first + columns.count[place]]))

    def put_batch(self, batch: LogBatch) -> None:
        """Set the records of the entry at the batch's index, which must exist."""
        self.batches.set(batch.index - self.first_index, batch)

    def put(self, index: int, term: int, kind: str, content: int) -> None:
        """Put an entry, without records, behind the last one, or replace one; indexes that this
        skips are unreadable."""
        if not self.terms:
            self.first_index = index
        while self.last_index < index - 1:
            self._append(UNREADABLE, "", DAMAGED)
        if self.last_index < index:
            self._append(term, kind, content)
        else:
            place = index - self.first_index
            self.terms[place], self.kinds[place], self.contents[place] = term, kind, content
            self.batches.set(place, None)
            self.log_starts.pop(index, None)
            self.opened.pop(index, None)

    def _append(self, term: int, kind: str, content: int) -> None:
        self.terms.append(term)
        self.kinds.append(kind)
        self.contents.append(content)
        self.batches.append()

    def drop_from(self, index: int) -> None:
        """Remove the entries from ``index``; does nothing behind the last one."""
        self._cut(max(0, index - self.first_index), len(self.terms))

    def put_record(self, index: int, record: Record) -> None:
        """Add a batch below the Raft start, or a copy of it, unless that is damaged."""
        if record.batch is not None or index not in self.records:
            self.records[index] = record

    def lacks(self, index: int) -> bool:
        """True if the record of an index, if there is one, is known to be missing here."""
        return index in self.missing or any(first <= index <= last
                                            for first, last in self.uncopied)

    def drop_head(self, first_index: int) -> None:
        """Remove entries below ``first_index``, which a snapshot has; the log begins there from now
        on."""
        self._cut(0, min(first_index - self.first_index, len(self.terms)))
        self.first_index = first_index

    def _cut(self, begin: int, end: int) -> None:
        for known in (self.members, self.log_starts, self.opened):
            for index in [index for index in known if begin <= index - self.first_index < end]:
                del known[index]
        del self.terms[begin:end]
        del self.contents[begin:end]
        del self.kinds[begin:end]
        self.batches.cut(begin, end)


@dataclass(slots=True)
class Dump:
    """The logs of one node."""

    node: int
    run: int = -1
    logs: dict[int, ReplicaLog] = field(default_factory=dict)  # by group
    unreadable: int = 0  # places of the disk that held entries of unknown groups


# ---- from a data directory ----------------------------------------------------------------------


def dump(directory: Path, node: int, run: int, to: Path,
         inspect: Sequence[str] = INSPECT) -> Path:
    """Write the logs of a data directory as ``NODE.jsonl`` into the folder ``to``, created if
    necessary, and return that file. ``run``: number of the run, -1 = any; ``inspect``: the command.
    Raises ``BadDump``."""
    found = from_rows(_inspected(directory, inspect), node, run)
    to.mkdir(parents=True, exist_ok=True)
    path = to / f"{node}.jsonl"
    write(path, found)
    return path


def _inspected(directory: Path, inspect: Sequence[str]) -> Iterator[dict]:
    """Yield the command's rows while it runs. Raises ``BadDump`` after the last one if it
    failed."""
    command = [*inspect, str(directory), "--json", "--payload"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        yield from (json.loads(line) for line in process.stdout)
        complaint = process.stderr.read()
    if process.returncode not in _WITH_ROWS:
        raise BadDump(f"{' '.join(command)}: exit {process.returncode}: {complaint.strip()}")


def from_rows(rows: Iterable[dict], node: int, run: int) -> Dump:
    """Return the logs that the rows of ``log inspect`` describe."""
    reader = _Reader(Dump(node, run))
    for row in rows:
        reader.take(row)
    return reader.finished()


class _Reader:
    """Reader that replays the journal's rows."""

    def __init__(self, found: Dump):
        self._dump = found
        self._checkpoints: list[dict[int, dict]] = []
        self._partitions: list[dict[int, dict[int, PartitionExtent]]] = []
        self._positions: list[int] = []
        self._newest: dict[int, dict] = {}  # group -> row of the newest checkpoint
        self._segment = 0
        self._is_cold = False
        self._copy: tuple[int, int, int] | None = None  # group, index, term of a repair

    def take(self, row: dict) -> None:
        """Take the next row of ``log inspect``; rows of torn tails are ignored."""
        if "checkpoint_group" in row:
            self._checkpoints[-1][row["group"]] = row
        elif "checkpoint_partition" in row:
            self._partitions[-1].setdefault(row["group"], {})[row["partition"]] = PartitionExtent(
                row["start_offset"], row["log_start"], row["next_offset"])
        elif row.get("file") == "checkpoint":
            self._checkpoints.append({})
            self._partitions.append({})
            self._positions.append(row["facts"].get("position", -1))
        elif "file" in row:
            self._copy, self._is_cold = None, row["file"] == COLD_SEGMENT
            if row["file"] == SEGMENT:
                self._segment = row["facts"].get("start", self._segment)
            at = self._newest_at()
            self._newest = self._checkpoints[at] if at >= 0 else {}
        elif row.get("entry") and TORN not in row["problem"]:
            self._entry(row)
        elif "entry" in row and TORN not in row["problem"]:
            self._dump.unreadable += 1

    def _newest_at(self) -> int:
        """Return the place of the newest checkpoint among those taken so far; -1 without one."""
        return max(range(len(self._positions)), key=self._positions.__getitem__, default=-1)

    def _entry(self, row: dict) -> None:
        kind, group, index, term = row["kind"], row["group"], row["index"], row["term"]
        log = self._dump.logs.setdefault(group, ReplicaLog())
        copy, self._copy = self._copy, None
        known = self._newest.get(group, {})
        if kind == "hard_state":
            (vote,) = struct.unpack("<I", _payload(row)) if not row["problem"] else (0,)
            log.votes.append((term, vote))
        elif kind == "tombstone":
            log.drop_from(0)
            log.records.clear()
        elif kind in INDEXED and (self._is_cold or index < known.get("first_index", 0)):
            if kind == DATA and term == _term_in(known.get("record_terms", ()), index):
                self._record(log, row)
        elif self._segment < known.get("snapshot_position", 0):
            return  # a snapshot replaced the entries of this log
        elif kind == "suffix_drop":
            log.drop_from(index)
        elif kind == "repair":
            self._copy = (group, index, term)
        elif kind in INDEXED:
            self._indexed(log, row, copy == (group, index, term))

    def _record(self, log: ReplicaLog, row: dict) -> None:
        is_damaged = bool(row["problem"])
        log.put_record(row["index"], Record(row["term"], DAMAGED if is_damaged else _content(row),
                                            None if is_damaged else _batch(row, self._dump.run)))

    def _indexed(self, log: ReplicaLog, row: dict, is_copy: bool) -> None:
        index, kind = row["index"], row["kind"]
        if is_copy and log.terms and index < log.first_index:
            # Of a replica whose checkpoint, with the terms of its records, a tombstone replaced.
            if kind == DATA:
                self._record(log, row)
            return
        if index <= log.last_index and log.terms and not is_copy:
            log.drop_from(index)
        elif is_copy and log.term(index) not in (row["term"], UNREADABLE):
            return  # the log has continued without the entry that this is a copy of
        content = DAMAGED if row["problem"] else _content(row)
        log.put(index, row["term"], kind, content)
        if content == DAMAGED:
            return
        if kind == DATA:
            log.put_batch(_batch(row, self._dump.run))
        elif kind == MEMBERSHIP:
            log.members[index] = _members(_payload(row))
        elif kind == LOG_START:
            log.log_starts[index] = _log_starts(row)
        elif kind == OPEN:
            log.opened[index] = row["partition"]

    def finished(self) -> Dump:
        """Return the logs, with configurations, commit indexes and partitions of the checkpoint
        added."""
        at = self._newest_at()
        for group, row in (self._checkpoints[at] if at >= 0 else {}).items():
            log = self._dump.logs.setdefault(group, ReplicaLog())
            log.commit, log.applied = row["commit"], row["applied"]
            log.quarantined = row["quarantined"]
            log.configuration = [row["voters"], row["learners"], row["outgoing"]]
            log.removed = row["removed"] and not log.terms
            log.partitions = self._partitions[at].get(group, {})
            log.uncopied = [(first, last) for first, last in row.get("uncopied", ())]
            log.missing = set(row.get("missing", ()))
            if row["first_index"] > log.first_index:
                log.drop_head(row["first_index"])
            if row["first_index"] == log.first_index > 1:
                log.prev_term = row.get("prev_term", UNREADABLE)
        return self._dump


def _term_in(runs: Sequence[Sequence[int]], index: int) -> int:
    """Return the term of an index by runs of (first index, term), ascending; ``UNREADABLE`` before
    the first one."""
    at = bisect_right(runs, index, key=itemgetter(0)) - 1
    return runs[at][1] if at >= 0 else UNREADABLE


def _payload(row: dict) -> bytes:
    return base64.b64decode(row.get("payload", ""))


def _content(row: dict) -> int:
    """Return a number made of CRCs over the entry's contents, the same on every replica."""
    said = f"{row['kind']} {row['partition']} {row['base_offset']} {row['payload_crc']}"
    return zlib.crc32(said.encode()) << 31 ^ row["payload_crc"]


def _members(payload: bytes) -> list[list[int]]:
    """Return voters, learners, outgoing voters (docs/storage-format.md)."""
    _, *counts = struct.unpack_from("<BxHHH", payload)
    nodes = list(struct.unpack_from(f"<{sum(counts)}I", payload, 8))
    voters, learners = counts[0], counts[0] + counts[1]
    return [nodes[:voters], nodes[voters:learners], nodes[learners:]]


def _log_starts(row: dict) -> list[tuple[int, int]]:
    """Return (partition, new log start) of each row of a LOG_START (docs/storage-format.md)."""
    payload = _payload(row)
    if not payload:  # version 1 names one partition in its header
        return [(row["partition"], row["base_offset"])]
    version, count = _LOG_START_HEAD.unpack_from(payload)
    if version != 2 or len(payload) != _LOG_START_HEAD.size + count * _LOG_START_ROW.size:
        raise BadDump(f"a log_start of version {version} with {len(payload)} bytes")
    return [(partition, log_start) for partition, log_start, _ in _LOG_START_ROW.iter_unpack(
        payload[_LOG_START_HEAD.size:])]


def _batch(row: dict, run: int) -> LogBatch:
    """Return the records of a data entry as values, ``CORRUPT`` for one without a tag of this run.
    Without values if the batch cannot be decoded."""
    payload = _payload(row)
    found, keys = [], set()
    try:
        batch = FetchedBatch("", 0, memoryview(payload), core.batch_header(payload), 0, 0)
        records = batch.records()
    except CodecError:
        return LogBatch(row["index"], row["partition"], row["base_offset"], NO_KEY, ())
    for record in records:
        tag = values.parse(bytes(record.value or b""))
        mine = tag is not None and run in (-1, tag.run)
        found.append(tag.value if mine else CORRUPT)
        keys.add(tag.key_crc if mine else NO_KEY)
    key = keys.pop() if len(keys) == 1 else KEYS_DIFFER
    return LogBatch(row["index"], row["partition"], row["base_offset"], key, tuple(found))


# ---- files --------------------------------------------------------------------------------------


def write(path: Path, found: Dump) -> None:
    """Write a dump to a file, which is replaced if it exists."""
    with path.open("w", encoding="utf-8") as file:
        groups = [{"group": group, "first_index": log.first_index, "commit": log.commit,
                   "applied": log.applied, "configuration": log.configuration,
                   "quarantined": log.quarantined, "removed": log.removed,
                   "prev_term": log.prev_term, "uncopied": log.uncopied,
                   "missing": sorted(log.missing),
                   "partitions": [[partition, *extent]
                                  for partition, extent in sorted(log.partitions.items())]}
                  for group, log in sorted(found.logs.items())]
        head = {"node": found.node, "run": found.run, "unreadable": found.unreadable,
                "groups": groups}
        file.write(json.dumps(head, separators=(",", ":")) + "\n")
        for row in _rows(found):
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def _rows(found: Dump) -> Iterator[list]:
    for group, log in sorted(found.logs.items()):
        for term, vote in log.votes:
            yield [group, 0, term, VOTE, vote, 0, -1, NO_KEY, []]
        for index, (term, content, known) in sorted(log.records.items()):
            partition, base_offset, key, numbers = known[1:] if known else (0, -1, NO_KEY, ())
            yield [group, index, term, RECORD, content, partition, base_offset, key,
                   ranges(numbers)]
        for place, term in enumerate(log.terms):
            index = log.first_index + place
            batch = log.batch(index)
            if term == UNREADABLE:
                yield [group, index, None, "", DAMAGED, 0, -1, NO_KEY, []]
            elif batch is None:
                yield [group, index, term, log.kinds[place], log.contents[place],
                       log.opened.get(index, 0), -1, NO_KEY,
                       log.members.get(index) or log.log_starts.get(index, [])]
            else:
                yield [group, index, term, log.kinds[place], log.contents[place], batch.partition,
                       batch.base_offset, batch.key, ranges(batch.values)]


def ranges(found: Sequence[int]) -> list[list[int]]:
    """Return the numbers, in their order, as ranges [first, count] of consecutive ones."""
    result: list[list[int]] = []
    for value in found:
        if result and result[-1][0] + result[-1][1] == value:
            result[-1][1] += 1
        else:
            result.append([value, 1])
    return result


def load(path: Path) -> Dump:
    """Read a dump from its file.  Raises ``BadDump``."""
    with path.open(encoding="utf-8") as file:
        try:
            head = json.loads(file.readline())
            found = Dump(head["node"], head["run"], unreadable=head.get("unreadable", 0))
            for group in head["groups"]:
                found.logs[group["group"]] = ReplicaLog(
                    group["first_index"], commit=group["commit"], applied=group["applied"],
                    configuration=group["configuration"], quarantined=group["quarantined"],
                    removed=group["removed"], prev_term=group.get("prev_term", UNREADABLE),
                    uncopied=[(first, last) for first, last in group.get("uncopied", ())],
                    missing=set(group.get("missing", ())),
                    partitions={partition: PartitionExtent(*extent)
                                for partition, *extent in group.get("partitions", ())})
            for line in file:
                _load_row(found, json.loads(line))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise BadDump(f"{path}: {error!r}") from error
    return found


def _load_row(found: Dump, row: list) -> None:
    group, index, term, kind, content, partition, base_offset, key, more = row
    log = found.logs[group]
    if kind == VOTE:
        log.votes.append((term, content))
        return
    known = LogBatch(index, partition, base_offset, key, tuple(
        first + place for first, count in more for place in range(count))) if (
            kind in (DATA, RECORD) and content != DAMAGED) else None
    if kind == RECORD:
        log.put_record(index, Record(term, content, known))
        return
    log.put(index, UNREADABLE if term is None else term, kind, content)
    if kind == MEMBERSHIP and content != DAMAGED:
        log.members[index] = more
    elif kind == LOG_START and content != DAMAGED:
        log.log_starts[index] = [(partition, log_start) for partition, log_start in more]
    elif kind == OPEN and content != DAMAGED:
        log.opened[index] = partition
    elif known is not None:
        log.put_batch(known)


def load_all(folder: Path) -> list[Dump]:
    """Return the dumps in the folder ``replicas/`` of a run, by node; empty when there is no
    folder.  Raises ``BadDump``."""
    return sorted((load(path) for path in folder.glob("*.jsonl")), key=lambda each: each.node)
