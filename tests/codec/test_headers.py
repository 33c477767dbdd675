"""Headers of frames: the twins agree with each other, and with an independent CBOR decoder that is
configured to refuse invalid contents of headers."""

import io
import struct

import cbor2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft import _core
from multiraft.codec import reference
from multiraft.codec.layout import HEADER_DEPTH_MAX
from multiraft.errors import MalformedHeader
from multiraft.types import EntryKind
from multiraft.wire.messages import BatchPart

thorough = settings(max_examples=300, deadline=None, derandomize=True)

integers = st.one_of(st.integers(-(2**63), 2**64 - 1), st.sampled_from(
    [sign * 2**bits + more for bits in (8, 16, 32, 63) for sign in (1, -1) for more in (-1, 0, 1)
     if -(2**63) <= sign * 2**bits + more]))
leaves = st.one_of(st.none(), st.booleans(), integers, st.text(max_size=30),
                   st.binary(max_size=300))
values = st.recursive(leaves, lambda inner: st.one_of(
    st.lists(inner, max_size=30), st.dictionaries(st.text(max_size=5), inner, max_size=30)),
    max_leaves=20)
headers = st.dictionaries(st.text(max_size=8), values, max_size=5)
#: Items of CBOR, well-formed or not, so that headers come about that are almost right.
items = st.recursive(
    st.one_of(leaves.map(cbor2.dumps), st.binary(min_size=1, max_size=3), st.sampled_from(
        [bytes.fromhex(digits) for digits in (
            "f90000", "fb7ff8000000000000", "f7", "f0", "f820", "c2420100", "c000", "d81c80", "5f",
            "7f6161ff", "9f00ff", "bf616100ff", "1818", "190001", "1a00000001",
            "1b0000000000000001", "3bffffffffffffffff", "62c328", "63eda080", "1c", "1f",
            "3b8000000000000000", "ff")])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=5).map(lambda many: bytes([0x80 + len(many)]) + b"".join(many)),
        st.lists(st.tuples(st.sampled_from([b"\x61a", b"\x61b", b"\x78\x01a", b"\x41a", b"\x00"]),
                           inner), max_size=4).map(
            lambda many: bytes([0xA0 + len(many)]) + b"".join(map(b"".join, many)))),
    max_leaves=10)


def outcome(function, *arguments):
    """Return the result of a call or its error, for comparison; ``repr`` tells True from 1."""
    try:
        return repr(function(*arguments))
    except (MalformedHeader, TypeError, ValueError, OverflowError) as error:
        return type(error), str(error)


def decoded(data: bytes):
    """Return the header that both twins decode from ``data``, or None."""
    results = [outcome(twin.decode_header, data, 0, len(data)) for twin in (reference, _core)]
    assert results[0] == results[1]
    if isinstance(results[0], tuple):
        assert results[0][0] is MalformedHeader
        return None
    return _core.decode_header(data, 0, len(data))


def independent(data: bytes):
    """Return the value that cbor2 decodes, with all refusals that it supports; the others are
    checked on the result."""
    source = io.BytesIO(data)
    try:
        header = cbor2.CBORDecoder(
            source, tag_hook=refuse, semantic_decoders=dict.fromkeys(
                (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004,
                 43000, 55799), refuse),
            max_depth=HEADER_DEPTH_MAX, allow_indefinite=False, allow_duplicate_keys=False,
            strict_hashable_types=True).decode()
    except (cbor2.CBORDecodeError, ValueError, OverflowError):
        return None
    if source.tell() != len(data) or type(header) is not dict or not plain(header):
        return None
    return header


def refuse(*_):
    raise ValueError("a tag")


def plain(value) -> bool:
    """True if the value consists of types that a header may contain."""
    if type(value) is dict:
        return all(type(key) is str and plain(item) for key, item in value.items())
    if type(value) is list:
        return all(map(plain, value))
    if type(value) is int:
        return -(2**63) <= value < 2**64
    return value is None or type(value) in (bool, str, bytes)


