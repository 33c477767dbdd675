# MetadataResponse.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class MetadataResponse_MetadataResponseBroker(_Struct):
    """Element of ``MetadataResponse.brokers``."""

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
cdef class MetadataResponse_MetadataResponsePartition(_Struct):
    """Element of ``MetadataResponseTopic.partitions``."""

    cdef public int16_t error_code
    cdef public int32_t partition_index
    cdef public int32_t leader_id
    cdef public int32_t leader_epoch
    cdef public list replica_nodes
    cdef public list isr_nodes
    cdef public list offline_replicas
    FIELDS = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes",
            "isr_nodes", "offline_replicas")

    def __init__(
        self,
        *,
        int16_t error_code=0,
        int32_t partition_index=0,
        int32_t leader_id=0,
        int32_t leader_epoch=-1,
        object replica_nodes=_UNSET,
        object isr_nodes=_UNSET,
        object offline_replicas=_UNSET,
    ):
        self.error_code = error_code
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        if replica_nodes is _UNSET:
            replica_nodes = []
        self.replica_nodes = replica_nodes
        if isr_nodes is _UNSET:
            isr_nodes = []
        self.isr_nodes = isr_nodes
        if offline_replicas is _UNSET:
            offline_replicas = []
        self.offline_replicas = offline_replicas


@cython.final
cdef class MetadataResponse_MetadataResponseTopic(_Struct):
    """Element of ``MetadataResponse.topics``."""

    cdef public int16_t error_code
    cdef public str name
    cdef public bytes topic_id
    cdef public bint is_internal
    cdef public list partitions
    cdef public int32_t topic_authorized_operations
    FIELDS = ("error_code", "name", "topic_id", "is_internal", "partitions",
            "topic_authorized_operations")

    def __init__(
        self,
        *,
        int16_t error_code=0,
        str name="",
        bytes topic_id=_ZERO_UUID,
        bint is_internal=False,
        object partitions=_UNSET,
        int32_t topic_authorized_operations=-2147483648,
    ):
        self.error_code = error_code
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        if partitions is _UNSET:
            partitions = []
        self.partitions = partitions
        self.topic_authorized_operations = topic_authorized_operations


@cython.final
cdef class MetadataResponse(_Struct):
    """MetadataResponse of Kafka 4.4.0."""

    cdef public int32_t throttle_time_ms
    cdef public list brokers
    cdef public str cluster_id
    cdef public int32_t controller_id
    cdef public list topics
    cdef public int32_t cluster_authorized_operations
    cdef public int16_t error_code
    FIELDS = ("throttle_time_ms", "brokers", "cluster_id", "controller_id", "topics",
            "cluster_authorized_operations", "error_code")
    MetadataResponseBroker = MetadataResponse_MetadataResponseBroker
    MetadataResponsePartition = MetadataResponse_MetadataResponsePartition
    MetadataResponseTopic = MetadataResponse_MetadataResponseTopic

    def __init__(
        self,
        *,
        int32_t throttle_time_ms=0,
        object brokers=_UNSET,
        str cluster_id=None,
        int32_t controller_id=-1,
        object topics=_UNSET,
        int32_t cluster_authorized_operations=-2147483648,
        int16_t error_code=0,
    ):
        self.throttle_time_ms = throttle_time_ms
        if brokers is _UNSET:
            brokers = []
        self.brokers = brokers
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        if topics is _UNSET:
            topics = []
        self.topics = topics
        self.cluster_authorized_operations = cluster_authorized_operations
        self.error_code = error_code


