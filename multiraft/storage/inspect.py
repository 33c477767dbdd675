"""Read-only inspection of a data directory, or one file of it, for `log inspect`.

Contract.  Reads only, takes no lock and follows no link out of the directory.  Works on a copy and
on the directory of a running node, whose newest bytes may then be half written.  Nothing here
decides anything: recovery (recovery.py) does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.partitions import entry_text
from multiraft.storage.checkpoint import (
    CHECKPOINT_MAGIC,
    Checkpoint,
    read_checkpoint,
)
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import COLD_INDEX_MAGIC, ColdContents
from multiraft.storage.cold.cold_segment import COLD_MAGIC, ColdHeader
from multiraft.storage.cold.cold_segment import HEADER_BYTES as COLD_HEADER_BYTES
from multiraft.storage.cold.contents import scan
from multiraft.storage.errors import CorruptFile, StorageError, UnknownFormat
from multiraft.storage.index_file import INDEX_MAGIC, read_any_index_file
from multiraft.storage.journal.journal import SegmentHeader
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.strays import (
    CHECKPOINT_PREFIX,
    COLD_INDEX_SUFFIX,
    COLD_SUFFIX,
    INDEX_SUFFIX,
    SEGMENT_SUFFIX,
    SeenSegment,
    Stray,
    checkpoint_position,
    cold_index_number,
    cold_number,
    index_start,
    segment_start,
    stray_segments,
    strays_among_checkpoints,
    strays_in_journal,
)
from multiraft.types import EntryKind

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_HEADER_BYTES = layout.SEGMENT_HEADER_BYTES

SEGMENT, CHECKPOINT, INDEX = "segment", "checkpoint", "index"
COLD, COLD_INDEX = "cold segment", "cold index"

#: Judgements of a place that is no intact entry.
CORRUPTION = "corruption: something later calls it durable"
COLD_CORRUPTION = "corruption: a cold segment is whole before it has its name"
TORN = "torn tail: nothing calls it durable, a start cuts it off"


class NotADataDirectory(StorageError):
    """A path that holds nothing of a data directory."""


class Row(NamedTuple):
    """An entry, or a place where none can be read (``kind`` empty, ``problem`` says why)."""

    position: int  # journal position
    kind: str
    group: int
    incarnation: int
    term: int
    index: int  # type: ignore[assignment]
    partition: int
    base_offset: int
    length: int
    durable: int
    problem: str
    payload_crc: int = 0  # CRC32C of the payload; the same in every replica's copy of an entry
    payload: bytes = b""  # when it was asked for
    text: str = ""  # what an entry without records says (partitions/entry_text.py)


class FileSummary(NamedTuple):
    """One file as a whole."""

    path: str
    kind: str
    size: int
    facts: dict[str, object]
    problem: str  # empty = readable


class _ReadOnlyFile:
    def __init__(self, path: str):
        self.path = path
        self._file = open(path, "rb", buffering=0)

    def read(self, length: int, position: int) -> bytes:
        self._file.seek(position)
        return self._file.read(length)

    def close(self) -> None:
        self._file.close()


class _ReadOnly:
    """As much of a ``Filesystem`` as reading whole files takes."""

    def size(self, path: str) -> int:
        return Path(path).stat().st_size

    def open(self, path: str) -> _ReadOnlyFile:
        return _ReadOnlyFile(path)


def files_of(path: Path) -> list[tuple[str, Path]]:
    """Return (kind, path) of the files to inspect, checkpoints first, segments in journal order; of
    a path that is a file, this file alone.

    Raises ``NotADataDirectory`` if nothing there is a checkpoint, a segment or an index file."""
    if not path.is_dir():
        return [(_kind_of(path), path)]
    strays = {stray.path for stray in strays_of(path)}
    directories = (path, *_journal_directories(path), *_directories(path, "cold-*"))
    found = [(_kind_of(child), child) for directory in directories
             for child in sorted(directory.iterdir())
             if _is_file(child) and _is_ours(child) and str(child) not in strays]
    if not found:
        raise NotADataDirectory(f"{path} holds no segment, index or checkpoint")
    order = {CHECKPOINT: 0, SEGMENT: 1, INDEX: 2, COLD: 3, COLD_INDEX: 4}
    return sorted(found, key=lambda item: (order[item[0]], item[1].name))


def strays_of(path: Path) -> list[Stray]:
    """Return the files of a data directory that a start does not read: by name or by position in
    the journal they are not the node's, or their segments are removed.  An empty list for a single
    file."""
    if not path.is_dir():
        return []
    found = strays_among_checkpoints(str(path), [child.name for child in sorted(path.iterdir())])
    removed = _removed_ranges(path)
    known_to = max((checkpoint_position(child.name) or 0 for child in path.iterdir()), default=0)
    for journal in _journal_directories(path):
        children = sorted(journal.iterdir())
        names = [child.name for child in children if _is_file(child)]
        found += strays_in_journal(str(journal), names)
        found += [Stray(str(child), "it is no file") for child in children if not _is_file(child)]
        segments = [child for child in children
                    if _is_file(child) and segment_start(child.name) is not None]
        leftovers = [child for child in segments if _is_leftover(_seen(child), removed)]
        leftovers += [child for child in children if _is_file(child)
                      and (start := index_start(child.name)) is not None and removed.covers(start)]
        found += [Stray(str(child), "its segment is removed, and the node removes the file")
                  for child in sorted(leftovers)]
        segments = [child for child in segments if child not in leftovers]
        strays = stray_segments([_seen(child) for child in segments], removed, known_to)
        found += [Stray(str(segments[at]), f"{why}, and its header is not intact")
                  for at, why in sorted(strays.items())]
    return found


def _removed_ranges(path: Path) -> RemovedRanges:
    """Return the removed part of the journal by the newest checkpoint that is intact."""
    checkpoints = [child for child in path.iterdir()
                   if _is_file(child) and checkpoint_position(child.name) is not None]
    for child in sorted(checkpoints, reverse=True):
        try:
            return load_checkpoint(child).removed
        except (CorruptFile, UnknownFormat):
            continue
    return RemovedRanges()


def _is_leftover(segment: SeenSegment, removed: RemovedRanges) -> bool:
    return segment.is_ours and removed.covers(segment.start)


def _journal_directories(path: Path) -> list[Path]:
    return _directories(path, "lane-*")


def _directories(path: Path, pattern: str) -> list[Path]:
    return [child for child in sorted(path.glob(pattern)) if child.is_dir()]


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _seen(path: Path) -> SeenSegment:
    """Return a segment file's description for ``stray_segments``, from its header alone."""
    start = segment_start(path.name)
    assert start is not None, f"{path} is no segment"
    with open(path, "rb") as file:
        header = SegmentHeader.parse(file.read(_HEADER_BYTES))
    is_ours = header is not None and header.start == start
    return SeenSegment(start, path.stat().st_size, is_ours, -1, start)