@thorough
@given(headers, st.integers(0, 1 << 31))
def test_both_twins_encode_as_cbor2_does_and_decode_what_they_encoded(header, payload_bytes):
    body = cbor2.dumps(header)
    expected = struct.pack(">II", 4 + len(body) + payload_bytes, len(body)) + body
    deep = outcome(reference.encode_header, header, payload_bytes)
    assert outcome(_core.encode_header, header, payload_bytes) == deep
    if isinstance(deep, tuple):
        assert "depth" in deep[1]
        return
    assert _core.encode_header(header, payload_bytes) == expected
    assert repr(decoded(body)) == repr(header)


@thorough
@given(st.lists(st.tuples(st.sampled_from([b"\x61a", b"\x61b", b"\x60", b"\x41a", b"\x81\x00"]),
                          items), max_size=4), st.binary(max_size=2), st.integers(-1, 5))
@example([(b"\x61a", b"\x81" * (HEADER_DEPTH_MAX - 1) + b"\x00")], b"", -1)
@example([(b"\x61a", b"\x81" * HEADER_DEPTH_MAX + b"\x00")], b"", -1)
def test_what_is_almost_a_header_is_taken_or_refused_as_an_independent_decoder_does(
        pairs, after, cut):
    data = bytes([0xA0 + len(pairs)]) + b"".join(map(b"".join, pairs)) + after
    if cut >= 0:
        data = data[:max(0, len(data) - cut)]
    assert repr(decoded(data)) == repr(independent(data))


@thorough
@given(st.binary(max_size=60))
def test_any_bytes_are_taken_or_refused_as_an_independent_decoder_does(data):
    assert repr(decoded(data)) == repr(independent(data))


@given(headers, st.binary(max_size=9), st.binary(max_size=9))
def test_a_header_is_decoded_where_it_stands(header, before, after):
    body = cbor2.dumps(header)
    if independent(body) is None:
        return  # too deep
    whole = memoryview(bytearray(before + body + after))
    for twin in (reference, _core):
        assert twin.decode_header(whole, len(before), len(before) + len(body)) == header


def test_places_outside_the_data_are_refused(twin):
    for at, end in ((-1, 1), (0, 2), (1, 0)):
        with pytest.raises(ValueError, match="bytes"):
            twin.decode_header(b"\xa0", at, end)


def test_rows_and_enumerations_are_encoded_as_what_they_are(twin):
    encoded = twin.encode_header({"rows": (BatchPart(1, 2),), "kind": EntryKind.DATA}, 0)
    assert encoded[8:] == cbor2.dumps({"rows": [[1, 2]], "kind": int(EntryKind.DATA)})


@pytest.mark.parametrize("value", [1.5, {1}, bytearray(b"x"), object(), 1 << 64, -(1 << 63) - 1,
                                   -(1 << 200), "\ud800", {1: 2}, {b"k": 2}, [[{"a": 2.5}]]])
def test_what_has_no_place_in_a_header_is_refused_alike(value):
    results = [outcome(twin.encode_header, {"a": value}, 0) for twin in (reference, _core)]
    assert results[0] == results[1]
    assert isinstance(results[0], tuple)


def test_a_value_within_itself_is_refused(twin):
    endless: list = []
    endless.append(endless)
    with pytest.raises(ValueError, match="depth"):
        twin.encode_header({"a": endless}, 0)


@pytest.mark.parametrize("payload_bytes", [-1, (1 << 32) - 5, 1 << 32, 1 << 70])
def test_a_frame_that_cannot_be_announced_is_refused(twin, payload_bytes):
    with pytest.raises(OverflowError, match="payload bytes"):
        twin.encode_header({}, payload_bytes)


def test_the_largest_frame_can_be_announced(twin):
    assert twin.encode_header({}, (1 << 32) - 1 - 5)[:4] == b"\xff" * 4


def test_only_a_map_is_a_header(twin):
    with pytest.raises(TypeError, match="dict"):
        twin.encode_header([("a", 1)], 0)
    with pytest.raises(MalformedHeader, match="not a map"):
        twin.decode_header(b"\x80", 0, 1)
