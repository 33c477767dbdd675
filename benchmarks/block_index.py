"""Costs of index files in blocks: memory of their rows, look-ups, one file at a seal and a start.

    python -m benchmarks.block_index [--partitions N] [--batches N] [--directory DIRECTORY]

Contract.  Prints a table; asserts nothing.  Batches are of 1 KiB, spread at random over the
partitions, and partitions over 64 groups; segments are full at 64 MiB.  Memory is that of the rows
with the objects that hold them, beside that of the packed columns that they replace.  Seals and
starts are in processor time.  A plain segment is one that ``core.SegmentIndexer`` took, without the
time of that.  A look-up on disk opens the file, reads one block from the page cache and verifies
it.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial

from multiraft import core
from multiraft.storage.block_index import lookup
from multiraft.storage.block_index.block_cache import BlockCache
from multiraft.storage.block_index.blocks import BLOCK_BYTES, FileIdentity, open_block
from multiraft.storage.block_index.file_codec import (
    FileHeader,
    decode,
    decode_summary,
    encode,
    encode_packed,
    parse_header,
)
from multiraft.storage.block_index.rows import SparseIndex, join_rows
from multiraft.storage.errors import BlockNotCached
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.index import GroupIndex, PartitionIndex
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.types import Entry, EntryKind

GROUPS = 64
SEGMENT_BYTES = 64 << 20
ENTRY_BYTES = 1024 + 64 + 64  # a batch of 1 KiB of records, its header and that of the entry
LOOKUPS = 2000
CACHE_BYTES = 64 << 20
CLUSTER, NODE = bytes(16), 1
SEED = 7
FRAMED_AT_ONCE = 500  # entries


class Log:
    """Everything that was appended, with the indexes of the whole in memory."""

    def __init__(self, partitions: int):
        self.groups = {group: GroupIndex() for group in range(GROUPS)}
        self.partitions = {each: PartitionIndex(each, each % GROUPS)
                           for each in range(1, partitions + 1)}
        self.appended = 0
        self._random = random.Random(1)
        self._now_ms = 1_700_000_000_000

    @property
    def memory(self) -> int:
        """Memory of the columns of the packed indexes."""
        packed = [known.pack() for known in self.groups.values()]
        packed += [known.pack() for known in self.partitions.values()]
        return sum(len(part) for fields in packed for part in fields if isinstance(part, bytes))

    def fill(self, number: int) -> SegmentIndex:
        """Append a segment of batches and return its index."""
        start = number * SEGMENT_BYTES
        index = SegmentIndex(start, number, start + SEGMENT_BYTES, 0, start, start)
        for position in range(start + 64, start + SEGMENT_BYTES - ENTRY_BYTES, ENTRY_BYTES):
            batches = self.partitions[self._random.randint(1, len(self.partitions))]
            group = self.groups[batches.group]
            run = index.runs.get(batches.group)
            if run is None:
                run = index.runs[batches.group] = SegmentRun(batches.group, 1, index=GroupIndex(
                    group.last_index + 1))
            own = run.partitions.get(batches.partition)
            if own is None:
                own = PartitionIndex(batches.partition, batches.group)
                run.partitions[batches.partition] = own
            self._now_ms += 1
            at, base = group.last_index + 1, batches.end_offset
            assert run.index is not None
            for entries in (group, run.index):
                entries.append(at, 1, position, ENTRY_BYTES)
            for known in (batches, own):
                known.append(base, 1, at, self._now_ms)
            self.appended += 1
        return index


def indexed(partitions: int) -> core.SegmentIndexer:
    """Return the indexer of a segment of framed batches."""
    chosen, indexer = random.Random(1), core.SegmentIndexer()
    builder = core.BatchBuilder(1 << 16)
    builder.append(1_700_000_000_000, None, bytes(1024))
    payload = builder.build()
    info = core.batch_info(payload)
    last: dict[int, int] = {}
    ends: dict[int, int] = {}
    position, crc = 64, SEED
    while position < SEGMENT_BYTES - FRAMED_AT_ONCE * ENTRY_BYTES:
        entries = []
        for partition in chosen.choices(range(1, partitions + 1), k=FRAMED_AT_ONCE):
            group, base = partition % GROUPS, ends.get(partition, 0)
            last[group], ends[partition] = last.get(group, 0) + 1, base + 1
            batch = bytearray(payload)
            core.stamp_batch(batch, base, 1)
            entries.append(Entry(EntryKind.DATA, group, 1, 1, last[group], partition, base,
                                 bytes(batch), info))
        buffers, _, size, last_crc = core.frame_entries(entries, crc, 0)
        assert indexer.take(b"".join(buffers), 0, crc, position).reason == "end"
        position, crc = position + size, last_crc
    return indexer


def seal(partitions: int) -> None:
    """Print the costs of a plain segment's index file."""
    indexer, identity = indexed(partitions), FileIdentity(CLUSTER, NODE, 0, SEED)
    bounds = SegmentIndex(0, SEED, SEGMENT_BYTES, 0, 0, 0)
    taken: dict[str, list[float]] = {}

    def timed(what: str, started: float) -> None:
        taken.setdefault(what, []).append((time.process_time() - started) * 1e3)

    for _ in range(9):
        started = time.process_time()
        packed = indexer.pack(identity.crc(), 0)
        timed("pack, plain", started)
        started = time.process_time()
        buffers = encode_packed(packed, bounds, identity)
        timed("encode, plain", started)
        file = b"".join(buffers)
        started = time.process_time()
        decode("index", file)
        timed("decode", started)
    for what, values in taken.items():
        print(f"  {what:21} {statistics.median(values):8.1f} ms per segment")


