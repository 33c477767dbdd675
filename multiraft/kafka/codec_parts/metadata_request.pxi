# MetadataRequest.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.


@cython.final
cdef class MetadataRequest_MetadataRequestTopic(_Struct):
    """Element of ``MetadataRequest.topics``."""

    cdef public bytes topic_id
    cdef public str name
    FIELDS = ("topic_id", "name")

    def __init__(
        self,
        *,
        bytes topic_id=_ZERO_UUID,
        str name="",
    ):
        self.topic_id = topic_id
        self.name = name


@cython.final
cdef class MetadataRequest(_Struct):
    """MetadataRequest of Kafka 4.4.0."""

    cdef public list topics
    cdef public bint allow_auto_topic_creation
    cdef public bint include_cluster_authorized_operations
    cdef public bint include_topic_authorized_operations
    FIELDS = ("topics", "allow_auto_topic_creation", "include_cluster_authorized_operations",
            "include_topic_authorized_operations")
    MetadataRequestTopic = MetadataRequest_MetadataRequestTopic

    def __init__(
        self,
        *,
        object topics=_UNSET,
        bint allow_auto_topic_creation=True,
        bint include_cluster_authorized_operations=False,
        bint include_topic_authorized_operations=False,
    ):
        if topics is _UNSET:
            topics = []
        self.topics = topics
        self.allow_auto_topic_creation = allow_auto_topic_creation
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.include_topic_authorized_operations = include_topic_authorized_operations


cdef object read_MetadataRequest_MetadataRequestTopic(Reader *r, int version, const char *what):
    cdef MetadataRequest_MetadataRequestTopic to
    cdef int64_t end, tag, count
    to = MetadataRequest_MetadataRequestTopic.__new__(MetadataRequest_MetadataRequestTopic)
    if version >= 10:
        to.topic_id = get_uuid(r, b"MetadataRequestTopic.topic_id")
    else:
        to.topic_id = _ZERO_UUID
    to.name = get_string(r, version >= 10, version >= 9, b"MetadataRequestTopic.name")
    if version >= 9:
        count = get_tag_count(r, b"MetadataRequestTopic.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataRequestTopic.tags")
            if tag >= 0:
                r.at = end
    return to


cdef object read_MetadataRequest(Reader *r, int version, const char *what):
    cdef MetadataRequest to
    cdef int64_t end, tag, count
    to = MetadataRequest.__new__(MetadataRequest)
    to.topics = get_array(r, read_MetadataRequest_MetadataRequestTopic, version, version >= 1,
            version >= 9, b"MetadataRequest.topics")
    if version >= 4:
        to.allow_auto_topic_creation = get_bool(r, b"MetadataRequest.allow_auto_topic_creation")
    else:
        to.allow_auto_topic_creation = True
    if 8 <= version <= 10:
        to.include_cluster_authorized_operations = get_bool(r,
                b"MetadataRequest.include_cluster_authorized_operations")
    else:
        to.include_cluster_authorized_operations = False
    if version >= 8:
        to.include_topic_authorized_operations = get_bool(r,
                b"MetadataRequest.include_topic_authorized_operations")
    else:
        to.include_topic_authorized_operations = False
    if version >= 9:
        count = get_tag_count(r, b"MetadataRequest.tags")
        while count > 0 and r.problem == 0:
            count -= 1
            tag = get_tag(r, &end, b"MetadataRequest.tags")
            if tag >= 0:
                r.at = end
    return to


cdef int write_MetadataRequest_MetadataRequestTopic(Writer *w, object given, int version,
        str what) except -1:
    cdef MetadataRequest_MetadataRequestTopic v
    if given is None:
        raise null_field(what)
    v = <MetadataRequest_MetadataRequestTopic?>given
    if version >= 10:
        put_uuid(w, v.topic_id, "MetadataRequestTopic.topic_id")
    put_string(w, v.name, version >= 10, version >= 9, "MetadataRequestTopic.name")
    if version >= 9:
        put_varint(w, 0)
    return 0


cdef int write_MetadataRequest(Writer *w, object given, int version, str what) except -1:
    cdef MetadataRequest v
    if given is None:
        raise null_field(what)
    v = <MetadataRequest?>given
    if (version < 4) and (not v.allow_auto_topic_creation):
        raise missing_field("MetadataRequest.allow_auto_topic_creation", version)
    if (version < 8 or version > 10) and (v.include_cluster_authorized_operations):
        raise missing_field("MetadataRequest.include_cluster_authorized_operations", version)
    if (version < 8) and (v.include_topic_authorized_operations):
        raise missing_field("MetadataRequest.include_topic_authorized_operations", version)
    put_array(w, v.topics, write_MetadataRequest_MetadataRequestTopic, version, version >= 1,
            version >= 9, "MetadataRequest.topics")
    if version >= 4:
        put_bool(w, v.allow_auto_topic_creation)
    if 8 <= version <= 10:
        put_bool(w, v.include_cluster_authorized_operations)
    if version >= 8:
        put_bool(w, v.include_topic_authorized_operations)
    if version >= 9:
        put_varint(w, 0)
    return 0
