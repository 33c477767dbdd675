# FetchResponse.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class FetchResponse_EpochEndOffset(_Struct):
    """Element of ``PartitionData.diverging_epoch``."""

    cdef public int32_t epoch
    cdef public int64_t end_offset
    FIELDS = ("epoch", "end_offset")

    def __init__(
        self,
        *,
        int32_t epoch=-1,
        int64_t end_offset=-1,
    ):
        self.epoch = epoch
        self.end_offset = end_offset


@cython.final
cdef class FetchResponse_LeaderIdAndEpoch(_Struct):
    """Element of ``PartitionData.current_leader``."""

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
cdef class FetchResponse_SnapshotId(_Struct):
    """Element of ``PartitionData.snapshot_id``."""

    cdef public int64_t end_offset
    cdef public int32_t epoch
    FIELDS = ("end_offset", "epoch")

    def __init__(
        self,
        *,
        int64_t end_offset=-1,
        int32_t epoch=-1,
    ):
        self.end_offset = end_offset
        self.epoch = epoch


@cython.final
cdef class FetchResponse_AbortedTransaction(_Struct):
    """Element of ``PartitionData.aborted_transactions``."""

    cdef public int64_t producer_id
    cdef public int64_t first_offset
    FIELDS = ("producer_id", "first_offset")

    def __init__(
        self,
        *,
        int64_t producer_id=0,
        int64_t first_offset=0,
    ):
        self.producer_id = producer_id
        self.first_offset = first_offset


@cython.final
cdef class FetchResponse_PartitionData(_Struct):
    """Element of ``FetchableTopicResponse.partitions``."""

    cdef public int32_t partition_index
    cdef public int16_t error_code
    cdef public int64_t high_watermark
    cdef public int64_t last_stable_offset
    cdef public int64_t log_start_offset
    cdef public FetchResponse_EpochEndOffset diverging_epoch
    cdef public FetchResponse_LeaderIdAndEpoch current_leader
    cdef public FetchResponse_SnapshotId snapshot_id
    cdef public list aborted_transactions
    cdef public int32_t preferred_read_replica
    cdef public object records
    FIELDS = ("partition_index", "error_code", "high_watermark", "last_stable_offset",
            "log_start_offset", "diverging_epoch", "current_leader", "snapshot_id",
            "aborted_transactions", "preferred_read_replica", "records")

    def __init__(
        self,
        *,
        int32_t partition_index=0,
        int16_t error_code=0,
        int64_t high_watermark=0,
        int64_t last_stable_offset=-1,
        int64_t log_start_offset=-1,
        object diverging_epoch=_UNSET,
        object current_leader=_UNSET,
        object snapshot_id=_UNSET,
        object aborted_transactions=_UNSET,
        int32_t preferred_read_replica=-1,
        object records=None,
    ):
        self.partition_index = partition_index
        self.error_code = error_code
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        self.log_start_offset = log_start_offset
        if diverging_epoch is _UNSET:
            diverging_epoch = FetchResponse_EpochEndOffset()
        self.diverging_epoch = diverging_epoch
        if current_leader is _UNSET:
            current_leader = FetchResponse_LeaderIdAndEpoch()
        self.current_leader = current_leader
        if snapshot_id is _UNSET:
            snapshot_id = FetchResponse_SnapshotId()
        self.snapshot_id = snapshot_id
        if aborted_transactions is _UNSET:
            aborted_transactions = []
        self.aborted_transactions = aborted_transactions
        self.preferred_read_replica = preferred_read_replica
        self.records = records


