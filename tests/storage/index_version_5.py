"""Index files of versions 4 and 5, which this release reads and no longer writes.

``body`` is also the canonical form of an index in tests: equal indexes have equal bodies.
"""

from __future__ import annotations

import struct

import cbor2

from multiraft import core
from multiraft.storage.block_index.run_records import INDEX_MAGIC, pack_records
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun


def body(index: SegmentIndex) -> bytes:
    """Return the body of a file of version 5, with groups and partitions in ascending order."""
    return cbor2.dumps([index.start, index.seed, index.end, index.last_crc, index.first_durable,
                        index.highest_durable,
                        [_run(index.runs[group]) for group in sorted(index.runs)]])


def _run(run: SegmentRun) -> list:
    partitions = [run.partitions[partition].pack() for partition in sorted(run.partitions)]
    return [run.group, run.incarnation, run.truncated_from,
            run.index.pack() if run.index is not None else None, partitions, *pack_records(run)]


def file(index: SegmentIndex, version: int = 5) -> bytes:
    """Return a whole file of version 4 or 5."""
    fields = cbor2.loads(body(index))
    if version == 4:
        fields[-1] = [run[:-1] for run in fields[-1]]
    packed = cbor2.dumps(fields)
    data = struct.pack("<8sIIQ", INDEX_MAGIC, version, 0, len(packed)) + packed
    return data + struct.pack("<I", core.crc32c(data))
