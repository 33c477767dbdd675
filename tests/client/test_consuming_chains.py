"""Consumers of switched partitions, with both clients: each part is read from its own group."""

from __future__ import annotations

import pytest

from multiraft.client import Record, Timestamp
from multiraft.wire import messages
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.scripts import values_of

COUNT = 120


def fill(client, cluster, parts: int = 4) -> list[bytes]:
    """Append records whose timestamps are their numbers, in parts on nodes 1, 2, 3, 1 and so on."""
    client.create_topic("a")
    values = [b"%04d" % number for number in range(COUNT)]
    with client.producer(batch_bytes=200) as producer:
        for number, value in enumerate(values):
            producer.send_nowait(Record("a", value, timestamp_ms=number))
    part = cluster.topics["a"][0]
    ends = [part.log[len(part.log) * number // parts][0] for number in range(1, parts)]
    cluster.links[part.incarnation] = [(end, 1 + at % 3) for at, end in enumerate(ends)]
    cluster.leaders[part.group] = 1 + len(ends) % 3
    client.topic_metadata("a")
    return values


def test_a_client_that_knows_of_no_switch_follows_it_all_the_same(client, cluster):
    """Its metadata are from before the first one."""
    values = fill(client, cluster, 1)
    part = cluster.topics["a"][0]
    ends = [part.log[len(part.log) * number // 3][0] for number in (1, 2)]
    cluster.links[part.incarnation] = [(ends[0], 1), (ends[1], 2)]
    cluster.leaders[part.group] = 3
    assert values_of(client.consume("a", until_end=True)) == values


def asked_of(cluster, kind) -> list[tuple[int, int]]:
    """Return (node, offset or epoch) of each request, without consecutive repetitions."""
    found = []
    for node, request in cluster.requests:
        if isinstance(request, kind):
            one = (node, getattr(request.partitions[0], "offset", None))
            if not found or found[-1] != one:
                found.append(one)
    return found


@pytest.mark.parametrize("parts", [2, 3, 4, 7])
def test_a_reader_crosses_every_part(client, cluster, parts):
    values = fill(client, cluster, parts)
    assert values_of(client.consume("a", until_end=True)) == values


def test_each_crossing_asks_who_has_the_end_once(client, cluster):
    fill(client, cluster, 3)
    ends = [end for end, _ in cluster.links[cluster.topics["a"][0].incarnation]]
    assert len(values_of(client.consume("a", until_end=True))) == COUNT
    crossings = [one for one in asked_of(cluster, messages.Fetch) if one[1] in (0, *ends)]
    # The last part's leader (3) redirects to the first part (1), and is asked again at its end.
    assert crossings == [(3, 0), (1, 0), (3, ends[0]), (2, ends[0]), (3, ends[1])]


def test_a_reader_begins_in_the_middle_and_goes_on_to_what_comes(client, cluster):
    values = fill(client, cluster)
    consumer = iter(client.consume("a", 0, 20))
    read = []
    while len(read) < COUNT - 20:
        read += values_of([next(consumer)])
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"new")).wait()
    assert values_of([next(consumer)]) == [b"new"]
    assert read == values[20:]


@pytest.mark.parametrize("parts", [2, 4])
def test_a_time_is_looked_for_part_by_part(client, cluster, parts):
    values = fill(client, cluster, parts)
    for number in (0, 1, 29, 30, 31, 60, 61, 100, COUNT - 1):
        assert client.offsets_at("a", number) == {0: number}
        assert values_of(client.consume("a", start=Timestamp(number),
                                        until_end=True)) == values[number:]
    assert client.offsets_at("a", COUNT) == {0: None}
    assert values_of(client.consume("a", start=Timestamp(COUNT), until_end=True)) == []


def test_a_part_whose_leader_is_gone_is_found_again(client, cluster):
    """The node that led the first part leads it no longer; the last part's leader names the new
    one."""
    values = fill(client, cluster, 2)
    incarnation = cluster.topics["a"][0].incarnation
    gone = []

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch) and node == 1 and not gone:
            gone.append(node)
            cluster.links[incarnation] = [(end, 3) for end, _ in cluster.links[incarnation]]
            return ResponseEvent(event.id, messages.FetchReply((messages.FetchResult(
                incarnation, Code.NOT_LEADER, -1, -1, 0, ErrorDetail("gone", 3, group=100)),)))
        return None

    cluster.script = script
    assert values_of(client.consume("a", until_end=True)) == values and gone


def test_two_nodes_that_send_a_reader_to_each_other_are_not_asked_without_a_pause(client, cluster):
    """Each redirects to the other: the reader follows a few times at once, then with pauses."""
    values = fill(client, cluster, 2)
    part = cluster.topics["a"][0]
    sent_on = []

    def script(node, event, connection):
        if isinstance(event.request, messages.Fetch) and len(sent_on) < 12:
            sent_on.append(node)
            other = 3 - node if node < 3 else 1
            detail = ErrorDetail("there", other, cluster.addresses[other], 0, 60, group=100,
                                 epoch=1)
            return ResponseEvent(event.id, messages.FetchReply((messages.FetchResult(
                part.incarnation, Code.MOVED, -1, -1, 0, detail),)))
        return None

    cluster.script = script
    assert values_of(client.consume("a", until_end=True)) == values
    assert len(sent_on) == 12


def test_an_end_is_asked_for_again_where_the_partition_went(client, cluster):
    """Latest, at a node that led the partition until a moment ago."""
    fill(client, cluster, 2)
    part = cluster.topics["a"][0]
    client.describe_topic("a")
    old = cluster.leaders[part.group]
    cluster.links[part.incarnation].append((part.next_offset, old))
    cluster.leaders[part.group] = old % 3 + 1

    def script(node, event, connection):
        if isinstance(event.request, messages.ListOffsets) and node == old:
            detail = cluster._moved(part, node, 3)
            return ResponseEvent(event.id, messages.ListOffsetsReply(tuple(
                messages.OffsetResult(query.incarnation, Code.MOVED, -1, detail)
                for query in event.request.partitions)))
        return None

    cluster.script = script
    assert client.list_offsets("a")[0] == (0, COUNT)
