"""The benchmark of the port for Kafka's clients: its figures, what stands for a missing broker, and
what it asks of librdkafka."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("confluent_kafka", reason="SKIPPED, NOT PASSED: pip install -e '.[dev]'")

from benchmarks import bench_kafka, kafka_broker, librdkafka  # noqa: E402
from benchmarks.figures import Figure, Unmeasured, show  # noqa: E402
from benchmarks.processes import BenchmarkError  # noqa: E402


def bench_of(*arguments: str) -> bench_kafka.Bench:
    return bench_kafka.Bench(bench_kafka.parse([*arguments]), None)


def test_a_quick_run_is_small_and_what_is_asked_for_counts():
    usual, quick = bench_kafka.parse([]), bench_kafka.parse(["--quick", "--rounds", "3"])
    assert usual.rounds >= 5 and usual.topics == 1000
    assert quick.rounds == 3
    assert all(getattr(quick, name) < getattr(usual, name)
               for name in ("records", "records_read", "synchronous", "topics"))


def test_figures_are_ratios_of_medians_of_one_run():
    bench = bench_of("--only", "appends", "reads")
    bench.kafka = "127.0.0.1:1"
    bench.values |= {"appends, native client": [200.0, 100.0, 90.0], "reads, librdkafka": [5.0],
                     "appends, librdkafka": [80.0, 90.0, 400.0], "appends, Kafka, fsync": [30.0],
                     "reads, Kafka, fsync": [4.0], "appends, Kafka, page cache": [60.0]}
    figures = bench.figures()
    assert [each.compared for each in figures] == [0.9, 3.0, 1.25]
    assert all(each.holds for each in figures)
    assert any("60" in line and "page cache" in line for line in bench.conditions())


def test_without_kafka_its_rows_say_why_and_the_others_are_figures(monkeypatch, capsys):
    def refuse(*_):
        raise BenchmarkError("Maven cannot download Kafka")

    monkeypatch.setattr(kafka_broker, "install", refuse)
    bench = bench_of("--only", "appends", "reads", "latency")
    bench._start_kafka(None)
    assert not bench.kafka
    bench.values |= {"appends, native client": [100.0], "appends, librdkafka": [80.0],
                     "reads, librdkafka": [5.0], "one append, native client": [1.0],
                     "one append, librdkafka": [1.1]}
    figures = bench.figures()
    assert [type(each) for each in figures] == [Figure, Unmeasured, Unmeasured, Figure]
    show("It", figures, bench.conditions())
    printed = capsys.readouterr()
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert [line.get("not_measured") for line in lines] == [
        None, "Maven cannot download Kafka", "Maven cannot download Kafka", None]
    assert "not measured: Maven" in printed.err


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_a_broker_that_cannot_be_installed_names_the_package(tmp_path, monkeypatch, missing):
    monkeypatch.setattr(kafka_broker.shutil, "which",
                        lambda name: None if name == missing else f"/usr/bin/{name}")
    with pytest.raises(BenchmarkError, match="apt-get install"):
        kafka_broker.install(tmp_path)


def test_jars_are_downloaded_once_and_again_for_another_version(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(kafka_broker.shutil, "which", lambda name: name)

    def maven(command, **_):
        calls.append(command)
        return SimpleNamespace(returncode=len(calls) > 2, stdout="", stderr="no")

    monkeypatch.setattr(kafka_broker.subprocess, "run", maven)
    for _ in range(2):
        assert kafka_broker.install(tmp_path) == tmp_path / "jars"
    assert len(calls) == 1
    monkeypatch.setattr(kafka_broker, "POM", "another")
    kafka_broker.install(tmp_path)
    assert len(calls) == 2
    monkeypatch.setattr(kafka_broker, "POM", "a third")
    with pytest.raises(BenchmarkError, match="cannot download"):
        kafka_broker.install(tmp_path)


class Queue:
    """A producer of librdkafka whose records are sent while it is polled."""

    def __init__(self):
        self.queued, self.sent, self.most = 0, [], 0

    def __len__(self):
        return self.queued

    def produce_batch(self, _topic, messages, **_):
        taken = min(len(messages), librdkafka.QUEUED_MAX - self.queued)
        self.queued += taken
        self.most = max(self.most, self.queued)
        self.sent += [each["value"] for each in messages[:taken]]
        return taken

    def poll(self, wait):
        self.queued -= min(self.queued, 70) if wait else 0


def test_every_record_is_passed_to_librdkafka_once_as_its_queue_has_room(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(librdkafka, "QUEUED_MAX", 300)
    monkeypatch.setattr(librdkafka.kafka, "Producer", lambda _settings: queue)
    producer = librdkafka._Producer("127.0.0.1:1", "t")
    for start in range(0, 1000, 100):
        producer.send([{"value": b"%d" % number} for number in range(start, start + 100)])
    assert queue.sent == [b"%d" % number for number in range(1000)]
    assert 200 < queue.most <= 300
    queue.produce_batch = lambda *_, **__: 0
    queue.queued = 0
    with pytest.raises(BenchmarkError, match="0 of 1 records"):
        producer.send([{"value": b"x"}])
