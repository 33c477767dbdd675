# ListOffsetsResponse.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class ListOffsetsResponse_ListOffsetsPartitionResponse(_Struct):
    """Element of ``ListOffsetsTopicResponse.partitions``."""

    cdef public int32_t partition_index
    cdef public int16_t error_code
    cdef public int64_t timestamp
    cdef public int64_t offset
    cdef public int32_t leader_epoch
    FIELDS = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")

    def __init__(
        self,
        *,
        int32_t partition_index=0,
        int16_t error_code=0,
        int64_t timestamp=-1,
        int64_t offset=-1,
        int32_t leader_epoch=-1,
    ):
        self.partition_index = partition_index
        self.error_code = error_code
        self.timestamp = timestamp
        self.offset = offset
        self.leader_epoch = leader_epoch


@cython.final
cdef class ListOffsetsResponse_ListOffsetsTopicResponse(_Struct):
    """Element of ``ListOffsetsResponse.topics``."""

    cdef public str name
    cdef public list partitions
    FIELDS = ("name", "partitions")

    def __init__(
        self,
        *,
        str name="",
        object partitions=_UNSET,
    ):
        self.name = name
        if partitions is _UNSET:
            partitions = []
        self.partitions = partitions


@cython.final
cdef class ListOffsetsResponse(_Struct):
    """ListOffsetsResponse of Kafka 4.4.0."""

    cdef public int32_t throttle_time_ms
    cdef public list topics
    FIELDS = ("throttle_time_ms", "topics")
    ListOffsetsPartitionResponse = ListOffsetsResponse_ListOffsetsPartitionResponse
    ListOffsetsTopicResponse = ListOffsetsResponse_ListOffsetsTopicResponse

    def __init__(
        self,
        *,
        int32_t throttle_time_ms=0,
        object topics=_UNSET,
    ):
        self.throttle_time_ms = throttle_time_ms
        if topics is _UNSET:
            topics = []
        self.topics = topics


cdef object read_ListOffsetsResponse_ListOffsetsPartitionResponse(Reader *r, int version,
        const char *what):
    cdef ListOffsetsResponse_ListOffsetsPartitionResponse to
    cdef int64_t end, tag, count
    to = ListOffsetsResponse_ListOffsetsPartitionResponse.__new__(
            ListOffsetsResponse_ListOffsetsPartitionResponse)
    to.partition_index = get_int32(r, b"ListOffsetsPartitionResponse.partition_index")
    to.error_code = get_int16(r, b"ListOffsetsPartitionResponse.error_code")
    to.timestamp = get_int64(r, b"ListOffsetsPartitionResponse.timestamp")
    to.offset = get_int64(r, b"ListOffsetsPartitionResponse.offset")
    if version >= 4:
        to.leader_epoch = get_int32(r, b"ListOffsetsPartitionResponse.leader_epoch")
    else:
        to.leader_epoch = -1
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsPartitionResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsPartitionResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ListOffsetsResponse_ListOffsetsTopicResponse(Reader *r, int version,
        const char *what):
    cdef ListOffsetsResponse_ListOffsetsTopicResponse to
    cdef int64_t end, tag, count
    to = ListOffsetsResponse_ListOffsetsTopicResponse.__new__(
            ListOffsetsResponse_ListOffsetsTopicResponse)
    to.name = get_string(r, False, version >= 6, b"ListOffsetsTopicResponse.name")
    to.partitions = get_array(r, read_ListOffsetsResponse_ListOffsetsPartitionResponse, version,
            False, version >= 6, b"ListOffsetsTopicResponse.partitions")
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsTopicResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsTopicResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ListOffsetsResponse(Reader *r, int version, const char *what):
    cdef ListOffsetsResponse to
    cdef int64_t end, tag, count
    to = ListOffsetsResponse.__new__(ListOffsetsResponse)
    if version >= 2:
        to.throttle_time_ms = get_int32(r, b"ListOffsetsResponse.throttle_time_ms")
    else:
        to.throttle_time_ms = 0
    to.topics = get_array(r, read_ListOffsetsResponse_ListOffsetsTopicResponse, version, False,
            version >= 6, b"ListOffsetsResponse.topics")
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_ListOffsetsResponse_ListOffsetsPartitionResponse(Writer *w, object given,
        int version, str what) except -1:
    cdef ListOffsetsResponse_ListOffsetsPartitionResponse v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsResponse_ListOffsetsPartitionResponse?>given
    if (version < 4) and (v.leader_epoch != -1):
        raise missing_field("ListOffsetsPartitionResponse.leader_epoch", version)
    put_int32(w, v.partition_index)
    put_int16(w, v.error_code)
    put_int64(w, v.timestamp)
    put_int64(w, v.offset)
    if version >= 4:
        put_int32(w, v.leader_epoch)
    if version >= 6:
        put_varint(w, 0)
    return 0


cdef int write_ListOffsetsResponse_ListOffsetsTopicResponse(Writer *w, object given, int version,
        str what) except -1:
    cdef ListOffsetsResponse_ListOffsetsTopicResponse v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsResponse_ListOffsetsTopicResponse?>given
    put_string(w, v.name, False, version >= 6, "ListOffsetsTopicResponse.name")
    put_array(w, v.partitions, write_ListOffsetsResponse_ListOffsetsPartitionResponse, version,
            False, version >= 6, "ListOffsetsTopicResponse.partitions")
    if version >= 6:
        put_varint(w, 0)
    return 0


cdef int write_ListOffsetsResponse(Writer *w, object given, int version, str what) except -1:
    cdef ListOffsetsResponse v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsResponse?>given
    if version >= 2:
        put_int32(w, v.throttle_time_ms)
    put_array(w, v.topics, write_ListOffsetsResponse_ListOffsetsTopicResponse, version, False,
            version >= 6, "ListOffsetsResponse.topics")
    if version >= 6:
        put_varint(w, 0)
    return 0
