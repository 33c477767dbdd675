"""CBOR in chunks: the same bytes and the same values as in one call."""

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.storage import chunked_cbor
from multiraft.storage.chunked_cbor import ITEMS_PER_CHUNK, Encoded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner,
                                                                max_size=5), max_leaves=30)


@given(VALUES)
def test_any_value_is_the_same_bytes_and_the_same_value(value):
    data = chunked_cbor.dumps(value)
    assert data == cbor2.dumps(value)
    assert chunked_cbor.loads(data) == value


@pytest.mark.parametrize("count", [0, 23, 24, 255, 256, 257, 1000, 65_536, 70_000])
def test_long_lists_and_maps_are_the_same_bytes(count):
    value = [1, {"rows": [[number, "x", b"y"] for number in range(count)],
                 "table": {str(number): number for number in range(count)}}, ()]
    data = chunked_cbor.dumps(value)
    assert data == cbor2.dumps(value)
    assert chunked_cbor.loads(data) == cbor2.loads(data)


def test_no_call_of_the_codec_is_given_more_than_a_chunk(monkeypatch):
    most = []
    inner = cbor2.dumps

    def dumps(value):
        most.append(len(value) if isinstance(value, (list, dict)) else 1)
        return inner(value)

    monkeypatch.setattr(chunked_cbor.cbor2, "dumps", dumps)
    chunked_cbor.dumps([1, 2, [b"x"] * 5000, {"topics": [[1, 2]] * 5000, "few": [1] * 3}])
    assert max(most) <= ITEMS_PER_CHUNK


def test_what_is_encoded_already_stands_as_it_is():
    state = {"topics": [["t", 1]] * 600}
    assert chunked_cbor.dumps([1, Encoded(cbor2.dumps(state))]) == cbor2.dumps([1, state])


@pytest.mark.parametrize("data", [b"", b"\x82\x01", b"\x9b" + b"\xff" * 8, b"\xa1\x01",
                                  b"\x5f", b"\xff", b"\x01\x01", b"\x81\x01\x00"])
def test_bytes_that_are_no_value_are_refused(data):
    with pytest.raises((cbor2.CBORDecodeError, ValueError)):
        chunked_cbor.loads(data)
