"""Topics that did not exist: usable after their creation, by this client or another one."""

from __future__ import annotations

import random

import pytest

from multiraft.client import Record
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._metadata import MetadataCache
from multiraft.client._producer import ProducerState
from multiraft.wire import errors
from multiraft.wire import messages as m

GRACE_MS, KEPT_MS = MetadataCache.MISSING_GRACE_MS, MetadataCache.MISSING_KEPT_MS


def append(client, topic: str, how: str) -> None:
    with client.producer(linger_ms=0) as producer:
        if how == "send":
            producer.send(Record(topic, b"x")).wait()
        else:
            producer.send_many(topic, [b"x"])


def read(client, topic: str) -> int:
    consumer = client.consume(topic, until_end=True)
    return sum(len(batch) for batch in consumer)


@pytest.mark.parametrize("how", ["send", "send_many"])
@pytest.mark.parametrize("asked", ["describe", "delete", "send", "send_many", "consume"])
def test_a_topic_that_was_asked_for_before_it_existed_is_used_once_it_exists(client, world, cluster,
                                                                            asked, how):
    with pytest.raises(errors.UnknownTopic):
        {"describe": client.describe_topic, "delete": client.delete_topic,
         "send": lambda name: append(client, name, "send"),
         "send_many": lambda name: append(client, name, "send_many"),
         "consume": lambda name: read(client, name)}[asked]("orders")
    world.call(cluster.add_topic, "orders")  # another client does
    append(client, "orders", how)
    assert read(client, "orders") == 1


def test_what_this_client_creates_it_uses_at_once(client, cluster):
    with pytest.raises(errors.UnknownTopic):
        append(client, "orders", "send")
    client.create_topic("orders")
    append(client, "orders", "send_many")
    assert read(client, "orders") == 1


def test_a_topic_that_somebody_deleted_and_created_again_is_used(client, world, cluster):
    client.create_topic("orders")
    append(client, "orders", "send")
    world.call(cluster.topics.pop, "orders")
    with pytest.raises(errors.UnknownTopic):
        client.describe_topic("orders")
    with pytest.raises(errors.UnknownTopic):
        append(client, "orders", "send")
    world.call(cluster.add_topic, "orders")
    append(client, "orders", "send")
    assert read(client, "orders") == 1


# ---- what is remembered, alone ------------------------------------------------------------------


def missing(*names: str) -> m.MetadataReply:
    return m.MetadataReply(bytes(16), (), (), names)


class Waiting:
    """Cache that gets an answer every 100 ms that the topic does not exist."""

    def __init__(self):
        self.cache = MetadataCache()

    def hears(self, *times_ms: int) -> None:
        for at in times_ms:
            self.cache.apply(("t",), missing("t"), at)

    def ends(self, since_ms: int, now_ms: int) -> bool:
        return self.cache.is_missing("t", since_ms, now_ms)


def test_whoever_waits_is_told_when_nodes_have_said_so_for_a_while():
    waiting = Waiting()
    waiting.hears(*range(0, GRACE_MS, 100))
    assert not waiting.ends(0, GRACE_MS - 1) and waiting.cache.wants
    waiting.hears(GRACE_MS)
    assert waiting.ends(0, GRACE_MS) and not waiting.cache.wants


def test_what_was_said_before_somebody_began_to_wait_does_not_count():
    waiting = Waiting()
    waiting.hears(*range(0, GRACE_MS + 1, 100))
    assert not waiting.ends(GRACE_MS, GRACE_MS), "the topic may have been created since"
    waiting.hears(*range(GRACE_MS, 2 * GRACE_MS + 1, 100))
    assert waiting.ends(GRACE_MS, 2 * GRACE_MS)


def test_a_negative_answer_has_an_end():
    waiting = Waiting()
    waiting.hears(*range(0, GRACE_MS + 1, 100))
    assert waiting.ends(0, GRACE_MS + KEPT_MS)
    assert not waiting.ends(0, GRACE_MS + KEPT_MS + 1)
    waiting.hears(GRACE_MS + KEPT_MS + 1)
    assert not waiting.ends(0, GRACE_MS + KEPT_MS + 1), "it begins anew"


def test_few_names_that_do_not_exist_are_remembered():
    cache = MetadataCache()
    for number in range(2 * cache.MISSING_NAMES_MAX):
        cache.apply((f"t{number}",), missing(f"t{number}"), number)
    assert len(cache._missing) == cache.MISSING_NAMES_MAX


def test_each_record_waits_for_itself():
    cache = MetadataCache()
    state = ProducerState(ProducerSettings(linger_ms=0), cache, random.Random(1))
    state.identify(7, 0)
    first = state.records.send(Record("t", b"1"), 0, 0)
    for at in range(0, GRACE_MS + 1, 100):
        cache.apply(("t",), missing("t"), at)
    second = state.records.send(Record("t", b"2"), GRACE_MS, 0)
    state.poll(GRACE_MS)
    assert isinstance(first.outcome, errors.UnknownTopic) and not second.done and cache.wants
    for at in range(GRACE_MS, 2 * GRACE_MS + 1, 100):
        cache.apply(("t",), missing("t"), at)
    state.poll(2 * GRACE_MS)
    assert isinstance(second.outcome, errors.UnknownTopic) and not cache.wants
    assert not state.records.staged
