/* Unaligned big- and little-endian fields, and named tuples built without their constructor. */
#ifndef MULTIRAFT_BYTES_H
#define MULTIRAFT_BYTES_H

#include <Python.h>
#include <endian.h>
#include <stdint.h>
#include <string.h>

#define MR_FIELD(bits)                                                                            \
    static inline uint##bits##_t mr_load_be##bits(const uint8_t *from) {                          \
        uint##bits##_t raw;                                                                       \
        memcpy(&raw, from, sizeof raw);                                                           \
        return be##bits##toh(raw);                                                                \
    }                                                                                             \
    static inline uint##bits##_t mr_load_le##bits(const uint8_t *from) {                          \
        uint##bits##_t raw;                                                                       \
        memcpy(&raw, from, sizeof raw);                                                           \
        return le##bits##toh(raw);                                                                \
    }                                                                                             \
    static inline void mr_store_be##bits(uint8_t *to, uint##bits##_t number) {                    \
        number = htobe##bits(number);                                                             \
        memcpy(to, &number, sizeof number);                                                       \
    }                                                                                             \
    static inline void mr_store_le##bits(uint8_t *to, uint##bits##_t number) {                    \
        number = htole##bits(number);                                                             \
        memcpy(to, &number, sizeof number);                                                       \
    }

MR_FIELD(16)
MR_FIELD(32)
MR_FIELD(64)

/* Bytes of an unsigned varint. */
static inline int mr_varint_bytes(uint64_t number) {
    return (63 - __builtin_clzll(number | 1)) / 7 + 1;
}

static inline uint8_t *mr_store_varint(uint8_t *to, uint64_t number) {
    while (number >= 0x80) {
        *to++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *to++ = (uint8_t)number;
    return to;
}

/* An instance of a NamedTuple class from a tuple of its fields: what tuple.__new__ does, without
 * the Python function in front of it.  Untracked from the garbage collector, because the fields
 * are numbers, bytes and tuples of them, which can never form a cycle; a consumer may hold
 * millions of these. */
static inline PyObject *mr_named(PyObject *cls, PyObject *fields) {
    PyTypeObject *type = (PyTypeObject *)cls;
    Py_ssize_t count = PyTuple_GET_SIZE(fields);
    PyObject *made = type->tp_alloc(type, count);
    if (made == NULL) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *field = PyTuple_GET_ITEM(fields, at);
        Py_INCREF(field);
        PyTuple_SET_ITEM(made, at, field);
    }
    PyObject_GC_UnTrack(made);
    return made;
}

#endif
