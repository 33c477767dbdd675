"""Each message in each version: what was encoded is decoded to an equal message, by both codecs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.kafka import _codec, generic_decoder, generic_encoder
from multiraft.kafka.errors import KafkaFrameError, UnencodableMessage
from tests.kafka import values

SAMPLES = 12
HOT_BY_VERSION = [(message, version) for message, version in values.BY_VERSION if message.hot]


@pytest.mark.parametrize("message", values.MESSAGES, ids=values.name_of)
def test_the_generic_codec_returns_what_it_was_given(message):
    samples = values.Samples(1)
    for version in range(message.versions[0], message.versions[1] + 1):
        for _ in range(SAMPLES):
            given_values = samples.of(message, version)
            value = values.built(message, given_values)
            frame = b"".join(generic_encoder.encode(message, value, version, b"12"))
            found, end = generic_decoder.decode(message, frame, 2, version, values.ELEMENTS_MAX)
            assert end == len(frame)
            assert values.plain(message.struct, found, version) == given_values
            assert values.defaults(message, found, version) == []


@pytest.mark.parametrize("message,version", HOT_BY_VERSION, ids=values.name_of)
def test_both_codecs_write_and_read_the_same_bytes(message, version):
    samples = values.Samples(2)
    for _ in range(3 * SAMPLES):
        given_values = samples.of(message, version)
        expected = generic_encoder.encode(message, values.built(message, given_values), version,
                                          b"12")
        value = values.built(message, given_values, compiled=True)
        found = _codec.encode(message.name, value, version, b"12")
        assert [bytes(part) for part in found] == [bytes(part) for part in expected]
        again, end = _codec.decode(message.name, b"".join(found), 2, version, values.ELEMENTS_MAX)
        assert end == sum(map(len, found))
        assert values.plain(message.struct, again, version) == given_values
        assert values.defaults(message, again, version) == []


@pytest.mark.parametrize("message", values.HOT, ids=values.name_of)
def test_compiled_messages_compare_and_print_like_those_of_python(message):
    version = message.versions[1]
    given_values = values.Samples(3).of(message, version)
    one, other = (values.built(message, given_values, compiled=True) for _ in range(2))
    assert one == other and not one != other
    assert one != values.built(message, given_values)
    assert repr(one).partition("(")[0] == message.name
    if "FetchResponse" not in message.name:  # whose records are memoryviews in both
        assert repr(one) == repr(values.built(message, given_values))
    with pytest.raises(TypeError):
        hash(one)


def outcome(decode, *arguments):
    """Return what a decoder returned, or its error, for comparison."""
    try:
        return decode(*arguments)
    except KafkaFrameError as error:
        return type(error), error.field, error.at, str(error)


def both(message, data: bytes, version: int, elements_max: int) -> None:
    """Assert that both decoders accept the same, or refuse it for the same reason."""
    expected = outcome(generic_decoder.decode, message, data, 0, version, elements_max)
    found = outcome(_codec.decode, message.name, data, 0, version, elements_max)
    if isinstance(expected[0], type):
        assert found == expected
    else:
        assert found[1] == expected[1]
        assert values.plain(message.struct, found[0], version) == \
            values.plain(message.struct, expected[0], version)


def seeds(message, version) -> list[bytes]:
    """Return the bytes of some messages."""
    samples = values.Samples(4)
    return [b"".join(generic_encoder.encode(
        message, values.built(message, samples.of(message, version)), version, b""))
        for _ in range(SAMPLES)]


CHANGES = st.lists(st.tuples(
    st.integers(0, 400), st.sampled_from((0, 1, 1, 2, 4, 16)),
    st.binary(max_size=5) | st.sampled_from((
        b"\xff" * 4, b"\x7f\xff\xff\xff", b"\xff" * 5, b"\xff\xff\xff\xff\x0f", b"\x80\x00",
        b"\xff\xfe", b"\x01\x00\x02"))), max_size=3)


@pytest.mark.parametrize("message", values.HOT, ids=values.name_of)
def test_both_codecs_refuse_the_same_bytes_for_the_same_reason(message):
    versions = range(message.versions[0], message.versions[1] + 1)
    given_seeds = {version: seeds(message, version) for version in versions}

    @settings(max_examples=300, deadline=None, derandomize=True)
    @given(st.sampled_from(versions), st.integers(0, SAMPLES - 1), CHANGES,
           st.sampled_from((values.ELEMENTS_MAX, 3, 1, 0)))
    def check(version, seed, changes, elements_max):
        data = bytearray(given_seeds[version][seed])
        for at, count, new in changes:
            at %= len(data) + 1
            data[at:at + count] = new
        both(message, bytes(data), version, elements_max)

    check()


@pytest.mark.parametrize("message", values.HOT, ids=values.name_of)
def test_both_codecs_refuse_each_cut_for_the_same_reason(message):
    for version in (message.versions[0], message.versions[1]):
        for data in seeds(message, version):
            for length in range(min(len(data), 120)):
                both(message, data[:length], version, values.ELEMENTS_MAX)


@pytest.mark.parametrize("message,version", HOT_BY_VERSION, ids=values.name_of)
def test_both_codecs_refuse_values_that_the_version_lacks(message, version):
    """Messages of the last version, encoded in another one."""
    samples = values.Samples(5)
    for _ in range(SAMPLES):
        given_values = samples.of(message, message.versions[1])
        results = []
        for compiled in (False, True):
            value = values.built(message, given_values, compiled)
            try:
                found = _codec.encode(message.name, value, version, b"") if compiled else \
                    generic_encoder.encode(message, value, version, b"")
                results.append(b"".join(found))
            except UnencodableMessage as error:
                results.append((error.field, str(error)))
        assert results[0] == results[1]