def _is_ours(path: Path) -> bool:
    name = path.name
    return any(position is not None for position in (
        segment_start(name), index_start(name), checkpoint_position(name), cold_number(name),
        cold_index_number(name)))


def _kind_of(path: Path) -> str:
    if path.name.endswith(SEGMENT_SUFFIX):
        return SEGMENT
    for ending, kind in ((INDEX_SUFFIX, INDEX), (COLD_SUFFIX, COLD),
                         (COLD_INDEX_SUFFIX, COLD_INDEX)):
        if path.name.endswith(ending):
            return kind
    if path.name.startswith(CHECKPOINT_PREFIX):
        return CHECKPOINT
    magic = path.read_bytes()[:8] if path.is_file() else b""
    kinds = {layout.SEGMENT_MAGIC: SEGMENT, INDEX_MAGIC: INDEX, CHECKPOINT_MAGIC: CHECKPOINT,
             COLD_MAGIC: COLD, COLD_INDEX_MAGIC: COLD_INDEX}
    if magic not in kinds:
        raise NotADataDirectory(f"{path} is no segment, index or checkpoint")
    return kinds[magic]


# ---- whole files --------------------------------------------------------------------------------


def summary(kind: str, path: Path) -> FileSummary:
    """Return a file's description from its content, the header alone for a segment.  A damaged file
    is described by ``problem``."""
    size = path.stat().st_size
    try:
        facts = {SEGMENT: _segment_facts, INDEX: _index_facts, CHECKPOINT: _checkpoint_facts,
                 COLD: _cold_facts, COLD_INDEX: _cold_index_facts}[kind](path)
    except (CorruptFile, UnknownFormat) as error:
        return FileSummary(str(path), kind, size, {}, str(error))
    return FileSummary(str(path), kind, size, facts, "")


def _segment_facts(path: Path) -> dict[str, object]:
    with open(path, "rb") as file:
        header = SegmentHeader.parse(file.read(_HEADER_BYTES))
    if header is None:
        raise CorruptFile(str(path), "its header is damaged")
    return {"start": header.start, "cluster": header.cluster.hex(), "node": header.node,
            "version": header.version}


def _index_facts(path: Path) -> dict[str, object]:
    index = read_any_index_file(_ReadOnly(), str(path))
    return {"start": index.start, "end": index.end, "groups": len(index.runs),
            "entries": sum(len(run.index) for run in index.runs.values()
                           if run.index is not None)}


def _cold_facts(path: Path) -> dict[str, object]:
    with open(path, "rb") as file:
        header = ColdHeader.parse(str(path), file.read(COLD_HEADER_BYTES))
    return {"number": header.number, "cluster": header.cluster.hex(), "node": header.node,
            "generation": header.generation, "copied_from": header.copied_from}