@cython.final
cdef class FetchResponse_FetchableTopicResponse(_Struct):
    """Element of ``FetchResponse.responses``."""

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
cdef class FetchResponse_NodeEndpoint(_Struct):
    """Element of ``FetchResponse.node_endpoints``."""

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
cdef class FetchResponse(_Struct):
    """FetchResponse of Kafka 4.4.0."""

    cdef public int32_t throttle_time_ms
    cdef public int16_t error_code
    cdef public int32_t session_id
    cdef public list responses
    cdef public list node_endpoints
    FIELDS = ("throttle_time_ms", "error_code", "session_id", "responses", "node_endpoints")
    EpochEndOffset = FetchResponse_EpochEndOffset
    LeaderIdAndEpoch = FetchResponse_LeaderIdAndEpoch
    SnapshotId = FetchResponse_SnapshotId
    AbortedTransaction = FetchResponse_AbortedTransaction
    PartitionData = FetchResponse_PartitionData
    FetchableTopicResponse = FetchResponse_FetchableTopicResponse
    NodeEndpoint = FetchResponse_NodeEndpoint

    def __init__(
        self,
        *,
        int32_t throttle_time_ms=0,
        int16_t error_code=0,
        int32_t session_id=0,
        object responses=_UNSET,
        object node_endpoints=_UNSET,
    ):
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.session_id = session_id
        if responses is _UNSET:
            responses = []
        self.responses = responses
        if node_endpoints is _UNSET:
            node_endpoints = []
        self.node_endpoints = node_endpoints


