"""Time and memory of a start whose records are in index files.

    python -m benchmarks.cold_start [--partitions N] [--segments N,N] [--directory DIRECTORY]

Contract.  Prints a table; asserts nothing.  Batches are of 1 KiB, spread at random over the
partitions of 64 groups; every segment is full and below the Raft starts of its groups.  The
segments are sparse files: a start reads their headers only.  Each start is in a process of its own,
the first one of the table without segments; index files come from the page cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time

from benchmarks.block_index import ENTRY_BYTES, GROUPS, SEGMENT_BYTES, Log
from multiraft import core
from multiraft.codec import layout
from multiraft.partitions.state import PartitionStates, open_payload
from multiraft.storage.block_index.file_codec import encode
from multiraft.storage.checkpoint import CheckpointJob, GroupRecord
from multiraft.storage.cold.cold_files import NO_NAMES
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.journal.journal import SegmentHeader, segment_path
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.store import JOURNAL_DIRECTORY, Store
from multiraft.types import Configuration, Entry, EntryKind, HardState

IDENTITY = Identity(bytes(range(16)), 1, 77)
VOTERS = Configuration((1,))


def states_of(log: Log, group: int) -> PartitionStates:
    """Return the states of a group's partitions, everything applied."""
    states = PartitionStates(group)
    own = [each for each in log.partitions.values() if each.group == group]
    for at, each in enumerate(own, start=1):
        states.append(Entry(EntryKind.PARTITION_OPEN, group, 1, 1, at, each.partition, -1,
                            open_payload(1)))
    states.apply(len(own))
    states.last_index = states.applied_index = log.groups[group].last_index
    return states


def build(directory: str, partitions: int, segments: int) -> int:
    """Write a data directory with so many segments, and return the number of batches."""
    filesystem, log = RealFilesystem(), Log(partitions)
    Store.open(directory, filesystem, IDENTITY).close()
    lane, durable = f"{directory}/{JOURNAL_DIRECTORY}", 0
    for number in range(segments + 1):
        start = number * SEGMENT_BYTES
        header = SegmentHeader(layout.FORMAT_VERSION, 0, start, IDENTITY.cluster, IDENTITY.node,
                               number)
        path = segment_path(lane, start)
        with open(path, "wb") as file:
            file.write(header.pack())
            if number == segments:  # the last one is scanned
                vote = Entry(EntryKind.HARD_STATE, 1, 1, 1, 0, payload=bytes(4))
                for buffer in core.frame_entries([vote], number, durable)[0]:
                    file.write(buffer)
                break
            file.truncate(SEGMENT_BYTES)
        index = log.fill(number)
        index.first_durable = index.highest_durable = durable
        durable = index.end
        with open(path.replace(".segment", ".index"), "wb") as file:
            file.writelines(encode(index, IDENTITY.cluster, IDENTITY.node))
    records: dict[int, GroupRecord | bytes] = {}
    for group in range(GROUPS):
        last = log.groups[group].last_index
        records[group] = GroupRecord(group, 1, VOTERS, HardState(1, 1), last + 1, min(last, 1),
                                     last, "", states_of(log, group).snapshot(),
                                     record_terms=((1, 1),) if last else ())
    CheckpointJob(filesystem, directory, durable, RemovedRanges(), NO_NAMES, records,
                  None, 2).execute()
    return log.appended


def start(directory: str) -> None:
    """Start once, and print seconds, processor seconds, resident bytes, rows."""
    filesystem = RealFilesystem()
    before = resident()
    began, processor = time.perf_counter(), time.process_time()
    store = Store.open(directory, filesystem, IDENTITY)
    took, processor = time.perf_counter() - began, time.process_time() - processor
    rows = sum(each.rows for each in store.table.indexed._by_start.values())
    assert not store.damage
    print(took, processor, resident() - before, rows,
          resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    store.close()


def resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Print the figures of each number of segments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--segments", default="32,512")
    parser.add_argument("--directory")
    parser.add_argument("--start", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.start:
        start(args.start)
        return
    print(f"{args.partitions} partitions, entries of {ENTRY_BYTES} bytes")
    for segments in [0, *map(int, args.segments.split(","))]:
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            batches = build(f"{directory}/node", args.partitions, segments)
            for _ in range(3):
                found = subprocess.run([sys.executable, "-m", "benchmarks.cold_start", "--start",
                                        f"{directory}/node"], capture_output=True, text=True,
                                       check=True).stdout.split()
                took, processor, size, rows = map(float, found[:4])
                print(f"  {segments * SEGMENT_BYTES >> 30:3} GiB {batches:9} batches: "
                      f"{took:6.2f} s, {processor:6.2f} s of a processor, {size / 1e6:7.1f} MB "
                      f"more, {rows:9.0f} rows")


if __name__ == "__main__":
    main()