def _cold_index_facts(path: Path) -> dict[str, object]:
    contents = _cold_index(path)
    return {"number": contents.header.number, "length": contents.length,
            "groups": len(contents.runs), "records": contents.records}


def _cold_index(path: Path) -> ColdContents:
    return cold_index.decode(str(path), path.read_bytes())


def _checkpoint_facts(path: Path) -> dict[str, object]:
    checkpoint = load_checkpoint(path)
    return {"position": checkpoint.position, "journal_start": checkpoint.removed.journal_start,
            "removed": [list(each) for each in checkpoint.removed.ranges],
            "cold_segments": [each.number for each in checkpoint.cold.names],
            "groups": len(checkpoint.records),
            "quarantined": [group for group, record in sorted(checkpoint.records.items())
                            if record.quarantined]}


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and decode a checkpoint file. Raise ``CorruptFile`` for a damaged one, ``UnknownFormat``
    for one of a later release."""
    return read_checkpoint(_ReadOnly(), str(path))


def group_rows(path: Path) -> list[dict[str, object]]:
    """Return a row for each group of a checkpoint. Raise as ``load_checkpoint``."""
    checkpoint = load_checkpoint(path)
    rows = []
    for group, record in sorted(checkpoint.records.items()):
        rows.append({"group": group, "incarnation": record.incarnation,
                     "term": record.hard_state.term, "vote": record.hard_state.vote,
                     "first_index": record.first_index, "prev_term": record.prev_term,
                     "commit": record.commit,
                     "applied": checkpoint.partition_states[group].applied_index,
                     "voters": list(record.configuration.voters),
                     "learners": list(record.configuration.learners),
                     "outgoing": list(record.configuration.outgoing),
                     "configuration_index": record.configuration_index,
                     "removed": record.removed,
                     "tombstone_position": record.tombstone_position,
                     "snapshot_position": record.snapshot_position,
                     "record_terms": [list(each) for each in record.record_terms],
                     "uncopied": [list(each) for each in record.uncopied],
                     "missing": [index for index, _ in record.missing],
                     "quarantined": record.quarantined})
    return rows


def partition_rows(path: Path) -> Iterator[dict[str, object]]:
    """Yield a row for each partition of a checkpoint, as its group has applied it.  Raise as
    ``load_checkpoint``."""
    for group, states in sorted(load_checkpoint(path).partition_states.items()):
        for partition in sorted(states.partitions()):
            state = states.applied(partition)
            if state is not None:
                yield {"group": group, "partition": partition, "epoch": state.epoch,
                       "start_offset": state.start_offset, "log_start": state.log_start,
                       "next_offset": state.next_offset, "sealed": state.sealed}


# ---- entries ------------------------------------------------------------------------------------


def durable_watermark(files: list[tuple[str, Path]]) -> int:
    """Return the highest journal position that an intact entry or checkpoint calls durable.
    O(bytes of all segments)."""
    highest = 0
    for kind, path in files:
        if kind == CHECKPOINT:
            try:
                highest = max(highest, load_checkpoint(path).position)
            except (CorruptFile, UnknownFormat):
                continue
        elif kind == SEGMENT:
            highest = max([highest, *(row.durable for row in rows(path, 0) if row.kind)])
    return highest


def rows(path: Path, durable: int, payloads: bool = False) -> Iterator[Row]:
    """Yield a row for each entry of a segment, in order, and for each place where none can be read.

    Damage below ``durable`` (from ``durable_watermark`` over all files) is called corruption, above
    it a torn tail.  ``payloads``: with the payloads."""
    data = path.read_bytes()
    header = SegmentHeader.parse(data[:_HEADER_BYTES])
    start = header.start if header is not None else _start_of(path)
    at, watermark = _HEADER_BYTES, 0
    if header is None:
        yield _problem(start, "segment header", durable)
        at = _next(data, at, start, watermark)
    prev_crc = header.seed if header is not None else _prev_crc(data, at)
    while 0 <= at < len(data):
        scan = core.scan_entries(data, at, prev_crc)
        for found in scan.entries:
            watermark = max(watermark, found.durable)
            yield _row(found, data, start, durable, payloads)
        stopped = scan.stopped_at
        at = _next(data, stopped + layout.ENTRY_ALIGNMENT * (scan.reason == "chain"), start,
                   watermark)
        if at < 0:
            if any(data[stopped:]):
                yield _problem(start + stopped, scan.reason, durable)
            return
        yield _problem(start + stopped, scan.reason, durable)
        prev_crc = _prev_crc(data, at)


def cold_rows(path: Path, payloads: bool = False) -> Iterator[Row]:
    """Yield a row for each entry of a cold segment, in order, and for each place where none can be
    read; positions are bytes of the file.  ``payloads``: with the payloads.  Raise ``CorruptFile``
    if its header is damaged: nothing but a checkpoint tells the beginning of its chain then."""
    data = path.read_bytes()
    header = ColdHeader.parse(str(path), data[:COLD_HEADER_BYTES])
    found = scan(data, header, len(data))
    lost = sorted(found.lost)
    places = sorted(byte for run in found.contents.runs.values() for byte in run.bytes)
    for byte in places:
        while lost and lost[0][0] < byte:
            yield _lost_row(lost.pop(0)[0])
        entry = core.scan_entries(data, byte, _prev_crc(data, byte), True, byte + 1).entries[0]
        row = _row(entry, data, 0, 0, payloads)
        yield row._replace(problem=f"payload: {COLD_CORRUPTION}") if row.problem else row
    for begin, _ in lost:
        yield _lost_row(begin)


def _lost_row(byte: int) -> Row:
    return Row(byte, "", -1, 0, 0, 0, 0, -1, 0, 0, f"entry: {COLD_CORRUPTION}")


def _start_of(path: Path) -> int:
    return segment_start(path.name) or 0


def _next(data: bytes, at: int, start: int, watermark: int) -> int:
    """Return the position in ``data`` of the next entry, from ``at`` on, that may have been written
    there, by recovery's rule; -1 = none."""
    while True:
        at = core.find_entry(data, at)
        if at < 0:
            return -1
        whole = at + _U32.unpack_from(data, at + layout.ENTRY_LENGTH_AT)[0] <= len(data)
        durable = _U64.unpack_from(data, at + layout.ENTRY_DURABLE_AT)[0]
        if whole and watermark <= durable <= start + at:
            return at
        at += layout.ENTRY_ALIGNMENT


