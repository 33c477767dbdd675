"""Index file beside a sealed segment: written in the current version, read in each known one.

Contract.  An index file is a cache: recovery checks its CRCs and that it is of this very segment,
and scans the segment otherwise.  Version 6 has checksums of its own
(``block_index/file_codec.py``); versions 4 and 5 are one CBOR body in an envelope, which
``decode_body`` reads.
"""

from __future__ import annotations

import struct

import cbor2

from multiraft.codec import shapes
from multiraft.errors import CorruptEntry
from multiraft.storage.atomic_file import open_envelope, read_whole, replace_file
from multiraft.storage.block_index import file_codec
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.block_index.run_records import (
    FIRST_RECORDS,
    INDEX_MAGIC,
    PAIR,
    RECORDS,
    unpack_run,
)
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Buffer, Filesystem, ReadableFiles
from multiraft.storage.index import GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Segment, index_path
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun

#: Versions in an envelope; the runs of version 4 end before the terms of vote barriers.
ENVELOPE_VERSIONS = (4, 5)

_VERSION = struct.Struct("<8sI")  # magic, version: of every index file


def write_index_file(filesystem: Filesystem, segment: Segment, buffers: list[bytes]) -> None:
    """Write the buffers of a ``file_codec`` as the index file of a sealed segment, atomically and
    durably.  Blocks.  Raises ``OSError``."""
    directory, _, name = index_path(segment).rpartition("/")
    replace_file(filesystem, directory, name, buffers)


def read_index_file(filesystem: Filesystem, segment: Segment, cluster: bytes,
                    node: int) -> SegmentIndex:
    """Read the index file of a segment of this cluster and node.

    Raise ``CorruptFile`` or ``UnknownFormat``; the caller scans the segment instead."""
    path = index_path(segment)
    data = read_whole(filesystem, path)
    if _version(data) in ENVELOPE_VERSIONS:
        index = _decode_envelope(path, data)
        if (index.start, index.seed) != (segment.start, segment.seed):
            raise CorruptFile(path, "it is the index of another segment")
        return index
    file_codec.parse_header(path, data).require(
        path, FileIdentity(cluster, node, segment.start, segment.seed))
    return file_codec.decode(path, data)


def read_any_index_file(files: ReadableFiles, path: str) -> SegmentIndex:
    """Read the index file of any segment.  Raise ``CorruptFile`` or ``UnknownFormat``."""
    data = read_whole(files, path)
    if _version(data) in ENVELOPE_VERSIONS:
        return _decode_envelope(path, data)
    return file_codec.decode(path, data)


def _version(data: Buffer) -> int:
    """Return the version of an index file, which may be any bytes; 0 = none."""
    if len(data) < _VERSION.size:
        return 0
    magic, version = _VERSION.unpack_from(data)
    return version if magic == INDEX_MAGIC else 0


# ---- versions 4 and 5 ----------------------------------------------------------------------------

_FIRST_FIELDS = (shapes.UINT, shapes.UINT, shapes.UINT,
        shapes.Optional((shapes.UINT, shapes.BYTES, shapes.BYTES, [shapes.UINT], [shapes.UINT])),
        [(shapes.UINT, shapes.UINT, shapes.BYTES, shapes.BYTES, shapes.BYTES, [PAIR])],
        *FIRST_RECORDS)
_RUN = (*_FIRST_FIELDS, *RECORDS[len(FIRST_RECORDS):])
_HEAD = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.UINT, shapes.INT_OR_NONE, shapes.UINT)


def _decode_envelope(path: str, data: bytes) -> SegmentIndex:
    return decode_body(path, open_envelope(path, data, INDEX_MAGIC, *ENVELOPE_VERSIONS))


def decode_body(path: str, body: bytes) -> SegmentIndex:
    """Return the index in the body of an index file of version 4 or 5.  Raise ``CorruptFile``,
    which names ``path``."""
    try:
        fields = cbor2.loads(body)
        shapes.check(fields, (*_HEAD, [shapes.ANYTHING]), "the index")
        first = [run for run in fields[-1] if len(run) == len(_FIRST_FIELDS)]
        shapes.check(fields[-1], [_FIRST_FIELDS if first else _RUN], "the index")
        start, seed, end, last_crc, first_durable, highest_durable, runs = fields
        unpacked = {run.group: run for run in map(_unpack_run, runs)}
    except (cbor2.CBORDecodeError, CorruptEntry, ValueError, TypeError) as error:
        raise CorruptFile(path, f"malformed ({error})") from error
    return SegmentIndex(start, seed, end, last_crc, first_durable, highest_durable, unpacked)


def _unpack_run(fields: list) -> SegmentRun:
    group, incarnation, truncated_from, index, partitions, *records = fields
    unpacked = [PartitionIndex.unpack(partition, group) for partition in partitions]
    return unpack_run(group, incarnation, truncated_from,
                      GroupIndex.unpack(index) if index is not None else None,
                      {partition.partition: partition for partition in unpacked}, records)
