"""Clients that crash inside a run: a finding of its own, and the run continues to its verdict."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from click.testing import CliRunner

from chaos.backends.backend import KILL, ClusterSpec
from chaos.checkers.command import check_folder
from chaos.checkers.verdict import Anomaly
from chaos.history import END, FAULTS, INFO, INVOKE, PHASE, read_history
from chaos.run import command, final_reads, runner
from chaos.run.command import ANOMALIES, carry_out
from chaos.run.crashes import Crashes
from chaos.run.parameters import Folder, RunParameters
from chaos.run.topics import SetupFailed
from chaos.values import encode
from chaos.workloads.kafka_client import AT_KAFKAS_PORT, PRODUCER_ENDED, Append, KafkaProducer
from chaos.workloads.workload_context import PartitionRef, WorkloadContext
from multiraft.wire.placements import EpochRow

TAKES_THE_MACHINE = True

PLACES = [PartitionRef("t", 5, partition, 100 + partition, 1) for partition in range(2)]


class Still:
    """A backend whose cluster has no nodes; it notes its calls."""

    kinds, left_out, versions = frozenset({KILL}), {}, {}
    spec = ClusterSpec()

    def __init__(self):
        self.asked: list[str] = []

    def __enter__(self) -> Still:
        return self

    def __exit__(self, *_why: object) -> None:
        self.asked.append("close")

    def nodes(self) -> list[int]:
        return []

    def exits(self) -> list:
        return []

    def __getattr__(self, name: str):
        return lambda *_arguments: self.asked.append(name)


async def nothing(*_arguments: object) -> list:
    await trio.lowlevel.checkpoint()
    return []


async def crash(*_arguments: object) -> None:
    await trio.lowlevel.checkpoint()
    raise TypeError("the client stumbled")


async def asking_until_it_crashes(context: WorkloadContext) -> None:
    """Run a process that waits for an answer while the client of another one crashes."""
    async def wait() -> None:
        with context.recorder.process().invoke("describe", topic="waiting"):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.05)
        with context.recorder.process().invoke("describe", topic="crashing"):
            await crash()


async def unharmed(context: WorkloadContext) -> None:
    while True:
        await trio.sleep(0.01)
        context.recorder.process().invoke("describe", topic=f"{context.recorder.phase_name}").ok(
            incarnation=-1, epoch=-1, groups=[])


async def schedule(run_state) -> None:
    run_state.context.recorder.fault(KILL, True, (1,), "killed")
    await trio.sleep(0.1)
    run_state.context.recorder.fault(KILL, False, (1,), "started")


async def interrupt(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await trio.sleep_forever()


async def ending_with_a_fatal_error(context: WorkloadContext) -> None:
    """Append once with a producer of librdkafka that can do nothing after that."""
    from confluent_kafka import KafkaError  # of an extra
    error = KafkaError(59, "sequences are missing", True)
    deliveries: list = []

    def handle(_settings: dict) -> SimpleNamespace:
        return SimpleNamespace(
            produce=lambda *_, on_delivery, **__: deliveries.append(on_delivery),
            poll=lambda _wait_s: [deliver(error, SimpleNamespace(offset=lambda: -1001))
                                  for deliver in [deliveries.pop() for _ in deliveries[:]]],
            purge=lambda: None, close=lambda: None)

    key = PLACES[0].key
    producer = KafkaProducer(context, "commit", True, handle)
    operation = context.recorder.process().invoke(
        "append", key=key, values=[1], acks="commit", producer=1, epoch=-1, sequence=-1,
        **AT_KAFKAS_PORT)
    await producer.send([Append(PLACES[0], encode(context.run, key, 1), 5, operation)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(producer.serve)
        await producer.settled()
        nursery.cancel_scope.cancel()
    assert producer.is_fatal


@pytest.fixture
def backend(monkeypatch) -> Still:
    """Return the backend of a run that lasts for a moment."""
    backend = Still()
    monkeypatch.setattr(command, "open_backend", lambda *_: backend)
    monkeypatch.setattr(command, "schedule_of", lambda *_: schedule)
    monkeypatch.setattr(runner, "WORKLOADS", {"crashing": (asking_until_it_crashes, ""),
                                               "unharmed": (unharmed, "")})
    for name in (
        "create_topics",
        "stuck_groups",
        "end_plan",
        "abort_open_transactions",
        "read_everything",
    ):
        monkeypatch.setattr(runner, name, nothing)
    monkeypatch.setattr(runner, "WARM_UP_S", 0.0)
    monkeypatch.setattr(runner, "RECOVERY_S", 0.1)
    return backend


def crashed_run(path: Path, workload: str = "unharmed") -> tuple[Folder, dict, list]:
    """Return folder, verdict and history of a run that has to find anomalies."""
    folder = Folder(path / "run")
    status = carry_out(RunParameters(folder.path, workloads=(workload,)), lambda line: None)
    assert status == ANOMALIES
    assert folder.report.is_file()
    assert "client-crashed" in folder.report.read_text(encoding="utf-8")
    return (folder, json.loads(folder.verdict.read_text(encoding="utf-8")),
            list(read_history(folder.history)))


def test_a_client_that_crashes_ends_its_workload_and_nothing_else(backend, tmp_path: Path):
    folder, verdict, events = crashed_run(tmp_path, "all")
    assert verdict["outcome"] == "failed"
    assert verdict["counts"] == {"client-crashed": 1}
    (anomaly,) = verdict["anomalies"]
    assert anomaly["id"] == "A0"
    assert anomaly["text"].startswith(
        "workload crashing ended by TypeError: the client stumbled in crash, ")
    assert anomaly["text"].endswith("the traceback is in crashes/workload-crashing.txt")
    written = (folder.crashes / "workload-crashing.txt").read_text(encoding="utf-8")
    assert "TypeError: the client stumbled" in written and "in crash" in written
    assert [event.name for event in events if event.kind == PHASE][-1] == END
    topics = {event.data["topic"] for event in events if "topic" in event.data}
    assert {FAULTS, "heal"} <= topics, "the other workload went on"
    assert sorted(event.data["error"] for event in events if event.kind == INFO)[:2] == [
        "Cancelled", "TypeError"]
    assert {"heal_all", "await_whole", "collect", "close"} <= set(backend.asked)


def test_checking_the_folder_comes_to_the_verdict_of_the_run(backend, monkeypatch, tmp_path: Path):
    async def stuck(*_arguments: object) -> list[Anomaly]:
        return [Anomaly("A28", "stuck-group", "group 3 acknowledged nothing")]

    monkeypatch.setattr(runner, "stuck_groups", stuck)
    folder, by_run, _ = crashed_run(tmp_path, "all")
    check_folder(folder.path)
    checked = json.loads(folder.verdict.read_text(encoding="utf-8"))
    assert by_run["counts"] == {"client-crashed": 1, "stuck-group": 1}
    assert {**checked, "seconds": 0} == {**by_run, "seconds": 0}


def test_what_was_found_outlives_an_interruption(backend, monkeypatch, tmp_path: Path):
    monkeypatch.setattr(runner, "read_everything", interrupt)
    folder, verdict, _ = crashed_run(tmp_path, "crashing")
    assert verdict["counts"] == {"client-crashed": 1}
    assert verdict["invalid"] == ["the run was ended by SIGTERM"]
    checked = check_folder(folder.path)
    assert checked.counts == verdict["counts"]
    assert checked.invalid[-1] == verdict["invalid"][0]


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["to its end", "interrupted"])
def test_a_run_whose_producer_ends_with_a_fatal_error_fails(
        backend, monkeypatch, tmp_path: Path, is_interrupted):
    """The history alone has nothing wrong: its append ended with an unknown outcome."""
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(runner, "WORKLOADS", {"fatal": (ending_with_a_fatal_error, "")})
    if is_interrupted:
        monkeypatch.setattr(runner, "read_everything", interrupt)
    folder = Folder(tmp_path / "run")
    status = carry_out(RunParameters(folder.path, workloads=("fatal",)), lambda line: None)
    assert status == ANOMALIES
    verdict = json.loads(folder.verdict.read_text(encoding="utf-8"))
    assert (verdict["outcome"], verdict["counts"]) == ("failed", {PRODUCER_ENDED: 1})
    assert "UNKNOWN_PRODUCER_ID: sequences are missing" in verdict["anomalies"][0]["text"]
    assert PRODUCER_ENDED in folder.report.read_text(encoding="utf-8")
    events = [event for event in read_history(folder.history) if event.name == "append"]
    assert [event.kind for event in events] == [INVOKE, INFO]
    assert check_folder(folder.path).counts == verdict["counts"]


@pytest.mark.parametrize(("place", "told"), [
    ("create_topics", "setup"), ("stuck_groups", "asking all groups"),
    ("end_plan", "ending the plan"), ("abort_open_transactions", "aborting open transactions"),
    ("read_everything", "final reads")])
def test_a_client_that_crashes_elsewhere_is_told_too(place, told, backend, monkeypatch, tmp_path):
    monkeypatch.setattr(runner, place, crash)
    _, verdict, events = crashed_run(tmp_path)
    assert verdict["counts"] == {"client-crashed": 1}
    assert verdict["anomalies"][0]["text"].startswith(f"{told} ended by TypeError")
    assert [event.name for event in events if event.kind == PHASE][-1] == END
    assert "close" in backend.asked


def test_what_crashes_in_a_nemesis_is_told_and_everything_healed(backend, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "schedule_of", lambda *_: crash)
    _, verdict, _ = crashed_run(tmp_path)
    assert verdict["anomalies"][0]["text"].startswith("faults ended by TypeError")
    assert "heal_all" in backend.asked


def test_a_crash_at_one_partition_does_not_end_the_final_reads_of_others(monkeypatch, tmp_path):
    read: list[int] = []

    async def read_partition(_context, _leadership, place: PartitionRef) -> list:
        if place.partition == 0:
            await crash()
        read.append(place.partition)
        return []

    async def existing(_context) -> list[PartitionRef]:
        return PLACES

    monkeypatch.setattr(final_reads, "read_partition", read_partition)
    monkeypatch.setattr(final_reads, "existing", existing)
    anomalies: list = []
    trio.run(final_reads.read_everything, None, None, Crashes(tmp_path, anomalies, lambda: 7))
    assert read == [1]
    assert [(each.name, each.time_us) for each in anomalies] == [("client-crashed", 7)]


def test_a_cancellation_is_no_crash(tmp_path: Path):
    anomalies: list = []

    async def cancelled() -> None:
        with trio.move_on_after(0.01) as scope:
            await Crashes(tmp_path, anomalies, lambda: 0).survive("x", trio.sleep_forever)
        assert scope.cancelled_caught

    trio.run(cancelled)
    assert anomalies == []


def test_a_cluster_that_cannot_be_set_up_is_no_crash(tmp_path: Path):
    async def fail() -> None:
        raise SetupFailed("no topic")

    anomalies: list = []
    with pytest.raises(BaseExceptionGroup) as caught:
        trio.run(Crashes(tmp_path, anomalies, lambda: 0).survive, "setup", fail)
    assert caught.group_contains(SetupFailed) and anomalies == []


def test_a_folder_that_cannot_be_written_is_no_anomaly(backend, monkeypatch, tmp_path: Path):
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Crashes, "_note", full)
    monkeypatch.setattr(runner, "read_everything", crash)
    said = CliRunner().invoke(command.run_command, ["--output", str(tmp_path / "run")])
    assert said.exit_code == command.NOT_HERE, said.output
    assert "No space left on device" in said.output
    assert "close" in backend.asked


def test_a_node_is_asked_for_what_it_has_of_a_partition_that_was_switched():
    """Node 1 has left the partition's second group: it need not serve the records appended
    there."""
    links = [EpochRow(1, 5, 0), EpochRow(2, 6, 100), EpochRow(3, 7, 250)]
    members = {5: (1, 2), 6: (2, 3), 7: (1, 2)}
    assert final_reads.parts_of(links, 0, 400, members, (1, 2, 3)) == [
        (1, 0, 100), (1, 250, 400), (2, 0, 400), (3, 100, 250)]
    assert final_reads.parts_of(links[:1], 0, 0, {}, (1, 2)) == [(1, 0, 0), (2, 0, 0)]


def test_replicas_are_read_from_the_log_start():
    links = [EpochRow(1, 5, 0), EpochRow(2, 6, 100), EpochRow(3, 7, 250)]
    members = {5: (1, 2), 6: (2, 3), 7: (1, 2)}
    assert final_reads.parts_of(links, 120, 400, members, (1, 2, 3)) == [
        (1, 250, 400), (2, 120, 400), (3, 120, 250)]
    assert final_reads.parts_of(links[:1], 7, 7, {}, (1,)) == [(1, 7, 7)]


def test_final_reads_leave_out_the_topics_of_nodes():
    class Cluster:
        async def __aenter__(self) -> Cluster:
            return self

        async def __aexit__(self, *_why: object) -> None:
            pass

        async def list_topics(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(name="__metrics"), SimpleNamespace(name="t")]

        async def topic_metadata(self, name: str) -> list[PartitionRef]:
            return PLACES if name == "t" else [PartitionRef(name, 9, 0, 200, 1)]

    def places(topic: list[PartitionRef]) -> list[PartitionRef]:
        return topic

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(final_reads, "partitions_of", places)
        context = SimpleNamespace(client=Cluster)
        assert trio.run(final_reads.existing, context) == PLACES
