# RequestHeader.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class RequestHeader(_Struct):
    """RequestHeader of Kafka 4.4.0."""

    cdef public int16_t request_api_key
    cdef public int16_t request_api_version
    cdef public int32_t correlation_id
    cdef public str client_id
    FIELDS = ("request_api_key", "request_api_version", "correlation_id", "client_id")

    def __init__(
        self,
        *,
        int16_t request_api_key=0,
        int16_t request_api_version=0,
        int32_t correlation_id=0,
        str client_id="",
    ):
        self.request_api_key = request_api_key
        self.request_api_version = request_api_version
        self.correlation_id = correlation_id
        self.client_id = client_id


cdef object read_RequestHeader(Reader *r, int version, const char *what):
    cdef RequestHeader to
    cdef int64_t end, tag, count
    to = RequestHeader.__new__(RequestHeader)
    to.request_api_key = get_int16(r, b"RequestHeader.request_api_key")
    to.request_api_version = get_int16(r, b"RequestHeader.request_api_version")
    to.correlation_id = get_int32(r, b"RequestHeader.correlation_id")
    to.client_id = get_string(r, True, False, b"RequestHeader.client_id")
    if version >= 2:
        count = get_tag_count(r, b"RequestHeader.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"RequestHeader.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_RequestHeader(Writer *w, object given, int version, str what) except -1:
    cdef RequestHeader v
    if given is None:
        raise null_field(what)
    v = <RequestHeader?>given
    put_int16(w, v.request_api_key)
    put_int16(w, v.request_api_version)
    put_int32(w, v.correlation_id)
    put_string(w, v.client_id, True, False, "RequestHeader.client_id")
    if version >= 2:
        put_varint(w, 0)
    return 0
