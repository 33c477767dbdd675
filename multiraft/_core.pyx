# cython: language_level=3, wraparound=False, cdivision=True, binding=True, annotation_typing=False
"""The compiled hot path: the functions and classes of ``_reference``, in Cython.

Contract.  Names, signatures, docstrings, results, exception types and messages equal those of the
reference, which is the specification; ``tests/core`` compares both twins on arbitrary bytes.

Signatures.  Functions and methods are bound as Python's are (``binding``), so ``inspect.signature``
finds parameters, defaults and annotations; annotations type nothing here (``annotation_typing``).
The constructor of an extension class has its signature in the first line of the class docstring,
in the form that CPython's own classes have it.

Layout.  ``core_parts`` holds the parts of this file, one concern each.  The ``include`` lines below
paste them in, so all parts share one C name space and form one extension module.  Constants and
imports that several parts need stand here; structs and C signatures stand in ``_core.pxd``.

Invariants.  Buffers come from outside and may hold any bytes; another thread may even change them
during a call.  Each length field is therefore read once, compared with the bytes that are left, and
only then used.  No pointer outlives the ``Py_buffer`` that it was taken from.  Functions that run
without the interpreter's lock touch no Python object.

Theory.  The interpreter's lock is released for system calls, and for computations over
RELEASE_BYTES and more.  A smaller computation (under 50 us) ends before a waiting thread has woken
up, so releasing the lock would gain nothing; and getting the lock back from a thread that computes
may cost the caller a switch interval (5 ms).
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
cimport libc.errno as c_errno
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

# Annotations name these; typing.get_type_hints looks them up here.
from collections.abc import Iterable, Sequence
from typing import Any

import multiraft.codec.layout as _layout
from multiraft.codec.values import (
    BatchHeader,
    Buffer,
    BytesColumn,
    Checked,
    Columns,
    Header,
    HeadersColumn,
    Indexed,
    PackedIndex,
    Record,
    Scan,
    ScannedEntry,
)
from multiraft.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptEntry,
    InvalidBatch,
    MalformedHeader,
    QueueFull,
    RecordTooLarge,
)
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

__all__ = [
    "SOURCE_DIGEST", "BatchBuilder", "BatchHeader", "BytesColumn", "Checked", "ColumnBuilder",
    "Columns", "DiskQueue", "HeadersColumn", "IndexRowReader", "Indexed", "KeyTable",
    "PackedIndex", "Record", "Scan", "ScannedEntry", "SegmentIndexer",
    "append_gathered", "batch_header", "batch_info", "check_batch", "check_entries",
    "compact_batch", "crc32c",
    "decode_header", "decode_records", "default_groups", "encode_header", "find_entry",
    "find_record", "frame_entries", "join_index_rows", "jump_hash", "keyless_records",
    "murmur2", "parse_entries", "scan_entries", "split_batches",
    "staged_batches", "stamp_append_time", "stamp_batch",
    "stamp_producer", "surviving_marks", "surviving_records",
    "trim_memory", "unset_memory", "verify_batch",
]

cdef extern from *:
    const char *MULTIRAFT_SOURCE_DIGEST

SOURCE_DIGEST = MULTIRAFT_SOURCE_DIGEST.decode("ascii")

cdef enum:
    RELEASE_BYTES = 1048576
    DISK_QUEUE_JOBS_MAX = 1024
    DATA = 1
    LAST_INDEXED = 11
    HARD_STATE = 18
    VOTE_BYTES = 4
    #: Most bytes of a column: its ends are 32-bit numbers.
    COLUMN_BYTES_MAX = 2147483647

cdef int64_t I64_MAX = 0x7FFFFFFFFFFFFFFF
#: The last millisecond whose microseconds fit 64 bits.
cdef int64_t COLUMN_TIMESTAMP_MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000
cdef int64_t TIMESTAMP_MS_MAX = 0x3FFFFFFFFFFFFFFF
#: Producer ids of transactional batches.
cdef int64_t STAGED_PRODUCER_MIN = 0x2000000000000000
cdef int64_t STAGED_PRODUCER_MAX = 0x3FFFFFFFFFFFFFFF

mr_crc32c_choose()


def _assert_layout():
    """Assert that the constants of the .pxd equal those of ``_layout``."""
    for name, number in (
            ("BATCH_BASE_OFFSET_AT", BATCH_BASE_OFFSET_AT), ("BATCH_LENGTH_AT", BATCH_LENGTH_AT),
            ("BATCH_LEADER_EPOCH_AT", BATCH_LEADER_EPOCH_AT), ("BATCH_MAGIC_AT", BATCH_MAGIC_AT),
            ("BATCH_CRC_AT", BATCH_CRC_AT), ("BATCH_ATTRIBUTES_AT", BATCH_ATTRIBUTES_AT),
            ("BATCH_LAST_OFFSET_DELTA_AT", BATCH_LAST_OFFSET_DELTA_AT),
            ("BATCH_BASE_TIMESTAMP_AT", BATCH_BASE_TIMESTAMP_AT),
            ("BATCH_MAX_TIMESTAMP_AT", BATCH_MAX_TIMESTAMP_AT),
            ("BATCH_PRODUCER_ID_AT", BATCH_PRODUCER_ID_AT),
            ("BATCH_PRODUCER_EPOCH_AT", BATCH_PRODUCER_EPOCH_AT),
            ("BATCH_BASE_SEQUENCE_AT", BATCH_BASE_SEQUENCE_AT),
            ("BATCH_RECORDS_COUNT_AT", BATCH_RECORDS_COUNT_AT),
            ("BATCH_HEADER_BYTES", BATCH_HEADER_BYTES),
            ("BATCH_LENGTH_OVERHEAD", BATCH_LENGTH_OVERHEAD), ("BATCH_MAGIC", BATCH_MAGIC),
            ("BATCH_UNCHECKED_BYTES", BATCH_UNCHECKED_BYTES),
            ("BATCH_BYTES_MAX", BATCH_BYTES_MAX), ("BATCH_RECORDS_MAX", BATCH_RECORDS_MAX),
            ("RECORD_HEADERS_MAX", RECORD_HEADERS_MAX),
            ("ATTRIBUTE_CODEC_MASK", ATTRIBUTE_CODEC_MASK),
            ("ATTRIBUTE_LOG_APPEND_TIME", ATTRIBUTE_LOG_APPEND_TIME),
            ("ATTRIBUTE_TRANSACTIONAL", ATTRIBUTE_TRANSACTIONAL),
            ("STAGED_PRODUCER_MIN", STAGED_PRODUCER_MIN),
            ("STAGED_PRODUCER_MAX", STAGED_PRODUCER_MAX), ("CODEC_NONE", CODEC_NONE),
            ("CODEC_ZSTD", CODEC_ZSTD), ("ENTRY_LENGTH_AT", ENTRY_LENGTH_AT),
            ("ENTRY_CRC_AT", ENTRY_CRC_AT), ("ENTRY_PREV_CRC_AT", ENTRY_PREV_CRC_AT),
            ("ENTRY_KIND_AT", ENTRY_KIND_AT), ("ENTRY_FLAGS_AT", ENTRY_FLAGS_AT),
            ("ENTRY_RESERVED_AT", ENTRY_RESERVED_AT), ("ENTRY_GROUP_AT", ENTRY_GROUP_AT),
            ("ENTRY_INCARNATION_AT", ENTRY_INCARNATION_AT), ("ENTRY_TERM_AT", ENTRY_TERM_AT),
            ("ENTRY_INDEX_AT", ENTRY_INDEX_AT), ("ENTRY_PARTITION_AT", ENTRY_PARTITION_AT),
            ("ENTRY_BASE_OFFSET_AT", ENTRY_BASE_OFFSET_AT),
            ("ENTRY_DURABLE_AT", ENTRY_DURABLE_AT), ("ENTRY_HEADER_BYTES", ENTRY_HEADER_BYTES),
            ("ENTRY_ALIGNMENT", ENTRY_ALIGNMENT), ("ENTRY_BYTES_MAX", ENTRY_BYTES_MAX),
            ("HEADER_DEPTH_MAX", HEADER_DEPTH_MAX),
            ("HEADER_CONTAINERS_MAX", HEADER_CONTAINERS_MAX),
            ("INDEX_BLOCK_BYTES", MR_BLOCK_BYTES), ("INDEX_ENTRIES", MR_ENTRY_BLOCKS),
            ("INDEX_BATCHES", MR_BATCH_BLOCKS), ("INDEX_ENTRY_ROW_BYTES", MR_ENTRY_ROW_BYTES),
            ("INDEX_BATCH_ROW_BYTES", MR_BATCH_ROW_BYTES), ("INDEX_PART_BYTES", MR_PART_BYTES),
            ("INDEX_PARTITION_BYTES", MR_PARTITION_BYTES)):
        assert number == getattr(_layout, name), f"_core.pxd has {name}={number}"
    assert DATA == EntryKind.DATA and HARD_STATE == EntryKind.HARD_STATE
    assert LAST_INDEXED == LAST_INDEXED_KIND


_assert_layout()

#: EntryKind of each kind byte, None for an unknown one.
cdef list _KINDS = [None] * 256
#: 1 for each known kind byte, for code that runs without the interpreter's lock.
cdef uint8_t _kind_known[256]
for _kind in EntryKind:
    _KINDS[int(_kind)] = _kind
    _kind_known[<uint8_t>int(_kind)] = 1

cdef tuple _PADDING = tuple(bytes(length) for length in range(ENTRY_ALIGNMENT))

include "core_parts/hashes.pxi"
include "core_parts/record_walk.pxi"
include "core_parts/batch_builder.pxi"
include "core_parts/batches.pxi"
include "core_parts/key_table.pxi"
include "core_parts/columns.pxi"
include "core_parts/entries.pxi"
include "core_parts/segment_scan.pxi"
include "core_parts/segment_indexer.pxi"
include "core_parts/index_rows.pxi"
include "core_parts/frame_headers.pxi"
include "core_parts/disk.pxi"