def _prev_crc(data: bytes, at: int) -> int:
    return _U32.unpack_from(data, at + layout.ENTRY_PREV_CRC_AT)[0] if at >= 0 else 0


def _row(found: core.ScannedEntry, data: bytes, start: int, durable: int, payloads: bool) -> Row:
    position = start + found.at
    problem = ""
    if not found.payload_intact:
        problem = f"payload: {CORRUPTION if position < durable else TORN}"
    payload = memoryview(data)[found.at + layout.ENTRY_HEADER_BYTES:found.at + found.length]
    return Row(position, EntryKind(found.kind).name.lower(), found.group, found.incarnation,
               found.term, found.index, found.partition, found.base_offset, found.length,
               found.durable, problem, core.crc32c(payload), bytes(payload) if payloads else b"",
               entry_text.describe(found.kind, payload))


def _problem(position: int, reason: str, durable: int) -> Row:
    judged = CORRUPTION if position < durable else TORN
    return Row(position, "", -1, 0, 0, 0, 0, -1, 0, 0, f"{reason}: {judged}")


def verify_index(path: Path) -> str:
    """Return why the index file does not describe its segment; empty if it does."""
    segment = path.with_name(path.name.removesuffix(INDEX_SUFFIX) + SEGMENT_SUFFIX)
    try:
        index = read_any_index_file(_ReadOnly(), str(path))
    except (CorruptFile, UnknownFormat) as error:
        return str(error)
    if not segment.exists():
        return f"its segment {segment.name} is missing"
    places = {row.position: (row.group, row.index) for row in rows(segment, 0) if row.kind}
    for group, run in index.runs.items():
        entries = run.index
        if entries is None:
            continue
        for at in range(entries.first_index, entries.last_index + 1):
            if places.get(entries.position(at)) != (group, at):
                return f"entry {at} of group {group} is not at {entries.position(at)}"
    return ""


def verify_cold_index(path: Path) -> str:
    """Return why the index file does not describe its cold segment; empty if it does."""
    segment = path.with_name(path.name.removesuffix(COLD_INDEX_SUFFIX) + COLD_SUFFIX)
    if not segment.exists():
        return f"its cold segment {segment.name} is missing"
    try:
        index = _cold_index(path)
        data = segment.read_bytes()
        header = ColdHeader.parse(str(segment), data[:COLD_HEADER_BYTES])
    except (CorruptFile, UnknownFormat) as error:
        return str(error)
    if (index.header, index.length) != (header, len(data)):
        return f"it is not of {segment.name}, which has {len(data)} bytes"
    scanned = scan(data, header, len(data)).contents
    for group, run in index.runs.items():
        other = scanned.runs.get(group)
        places = dict(zip(other.indexes, other.bytes)) if other is not None else {}
        for at, byte in zip(run.indexes, run.bytes):
            if places.get(at) != byte:
                return f"entry {at} of group {group} is not at byte {byte}"
    return ""


def is_damaged(body: object) -> bool:
    """Return True if a row or a summary reports damage that no crash explains."""
    problem = getattr(body, "problem", "")
    return bool(problem) and TORN not in problem