cdef object read_FetchResponse_EpochEndOffset(Reader *r, int version, const char *what):
    cdef FetchResponse_EpochEndOffset to
    cdef int64_t end, tag, count
    to = FetchResponse_EpochEndOffset.__new__(FetchResponse_EpochEndOffset)
    if version >= 12:
        to.epoch = get_int32(r, b"EpochEndOffset.epoch")
    else:
        to.epoch = -1
    if version >= 12:
        to.end_offset = get_int64(r, b"EpochEndOffset.end_offset")
    else:
        to.end_offset = -1
    if version >= 12:
        count = get_tag_count(r, b"EpochEndOffset.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"EpochEndOffset.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_LeaderIdAndEpoch(Reader *r, int version, const char *what):
    cdef FetchResponse_LeaderIdAndEpoch to
    cdef int64_t end, tag, count
    to = FetchResponse_LeaderIdAndEpoch.__new__(FetchResponse_LeaderIdAndEpoch)
    if version >= 12:
        to.leader_id = get_int32(r, b"LeaderIdAndEpoch.leader_id")
    else:
        to.leader_id = -1
    if version >= 12:
        to.leader_epoch = get_int32(r, b"LeaderIdAndEpoch.leader_epoch")
    else:
        to.leader_epoch = -1
    if version >= 12:
        count = get_tag_count(r, b"LeaderIdAndEpoch.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"LeaderIdAndEpoch.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_SnapshotId(Reader *r, int version, const char *what):
    cdef FetchResponse_SnapshotId to
    cdef int64_t end, tag, count
    to = FetchResponse_SnapshotId.__new__(FetchResponse_SnapshotId)
    to.end_offset = get_int64(r, b"SnapshotId.end_offset")
    to.epoch = get_int32(r, b"SnapshotId.epoch")
    if version >= 12:
        count = get_tag_count(r, b"SnapshotId.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"SnapshotId.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_AbortedTransaction(Reader *r, int version, const char *what):
    cdef FetchResponse_AbortedTransaction to
    cdef int64_t end, tag, count
    to = FetchResponse_AbortedTransaction.__new__(FetchResponse_AbortedTransaction)
    to.producer_id = get_int64(r, b"AbortedTransaction.producer_id")
    to.first_offset = get_int64(r, b"AbortedTransaction.first_offset")
    if version >= 12:
        count = get_tag_count(r, b"AbortedTransaction.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"AbortedTransaction.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_PartitionData(Reader *r, int version, const char *what):
    cdef FetchResponse_PartitionData to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = FetchResponse_PartitionData.__new__(FetchResponse_PartitionData)
    to.partition_index = get_int32(r, b"PartitionData.partition_index")
    to.error_code = get_int16(r, b"PartitionData.error_code")
    to.high_watermark = get_int64(r, b"PartitionData.high_watermark")
    to.last_stable_offset = get_int64(r, b"PartitionData.last_stable_offset")
    if version >= 5:
        to.log_start_offset = get_int64(r, b"PartitionData.log_start_offset")
    else:
        to.log_start_offset = -1
    to.diverging_epoch = FetchResponse_EpochEndOffset()
    to.current_leader = FetchResponse_LeaderIdAndEpoch()
    to.snapshot_id = FetchResponse_SnapshotId()
    to.aborted_transactions = get_array(r, read_FetchResponse_AbortedTransaction, version, True,
            version >= 12, b"PartitionData.aborted_transactions")
    if version >= 11:
        to.preferred_read_replica = get_int32(r, b"PartitionData.preferred_read_replica")
    else:
        to.preferred_read_replica = -1
    to.records = get_record_buffers(r, True, version >= 12, b"PartitionData.records")
    if version >= 12:
        count = get_tag_count(r, b"PartitionData.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"PartitionData.tags")
            begin = r.at
            if tag == 0:
                to.diverging_epoch = <FetchResponse_EpochEndOffset>(
                        read_FetchResponse_EpochEndOffset(r, version,
                        b"PartitionData.diverging_epoch"))
                end_tag(r, begin, end, b"PartitionData.diverging_epoch")
            elif tag == 1:
                to.current_leader = <FetchResponse_LeaderIdAndEpoch>(
                        read_FetchResponse_LeaderIdAndEpoch(r, version,
                        b"PartitionData.current_leader"))
                end_tag(r, begin, end, b"PartitionData.current_leader")
            elif tag == 2:
                to.snapshot_id = <FetchResponse_SnapshotId>(read_FetchResponse_SnapshotId(r,
                        version, b"PartitionData.snapshot_id"))
                end_tag(r, begin, end, b"PartitionData.snapshot_id")
            elif tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_FetchableTopicResponse(Reader *r, int version, const char *what):
    cdef FetchResponse_FetchableTopicResponse to
    cdef int64_t end, tag, count
    to = FetchResponse_FetchableTopicResponse.__new__(FetchResponse_FetchableTopicResponse)
    if version <= 12:
        to.topic = get_string(r, False, version >= 12, b"FetchableTopicResponse.topic")
    else:
        to.topic = ""
    if version >= 13:
        to.topic_id = get_uuid(r, b"FetchableTopicResponse.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    to.partitions = get_array(r, read_FetchResponse_PartitionData, version, False, version >= 12,
            b"FetchableTopicResponse.partitions")
    if version >= 12:
        count = get_tag_count(r, b"FetchableTopicResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"FetchableTopicResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse_NodeEndpoint(Reader *r, int version, const char *what):
    cdef FetchResponse_NodeEndpoint to
    cdef int64_t end, tag, count
    to = FetchResponse_NodeEndpoint.__new__(FetchResponse_NodeEndpoint)
    if version >= 16:
        to.node_id = get_int32(r, b"NodeEndpoint.node_id")
    else:
        to.node_id = 0
    if version >= 16:
        to.host = get_string(r, False, version >= 12, b"NodeEndpoint.host")
    else:
        to.host = ""
    if version >= 16:
        to.port = get_int32(r, b"NodeEndpoint.port")
    else:
        to.port = 0
    if version >= 16:
        to.rack = get_string(r, version >= 16, version >= 12, b"NodeEndpoint.rack")
    else:
        to.rack = None
    if version >= 12:
        count = get_tag_count(r, b"NodeEndpoint.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"NodeEndpoint.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_FetchResponse(Reader *r, int version, const char *what):
    cdef FetchResponse to
    cdef int64_t begin
    cdef int64_t end, tag, count
    to = FetchResponse.__new__(FetchResponse)
    to.throttle_time_ms = get_int32(r, b"FetchResponse.throttle_time_ms")
    if version >= 7:
        to.error_code = get_int16(r, b"FetchResponse.error_code")
    else:
        to.error_code = 0
    if version >= 7:
        to.session_id = get_int32(r, b"FetchResponse.session_id")
    else:
        to.session_id = 0
    to.responses = get_array(r, read_FetchResponse_FetchableTopicResponse, version, False,
            version >= 12, b"FetchResponse.responses")
    to.node_endpoints = []
    if version >= 12:
        count = get_tag_count(r, b"FetchResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"FetchResponse.tags")
            begin = r.at
            if tag == 0 and version >= 16:
                to.node_endpoints = get_array(r, read_FetchResponse_NodeEndpoint, version, False,
                        version >= 12, b"FetchResponse.node_endpoints")
                end_tag(r, begin, end, b"FetchResponse.node_endpoints")
            elif tag >= 0:
                r.at = end
    return to


cdef bint is_default_FetchResponse_EpochEndOffset(FetchResponse_EpochEndOffset value) except -1:
    if value is None:
        return False
    return (value.epoch == -1
            and value.end_offset == -1)


cdef bint is_default_FetchResponse_LeaderIdAndEpoch(FetchResponse_LeaderIdAndEpoch value) except -1:
    if value is None:
        return False
    return (value.leader_id == -1
            and value.leader_epoch == -1)


cdef bint is_default_FetchResponse_SnapshotId(FetchResponse_SnapshotId value) except -1:
    if value is None:
        return False
    return (value.end_offset == -1
            and value.epoch == -1)


cdef int write_FetchResponse_EpochEndOffset(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchResponse_EpochEndOffset v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_EpochEndOffset?>given
    if (version < 12) and (v.epoch != -1):
        raise missing_field("EpochEndOffset.epoch", version)
    if (version < 12) and (v.end_offset != -1):
        raise missing_field("EpochEndOffset.end_offset", version)
    if version >= 12:
        put_int32(w, v.epoch)
    if version >= 12:
        put_int64(w, v.end_offset)
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse_LeaderIdAndEpoch(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchResponse_LeaderIdAndEpoch v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_LeaderIdAndEpoch?>given
    if (version < 12) and (v.leader_id != -1):
        raise missing_field("LeaderIdAndEpoch.leader_id", version)
    if (version < 12) and (v.leader_epoch != -1):
        raise missing_field("LeaderIdAndEpoch.leader_epoch", version)
    if version >= 12:
        put_int32(w, v.leader_id)
    if version >= 12:
        put_int32(w, v.leader_epoch)
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse_SnapshotId(Writer *w, object given, int version, str what) except -1:
    cdef FetchResponse_SnapshotId v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_SnapshotId?>given
    put_int64(w, v.end_offset)
    put_int32(w, v.epoch)
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse_AbortedTransaction(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchResponse_AbortedTransaction v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_AbortedTransaction?>given
    put_int64(w, v.producer_id)
    put_int64(w, v.first_offset)
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse_PartitionData(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchResponse_PartitionData v
    cdef Py_ssize_t begin
    cdef bint has_0, has_1, has_2
    if given is None:
        raise null_field(what)
    v = <FetchResponse_PartitionData?>given
    if (version < 11) and (v.preferred_read_replica != -1):
        raise missing_field("PartitionData.preferred_read_replica", version)
    put_int32(w, v.partition_index)
    put_int16(w, v.error_code)
    put_int64(w, v.high_watermark)
    put_int64(w, v.last_stable_offset)
    if version >= 5:
        put_int64(w, v.log_start_offset)
    put_array(w, v.aborted_transactions, write_FetchResponse_AbortedTransaction, version, True,
            version >= 12, "PartitionData.aborted_transactions")
    if version >= 11:
        put_int32(w, v.preferred_read_replica)
    put_record_buffers(w, v.records, True, version >= 12, "PartitionData.records")
    if version >= 12:
        has_0 = version >= 12 and (not is_default_FetchResponse_EpochEndOffset(v.diverging_epoch))
        has_1 = version >= 12 and (not is_default_FetchResponse_LeaderIdAndEpoch(v.current_leader))
        has_2 = version >= 12 and (not is_default_FetchResponse_SnapshotId(v.snapshot_id))
        put_varint(w, <uint64_t>(has_0 + has_1 + has_2))
        if has_0:
            begin = begin_tag(w, 0)
            write_FetchResponse_EpochEndOffset(w, v.diverging_epoch, version,
                    "PartitionData.diverging_epoch")
            close_tag(w, begin)
        if has_1:
            begin = begin_tag(w, 1)
            write_FetchResponse_LeaderIdAndEpoch(w, v.current_leader, version,
                    "PartitionData.current_leader")
            close_tag(w, begin)
        if has_2:
            begin = begin_tag(w, 2)
            write_FetchResponse_SnapshotId(w, v.snapshot_id, version, "PartitionData.snapshot_id")
            close_tag(w, begin)
    return 0


cdef int write_FetchResponse_FetchableTopicResponse(Writer *w, object given, int version,
        str what) except -1:
    cdef FetchResponse_FetchableTopicResponse v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_FetchableTopicResponse?>given
    if version <= 12:
        put_string(w, v.topic, False, version >= 12, "FetchableTopicResponse.topic")
    if version >= 13:
        put_uuid(w, v.topic_id, "FetchableTopicResponse.topic_id")
    put_array(w, v.partitions, write_FetchResponse_PartitionData, version, False, version >= 12,
            "FetchableTopicResponse.partitions")
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse_NodeEndpoint(Writer *w, object given, int version, str what) except -1:
    cdef FetchResponse_NodeEndpoint v
    if given is None:
        raise null_field(what)
    v = <FetchResponse_NodeEndpoint?>given
    if (version < 16) and (v.node_id != 0):
        raise missing_field("NodeEndpoint.node_id", version)
    if (version < 16) and (v.host != ""):
        raise missing_field("NodeEndpoint.host", version)
    if (version < 16) and (v.port != 0):
        raise missing_field("NodeEndpoint.port", version)
    if (version < 16) and (v.rack is not None):
        raise missing_field("NodeEndpoint.rack", version)
    if version >= 16:
        put_int32(w, v.node_id)
    if version >= 16:
        put_string(w, v.host, False, version >= 12, "NodeEndpoint.host")
    if version >= 16:
        put_int32(w, v.port)
    if version >= 16:
        put_string(w, v.rack, version >= 16, version >= 12, "NodeEndpoint.rack")
    if version >= 12:
        put_varint(w, 0)
    return 0


cdef int write_FetchResponse(Writer *w, object given, int version, str what) except -1:
    cdef FetchResponse v
    cdef Py_ssize_t begin
    cdef bint has_0
    if given is None:
        raise null_field(what)
    v = <FetchResponse?>given
    if (version < 7) and (v.session_id != 0):
        raise missing_field("FetchResponse.session_id", version)
    put_int32(w, v.throttle_time_ms)
    if version >= 7:
        put_int16(w, v.error_code)
    if version >= 7:
        put_int32(w, v.session_id)
    put_array(w, v.responses, write_FetchResponse_FetchableTopicResponse, version, False,
            version >= 12, "FetchResponse.responses")
    if version >= 12:
        has_0 = version >= 16 and (v.node_endpoints is None or PyList_GET_SIZE(v.node_endpoints))
        put_varint(w, <uint64_t>(has_0))
        if has_0:
            begin = begin_tag(w, 0)
            put_array(w, v.node_endpoints, write_FetchResponse_NodeEndpoint, version, False,
                    version >= 12, "FetchResponse.node_endpoints")
            close_tag(w, begin)
    return 0