cdef object read_MetadataResponse_MetadataResponseBroker(Reader *r, int version, const char *what):
    cdef MetadataResponse_MetadataResponseBroker to
    cdef int64_t end, tag, count
    to = MetadataResponse_MetadataResponseBroker.__new__(MetadataResponse_MetadataResponseBroker)
    to.node_id = get_int32(r, b"MetadataResponseBroker.node_id")
    to.host = get_string(r, False, version >= 9, b"MetadataResponseBroker.host")
    to.port = get_int32(r, b"MetadataResponseBroker.port")
    if version >= 1:
        to.rack = get_string(r, version >= 1, version >= 9, b"MetadataResponseBroker.rack")
    else:
        to.rack = None
    if version >= 9:
        count = get_tag_count(r, b"MetadataResponseBroker.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataResponseBroker.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_MetadataResponse_MetadataResponsePartition(Reader *r, int version,
        const char *what):
    cdef MetadataResponse_MetadataResponsePartition to
    cdef int64_t end, tag, count
    to = MetadataResponse_MetadataResponsePartition.__new__(
            MetadataResponse_MetadataResponsePartition)
    to.error_code = get_int16(r, b"MetadataResponsePartition.error_code")
    to.partition_index = get_int32(r, b"MetadataResponsePartition.partition_index")
    to.leader_id = get_int32(r, b"MetadataResponsePartition.leader_id")
    if version >= 7:
        to.leader_epoch = get_int32(r, b"MetadataResponsePartition.leader_epoch")
    else:
        to.leader_epoch = -1
    to.replica_nodes = get_array(r, element_int32, version, False, version >= 9,
            b"MetadataResponsePartition.replica_nodes")
    to.isr_nodes = get_array(r, element_int32, version, False, version >= 9,
            b"MetadataResponsePartition.isr_nodes")
    if version >= 5:
        to.offline_replicas = get_array(r, element_int32, version, False, version >= 9,
                b"MetadataResponsePartition.offline_replicas")
    else:
        to.offline_replicas = []
    if version >= 9:
        count = get_tag_count(r, b"MetadataResponsePartition.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataResponsePartition.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_MetadataResponse_MetadataResponseTopic(Reader *r, int version, const char *what):
    cdef MetadataResponse_MetadataResponseTopic to
    cdef int64_t end, tag, count
    to = MetadataResponse_MetadataResponseTopic.__new__(MetadataResponse_MetadataResponseTopic)
    to.error_code = get_int16(r, b"MetadataResponseTopic.error_code")
    to.name = get_string(r, version >= 12, version >= 9, b"MetadataResponseTopic.name")
    if version >= 10:
        to.topic_id = get_uuid(r, b"MetadataResponseTopic.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    if version >= 1:
        to.is_internal = get_bool(r, b"MetadataResponseTopic.is_internal")
    else:
        to.is_internal = False
    to.partitions = get_array(r, read_MetadataResponse_MetadataResponsePartition, version, False,
            version >= 9, b"MetadataResponseTopic.partitions")
    if version >= 8:
        to.topic_authorized_operations = get_int32(r,
                b"MetadataResponseTopic.topic_authorized_operations")
    else:
        to.topic_authorized_operations = -2147483648
    if version >= 9:
        count = get_tag_count(r, b"MetadataResponseTopic.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataResponseTopic.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_MetadataResponse(Reader *r, int version, const char *what):
    cdef MetadataResponse to
    cdef int64_t end, tag, count
    to = MetadataResponse.__new__(MetadataResponse)
    if version >= 3:
        to.throttle_time_ms = get_int32(r, b"MetadataResponse.throttle_time_ms")
    else:
        to.throttle_time_ms = 0
    to.brokers = get_array(r, read_MetadataResponse_MetadataResponseBroker, version, False,
            version >= 9, b"MetadataResponse.brokers")
    if version >= 2:
        to.cluster_id = get_string(r, version >= 2, version >= 9, b"MetadataResponse.cluster_id")
    else:
        to.cluster_id = None
    if version >= 1:
        to.controller_id = get_int32(r, b"MetadataResponse.controller_id")
    else:
        to.controller_id = -1
    to.topics = get_array(r, read_MetadataResponse_MetadataResponseTopic, version, False,
            version >= 9, b"MetadataResponse.topics")
    if 8 <= version <= 10:
        to.cluster_authorized_operations = get_int32(r,
                b"MetadataResponse.cluster_authorized_operations")
    else:
        to.cluster_authorized_operations = -2147483648
    if version >= 13:
        to.error_code = get_int16(r, b"MetadataResponse.error_code")
    else:
        to.error_code = 0
    if version >= 9:
        count = get_tag_count(r, b"MetadataResponse.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataResponse.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_MetadataResponse_MetadataResponseBroker(Writer *w, object given, int version,
        str what) except -1:
    cdef MetadataResponse_MetadataResponseBroker v
    if given is None:
        raise null_field(what)
    v = <MetadataResponse_MetadataResponseBroker?>given
    put_int32(w, v.node_id)
    put_string(w, v.host, False, version >= 9, "MetadataResponseBroker.host")
    put_int32(w, v.port)
    if version >= 1:
        put_string(w, v.rack, version >= 1, version >= 9, "MetadataResponseBroker.rack")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_MetadataResponse_MetadataResponsePartition(Writer *w, object given, int version,
        str what) except -1:
    cdef MetadataResponse_MetadataResponsePartition v
    if given is None:
        raise null_field(what)
    v = <MetadataResponse_MetadataResponsePartition?>given
    put_int16(w, v.error_code)
    put_int32(w, v.partition_index)
    put_int32(w, v.leader_id)
    if version >= 7:
        put_int32(w, v.leader_epoch)
    put_array(w, v.replica_nodes, put_element_int32, version, False, version >= 9,
            "MetadataResponsePartition.replica_nodes")
    put_array(w, v.isr_nodes, put_element_int32, version, False, version >= 9,
            "MetadataResponsePartition.isr_nodes")
    if version >= 5:
        put_array(w, v.offline_replicas, put_element_int32, version, False, version >= 9,
                "MetadataResponsePartition.offline_replicas")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_MetadataResponse_MetadataResponseTopic(Writer *w, object given, int version,
        str what) except -1:
    cdef MetadataResponse_MetadataResponseTopic v
    if given is None:
        raise null_field(what)
    v = <MetadataResponse_MetadataResponseTopic?>given
    if (version < 8) and (v.topic_authorized_operations != -2147483648):
        raise missing_field("MetadataResponseTopic.topic_authorized_operations", version)
    put_int16(w, v.error_code)
    put_string(w, v.name, version >= 12, version >= 9, "MetadataResponseTopic.name")
    if version >= 10:
        put_uuid(w, v.topic_id, "MetadataResponseTopic.topic_id")
    if version >= 1:
        put_bool(w, v.is_internal)
    put_array(w, v.partitions, write_MetadataResponse_MetadataResponsePartition, version, False,
            version >= 9, "MetadataResponseTopic.partitions")
    if version >= 8:
        put_int32(w, v.topic_authorized_operations)
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_MetadataResponse(Writer *w, object given, int version, str what) except -1:
    cdef MetadataResponse v
    if given is None:
        raise null_field(what)
    v = <MetadataResponse?>given
    if (version < 8 or version > 10) and (v.cluster_authorized_operations != -2147483648):
        raise missing_field("MetadataResponse.cluster_authorized_operations", version)
    if version >= 3:
        put_int32(w, v.throttle_time_ms)
    put_array(w, v.brokers, write_MetadataResponse_MetadataResponseBroker, version, False,
            version >= 9, "MetadataResponse.brokers")
    if version >= 2:
        put_string(w, v.cluster_id, version >= 2, version >= 9, "MetadataResponse.cluster_id")
    if version >= 1:
        put_int32(w, v.controller_id)
    put_array(w, v.topics, write_MetadataResponse_MetadataResponseTopic, version, False,
            version >= 9, "MetadataResponse.topics")
    if 8 <= version <= 10:
        put_int32(w, v.cluster_authorized_operations)
    if version >= 13:
        put_int16(w, v.error_code)
    if version >= 9:
        put_varint(w, 0)
    return 0
