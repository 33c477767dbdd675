# ProduceResponse.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class ProduceResponse_BatchIndexAndErrorMessage(_Struct):
    """Element of ``PartitionProduceResponse.record_errors``."""

    cdef public int32_t batch_index
    cdef public str batch_index_error_message
    FIELDS = ("batch_index", "batch_index_error_message")

    def __init__(
        self,
        *,
        int32_t batch_index=0,
        str batch_index_error_message=None,
    ):
        self.batch_index = batch_index
        self.batch_index_error_message = batch_index_error_message


@cython.final
cdef class ProduceResponse_LeaderIdAndEpoch(_Struct):
    """Element of ``PartitionProduceResponse.current_leader``."""

    cdef public int32_t leader_id
    cdef public int32_t leader_epoch
    FIELDS = ("leader_id", "leader_epoch")

    def __init__(
        self,
        *,
        int32_t leader_id=-1,
        int32_t leader_epoch=-1,
    ):
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


@cython.final
cdef class ProduceResponse_PartitionProduceResponse(_Struct):
    """Element of ``TopicProduceResponse.partition_responses``."""

    cdef public int32_t index
    cdef public int16_t error_code
    cdef public int64_t base_offset
    cdef public int64_t log_append_time_ms
    cdef public int64_t log_start_offset
    cdef public list record_errors
    cdef public str error_message
    cdef public ProduceResponse_LeaderIdAndEpoch current_leader
    FIELDS = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset",
            "record_errors", "error_message", "current_leader")

    def __init__(
        self,
        *,
        int32_t index=0,
        int16_t error_code=0,
        int64_t base_offset=0,
        int64_t log_append_time_ms=-1,
        int64_t log_start_offset=-1,
        object record_errors=_UNSET,
        str error_message=None,
        object current_leader=_UNSET,
    ):
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        if record_errors is _UNSET:
            record_errors = []
        self.record_errors = record_errors
        self.error_message = error_message
        if current_leader is _UNSET:
            current_leader = ProduceResponse_LeaderIdAndEpoch()
        self.current_leader = current_leader


@cython.final
cdef class ProduceResponse_TopicProduceResponse(_Struct):
    """Element of ``ProduceResponse.responses``."""

    cdef public str name
    cdef public bytes topic_id
    cdef public list partition_responses
    FIELDS = ("name", "topic_id", "partition_responses")

    def __init__(
        self,
        *,
        str name="",
        bytes topic_id=_ZERO_UUID,
        object partition_responses=_UNSET,
    ):
        self.name = name
        self.topic_id = topic_id
        if partition_responses is _UNSET:
            partition_responses = []
        self.partition_responses = partition_responses


@cython.final
cdef class ProduceResponse_NodeEndpoint(_Struct):
    """Element of ``ProduceResponse.node_endpoints``."""

    cdef public int32_t node_id
    cdef public str host
    cdef public int32_t port
    cdef public str rack
    FIELDS = ("node_id", "host", "port", "rack")

    def __init__(
        self,
        *,
        int32_t node_id=0,
        str host="",
        int32_t port=0,
        str rack=None,
    ):
        self.node_id = node_id
        self.host = host
        self.port = port
        self.rack = rack


@cython.final
cdef class ProduceResponse(_Struct):
    """ProduceResponse of Kafka 4.4.0."""

    cdef public list responses
    cdef public int32_t throttle_time_ms
    cdef public list node_endpoints
    FIELDS = ("responses", "throttle_time_ms", "node_endpoints")
    BatchIndexAndErrorMessage = ProduceResponse_BatchIndexAndErrorMessage
    LeaderIdAndEpoch = ProduceResponse_LeaderIdAndEpoch
    PartitionProduceResponse = ProduceResponse_PartitionProduceResponse
    TopicProduceResponse = ProduceResponse_TopicProduceResponse
    NodeEndpoint = ProduceResponse_NodeEndpoint

    def __init__(
        self,
        *,
        object responses=_UNSET,
        int32_t throttle_time_ms=0,
        object node_endpoints=_UNSET,
    ):
        if responses is _UNSET:
            responses = []
        self.responses = responses
        self.throttle_time_ms = throttle_time_ms
        if node_endpoints is _UNSET:
            node_endpoints = []
        self.node_endpoints = node_endpoints


