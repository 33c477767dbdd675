"""Fuzz targets of Kafka's protocol: frames of requests and of responses, and both codecs.

Contract.  As of targets.py.  An accepted message can be encoded again, and is then decoded to an
equal one.  Names of messages are few, so the first two bytes choose one and its version.
"""

from __future__ import annotations

from multiraft.kafka import _codec, generic_decoder, generic_encoder
from multiraft.kafka.apis import APIS
from multiraft.kafka.errors import KafkaFrameError
from multiraft.kafka.hot_messages import RequestHeader
from multiraft.kafka.messages.table import REQUESTS, RESPONSES
from multiraft.kafka.requests import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from multiraft.kafka.schema import Message
from tests.kafka import values

#: Elements of a frame: fewer than the limit of a node, so that small inputs reach it.
ELEMENTS_MAX = 1000
LENGTH_BYTES = 4


def request(data: bytes) -> None:
    """Decode a request as a node does."""
    found = decode_request(data, APIS, ELEMENTS_MAX)
    again = b"".join(encode_request(found.header, found.message))[LENGTH_BYTES:]
    assert decode_request(again, APIS, ELEMENTS_MAX) == found


def response(data: bytes) -> None:
    """Decode the response to a request of one API in one version, as a client does."""
    key = sorted(APIS)[data[0] % len(APIS)] if data else 0
    first, last = APIS[key].served
    header = RequestHeader(
        request_api_key=key, correlation_id=7,
        request_api_version=first + (data[1] if data[1:] else 0) % (last - first + 1))
    found = decode_response(data[2:], header, ELEMENTS_MAX)
    again = b"".join(encode_response(header, found))[LENGTH_BYTES:]
    assert decode_response(again, header, ELEMENTS_MAX) == found


def hot_message(data: bytes) -> None:
    """Check that both codecs decode a message equally, or refuse it for the same reason."""
    message = values.HOT[data[0] % len(values.HOT)] if data else values.HOT[0]
    first, last = message.versions
    version = first + (data[1] if data[1:] else 0) % (last - first + 1)
    results = []
    for decode, of in ((generic_decoder.decode, message), (_codec.decode, message.name)):
        try:
            value, end = decode(of, data, min(2, len(data)), version, ELEMENTS_MAX)
            results.append((values.plain(message.struct, value, version), end, None))
        except KafkaFrameError as error:
            results.append((None, error.at, error))
    (expected, at, raised), (found, also_at, also) = results
    assert (expected, at, str(raised)) == (found, also_at, str(also))
    if also is not None:
        raise also


def _encoded(message: Message, version: int) -> bytes:
    """Return the bytes of one message."""
    value = values.built(message, values.Samples(version).of(message, version))
    return b"".join(generic_encoder.encode(message, value, version, b""))


def requests() -> list[bytes]:
    """Return a request of each API in its first and last version."""
    found = []
    for key, api in APIS.items():
        for version in api.served:
            header = RequestHeader(request_api_key=key, request_api_version=version,
                                   correlation_id=7, client_id="fuzz")
            flexible = version >= REQUESTS[key].flexible[0] and bool(REQUESTS[key].flexible[1] + 1)
            found.append(b"".join(generic_encoder.encode(
                values.REQUEST_HEADER, header, 1 + flexible, b""))
                + _encoded(REQUESTS[key], version))
    return found


def responses() -> list[bytes]:
    """Return a response of each API in its last version, with the bytes that choose it."""
    found = []
    for place, (key, api) in enumerate(APIS.items()):
        first, last = api.served
        flexible = RESPONSES[key].flexible[1] >= 0 and key != 18
        found.append(bytes([place, last - first]) + b"\0\0\0\7" + b"\0" * flexible
                     + _encoded(RESPONSES[key], last))
    return found


def hot_messages() -> list[bytes]:
    """Return each hot message in each version, with the bytes that choose it."""
    return [bytes([place, version - message.versions[0]]) + _encoded(message, version)
            for place, message in enumerate(values.HOT)
            for version in range(message.versions[0], message.versions[1] + 1)]
