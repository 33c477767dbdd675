"""Inspection of files: damage is reported as damage, a torn tail as a torn tail, and nothing
changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from multiraft.storage import inspect as inspection
from multiraft.storage.filesystem import RealFilesystem
from node.log_commands import EXIT_DAMAGED, EXIT_NOT_OURS, inspect
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    open_entry,
    open_store,
    seal,
    write,
)


@pytest.fixture
def directory(tmp_path) -> Path:
    """Several segments with index files, and two checkpoints."""
    store = open_store(RealFilesystem(), str(tmp_path / "data"))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 40):
        entry = (open_entry(1, 1, 1, 100) if index == 1
                 else data_entry(1, index, 1, 100, index - 2, [b"%d" % index * 150]))
        store.partition_states[1].append(entry)
        rounds.run(write(1, entry))
        if index in (10, 20):
            store.partition_states[1].apply(index)
            checkpoint(store, {1: index})
    seal(store)
    store.close()
    return tmp_path / "data"


def contents(directory: Path) -> dict:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def run(*arguments: object):
    return CliRunner().invoke(inspect, [str(argument) for argument in arguments])


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "lane-0").glob("*.segment"))


def test_every_entry_is_listed_and_nothing_is_changed(directory):
    before = contents(directory)
    result = run(directory, "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    entries = [row for row in rows if "entry" in row]
    assert [row["index"] for row in entries if row["entry"] == "data"] == list(range(2, 40))
    assert {row["file"] for row in rows if "file" in row} == {"segment", "index", "checkpoint"}
    assert [row["applied"] for row in rows if "checkpoint_group" in row] == [10, 20]
    assert contents(directory) == before


def test_filters(directory):
    assert " data " not in run(directory, "--group", 2).output
    assert " data " in run(directory, "--group", 1).output
    only = [json.loads(line) for line in
            run(segments(directory)[1], "--json", "--partition", 100).output.splitlines()][1:]
    assert only and all(row["partition"] == 100 for row in only)
    later = [json.loads(line) for line in
             run(directory, "--json", "--from", only[3]["position"]).output.splitlines()]
    assert min(row["position"] for row in later if "entry" in row) == only[3]["position"]


def test_damage_below_the_durable_mark_is_corruption(directory):
    path = segments(directory)[0]
    data = bytearray(path.read_bytes())
    data[400] ^= 1
    path.write_bytes(bytes(data))
    result = run(directory, "--verify")
    assert result.exit_code == EXIT_DAMAGED
    assert "corruption" in result.output and "torn tail" not in result.output


def test_the_end_of_a_crash_is_a_torn_tail(directory):
    path = segments(directory)[-1]
    data = path.read_bytes().rstrip(b"\0")
    path.write_bytes(data[:-30])
    result = run(directory, "--verify")
    assert result.exit_code == 0, result.output
    assert "torn tail" in result.output


def test_an_index_file_of_other_contents_is_found(directory):
    index = next((directory / "lane-0").glob("*.index"))
    assert inspection.verify_index(index) == ""
    segment = index.with_suffix(".segment")
    data = bytearray(segment.read_bytes())
    data[80] ^= 1
    segment.write_bytes(bytes(data))
    assert "is not at" in inspection.verify_index(index)


def test_a_damaged_checkpoint_is_named(directory):
    path = sorted(directory.glob("checkpoint-*"))[-1]
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(bytes(data))
    result = run(path)
    assert result.exit_code == EXIT_DAMAGED
    assert "CRC" in result.output


def test_a_path_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of ours")
    assert run(tmp_path / "notes.txt").exit_code == EXIT_NOT_OURS
    assert run(tmp_path).exit_code == EXIT_NOT_OURS


def test_an_entry_without_records_says_what_it_decides(directory):
    opening = "epoch 1 from offset 0, leader epochs from 0"
    rows = [json.loads(line) for line in run(directory, "--json").output.splitlines()]
    assert [row["text"] for row in rows if row.get("entry") == "partition_open"] == [opening]
    assert opening in run(directory).output
