"""Liveness after healing: groups that answer, groups that do not, and that the check always
ends."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from chaos.history import HistoryWriter
from chaos.run import liveness
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import PartitionRef, Topics, WorkloadContext
from multiraft.client._accumulator import ProducerSettings
from multiraft.wire.errors import TimedOut

PLACES = [PartitionRef("a", 1, 0, 11, 1), PartitionRef("b", 2, 0, 12, 2)]


class Delivery:
    """An append whose leader answers, or never does: the producer gives it up after its timeout."""

    def __init__(self, answered: bool, timeout_ms: int):
        self._answered = answered
        self._timeout_ms = timeout_ms

    async def wait(self):
        if not self._answered:
            await trio.sleep(self._timeout_ms / 1000)
            raise TimedOut("not sent")
        return SimpleNamespace(count=1, base_offset=0)


class Client:
    """The product's client, of a cluster in which one group has no leader."""

    def __init__(self, silent: int):
        self._silent = silent
        self._settings = ProducerSettings()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        return None

    async def topic_metadata(self, _topic):
        return None

    async def create_topic(self, _name, _partitions, settings=None):
        return SimpleNamespace(incarnation=9, partitions=(), name=_name)

    def producer(self, **settings):
        self._settings = ProducerSettings(**settings)
        return self

    def send_nowait(self, record):
        group = next(place.group for place in PLACES if place.topic == record.topic)
        return Delivery(group != self._silent, self._settings.delivery_timeout_ms)

    def _work(self):
        return None


def stuck(monkeypatch, silent: int) -> list[str]:
    context = WorkloadContext(
        1, Recorder(HistoryWriter(io.StringIO())), Topics(), lambda: {1: "n1:1"}, 7
    )
    context.topics.add(PLACES)
    monkeypatch.setattr(WorkloadContext, "client", lambda _self: Client(silent))
    monkeypatch.setattr(liveness.RecordSource, "take", lambda *_: ([1], [b"value"]))
    found = trio.run(liveness.stuck_groups, context,
                     clock=trio.testing.MockClock(autojump_threshold=0))
    return [anomaly.text.partition(" acknowledged")[0] for anomaly in found]


def test_groups_that_answer_are_no_anomaly(monkeypatch):
    assert stuck(monkeypatch, silent=0) == []


@pytest.mark.parametrize("group", [1, 2])
def test_a_group_that_never_answers_is_one_and_ends_nothing_else(monkeypatch, group):
    assert stuck(monkeypatch, silent=group) == [f"group {group}"]
