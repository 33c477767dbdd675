# cython: language_level=3, wraparound=False, cdivision=True, binding=True, annotation_typing=False
"""The compiled codec of the messages that every append and every read has: Produce, Fetch,
ListOffsets, Metadata, and the header of requests.

Contract.  Classes have the names and fields of those in ``multiraft.kafka.messages``; their fields
have C types, so a number that is too large is refused when it is assigned.  ``decode`` and
``encode`` do what the generic codec does, with equal bytes and errors; tests/kafka compares both.

Invariants.  Bytes come from a network.  Each length is compared with the bytes that are left, and
only then used; no pointer outlives the ``Py_buffer`` that it was taken from.

Layout.  ``codec_parts`` holds the parts of this file: ``reader.pxi`` and ``writer.pxi``, and what
``tools/kafka_messages`` generates.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from multiraft.kafka import schema as _schema
from multiraft.kafka.errors import (
    Problem as _Problem,
    frame_error,
    long_text,
    missing_field,
    null_field,
    wrong_length,
)

cdef extern from *:
    const char *MULTIRAFT_SOURCE_DIGEST

cdef extern from "../_bytes.h":
    uint16_t mr_load_be16(const uint8_t *data) noexcept
    uint32_t mr_load_be32(const uint8_t *data) noexcept
    uint64_t mr_load_be64(const uint8_t *data) noexcept
    void mr_store_be16(uint8_t *to, uint16_t number) noexcept
    void mr_store_be32(uint8_t *to, uint32_t number) noexcept
    void mr_store_be64(uint8_t *to, uint64_t number) noexcept
    int mr_varint_bytes(uint64_t number) noexcept
    uint8_t *mr_store_varint(uint8_t *to, uint64_t number) noexcept

SOURCE_DIGEST = MULTIRAFT_SOURCE_DIGEST.decode("ascii")

cdef object _UNSET = object()
cdef bytes _ZERO_UUID = bytes(16)


cdef class _Struct:
    """Base of all structs: comparison and text by their fields."""

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __repr__(self):
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        name = type(self).__name__.replace("_", ".", 1)  # that of the class in Python
        return f"{name}({fields})"


include "codec_parts/reader.pxi"
include "codec_parts/writer.pxi"
include "codec_parts/request_header.pxi"
include "codec_parts/produce_request.pxi"
include "codec_parts/produce_response.pxi"
include "codec_parts/fetch_request.pxi"
include "codec_parts/fetch_response.pxi"
include "codec_parts/list_offsets_request.pxi"
include "codec_parts/list_offsets_response.pxi"
include "codec_parts/metadata_request.pxi"
include "codec_parts/metadata_response.pxi"
include "codec_parts/numbers.pxi"


def _assert_limits():
    """Assert that constants equal those of the generic codec."""
    assert TEXT_LIMIT == _schema.TEXT_BYTES_MAX and UUID_SIZE == _schema.UUID_BYTES
    assert [SHORT, IS_NULL, NEGATIVE, LONG_TEXT, COUNT, ELEMENTS, NOT_UTF8, VARINT,
            TAG_SIZE] == list(_Problem)


_assert_limits()


def decode(str name, data, int64_t at, int version, int64_t elements_max):
    """Read the message of that name that begins at byte ``at`` of a frame.

    Returns the message and the byte behind it.  Records are views of ``data``.  O(bytes).  Raises
    ``KafkaFrameError``.
    """
    cdef Py_buffer view
    cdef Reader r
    cdef ReadElement read = _READ[<int>NUMBERS[name]]
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    r.data = <const uint8_t *>view.buf
    r.at = at
    r.end = view.len
    r.elements_left = elements_max
    r.frame = <PyObject *>data
    r.view = NULL
    r.problem = 0
    try:
        assert 0 <= at <= view.len
        value = read(&r, version, b"")
    finally:
        PyBuffer_Release(&view)
        Py_XDECREF(r.view)
    if r.problem:
        raise frame_error(r.problem, r.what.decode("ascii"), r.problem_at, r.a, r.b)
    return value, r.at


def encode(str name, value, int version, bytes before):
    """Return the bytes of ``before`` and of the message of that name as buffers, in order.

    Records are in the list as they were given.  O(bytes that are no records).  Raises
    ``UnencodableMessage``.
    """
    cdef Writer w
    cdef WriteElement write = _WRITE[<int>NUMBERS[name]]
    cdef list records = []
    w.data = <uint8_t *>PyMem_Malloc(ROOM_BYTES)
    if w.data == NULL:
        raise MemoryError
    w.used = 0
    w.room = ROOM_BYTES
    w.out_of_memory = False
    w.records = <PyObject *>records
    try:
        put_raw(&w, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
        write(&w, value, version, name)
        if w.out_of_memory:
            raise MemoryError
        return buffers_of(&w)
    finally:
        PyMem_Free(w.data)