class Rows:
    """The rows of all files, and their blocks through a cache."""

    def __init__(self, directory: str):
        self.groups: dict[int, SparseIndex] = {}
        self.partitions: dict[int, SparseIndex] = {}
        self.cache = BlockCache(CACHE_BYTES)
        self.headers: list[FileHeader] = []
        self._filesystem = RealFilesystem()
        self._directory = directory
        self._bytes: dict[int, int] = {}
        self._parts: list[tuple[bytes, bytes, int]] = []

    @property
    def memory(self) -> int:
        """Memory of the rows, with the objects that hold them."""
        return sum(sys.getsizeof(known) + sys.getsizeof(known.data)
                   for known in (*self.groups.values(), *self.partitions.values()))

    def path(self, number: int) -> str:
        return f"{self._directory}/{number:020d}.index"

    def write(self, number: int, buffers: list[bytes]) -> None:
        file = self._filesystem.create(self.path(number))
        file.write(buffers, 0, False)
        file.close()

    def join(self, number: int) -> None:
        """Read the summary of a file, as a start does, and add its rows."""
        path = self.path(number)
        file = self._filesystem.open(path)
        header = parse_header(path, file.read(BLOCK_BYTES, 0))
        summaries = decode_summary(path, header,
                                   file.read(header.summary_bytes, header.summary_position))
        file.close()
        self.headers.append(header)
        none = SparseIndex()
        for each in summaries:
            group, entries = each.run.group, each.entries
            assert entries is not None
            before = self._bytes.get(group, 0)
            self.groups[group] = self.groups.get(group, none).extended(
                entries.rows.added(before), number)
            self._bytes[group] = before + entries.bytes
            self._parts.append((each.packed_partitions, each.partition_rows, number))

    def finish(self) -> None:
        self.partitions = {key: known.rows for key, known in join_rows(self._parts).items()}

    def blocks(self, file: int, block: int) -> bytes:
        """Return a block's rows from memory, or from its file."""
        try:
            return self.cache.rows(file, block)
        except BlockNotCached:
            self.cache.add(file, block, self.read(file, block))
            return self.cache.rows(file, block)

    def read(self, file: int, block: int) -> bytes:
        path, header = self.path(file), self.headers[file]
        opened = self._filesystem.open(path)
        data = opened.read(BLOCK_BYTES, block * BLOCK_BYTES)
        opened.close()
        return open_block(path, header.identity, block, header.kind_of(block), data)


def micros(function: Callable[[tuple[int, int]], object], keys: list[tuple[int, int]]) -> str:
    """Return the median and the 99th percentile of calls, in microseconds."""
    taken = []
    for each in keys:
        started = time.perf_counter()
        function(each)
        taken.append((time.perf_counter() - started) * 1e6)
    return f"{statistics.median(taken):8.1f} {sorted(taken)[len(taken) * 99 // 100]:8.1f}"


def measure(directory: str, partitions: int, batches: int) -> None:
    """Write the files of so many batches, and print their costs."""
    log, rows = Log(partitions), Rows(directory)
    encode_s: list[float] = []
    file_bytes = 0
    while log.appended < batches:
        index = log.fill(len(encode_s))
        started = time.process_time()
        buffers = encode(index, CLUSTER, NODE)
        encode_s.append(time.process_time() - started)
        rows.write(len(encode_s) - 1, buffers)
        file_bytes += sum(map(len, buffers))
    millions, packed_bytes = log.appended / 1e6, log.memory
    started = time.process_time()
    for number in range(len(encode_s)):
        rows.join(number)
    rows.finish()
    join_s = time.process_time() - started
    print(f"{partitions} partitions, {log.appended} batches, {len(encode_s)} segments")
    print(f"  memory of rows        {rows.memory / millions / 1e6:8.2f} MB per million batches")
    print(f"  packed indexes        {packed_bytes / millions / 1e6:8.2f} MB per million batches")
    print(f"  index files           {file_bytes / log.appended:8.1f} bytes per batch")
    print(f"  encode in Python      {statistics.median(encode_s) * 1e3:8.1f} ms per segment")
    print(f"  read and join         {join_s / len(encode_s) * 1e3:8.1f} ms per segment")
    seal(partitions)
    look_ups(log, rows)


def look_ups(log: Log, rows: Rows) -> None:
    """Print the microseconds of look-ups, those of blocks on disk and those of blocks in memory."""
    chosen = random.Random(2)
    offsets = [(each, chosen.randrange(log.partitions[each].end_offset)) for each in
               chosen.choices([each for each, known in log.partitions.items() if known], k=LOOKUPS)]
    indexes = [(each, chosen.randint(1, log.groups[each].last_index)) for each in
               chosen.choices([each for each, known in log.groups.items() if known], k=LOOKUPS)]

    def batch(blocks: lookup.Blocks, key: tuple[int, int]) -> object:
        return lookup.find_batch(rows.partitions[key[0]], key[1], blocks)

    def entry(blocks: lookup.Blocks, key: tuple[int, int]) -> object:
        return lookup.find_entry(rows.groups[key[0]], key[1], blocks)

    for what, find, keys in (("partition, offset", batch, offsets),
                             ("group, index", entry, indexes)):
        print(f"  {what}: median, 99th percentile in microseconds")
        for name, blocks in (("on disk", rows.read), ("in memory", rows.blocks)):
            micros(partial(find, blocks), keys)  # from now on in memory
            print(f"    block {name:16}", micros(partial(find, blocks), keys))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 10_000])
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--directory", help="for the files, which are removed afterwards")
    arguments = parser.parse_args()
    for partitions in arguments.partitions:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            measure(directory, partitions, arguments.batches)


if __name__ == "__main__":
    main()
