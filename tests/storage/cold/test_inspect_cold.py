"""Inspection of cold segments: each record is listed, and damage is never called a torn tail."""

from __future__ import annotations

import json

from click.testing import CliRunner

from multiraft.storage.cold.cold_segment import cold_index_path, cold_path
from multiraft.storage.filesystem import RealFilesystem
from node.log_commands import EXIT_DAMAGED, inspect
from tests.storage.cold.files import Source, copy_job, run, some_entries, written_source


def directory_of(tmp_path) -> str:
    """A directory with one cold segment, on a real disk."""
    filesystem = RealFilesystem()
    (tmp_path / "lane-0").mkdir()
    source = Source(str(tmp_path / "source"))
    records = written_source(filesystem, some_entries(), source)
    directory = str(tmp_path / "cold-0")
    run(copy_job(filesystem, records, source, directory=directory))
    (tmp_path / "source").unlink()
    return directory


def inspected(*arguments: object):
    return CliRunner().invoke(inspect, [str(argument) for argument in arguments])


def test_every_record_is_listed(tmp_path):
    directory_of(tmp_path)
    result = inspected(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert [row["file"] for row in rows if "file" in row] == ["cold segment", "cold index"]
    entries = [row for row in rows if "file" not in row]
    assert len(entries) == 24 and {row["kind"] for row in entries} == {"data"}
    result = inspected(tmp_path, "--group", 1)
    assert "copied_from 1073741824" in result.output and "no damaged ranges" in result.output
    assert inspected(tmp_path, "--verify").exit_code == 0


def test_damage_is_named_as_corruption(tmp_path):
    directory = directory_of(tmp_path)
    path = cold_path(directory, 7)
    with open(path, "r+b") as file:
        file.truncate(file.seek(0, 2) - 8)
    result = inspected(path, "--verify")
    assert result.exit_code == EXIT_DAMAGED and "torn" not in result.output
    assert "corruption" in result.output
    result = inspected(cold_index_path(directory, 7), "--verify")
    assert result.exit_code == EXIT_DAMAGED and "it is not of" in result.output
    with open(path, "r+b") as file:
        file.write(bytes(8))
    result = inspected(tmp_path)
    assert result.exit_code == EXIT_DAMAGED and "its header is damaged" in result.output
