# ProduceRequest.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class ProduceRequest_PartitionProduceData(_Struct):
    """Element of ``TopicProduceData.partition_data``."""

    cdef public int32_t index
    cdef public object records
    FIELDS = ("index", "records")

    def __init__(
        self,
        *,
        int32_t index=0,
        object records=None,
    ):
        self.index = index
        self.records = records


@cython.final
cdef class ProduceRequest_TopicProduceData(_Struct):
    """Element of ``ProduceRequest.topic_data``."""

    cdef public str name
    cdef public bytes topic_id
    cdef public list partition_data
    FIELDS = ("name", "topic_id", "partition_data")

    def __init__(
        self,
        *,
        str name="",
        bytes topic_id=_ZERO_UUID,
        object partition_data=_UNSET,
    ):
        self.name = name
        self.topic_id = topic_id
        if partition_data is _UNSET:
            partition_data = []
        self.partition_data = partition_data


@cython.final
cdef class ProduceRequest(_Struct):
    """ProduceRequest of Kafka 4.4.0."""

    cdef public str transactional_id
    cdef public int16_t acks
    cdef public int32_t timeout_ms
    cdef public list topic_data
    FIELDS = ("transactional_id", "acks", "timeout_ms", "topic_data")
    PartitionProduceData = ProduceRequest_PartitionProduceData
    TopicProduceData = ProduceRequest_TopicProduceData

    def __init__(
        self,
        *,
        str transactional_id=None,
        int16_t acks=0,
        int32_t timeout_ms=0,
        object topic_data=_UNSET,
    ):
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        if topic_data is _UNSET:
            topic_data = []
        self.topic_data = topic_data


cdef object read_ProduceRequest_PartitionProduceData(Reader *r, int version, const char *what):
    cdef ProduceRequest_PartitionProduceData to
    cdef int64_t end, tag, count
    to = ProduceRequest_PartitionProduceData.__new__(ProduceRequest_PartitionProduceData)
    to.index = get_int32(r, b"PartitionProduceData.index")
    to.records = get_record_buffer(r, True, version >= 9, b"PartitionProduceData.records")
    if version >= 9:
        count = get_tag_count(r, b"PartitionProduceData.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"PartitionProduceData.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceRequest_TopicProduceData(Reader *r, int version, const char *what):
    cdef ProduceRequest_TopicProduceData to
    cdef int64_t end, tag, count
    to = ProduceRequest_TopicProduceData.__new__(ProduceRequest_TopicProduceData)
    if version <= 12:
        to.name = get_string(r, False, version >= 9, b"TopicProduceData.name")
    else:
        to.name = ""
    if version >= 13:
        to.topic_id = get_uuid(r, b"TopicProduceData.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    to.partition_data = get_array(r, read_ProduceRequest_PartitionProduceData, version, False,
            version >= 9, b"TopicProduceData.partition_data")
    if version >= 9:
        count = get_tag_count(r, b"TopicProduceData.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"TopicProduceData.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceRequest(Reader *r, int version, const char *what):
    cdef ProduceRequest to
    cdef int64_t end, tag, count
    to = ProduceRequest.__new__(ProduceRequest)
    to.transactional_id = get_string(r, True, version >= 9, b"ProduceRequest.transactional_id")
    to.acks = get_int16(r, b"ProduceRequest.acks")
    to.timeout_ms = get_int32(r, b"ProduceRequest.timeout_ms")
    to.topic_data = get_array(r, read_ProduceRequest_TopicProduceData, version, False, version >= 9,
            b"ProduceRequest.topic_data")
    if version >= 9:
        count = get_tag_count(r, b"ProduceRequest.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ProduceRequest.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_ProduceRequest_PartitionProduceData(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceRequest_PartitionProduceData v
    if given is None:
        raise null_field(what)
    v = <ProduceRequest_PartitionProduceData?>given
    put_int32(w, v.index)
    put_record_buffer(w, v.records, True, version >= 9, "PartitionProduceData.records")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceRequest_TopicProduceData(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceRequest_TopicProduceData v
    if given is None:
        raise null_field(what)
    v = <ProduceRequest_TopicProduceData?>given
    if version <= 12:
        put_string(w, v.name, False, version >= 9, "TopicProduceData.name")
    if version >= 13:
        put_uuid(w, v.topic_id, "TopicProduceData.topic_id")
    put_array(w, v.partition_data, write_ProduceRequest_PartitionProduceData, version, False,
            version >= 9, "TopicProduceData.partition_data")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceRequest(Writer *w, object given, int version, str what) except -1:
    cdef ProduceRequest v
    if given is None:
        raise null_field(what)
    v = <ProduceRequest?>given
    put_string(w, v.transactional_id, True, version >= 9, "ProduceRequest.transactional_id")
    put_int16(w, v.acks)
    put_int32(w, v.timeout_ms)
    put_array(w, v.topic_data, write_ProduceRequest_TopicProduceData, version, False, version >= 9,
            "ProduceRequest.topic_data")
    if version >= 9:
        put_varint(w, 0)
    return 0
