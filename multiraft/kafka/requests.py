"""Requests and responses of Kafka as frames.

Contract.  A frame on a connection is a length of 4 bytes, a header and a message.  The reader of
the connection bounds the length and passes on the bytes behind it; what is encoded here begins with
it.  ``decode_request`` and ``encode_response`` are the node's side, ``encode_request`` and
``decode_response`` that of a client.

A request that is not supported raises ``UnsupportedVersion``.  Kafka closes the connection then;
only ApiVersions is answered, by ``unsupported_api_versions``, so that clients of every version
learn which ones they may use.

Bytes behind a message are ignored, as Kafka does.  Strings that are not UTF-8 and tagged fields of
another length than they state are refused; Kafka is more lenient there.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from multiraft.kafka.apis import ApiKey, ApiTable
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.errors import KafkaFrameError, Problem, UnsupportedVersion, frame_error
from multiraft.kafka.hot_messages import RequestHeader, decode, encode
from multiraft.kafka.messages.api_versions import ApiVersionsResponse
from multiraft.kafka.messages.headers import REQUEST_HEADER, RESPONSE_HEADER
from multiraft.kafka.messages.table import REQUESTS, RESPONSES
from multiraft.kafka.schema import (
    ELEMENTS_MAX,
    GENERIC_ELEMENTS_MAX,
    Buffer,
    Message,
    within,
)

#: Bytes of a header up to the client id: API key, version, correlation id.
_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
#: Length of the frame, filled in at the end, and correlation id.
_BEFORE = struct.Struct(">ii")
#: A header without tagged fields.
_NO_TAGS = b"\0"


class EncodedMessage(NamedTuple):
    """A response of one API and version that was encoded before, to be sent to many clients."""

    key: int
    version: int
    data: bytes  # without the header


class Request(NamedTuple):
    """A request: its header and its message, of the class that the API has."""

    header: RequestHeader
    message: Any


def _is_flexible(message: Message, version: int) -> bool:
    return within(version, message.flexible)


def decode_request(frame: Buffer, keys: ApiTable, elements_max: int = ELEMENTS_MAX) -> Request:
    """Decode the frame of a request, without its length.

    ``keys`` are the APIs that are served.  Records of the message are views of ``frame``.  At most
    ``elements_max`` elements of arrays and tagged fields are accepted, all together, and at most
    GENERIC_ELEMENTS_MAX in a message that is not compiled.  O(bytes).

    Raises ``UnsupportedVersion`` for an API or a version that is not in ``keys``, and
    ``KafkaFrameError`` for bytes that are no request.
    """
    length = len(frame)
    if length < _FIXED.size:
        raise frame_error(Problem.SHORT, "RequestHeader", 0, _FIXED.size, length)
    key, version, correlation_id = _FIXED.unpack_from(frame)
    api = keys.get(key)
    if api is None or not within(version, api.served):
        raise UnsupportedVersion(RequestHeader(
            request_api_key=key, request_api_version=version, correlation_id=correlation_id))
    message = REQUESTS[key]
    if not message.hot:
        elements_max = min(elements_max, GENERIC_ELEMENTS_MAX)
    header_version = 2 if _is_flexible(message, version) else 1
    header, at = decode(REQUEST_HEADER, frame, 0, header_version, elements_max)
    value, _ = decode(message, frame, at, version, elements_max)
    return Request(header, value)


def encode_response(header: RequestHeader, message: Any) -> list[Buffer]:
    """Encode the response to a request with that header, as a frame with its length.

    Returns buffers in the order of the bytes.  Records of the message are among them as they were
    given, never copied, and an ``EncodedMessage`` as well.  O(bytes that are no records).  Raises
    ``UnencodableMessage``.
    """
    key, version = header.request_api_key, header.request_api_version
    response = RESPONSES[key]
    before = _BEFORE.pack(0, header.correlation_id)
    # Clients read the answer to ApiVersions before they know what the node supports.
    if key != ApiKey.API_VERSIONS and _is_flexible(response, version):
        before += _NO_TAGS
    if type(message) is EncodedMessage:
        assert (message.key, message.version) == (key, version), "the response to another request"
        return _with_length([bytearray(before), message.data])
    return _with_length(encode(response, message, version, before))


def encoded_message(key: int, version: int, message: Any) -> EncodedMessage:
    """Encode a response without its header, for ``encode_response``.  O(bytes).  Raises
    ``UnencodableMessage``."""
    return EncodedMessage(key, version, b"".join(encode(RESPONSES[key], message, version, b"")))


def _with_length(buffers: list[Buffer]) -> list[Buffer]:
    """Fill in the length of the frame, the first field of the first buffer."""
    _LENGTH.pack_into(buffers[0], 0, sum(map(len, buffers)) - _LENGTH.size)
    return buffers


def encode_request(header: RequestHeader, message: Any) -> list[Buffer]:
    """Encode a request, as a frame with its length; the counterpart of ``decode_request``."""
    request = REQUESTS[header.request_api_key]
    flexible = _is_flexible(request, header.request_api_version)
    before = b"".join(encode(REQUEST_HEADER, header, 2 if flexible else 1, bytes(_LENGTH.size)))
    return _with_length(encode(request, message, header.request_api_version, before))


def decode_response(frame: Buffer, header: RequestHeader, elements_max: int = ELEMENTS_MAX) -> Any:
    """Decode the response to a request with that header, without its length.

    Raises ``KafkaFrameError``, also for the response to another request.
    """
    if len(frame) < _LENGTH.size:
        raise frame_error(Problem.SHORT, "ResponseHeader", 0, _LENGTH.size, len(frame))
    (correlation_id,) = _LENGTH.unpack_from(frame)
    if correlation_id != header.correlation_id:
        raise KafkaFrameError("ResponseHeader.correlation_id", 0,
                              f"{correlation_id} where {header.correlation_id} is expected")
    key, version = header.request_api_key, header.request_api_version
    response, at = RESPONSES[key], _LENGTH.size
    if key != ApiKey.API_VERSIONS and _is_flexible(response, version):
        _, at = decode(RESPONSE_HEADER, frame, 0, 1, elements_max)
    value, _ = decode(response, frame, at, version, elements_max)
    return value


def api_versions_response(keys: ApiTable) -> ApiVersionsResponse:
    """Return the answer to ApiVersions that advertises ``keys``."""
    return ApiVersionsResponse(api_keys=[
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=api.advertised[0],
                                       max_version=api.advertised[1])
        for key, api in keys.items()])


def unsupported_api_versions(header: RequestHeader, keys: ApiTable) -> list[Buffer]:
    """Encode the answer to a request of ApiVersions in an unknown version.

    It has version 0, which every client can read, error 35 and all of ``keys`` (KIP-511).
    """
    assert header.request_api_key == ApiKey.API_VERSIONS
    response = api_versions_response(keys)
    response.error_code = ErrorCode.UNSUPPORTED_VERSION
    return encode_response(
        RequestHeader(request_api_key=ApiKey.API_VERSIONS, request_api_version=0,
                      correlation_id=header.correlation_id), response)
