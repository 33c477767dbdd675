"""The rows of the benchmark of retention: what they are asked for, and what they leave behind."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from benchmarks import bench_retention, retention
from benchmarks.processes import BenchmarkError


def test_each_row_has_sizes_of_its_own_by_default():
    asked = bench_retention.parse([])
    assert asked.row is None
    assert bench_retention.arguments_of("start", asked).gib == [2.0, 8.0]
    assert bench_retention.arguments_of("deleted-topic", asked).gib == 2.0
    asked = bench_retention.parse(["deleted-topic", "--gib", "3"])
    assert bench_retention.arguments_of(asked.row, asked).gib == 3.0


def test_figures_compare_what_was_measured_in_one_run(monkeypatch, tmp_path):
    pairs = [retention.Deletion(4.0, 2.0, 3.0), retention.Deletion(8.0, 2.0, 2.0)]
    monkeypatch.setattr(retention, "deleted_topic", lambda *_: pairs)
    back, ratio = bench_retention.deleted_topic(SimpleNamespace(gib=2.0, pairs=2), tmp_path)
    assert back.measured.values == (4.0, 8.0) and back.holds
    assert ratio.measured.values == (1.5, 1.0) and ratio.compared == 1.25

    monkeypatch.setattr(retention, "ready_after_kill", lambda *_: [[3.0], [4.5, 9.0, 4.0]])
    small, large, ratio = bench_retention.start(
        SimpleNamespace(gib=[4.0, 1.0], starts=3), tmp_path)
    assert small.holds and not large.holds
    assert ratio.compared == 1.5 and "4 GiB against 1 GiB" in ratio.name

    monkeypatch.setattr(retention, "mixed_topics", lambda *_: retention.Mixed(100, 151, 900))
    whole, space = bench_retention.mixed(SimpleNamespace(gib=1.0), tmp_path)
    assert whole.compared == 9.0 and not whole.holds
    assert space.compared == pytest.approx(1.51) and not space.holds
    cleaning = retention.Cleaning(50.0, 100.0, ((2.0, 2.5), (2.0, 5.0), (4.0, 4.0)))
    monkeypatch.setattr(retention, "cleaner", lambda *_: cleaning)
    copies, p99 = bench_retention.cleaner(SimpleNamespace(gib=1.0, pairs=3), tmp_path)
    assert copies.holds and copies.compared == 0.5
    assert p99.holds and p99.compared == 1.25

    found = retention.SmallDisk(False, (9.0, 9.0, 9.0), (100, 200, 212), 1)
    monkeypatch.setattr(retention, "small_disk", lambda *_: found)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    *_, growth = bench_retention.small_disk(SimpleNamespace(disk_gib=2.0, minutes=3), tmp_path)
    assert growth.compared == pytest.approx(2.12) and not growth.holds

    monkeypatch.setattr(retention, "memory_per_million", lambda *_: 3e6)
    few, many = bench_retention.memory(
        SimpleNamespace(partitions=[10, 10_000], batches=1), tmp_path)
    assert not few.holds and many.holds


def test_a_row_that_fails_leaves_the_figures_of_the_others(monkeypatch, capsys, tmp_path):
    def failing(*_):
        raise BenchmarkError("no room")

    figure = bench_retention.bound("one", bench_retention.Series("s", "s", (1.0,)), 2,
                                   at_least=False)
    monkeypatch.setattr(bench_retention, "ROWS", {"bad": failing, "good": lambda *_: [figure]})
    monkeypatch.setattr("sys.argv", ["bench_retention", "--dir", str(tmp_path)])
    assert bench_retention.main() == 1
    shown = capsys.readouterr()
    assert "one" in shown.out and "not measured: bad: no room" in shown.err


def test_without_root_there_is_no_small_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bench_retention.small_disk(SimpleNamespace(disk_gib=2.0, minutes=1), tmp_path) == []


def test_used_bytes_are_those_of_blocks(tmp_path):
    assert retention.used_bytes(tmp_path) == 0
    (tmp_path / "below").mkdir()
    with open(tmp_path / "below" / "file", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 20)
    assert retention.used_bytes(tmp_path) == pytest.approx(1 << 20, rel=0.1)
    retention.drop_pages(tmp_path)
