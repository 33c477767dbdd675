# FetchRequest.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class FetchRequest_ReplicaState(_Struct):
    """Element of ``FetchRequest.replica_state``."""

    cdef public int32_t replica_id
    cdef public int64_t replica_epoch
    FIELDS = ("replica_id", "replica_epoch")

    def __init__(
        self,
        *,
        int32_t replica_id=-1,
        int64_t replica_epoch=-1,
    ):
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch


@cython.final
cdef class FetchRequest_FetchPartition(_Struct):
    """Element of ``FetchTopic.partitions``."""

    cdef public int32_t partition
    cdef public int32_t current_leader_epoch
    cdef public int64_t fetch_offset
    cdef public int32_t last_fetched_epoch
    cdef public int64_t log_start_offset
    cdef public int32_t partition_max_bytes
    cdef public bytes replica_directory_id
    cdef public int64_t high_watermark
    FIELDS = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch",
            "log_start_offset", "partition_max_bytes", "replica_directory_id", "high_watermark")

    def __init__(
        self,
        *,
        int32_t partition=0,
        int32_t current_leader_epoch=-1,
        int64_t fetch_offset=0,
        int32_t last_fetched_epoch=-1,
        int64_t log_start_offset=-1,
        int32_t partition_max_bytes=0,
        bytes replica_directory_id=_ZERO_UUID,
        int64_t high_watermark=9223372036854775807,
    ):
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.fetch_offset = fetch_offset
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.partition_max_bytes = partition_max_bytes
        self.replica_directory_id = replica_directory_id
        self.high_watermark = high_watermark


@cython.final
cdef class FetchRequest_FetchTopic(_Struct):
    """Element of ``FetchRequest.topics``."""

    cdef public str topic
    cdef public bytes topic_id
    cdef public list partitions
    FIELDS = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        str topic="",
        bytes topic_id=_ZERO_UUID,
        object partitions=_UNSET,
    ):
        self.topic = topic
        self.topic_id = topic_id
        if partitions is _UNSET:
            partitions = []
        self.partitions = partitions


@cython.final
cdef class FetchRequest_ForgottenTopic(_Struct):
    """Element of ``FetchRequest.forgotten_topics_data``."""

    cdef public str topic
    cdef public bytes topic_id
    cdef public list partitions
    FIELDS = ("topic", "topic_id", "partitions")

    def __init__(
        self,
        *,
        str topic="",
        bytes topic_id=_ZERO_UUID,
        object partitions=_UNSET,
    ):
        self.topic = topic
        self.topic_id = topic_id
        if partitions is _UNSET:
            partitions = []
        self.partitions = partitions


@cython.final
cdef class FetchRequest(_Struct):
    """FetchRequest of Kafka 4.4.0."""

    cdef public str cluster_id
    cdef public int32_t replica_id
    cdef public FetchRequest_ReplicaState replica_state
    cdef public int32_t max_wait_ms
    cdef public int32_t min_bytes
    cdef public int32_t max_bytes
    cdef public int8_t isolation_level
    cdef public int32_t session_id
    cdef public int32_t session_epoch
    cdef public list topics
    cdef public list forgotten_topics_data
    cdef public str rack_id
    FIELDS = ("cluster_id", "replica_id", "replica_state", "max_wait_ms", "min_bytes", "max_bytes",
            "isolation_level", "session_id", "session_epoch", "topics", "forgotten_topics_data",
            "rack_id")
    ReplicaState = FetchRequest_ReplicaState
    FetchPartition = FetchRequest_FetchPartition
    FetchTopic = FetchRequest_FetchTopic
    ForgottenTopic = FetchRequest_ForgottenTopic

    def __init__(
        self,
        *,
        str cluster_id=None,
        int32_t replica_id=-1,
        object replica_state=_UNSET,
        int32_t max_wait_ms=0,
        int32_t min_bytes=0,
        int32_t max_bytes=2147483647,
        int8_t isolation_level=0,
        int32_t session_id=0,
        int32_t session_epoch=-1,
        object topics=_UNSET,
        object forgotten_topics_data=_UNSET,
        str rack_id="",
    ):
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        if replica_state is _UNSET:
            replica_state = FetchRequest_ReplicaState()
        self.replica_state = replica_state
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation_level = isolation_level
        self.session_id = session_id
        self.session_epoch = session_epoch
        if topics is _UNSET:
            topics = []
        self.topics = topics
        if forgotten_topics_data is _UNSET:
            forgotten_topics_data = []
        self.forgotten_topics_data = forgotten_topics_data
        self.rack_id = rack_id


