"""Workloads of clients of Kafka: outcomes of librdkafka, in place of which a script answers; and a
small run with real nodes.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner

from admin_cli import extras
from chaos.history import FAIL, INFO, INVOKE, KAFKA, OK, PORT, Event, HistoryWriter, read_history
from chaos.report.series import label_of
from chaos.run import command
from chaos.run.command import NOT_HERE, PASSED, carry_out
from chaos.run.parameters import Folder, RunParameters
from chaos.run.runner import chosen
from chaos.values import encode
from chaos.workloads import KAFKA_WORKLOADS, WORKLOADS, kafka_client, kafka_reads, need_kafka
from chaos.workloads.kafka_client import (
    AT_KAFKAS_PORT,
    BURST_MAX,
    IN_FLIGHT_MAX,
    PRODUCER_ENDED,
    Append,
    KafkaConsumer,
    KafkaProducer,
    NotKnown,
    Received,
    Refused,
)
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import PartitionRef, Topics, WorkloadContext
from multiraft.wire.errors import OffsetOutOfRange
from tests.chaos.runs.test_real_runs import NEMESES, seed_of_both

kafka = pytest.importorskip("confluent_kafka")

TAKES_THE_MACHINE = True

RUN = 77
PLACE = PartitionRef("t", 5, 0, 100, 1)
SECONDS = 8.0
TIMED_OUT, NOT_LEADER, REQUEST_TIMED_OUT = -192, 6, 7


def error(code: int) -> object:
    """Return an error of librdkafka."""
    return kafka.KafkaError(code, "said")


class World:
    """A context whose history is kept in memory."""

    def __init__(self):
        self.file = io.StringIO()
        self.context = WorkloadContext(
            RUN, Recorder(HistoryWriter(self.file)), Topics(), dict, seed=3,
            kafka_nodes=lambda: {1: "127.0.0.1:1", 2: "127.0.0.1:2"})
        self.process = self.context.recorder.process()

    def append(self, value: int = 1) -> Append:
        """Return an append of one record that was invoked."""
        operation = self.process.invoke("append", key=PLACE.key, values=[value], acks="commit",
                                        producer=-1, epoch=-1, sequence=-1, **AT_KAFKAS_PORT)
        return Append(PLACE, encode(RUN, PLACE.key, value), 5, operation)

    def outcomes(self) -> list[tuple[str, dict]]:
        """Return kind and data of each completion."""
        lines = [json.loads(line) for line in self.file.getvalue().splitlines()]
        return [(line[1], line[5]) for line in lines if line[1] != INVOKE]


class Message:
    """Message that librdkafka passes to its callbacks, and returns from a poll."""

    def __init__(self, offset: int = -1001, error: object = None, value: bytes = b"",
                 partition: int = 0):
        self._offset, self._error, self._value = offset, error, value
        self._partition = partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> object:
        return self._error

    def value(self) -> bytes:
        return self._value

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition


class ProducerScript:
    """A producer that answers each record as ``answer`` says: an offset or an error, None = not
    until it is purged."""

    def __init__(self, answer: Callable[[int], object]):
        self.answer = answer
        self.settings: dict = {}
        self.sent: list[Callable] = []
        self.closed = False
        self._waiting: list[tuple[Callable, int]] = []

    def __call__(self, settings: dict) -> ProducerScript:
        self.settings = settings
        return self

    def produce(self, topic, record, partition, timestamp, on_delivery) -> None:
        if isinstance(self.answer(len(self.sent)), str):
            raise BufferError("Local: Queue full")
        self._waiting.append((on_delivery, len(self.sent)))
        self.sent.append(on_delivery)

    def poll(self, wait_s: float) -> None:
        waiting, self._waiting = self._waiting, []
        for deliver, number in waiting:
            answer = self.answer(number)
            if answer is None:
                self._waiting.append((deliver, number))
            elif isinstance(answer, int):
                deliver(None, Message(answer))
            else:
                deliver(answer, Message())

    def purge(self) -> None:
        self.answer = lambda number: error(-152)

    def close(self) -> None:
        self.closed = True


def outcomes_of(answer: Callable[[int], object], count: int = 1, acks: str = "commit",
                idempotent: bool = False) -> tuple[World, ProducerScript]:
    """Append some records with a producer that answers so, close it, and return what is left."""
    world, script = World(), ProducerScript(answer)

    async def run() -> None:
        producer = KafkaProducer(world.context, acks, idempotent, script)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.serve)
            for number in range(count):
                await producer.room()
                await producer.send([world.append(number + 1)])
            with trio.move_on_after(0.3):
                await producer.settled()
            nursery.cancel_scope.cancel()
        await producer.close()

    trio.run(run)
    assert script.closed
    return world, script


# ---- producers -------------------------------------------------------------------------------


def test_an_acknowledged_record_has_its_offset_and_raises_the_known_end():
    world, _ = outcomes_of(lambda number: 40 + number, count=3)
    assert world.outcomes() == [(OK, {"offset": 40}), (OK, {"offset": 41}), (OK, {"offset": 42})]
    assert world.context.topics.end(PLACE.key) == 43


def test_without_acks_an_offset_is_none():
    world, script = outcomes_of(lambda number: -1001, acks="none")
    assert world.outcomes() == [(OK, {"offset": -1})]
    assert script.settings["acks"] == "0"


@pytest.mark.parametrize("code, idempotent, kind", [
    (NOT_LEADER, False, FAIL), (NOT_LEADER, True, INFO), (REQUEST_TIMED_OUT, False, INFO),
    (TIMED_OUT, False, INFO), (-1, False, INFO)])
def test_an_error_is_a_failure_only_if_no_attempt_can_have_appended(code, idempotent, kind):
    world, _ = outcomes_of(lambda number: error(code), idempotent=idempotent)
    assert [outcome for outcome, _ in world.outcomes()] == [kind]


def test_a_producer_without_idempotence_repeats_nothing():
    _, plain = outcomes_of(lambda number: 1)
    _, idempotent = outcomes_of(lambda number: 1, idempotent=True)
    assert plain.settings["retries"] == 0
    assert "retries" not in idempotent.settings
    assert idempotent.settings["enable.idempotence"]


def test_a_record_that_the_client_does_not_take_was_not_sent():
    world, script = outcomes_of(lambda number: "full")
    assert [kind for kind, _ in world.outcomes()] == [FAIL]
    assert script.sent == []


def test_what_has_no_outcome_when_the_client_is_closed_is_not_known():
    world, _ = outcomes_of(lambda number: None, count=2)
    assert [kind for kind, _ in world.outcomes()] == [INFO, INFO]


def test_a_fatal_error_ends_the_producer_and_is_an_anomaly():
    fatal = kafka.KafkaError(59, "unknown", True)
    world, _ = outcomes_of(lambda number: fatal, count=3, idempotent=True)
    assert [kind for kind, _ in world.outcomes()] == [INFO] * 3
    (anomaly,) = world.context.anomalies  # one for the producer, not for each append
    assert (anomaly.id, anomaly.name) == ("A0", PRODUCER_ENDED)
    assert anomaly.text == ("a producer of librdkafka ended with a fatal error: "
                            "UNKNOWN_PRODUCER_ID: unknown")
    assert anomaly.time_us >= 0


@pytest.mark.parametrize("code", [NOT_LEADER, REQUEST_TIMED_OUT, TIMED_OUT, 45, 47, 59])
def test_an_error_that_is_not_fatal_is_no_anomaly(code):
    world, _ = outcomes_of(lambda number: error(code), idempotent=True)
    assert not world.context.anomalies


@pytest.mark.parametrize("method", ["poll", "produce"])
def test_a_fatal_error_that_a_call_raises_is_an_anomaly(monkeypatch, method):
    def raised(*_arguments, **_options) -> None:
        raise kafka.KafkaException(error(kafka.KafkaError._FATAL))

    monkeypatch.setattr(ProducerScript, method, raised)
    world, _ = outcomes_of(lambda number: None, idempotent=True)
    assert [anomaly.name for anomaly in world.context.anomalies] == [PRODUCER_ENDED]


def test_no_more_appends_wait_for_an_outcome_than_the_bound():
    world, script = World(), ProducerScript(lambda number: None)

    async def run() -> None:
        producer = KafkaProducer(world.context, "commit", False, script)
        with trio.move_on_after(0.5):
            while True:
                await producer.room()
                await producer.send([world.append()])
        await producer.close()

    trio.run(run)
    assert IN_FLIGHT_MAX - BURST_MAX < len(script.sent) <= IN_FLIGHT_MAX


# ---- consumers -------------------------------------------------------------------------------


class ConsumerScript:
    """A consumer that returns these messages."""

    def __init__(self, *messages: Message):
        self.messages = list(messages)

    def __call__(self, settings: dict) -> ConsumerScript:
        return self

    def poll(self, wait_s: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None


def taken(*messages: Message, records_max: int = 10, until_end: bool = False):
    async def run():
        consumer = KafkaConsumer(World().context, "read_committed", ConsumerScript(*messages))
        return await consumer.take(records_max, 1.0, until_end)

    return trio.run(run)


def test_records_come_without_the_events_between_them():
    no_groups, connection = error(30), error(-195)
    found, ended = taken(Message(error=no_groups), Message(5, value=b"a"),
                         Message(error=connection), Message(6, value=b"b"))
    assert found == [Received("t", 0, 5, b"a"), Received("t", 0, 6, b"b")]
    assert not ended


def test_a_read_ends_with_the_partition_or_with_enough_records():
    end = error(kafka.KafkaError._PARTITION_EOF)
    found, ended = taken(Message(5), Message(6, error=end), Message(7), until_end=True)
    assert (len(found), ended) == (1, True)
    assert len(taken(*[Message(at) for at in range(5)], records_max=3)[0]) == 3


@pytest.mark.parametrize("code, text, raised", [
    (-140, "fetch failed: Broker: Offset out of range", OffsetOutOfRange),
    (-140, "another reason", NotKnown), (3, "no such partition", NotKnown),
    (-199, "a bad checksum", NotKnown)])
def test_an_assignment_that_cannot_be_read_is_an_error(code, text, raised):
    with pytest.raises(raised):
        taken(Message(error=kafka.KafkaError(code, text)))


def test_records_without_a_gap_between_them_are_one_run():
    records = [Received("t", 0, at, encode(RUN, PLACE.key, value))
               for at, value in ((5, 1), (6, 2), (8, 3))]
    assert kafka_client.runs_of(RUN, PLACE.key, records) == [[5, [1, 2]], [8, [3]]]
    assert kafka_reads.by_place({PLACE: 0}, records) == {PLACE: records}


def test_a_refusal_is_definite_only_where_nothing_can_have_happened():
    refused = error(NOT_LEADER)
    assert isinstance(kafka_client.error_of(refused, True), Refused)
    assert isinstance(kafka_client.error_of(refused, False), NotKnown)
    assert isinstance(kafka_client.error_of(error(1), True), OffsetOutOfRange)


# ---- the command, the report -----------------------------------------------------------------


def test_all_workloads_have_those_of_kafkas_clients():
    assert KAFKA_WORKLOADS <= set(chosen(("all",))) == set(WORKLOADS)
    assert need_kafka(["appends", "kafka-reads"]) and not need_kafka(["appends", "reads"])


def test_without_the_package_a_run_is_refused_with_the_line_to_run(monkeypatch, tmp_path):
    installed = extras.is_installed
    monkeypatch.setattr(extras, "is_installed",
                        lambda package: package != kafka_client.PACKAGE and installed(package))
    said = CliRunner().invoke(command.run_command, ["--output", str(tmp_path / "run")])
    assert said.exit_code == NOT_HERE
    assert "confluent_kafka is not installed" in said.output


def test_a_report_tells_the_ports_apart():
    data = {"acks": "commit"}
    assert label_of(Event(0, INVOKE, 1, 1, "append", data)) == "append (commit)"
    assert label_of(Event(0, INVOKE, 1, 1, "append", {**data, PORT: KAFKA})) \
        == "append (commit), Kafka"


# ---- real nodes ------------------------------------------------------------------------------


def test_nodes_are_killed_under_clients_of_kafka_and_nothing_is_lost(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    status = carry_out(RunParameters(
        folder.path, groups=4, seconds=SECONDS, nemeses=NEMESES, seed=seed_of_both(),
        workloads=tuple(KAFKA_WORKLOADS)), lambda line: None)
    verdict = json.loads(folder.verdict.read_text(encoding="utf-8"))
    assert status == PASSED, verdict
    counts: Counter[tuple[str, str]] = Counter()
    at_kafkas_port: dict[int, bool] = {}
    for event in read_history(folder.history):
        if event.kind == INVOKE:
            at_kafkas_port[event.operation] = event.data.get(PORT) == KAFKA
        elif at_kafkas_port.get(event.operation):
            counts[event.name, event.kind] += 1
    assert counts["append", OK] > 300, counts
    assert counts["read", OK] > 30 and counts["poll", OK] > 30, counts
    assert counts["offsets", OK] > 10 and counts["offset_for_time", OK] > 5, counts
    assert counts["create_topic", OK] >= 1 and counts["delete_records", OK] >= 3, counts