cdef object read_ProduceResponse_BatchIndexAndErrorMessage(Reader *r, int version,
        const char *what):
    cdef ProduceResponse_BatchIndexAndErrorMessage to
    cdef int64_t end, tag, count
    to = ProduceResponse_BatchIndexAndErrorMessage.__new__(
            ProduceResponse_BatchIndexAndErrorMessage)
    if version >= 8:
        to.batch_index = get_int32(r, b"BatchIndexAndErrorMessage.batch_index")
    else:
        to.batch_index = 0
    if version >= 8:
        to.batch_index_error_message = get_string(r, version >= 8, version >= 9,
                b"BatchIndexAndErrorMessage.batch_index_error_message")
    else:
        to.batch_index_error_message = None
    if version >= 9:
        count = get_tag_count(r, b"BatchIndexAndErrorMessage.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"BatchIndexAndErrorMessage.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceResponse_LeaderIdAndEpoch(Reader *r, int version, const char *what):
    cdef ProduceResponse_LeaderIdAndEpoch to
    cdef int64_t end, tag, count
    to = ProduceResponse_LeaderIdAndEpoch.__new__(ProduceResponse_LeaderIdAndEpoch)
    if version >= 10:
        to.leader_id = get_int32(r, b"LeaderIdAndEpoch.leader_id")
    else:
        to.leader_id = -1
    if version >= 10:
        to.leader_epoch = get_int32(r, b"LeaderIdAndEpoch.leader_epoch")
    else:
        to.leader_epoch = -1
    if version >= 9:
        count = get_tag_count(r, b"LeaderIdAndEpoch.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"LeaderIdAndEpoch.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceResponse_PartitionProduceResponse(Reader *r, int version, const char *what):
    cdef ProduceResponse_PartitionProduceResponse to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = ProduceResponse_PartitionProduceResponse.__new__(ProduceResponse_PartitionProduceResponse)
    to.index = get_int32(r, b"PartitionProduceResponse.index")
    to.error_code = get_int16(r, b"PartitionProduceResponse.error_code")
    to.base_offset = get_int64(r, b"PartitionProduceResponse.base_offset")
    to.log_append_time_ms = get_int64(r, b"PartitionProduceResponse.log_append_time_ms")
    if version >= 5:
        to.log_start_offset = get_int64(r, b"PartitionProduceResponse.log_start_offset")
    else:
        to.log_start_offset = -1
    if version >= 8:
        to.record_errors = get_array(r, read_ProduceResponse_BatchIndexAndErrorMessage, version,
                False, version >= 9, b"PartitionProduceResponse.record_errors")
    else:
        to.record_errors = []
    if version >= 8:
        to.error_message = get_string(r, version >= 8, version >= 9,
                b"PartitionProduceResponse.error_message")
    else:
        to.error_message = None
    to.current_leader = ProduceResponse_LeaderIdAndEpoch()
    if version >= 9:
        count = get_tag_count(r, b"PartitionProduceResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"PartitionProduceResponse.tags")
            begin = r.at
            if tag == 0 and version >= 10:
                to.current_leader = <ProduceResponse_LeaderIdAndEpoch>(
                        read_ProduceResponse_LeaderIdAndEpoch(r, version,
                        b"PartitionProduceResponse.current_leader"))
                end_tag(r, begin, end, b"PartitionProduceResponse.current_leader")
            elif tag >= 0:
                r.at = end
    return to


cdef object read_ProduceResponse_TopicProduceResponse(Reader *r, int version, const char *what):
    cdef ProduceResponse_TopicProduceResponse to
    cdef int64_t end, tag, count
    to = ProduceResponse_TopicProduceResponse.__new__(ProduceResponse_TopicProduceResponse)
    if version <= 12:
        to.name = get_string(r, False, version >= 9, b"TopicProduceResponse.name")
    else:
        to.name = ""
    if version >= 13:
        to.topic_id = get_uuid(r, b"TopicProduceResponse.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    to.partition_responses = get_array(r, read_ProduceResponse_PartitionProduceResponse, version,
            False, version >= 9, b"TopicProduceResponse.partition_responses")
    if version >= 9:
        count = get_tag_count(r, b"TopicProduceResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"TopicProduceResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceResponse_NodeEndpoint(Reader *r, int version, const char *what):
    cdef ProduceResponse_NodeEndpoint to
    cdef int64_t end, tag, count
    to = ProduceResponse_NodeEndpoint.__new__(ProduceResponse_NodeEndpoint)
    if version >= 10:
        to.node_id = get_int32(r, b"NodeEndpoint.node_id")
    else:
        to.node_id = 0
    if version >= 10:
        to.host = get_string(r, False, version >= 9, b"NodeEndpoint.host")
    else:
        to.host = ""
    if version >= 10:
        to.port = get_int32(r, b"NodeEndpoint.port")
    else:
        to.port = 0
    if version >= 10:
        to.rack = get_string(r, version >= 10, version >= 9, b"NodeEndpoint.rack")
    else:
        to.rack = None
    if version >= 9:
        count = get_tag_count(r, b"NodeEndpoint.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"NodeEndpoint.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_ProduceResponse(Reader *r, int version, const char *what):
    cdef ProduceResponse to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = ProduceResponse.__new__(ProduceResponse)
    to.responses = get_array(r, read_ProduceResponse_TopicProduceResponse, version, False,
            version >= 9, b"ProduceResponse.responses")
    to.throttle_time_ms = get_int32(r, b"ProduceResponse.throttle_time_ms")
    to.node_endpoints = []
    if version >= 9:
        count = get_tag_count(r, b"ProduceResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"ProduceResponse.tags")
            begin = r.at
            if tag == 0 and version >= 10:
                to.node_endpoints = get_array(r, read_ProduceResponse_NodeEndpoint, version, False,
                        version >= 9, b"ProduceResponse.node_endpoints")
                end_tag(r, begin, end, b"ProduceResponse.node_endpoints")
            elif tag >= 0:
                r.at = end
    return to


cdef bint is_default_ProduceResponse_LeaderIdAndEpoch(
        ProduceResponse_LeaderIdAndEpoch value) except -1:
    if value is None:
        return False
    return (value.leader_id == -1
            and value.leader_epoch == -1)


cdef int write_ProduceResponse_BatchIndexAndErrorMessage(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceResponse_BatchIndexAndErrorMessage v
    if given is None:
        raise null_field(what)
    v = <ProduceResponse_BatchIndexAndErrorMessage?>given
    if (version < 8) and (v.batch_index != 0):
        raise missing_field("BatchIndexAndErrorMessage.batch_index", version)
    if (version < 8) and (v.batch_index_error_message is not None):
        raise missing_field("BatchIndexAndErrorMessage.batch_index_error_message", version)
    if version >= 8:
        put_int32(w, v.batch_index)
    if version >= 8:
        put_string(w, v.batch_index_error_message, version >= 8, version >= 9,
                "BatchIndexAndErrorMessage.batch_index_error_message")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceResponse_LeaderIdAndEpoch(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceResponse_LeaderIdAndEpoch v
    if given is None:
        raise null_field(what)
    v = <ProduceResponse_LeaderIdAndEpoch?>given
    if (version < 10) and (v.leader_id != -1):
        raise missing_field("LeaderIdAndEpoch.leader_id", version)
    if (version < 10) and (v.leader_epoch != -1):
        raise missing_field("LeaderIdAndEpoch.leader_epoch", version)
    if version >= 10:
        put_int32(w, v.leader_id)
    if version >= 10:
        put_int32(w, v.leader_epoch)
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceResponse_PartitionProduceResponse(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceResponse_PartitionProduceResponse v
    cdef Py_ssize_t begin
    cdef bint has_0
    if given is None:
        raise null_field(what)
    v = <ProduceResponse_PartitionProduceResponse?>given
    put_int32(w, v.index)
    put_int16(w, v.error_code)
    put_int64(w, v.base_offset)
    put_int64(w, v.log_append_time_ms)
    if version >= 5:
        put_int64(w, v.log_start_offset)
    if version >= 8:
        put_array(w, v.record_errors, write_ProduceResponse_BatchIndexAndErrorMessage, version,
                False, version >= 9, "PartitionProduceResponse.record_errors")
    if version >= 8:
        put_string(w, v.error_message, version >= 8, version >= 9,
                "PartitionProduceResponse.error_message")
    if version >= 9:
        has_0 = version >= 10 and (not is_default_ProduceResponse_LeaderIdAndEpoch(
                v.current_leader))
        put_varint(w, <uint64_t>(has_0))
        if has_0:
            begin = begin_tag(w, 0)
            write_ProduceResponse_LeaderIdAndEpoch(w, v.current_leader, version,
                    "PartitionProduceResponse.current_leader")
            close_tag(w, begin)
    return 0


cdef int write_ProduceResponse_TopicProduceResponse(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceResponse_TopicProduceResponse v
    if given is None:
        raise null_field(what)
    v = <ProduceResponse_TopicProduceResponse?>given
    if version <= 12:
        put_string(w, v.name, False, version >= 9, "TopicProduceResponse.name")
    if version >= 13:
        put_uuid(w, v.topic_id, "TopicProduceResponse.topic_id")
    put_array(w, v.partition_responses, write_ProduceResponse_PartitionProduceResponse, version,
            False, version >= 9, "TopicProduceResponse.partition_responses")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceResponse_NodeEndpoint(Writer *w, object given, int version,
        str what) except -1:
    cdef ProduceResponse_NodeEndpoint v
    if given is None:
        raise null_field(what)
    v = <ProduceResponse_NodeEndpoint?>given
    if (version < 10) and (v.node_id != 0):
        raise missing_field("NodeEndpoint.node_id", version)
    if (version < 10) and (v.host != ""):
        raise missing_field("NodeEndpoint.host", version)
    if (version < 10) and (v.port != 0):
        raise missing_field("NodeEndpoint.port", version)
    if (version < 10) and (v.rack is not None):
        raise missing_field("NodeEndpoint.rack", version)
    if version >= 10:
        put_int32(w, v.node_id)
    if version >= 10:
        put_string(w, v.host, False, version >= 9, "NodeEndpoint.host")
    if version >= 10:
        put_int32(w, v.port)
    if version >= 10:
        put_string(w, v.rack, version >= 10, version >= 9, "NodeEndpoint.rack")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_ProduceResponse(Writer *w, object given, int version, str what) except -1:
    cdef ProduceResponse v
    cdef Py_ssize_t begin
    cdef bint has_0
    if given is None:
        raise null_field(what)
    v = <ProduceResponse?>given
    put_array(w, v.responses, write_ProduceResponse_TopicProduceResponse, version, False,
            version >= 9, "ProduceResponse.responses")
    put_int32(w, v.throttle_time_ms)
    if version >= 9:
        has_0 = version >= 10 and (v.node_endpoints is None or PyList_GET_SIZE(v.node_endpoints))
        put_varint(w, <uint64_t>(has_0))
        if has_0:
            begin = begin_tag(w, 0)
            put_array(w, v.node_endpoints, write_ProduceResponse_NodeEndpoint, version, False,
                    version >= 9, "ProduceResponse.node_endpoints")
            close_tag(w, begin)
    return 0