cdef object read_FetchRequest_ReplicaState(Reader *r, int version, const char *what):
    cdef FetchRequest_ReplicaState to
    cdef int64_t end, tag, count
    to = FetchRequest_ReplicaState.__new__(FetchRequest_ReplicaState)
    if version >= 15:
        to.replica_id = get_int32(r, b"ReplicaState.replica_id")
    else:
        to.replica_id = -1
    if version >= 15:
        to.replica_epoch = get_int64(r, b"ReplicaState.replica_epoch")
    else:
        to.replica_epoch = -1
    if version >= 12:
        count = get_tag_count(r, b"ReplicaState.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ReplicaState.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchRequest_FetchPartition(Reader *r, int version, const char *what):
    cdef FetchRequest_FetchPartition to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = FetchRequest_FetchPartition.__new__(FetchRequest_FetchPartition)
    to.partition = get_int32(r, b"FetchPartition.partition")
    if version >= 9:
        to.current_leader_epoch = get_int32(r, b"FetchPartition.current_leader_epoch")
    else:
        to.current_leader_epoch = -1
    to.fetch_offset = get_int64(r, b"FetchPartition.fetch_offset")
    if version >= 12:
        to.last_fetched_epoch = get_int32(r, b"FetchPartition.last_fetched_epoch")
    else:
        to.last_fetched_epoch = -1
    if version >= 5:
        to.log_start_offset = get_int64(r, b"FetchPartition.log_start_offset")
    else:
        to.log_start_offset = -1
    to.partition_max_bytes = get_int32(r, b"FetchPartition.partition_max_bytes")
    to.replica_directory_id = _ZERO_UUID
    to.high_watermark = 9223372036854775807
    if version >= 12:
        count = get_tag_count(r, b"FetchPartition.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"FetchPartition.tags")
            begin = r.at
            if tag == 0 and version >= 17:
                to.replica_directory_id = get_uuid(r, b"FetchPartition.replica_directory_id")
                end_tag(r, begin, end, b"FetchPartition.replica_directory_id")
            elif tag == 1 and version >= 18:
                to.high_watermark = get_int64(r, b"FetchPartition.high_watermark")
                end_tag(r, begin, end, b"FetchPartition.high_watermark")
            elif tag >= 0:
                r.at = end
    return to


cdef object read_FetchRequest_FetchTopic(Reader *r, int version, const char *what):
    cdef FetchRequest_FetchTopic to
    cdef int64_t end, tag, count
    to = FetchRequest_FetchTopic.__new__(FetchRequest_FetchTopic)
    if version <= 12:
        to.topic = get_string(r, False, version >= 12, b"FetchTopic.topic")
    else:
        to.topic = ""
    if version >= 13:
        to.topic_id = get_uuid(r, b"FetchTopic.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    to.partitions = get_array(r, read_FetchRequest_FetchPartition, version, False, version >= 12,
            b"FetchTopic.partitions")
    if version >= 12:
        count = get_tag_count(r, b"FetchTopic.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"FetchTopic.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchRequest_ForgottenTopic(Reader *r, int version, const char *what):
    cdef FetchRequest_ForgottenTopic to
    cdef int64_t end, tag, count
    to = FetchRequest_ForgottenTopic.__new__(FetchRequest_ForgottenTopic)
    if 7 <= version <= 12:
        to.topic = get_string(r, False, version >= 12, b"ForgottenTopic.topic")
    else:
        to.topic = ""
    if version >= 13:
        to.topic_id = get_uuid(r, b"ForgottenTopic.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    if version >= 7:
        to.partitions = get_array(r, element_int32, version, False, version >= 12,
                b"ForgottenTopic.partitions")
    else:
        to.partitions = []
    if version >= 12:
        count = get_tag_count(r, b"ForgottenTopic.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ForgottenTopic.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchRequest(Reader *r, int version, const char *what):
    cdef FetchRequest to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = FetchRequest.__new__(FetchRequest)
    to.cluster_id = None
    if version <= 14:
        to.replica_id = get_int32(r, b"FetchRequest.replica_id")
    else:
        to.replica_id = -1
    to.replica_state = FetchRequest_ReplicaState()
    to.max_wait_ms = get_int32(r, b"FetchRequest.max_wait_ms")
    to.min_bytes = get_int32(r, b"FetchRequest.min_bytes")
    to.max_bytes = get_int32(r, b"FetchRequest.max_bytes")
    to.isolation_level = get_int8(r, b"FetchRequest.isolation_level")
    if version >= 7:
        to.session_id = get_int32(r, b"FetchRequest.session_id")
    else:
        to.session_id = 0
    if version >= 7:
        to.session_epoch = get_int32(r, b"FetchRequest.session_epoch")
    else:
        to.session_epoch = -1
    to.topics = get_array(r, read_FetchRequest_FetchTopic, version, False, version >= 12,
            b"FetchRequest.topics")
    if version >= 7:
        to.forgotten_topics_data = get_array(r, read_FetchRequest_ForgottenTopic, version, False,
                version >= 12, b"FetchRequest.forgotten_topics_data")
    else:
        to.forgotten_topics_data = []
    if version >= 11:
        to.rack_id = get_string(r, False, version >= 12, b"FetchRequest.rack_id")
    else:
        to.rack_id = ""
    if version >= 12:
        count = get_tag_count(r, b"FetchRequest.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"FetchRequest.tags")
            begin = r.at
            if tag == 0:
                to.cluster_id = get_string(r, version >= 12, version >= 12,
                        b"FetchRequest.cluster_id")
                end_tag(r, begin, end, b"FetchRequest.cluster_id")
            elif tag == 1 and version >= 15:
                to.replica_state = <FetchRequest_ReplicaState>(read_FetchRequest_ReplicaState(r,
                        version, b"FetchRequest.replica_state"))
                end_tag(r, begin, end, b"FetchRequest.replica_state")
            elif tag >= 0:
                r.at = end
    return to


cdef bint is_default_FetchRequest_ReplicaState(FetchRequest_ReplicaState value) except -1:
    if value is None:
        return False
    return (value.replica_id == -1
            and value.replica_epoch == -1)


cdef int write_FetchRequest_ReplicaState(Writer *w, object given, int version, str what) except -1:
    cdef FetchRequest_ReplicaState v
    if given is None:
        raise null_field(what)
    v = <FetchRequest_ReplicaState?>given
    if (version < 15) and (v.replica_id != -1):
        raise missing_field("ReplicaState.replica_id", version)
    if (version < 15) and (v.replica_epoch != -1):
        raise missing_field("ReplicaState.replica_epoch", version)
    if version >= 15:
        put_int32(w, v.replica_id)
    if version >= 15:
        put_int64(w, v.replica_epoch)
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchRequest_FetchPartition(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchRequest_FetchPartition v
    cdef Py_ssize_t begin
    cdef bint has_0, has_1
    if given is None:
        raise null_field(what)
    v = <FetchRequest_FetchPartition?>given
    if (version < 12) and (v.last_fetched_epoch != -1):
        raise missing_field("FetchPartition.last_fetched_epoch", version)
    put_int32(w, v.partition)
    if version >= 9:
        put_int32(w, v.current_leader_epoch)
    put_int64(w, v.fetch_offset)
    if version >= 12:
        put_int32(w, v.last_fetched_epoch)
    if version >= 5:
        put_int64(w, v.log_start_offset)
    put_int32(w, v.partition_max_bytes)
    if version >= 12:
        has_0 = version >= 17 and (v.replica_directory_id != _ZERO_UUID)
        has_1 = version >= 18 and (v.high_watermark != 9223372036854775807)
        put_varint(w, <uint64_t>(has_0 + has_1))
        if has_0:
            begin = begin_tag(w, 0)
            put_uuid(w, v.replica_directory_id, "FetchPartition.replica_directory_id")
            close_tag(w, begin)
        if has_1:
            begin = begin_tag(w, 1)
            put_int64(w, v.high_watermark)
            close_tag(w, begin)
    return 0


cdef int write_FetchRequest_FetchTopic(Writer *w, object given, int version, str what) except -1:
    cdef FetchRequest_FetchTopic v
    if given is None:
        raise null_field(what)
    v = <FetchRequest_FetchTopic?>given
    if version <= 12:
        put_string(w, v.topic, False, version >= 12, "FetchTopic.topic")
    if version >= 13:
        put_uuid(w, v.topic_id, "FetchTopic.topic_id")
    put_array(w, v.partitions, write_FetchRequest_FetchPartition, version, False, version >= 12,
            "FetchTopic.partitions")
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchRequest_ForgottenTopic(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchRequest_ForgottenTopic v
    if given is None:
        raise null_field(what)
    v = <FetchRequest_ForgottenTopic?>given
    if (version < 7) and (v.partitions is None or PyList_GET_SIZE(v.partitions)):
        raise missing_field("ForgottenTopic.partitions", version)
    if 7 <= version <= 12:
        put_string(w, v.topic, False, version >= 12, "ForgottenTopic.topic")
    if version >= 13:
        put_uuid(w, v.topic_id, "ForgottenTopic.topic_id")
    if version >= 7:
        put_array(w, v.partitions, put_element_int32, version, False, version >= 12,
                "ForgottenTopic.partitions")
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchRequest(Writer *w, object given, int version, str what) except -1:
    cdef FetchRequest v
    cdef Py_ssize_t begin
    cdef bint has_0, has_1
    if given is None:
        raise null_field(what)
    v = <FetchRequest?>given
    if (version > 14) and (v.replica_id != -1):
        raise missing_field("FetchRequest.replica_id", version)
    if (version < 7) and (v.forgotten_topics_data is None or PyList_GET_SIZE(
            v.forgotten_topics_data)):
        raise missing_field("FetchRequest.forgotten_topics_data", version)
    if version <= 14:
        put_int32(w, v.replica_id)
    put_int32(w, v.max_wait_ms)
    put_int32(w, v.min_bytes)
    put_int32(w, v.max_bytes)
    put_int8(w, v.isolation_level)
    if version >= 7:
        put_int32(w, v.session_id)
    if version >= 7:
        put_int32(w, v.session_epoch)
    put_array(w, v.topics, write_FetchRequest_FetchTopic, version, False, version >= 12,
            "FetchRequest.topics")
    if version >= 7:
        put_array(w, v.forgotten_topics_data, write_FetchRequest_ForgottenTopic, version, False,
                version >= 12, "FetchRequest.forgotten_topics_data")
    if version >= 11:
        put_string(w, v.rack_id, False, version >= 12, "FetchRequest.rack_id")
    if version >= 12:
        has_0 = version >= 12 and (v.cluster_id is not None)
        has_1 = version >= 15 and (not is_default_FetchRequest_ReplicaState(v.replica_state))
        put_varint(w, <uint64_t>(has_0 + has_1))
        if has_0:
            begin = begin_tag(w, 0)
            put_string(w, v.cluster_id, version >= 12, version >= 12, "FetchRequest.cluster_id")
            close_tag(w, begin)
        if has_1:
            begin = begin_tag(w, 1)
            write_FetchRequest_ReplicaState(w, v.replica_state, version,
                    "FetchRequest.replica_state")
            close_tag(w, begin)
    return 0
