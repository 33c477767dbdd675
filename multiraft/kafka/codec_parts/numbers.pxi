# Numbers of the hot messages, and their functions.
#
# Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
# Included by _codec.pyx.

cdef ReadElement[9] _READ
cdef WriteElement[9] _WRITE
_READ[0] = <ReadElement>read_RequestHeader
_WRITE[0] = write_RequestHeader
_READ[1] = <ReadElement>read_ProduceRequest
_WRITE[1] = write_ProduceRequest
_READ[2] = <ReadElement>read_ProduceResponse
_WRITE[2] = write_ProduceResponse
_READ[3] = <ReadElement>read_FetchRequest
_WRITE[3] = write_FetchRequest
_READ[4] = <ReadElement>read_FetchResponse
_WRITE[4] = write_FetchResponse
_READ[5] = <ReadElement>read_ListOffsetsRequest
_WRITE[5] = write_ListOffsetsRequest
_READ[6] = <ReadElement>read_ListOffsetsResponse
_WRITE[6] = write_ListOffsetsResponse
_READ[7] = <ReadElement>read_MetadataRequest
_WRITE[7] = write_MetadataRequest
_READ[8] = <ReadElement>read_MetadataResponse
_WRITE[8] = write_MetadataResponse

#: Name of a message -> its number.
NUMBERS = {
    "RequestHeader": 0,
    "ProduceRequest": 1,
    "ProduceResponse": 2,
    "FetchRequest": 3,
    "FetchResponse": 4,
    "ListOffsetsRequest": 5,
    "ListOffsetsResponse": 6,
    "MetadataRequest": 7,
    "MetadataResponse": 8,
}
