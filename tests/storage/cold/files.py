"""Builders of sources and cold segments for tests: a few groups and partitions in one file."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.storage.cold.cold_segment import ColdHeader, seed_of
from multiraft.storage.cold.copy_job import CopyJob, CopySource, WantedRecord, WantedRun
from multiraft.storage.filesystem import Filesystem
from multiraft.types import Entry
from tests.storage.world import data_entry

DIRECTORY = "/node/cold-0"
CLUSTER, NODE = bytes(range(16)), 3
SOURCE_START = 1 << 20


@dataclass
class Source:
    """A file of framed entries, as a sealed segment is one."""

    path: str = "/node/lane-0/source"
    start: int = SOURCE_START
    is_removed: bool = False


def some_entries(count: int = 24, groups: int = 2, partitions: int = 3,
                 incarnation: int = 1) -> list[Entry]:
    """Entries in the order of a journal: groups take turns, and so do their partitions."""
    ends: dict[tuple[int, int], int] = {}
    found = []
    for at in range(count):
        group, turn = 1 + at % groups, at // groups
        key = group, 10 * group + turn % partitions
        base = ends.get(key, 0)
        values = [b"value %d" % at] * (1 + at % 3)
        ends[key] = base + len(values)
        found.append(data_entry(group, 5 + turn, 1 + turn // 4, key[1], base, values,
                                timestamp_ms=1000 + at * 7 % 11, incarnation=incarnation))
    return found


def written_source(filesystem: Filesystem, entries: Sequence[Entry],
                   source: Source) -> list[WantedRecord]:
    """Write entries to a source's file, and return where each one stands."""
    buffers, starts, total, _ = core.frame_entries(entries, 17, 5)
    directory = source.path.rpartition("/")[0]
    filesystem.make_directory(directory)
    file = filesystem.create(source.path)
    file.write(buffers, 0, True)
    file.close()
    filesystem.sync_directory(directory)
    ends = [*starts[1:], total]
    return [WantedRecord(source.start + start, end - start, entry.group, entry.incarnation,
                         entry.index, entry.term)
            for start, end, entry in zip(starts, ends, entries, strict=True)]


def header_of(number: int = 7, copied_from: int = 1 << 30) -> ColdHeader:
    return ColdHeader(0, number, CLUSTER, NODE, seed_of((77, 2), number), copied_from)


def copy_job(filesystem: Filesystem, records: Iterable[WantedRecord],
             source: Source | None = None, header: ColdHeader | None = None,
             directory: str = DIRECTORY) -> CopyJob:
    filesystem.make_directory(directory)
    return CopyJob(filesystem, directory, header or header_of(),
                   [CopySource(source or Source(), runs_of(records))])


def runs_of(records: Iterable[WantedRecord]) -> list[WantedRun]:
    """The records as runs of their groups."""
    by_group: dict[tuple[int, int], list[WantedRecord]] = {}
    for each in records:
        by_group.setdefault((each.group, each.incarnation), []).append(each)
    return [WantedRun(group, incarnation, [each.index for each in found],
                      [each.position for each in found], [each.size for each in found],
                      [(each.index, each.term) for each in sorted(found, key=by_index)])
            for (group, incarnation), found in by_group.items()]


by_index = attrgetter("index")


def run(job: CopyJob) -> int:
    """Execute all steps; how many."""
    count = 0
    while not job.is_done:
        job.step()
        count += 1
    return count


def cold_file(filesystem: SimulatedFilesystem, entries: Sequence[Entry] | None = None) -> CopyJob:
    """A cold segment with copies of entries."""
    entries = some_entries() if entries is None else entries
    job = copy_job(filesystem, written_source(filesystem, entries, Source()))
    run(job)
    return job


def shuffled(entries: Sequence[Entry], seed: int) -> list[Entry]:
    mixed = [*entries]
    random.Random(seed).shuffle(mixed)
    return mixed
