# ListOffsetsRequest.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class ListOffsetsRequest_ListOffsetsPartition(_Struct):
    """Element of ``ListOffsetsTopic.partitions``."""

    cdef public int32_t partition_index
    cdef public int32_t current_leader_epoch
    cdef public int64_t timestamp
    FIELDS = ("partition_index", "current_leader_epoch", "timestamp")

    def __init__(
        self,
        *,
        int32_t partition_index=0,
        int32_t current_leader_epoch=-1,
        int64_t timestamp=0,
    ):
        self.partition_index = partition_index
        self.current_leader_epoch = current_leader_epoch
        self.timestamp = timestamp


@cython.final
cdef class ListOffsetsRequest_ListOffsetsTopic(_Struct):
    """Element of ``ListOffsetsRequest.topics``."""

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
cdef class ListOffsetsRequest(_Struct):
    """ListOffsetsRequest of Kafka 4.4.0."""

    cdef public int32_t replica_id
    cdef public int8_t isolation_level
    cdef public list topics
    cdef public int32_t timeout_ms
    FIELDS = ("replica_id", "isolation_level", "topics", "timeout_ms")
    ListOffsetsPartition = ListOffsetsRequest_ListOffsetsPartition
    ListOffsetsTopic = ListOffsetsRequest_ListOffsetsTopic

    def __init__(
        self,
        *,
        int32_t replica_id=0,
        int8_t isolation_level=0,
        object topics=_UNSET,
        int32_t timeout_ms=0,
    ):
        self.replica_id = replica_id
        self.isolation_level = isolation_level
        if topics is _UNSET:
            topics = []
        self.topics = topics
        self.timeout_ms = timeout_ms


cdef object read_ListOffsetsRequest_ListOffsetsPartition(Reader *r, int version, const char *what):
    cdef ListOffsetsRequest_ListOffsetsPartition to
    cdef int64_t end, tag, count
    to = ListOffsetsRequest_ListOffsetsPartition.__new__(ListOffsetsRequest_ListOffsetsPartition)
    to.partition_index = get_int32(r, b"ListOffsetsPartition.partition_index")
    if version >= 4:
        to.current_leader_epoch = get_int32(r, b"ListOffsetsPartition.current_leader_epoch")
    else:
        to.current_leader_epoch = -1
    to.timestamp = get_int64(r, b"ListOffsetsPartition.timestamp")
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsPartition.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsPartition.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ListOffsetsRequest_ListOffsetsTopic(Reader *r, int version, const char *what):
    cdef ListOffsetsRequest_ListOffsetsTopic to
    cdef int64_t end, tag, count
    to = ListOffsetsRequest_ListOffsetsTopic.__new__(ListOffsetsRequest_ListOffsetsTopic)
    to.name = get_string(r, False, version >= 6, b"ListOffsetsTopic.name")
    to.partitions = get_array(r, read_ListOffsetsRequest_ListOffsetsPartition, version, False,
            version >= 6, b"ListOffsetsTopic.partitions")
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsTopic.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsTopic.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ListOffsetsRequest(Reader *r, int version, const char *what):
    cdef ListOffsetsRequest to
    cdef int64_t end, tag, count
    to = ListOffsetsRequest.__new__(ListOffsetsRequest)
    to.replica_id = get_int32(r, b"ListOffsetsRequest.replica_id")
    if version >= 2:
        to.isolation_level = get_int8(r, b"ListOffsetsRequest.isolation_level")
    else:
        to.isolation_level = 0
    to.topics = get_array(r, read_ListOffsetsRequest_ListOffsetsTopic, version, False, version >= 6,
            b"ListOffsetsRequest.topics")
    if version >= 10:
        to.timeout_ms = get_int32(r, b"ListOffsetsRequest.timeout_ms")
    else:
        to.timeout_ms = 0
    if version >= 6:
        count = get_tag_count(r, b"ListOffsetsRequest.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ListOffsetsRequest.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_ListOffsetsRequest_ListOffsetsPartition(Writer *w, object given, int version,
        str what) except -1:
    cdef ListOffsetsRequest_ListOffsetsPartition v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsRequest_ListOffsetsPartition?>given
    put_int32(w, v.partition_index)
    if version >= 4:
        put_int32(w, v.current_leader_epoch)
    put_int64(w, v.timestamp)
    if version >= 6:
        put_varint(w, 0)
    return 0


cdef int write_ListOffsetsRequest_ListOffsetsTopic(Writer *w, object given, int version,
        str what) except -1:
    cdef ListOffsetsRequest_ListOffsetsTopic v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsRequest_ListOffsetsTopic?>given
    put_string(w, v.name, False, version >= 6, "ListOffsetsTopic.name")
    put_array(w, v.partitions, write_ListOffsetsRequest_ListOffsetsPartition, version, False,
            version >= 6, "ListOffsetsTopic.partitions")
    if version >= 6:
        put_varint(w, 0)
    return 0


cdef int write_ListOffsetsRequest(Writer *w, object given, int version, str what) except -1:
    cdef ListOffsetsRequest v
    if given is None:
        raise null_field(what)
    v = <ListOffsetsRequest?>given
    if (version < 2) and (v.isolation_level != 0):
        raise missing_field("ListOffsetsRequest.isolation_level", version)
    put_int32(w, v.replica_id)
    if version >= 2:
        put_int8(w, v.isolation_level)
    put_array(w, v.topics, write_ListOffsetsRequest_ListOffsetsTopic, version, False, version >= 6,
            "ListOffsetsRequest.topics")
    if version >= 10:
        put_int32(w, v.timeout_ms)
    if version >= 6:
        put_varint(w, 0)
    return 0
