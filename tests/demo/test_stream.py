"""The demo's stream: records that count as acknowledged, and the measurement of pauses."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import create_autospec

import pytest
import stream as stream_module
from dataset import Flight
from stream import PACE_EVERY, Stream, longest_pause_s

from multiraft.client import blocking
from tests.admin_cli.fakes import FakeClient, FakeCluster, FakeProducer


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    made.topics = {"flights-UA": [[]], "flights-AA": [[]]}
    return made


def flights(count: int, carrier: str = "UA") -> list[Flight]:
    return [Flight(carrier, b"key-%d" % number, b"value-%d" % number) for number in range(count)]


def run(cluster, records) -> Stream:
    stream = Stream({"UA": "flights-UA", "AA": "flights-AA"}, rate=0)
    stream.run(FakeClient(cluster), FakeProducer(cluster), records, lambda now: None)
    return stream


def test_every_record_is_counted_once_whatever_batch_it_is_in(cluster):
    stream = run(cluster, flights(10))
    assert stream.sent == stream.acknowledged == 10
    topic = stream.by_carrier["UA"]
    assert list(topic.ledger.promised()) == list(topic.ledger.digests())
    assert list(topic.acknowledged_at) == sorted(topic.acknowledged_at)


def test_a_batch_that_failed_is_not_promised_and_its_neighbours_are(cluster):
    cluster.outcomes[b"value-4"] = TimeoutError("no answer")
    stream = run(cluster, flights(9))
    ledger = stream.by_carrier["UA"].ledger
    assert stream.acknowledged == 6
    assert list(ledger.promised()) == list(ledger.digests()[:3]) + list(ledger.digests()[6:])
    assert stream.by_carrier["UA"].failures


@pytest.mark.parametrize("times, pause_s", [
    ([9.0, 10.5, 10.6], 0.5),  # counted from the kill, not from the last acknowledgement before it
    ([9.0, 10.1, 11.4, 11.5], 1.3),
    ([9.0, 9.5], 0.0),  # all before it
    ([9.0, 10.1, 30.0, 50.0], 19.9),  # began inside the window
    ([9.0, 10.1, 26.0, 50.0], 15.9),
    ([], 0.0),
])
def test_a_pause_is_the_longest_silence_after_the_kill(times, pause_s):
    assert longest_pause_s(times, since=10.0, until=25.0) == pytest.approx(pause_s)


def test_a_paced_stream_turns_the_client_as_the_client_wants_it(cluster, monkeypatch):
    now_s = [100.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(stream_module, "time", SimpleNamespace(monotonic=lambda: now_s[0],
                                                               sleep=sleep))
    client = create_autospec(blocking.Client, instance=True)
    stream = Stream({"UA": "flights-UA"}, rate=PACE_EVERY * 4)  # 250 ms for what takes none
    stream.run(client, FakeProducer(cluster), flights(PACE_EVERY), lambda now: None)
    assert client.poll.called
    assert now_s[0] == pytest.approx(100.25) and stream.sent == PACE_EVERY


def test_a_stream_that_is_held_waits_and_goes_on_at_the_new_rate(cluster):
    client = create_autospec(blocking.Client, instance=True)
    stream = Stream({"UA": "flights-UA"}, rate=0)
    stream.hold_at = PACE_EVERY
    turns = []

    def release():
        turns.append(stream.sent)
        if len(turns) == 3:
            stream.hold_at, stream.rate = None, 1_000_000

    client.poll.side_effect = release
    stream.run(client, FakeProducer(cluster), flights(3 * PACE_EVERY), lambda now: None)
    assert turns[:3] == [PACE_EVERY] * 3
    assert stream.sent == 3 * PACE_EVERY
