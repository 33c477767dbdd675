"""Items of peer frames: every message survives the round trip, any other input is a protocol
error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.core import frame_entries
from multiraft.liveness.leadership_digest import BUCKETS
from multiraft.raft import messages as m
from multiraft.types import Entry, EntryKind
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import Frame, FrameReader
from node.peers import codec
from node.peers.codec import GROUP_MAX, ITEMS_ACCEPTED_MAX, TERM_MAX, decode
from tests.node.harness import batch

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
groups = st.integers(0, GROUP_MAX)
terms = st.integers(0, TERM_MAX)
head = (groups, u32, terms)
led = st.tuples(groups, u32, terms)
changes = st.tuples(groups, u32, terms, st.booleans())

MESSAGES = {
    m.VoteRequest: st.builds(m.VoteRequest, *head, u64, terms, st.booleans(), st.booleans()),
    m.VoteReply: st.builds(m.VoteReply, *head, st.booleans(), st.booleans()),
    m.Append: st.builds(m.Append, *head, u64, terms, u64, u64, st.just(()), u64),
    m.AppendReply: st.builds(m.AppendReply, *head, u32, u64, u64, u64, terms, u64),
    m.TimeoutNow: st.builds(m.TimeoutNow, *head),
    m.Removed: st.builds(m.Removed, *head, u64, u64),
    m.DigestQuery: st.builds(
        m.DigestQuery, st.lists(u64, min_size=BUCKETS, max_size=BUCKETS).map(tuple)
    ),
    m.DigestAnswer: st.builds(
        m.DigestAnswer,
        st.lists(st.integers(0, BUCKETS - 1), unique=True).map(tuple),
        st.lists(led, max_size=5).map(tuple),
    ),
    m.LeadershipDeltaRequest: st.builds(m.LeadershipDeltaRequest, u64),
    m.SnapshotOffer: st.builds(m.SnapshotOffer, *head, u64, u64),
    m.HeadRecoveryRequest: st.builds(m.HeadRecoveryRequest, *head, u64),
    m.HeadRecoveryGrant: st.builds(m.HeadRecoveryGrant, *head, u64, u64),
    m.LeadershipDelta: st.builds(
        m.LeadershipDelta, u64, u64, st.lists(changes, max_size=5).map(tuple)
    ),
}


def over_the_wire(buffers: list) -> Frame:
    """Return the frame as the receiver's reader decodes it."""
    reader, data = FrameReader(), b"".join(buffers)
    while data:
        room = reader.buffer_for_receive()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        reader.received(count)
        data = data[count:]
        frame = reader.next_frame()
    return frame


def test_every_type_of_message_has_a_strategy():
    assert set(MESSAGES) == set(codec._TYPES)


@given(st.lists(st.one_of(*MESSAGES.values()), max_size=8))
def test_messages_come_back_in_order_and_as_they_were(messages):
    items = [codec.encode(message, 0) for message in messages]
    assert codec.decode(over_the_wire(codec.frame(items))) == messages


def test_entries_come_back_with_the_append_that_brought_them():
    entries = tuple(Entry(EntryKind.METADATA, 3, 1, 7, index, payload=b"e" * index)
                    for index in (5, 6))
    data = batch(b"one", b"two")
    batches = (Entry(EntryKind.DATA, 4, 1, 9, 11, 77, 0, memoryview(data)),)
    items, payload = [], []
    for group, held in ((3, entries), (4, batches)):
        buffers = frame_entries(held, 0, 0)[0]
        append = m.Append(group, 1, held[0].term, held[0].index - 1, 1, held[-1].index, 0)
        items.append(codec.encode(append, sum(map(len, buffers))))
        payload += buffers
    first, second = codec.decode(over_the_wire(codec.frame(items, payload)))
    assert [(entry.index, entry.term, bytes(entry.payload)) for entry in first.entries] == [
        (5, 7, b"e" * 5), (6, 7, b"e" * 6)]
    assert bytes(second.entries[0].payload) == data
    assert second.entries[0].batch.count == 2


def damaged(payload: bytes) -> None:
    append = m.Append(1, 1, 1, 0, 0, 1, 0)
    with pytest.raises(RemoteProtocolError):
        codec.decode(Frame({"i": [codec.encode(append, len(payload))]},
                                memoryview(payload)))


def test_an_entry_that_is_damaged_in_any_byte_is_a_protocol_error():
    buffers = frame_entries([Entry(EntryKind.METADATA, 1, 1, 1, 1, payload=b"payload!")], 0, 0)[0]
    whole = b"".join(buffers)
    checked = [at for at in range(72) if not 8 <= at < 12 and not 56 <= at < 64]
    for at in checked:  # prev_crc and durable are the sender's own
        damaged(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    damaged(whole[:-8])


values = st.recursive(
    st.integers(-5, 2**64 - 1) | st.booleans() | st.none() | st.text(max_size=3)
    | st.binary(max_size=3), lambda inner: st.lists(inner, max_size=9), max_leaves=20)
items = st.one_of(values, st.tuples(st.integers(0, 11), st.lists(values, max_size=9)).map(
    lambda item: [item[0], *item[1]]))


@given(st.one_of(values, st.lists(items, max_size=4)), st.binary(max_size=100))
def test_whatever_else_is_a_protocol_error_and_nothing_else(header, payload):
    try:
        decoded = codec.decode(Frame({"i": header}, memoryview(payload)))
    except RemoteProtocolError:
        return
    for message in decoded:
        assert type(message) in MESSAGES


@pytest.mark.parametrize("item", [
    [3, [1], 1, 1, 0, 0, 0, 0, 0],  # a list where a number belongs
    [3, 1, 1, 1, 0, 0, 0, 0, True],
    [3, 1, 1, 1, 0, 0, 0, 0, -1],
    [5, 1, 1, TERM_MAX + 1],
    [5, 1, 1, True],
    [2, 1, 1, 1, 1, False],  # a number where a truth value belongs
    [6, [0] * (BUCKETS - 1)],
    [7, [BUCKETS], []],
    [7, [0] * (BUCKETS + 1), []],
    [7, [], [[1, 1, TERM_MAX + 1]]],
    [9, 0, 1, [[GROUP_MAX + 1, 1, 1, True]]],
    [9, 0, 1, [7]],
    [10],
    [],
    "item",
])
def test_items_that_are_almost_right(item):
    with pytest.raises(RemoteProtocolError):
        codec.decode(Frame({"i": [item]}, memoryview(b"")))


def test_a_frame_of_more_items_than_anybody_sends_is_refused():
    item = [5, 1, 1, 1]
    assert len(decode(Frame({"i": [item[:] for _ in range(ITEMS_ACCEPTED_MAX)]},
                            memoryview(b"")))) == ITEMS_ACCEPTED_MAX
    with pytest.raises(RemoteProtocolError, match="4097 items, the limit is 4096"):
        decode(Frame({"i": [item] * (ITEMS_ACCEPTED_MAX + 1)}, memoryview(b"")))


def test_bytes_that_no_item_claims_are_a_protocol_error():
    with pytest.raises(RemoteProtocolError, match="3 bytes belong to no item"):
        codec.decode(Frame({"i": []}, memoryview(b"abc")))
