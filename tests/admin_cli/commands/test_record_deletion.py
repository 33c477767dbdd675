"""`topic delete-records`: what is deleted, the question, refusals and outcomes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from admin_cli.commands import record_deletion
from admin_cli.failures import ExitCode
from multiraft.client.blocking import DeletedRecords
from multiraft.wire import errors
from tests.admin_cli.fakes import RECORD_MS


@pytest.fixture(autouse=True)
def topic(cluster):
    cluster.topics["t"] = [[(None, b"v")] * 5, [(None, b"v")] * 3]


@pytest.mark.parametrize("options, before", [
    (("--before", "2"), {0: 2, 1: 2}),
    (("--before", "2", "-p", "1"), {1: 2}),
    (("--before", "0", "-p", "1", "-p", "0", "-p", "1"), {1: 0, 0: 0}),
    (("--all",), {0: 5, 1: 3}),
    (("--before-time", f"@{RECORD_MS}"), {0: 0, 1: 0}),
    (("--before-time", f"@{RECORD_MS + 1}"), {0: 5, 1: 3}),
])
def test_the_offsets_below_which_records_are_deleted(run, cluster, options, before):
    result = run("topic", "delete-records", "t", *options)
    assert result.exit_code == 0, result.output
    assert cluster.deleted == [("t", before)]


@pytest.mark.parametrize("options", [(), ("--all", "--before", "1"),
                                     ("--before", "1", "--before-time", "-1h")])
def test_exactly_one_limit_is_needed(run, cluster, options):
    result = run("topic", "delete-records", "t", *options)
    assert result.exit_code == ExitCode.USAGE
    assert "give one of --before OFFSET, --before-time TIME and --all" in result.stderr
    assert not cluster.deleted


def test_an_offset_beyond_the_end_of_one_partition_deletes_nothing(run, cluster):
    result = run("topic", "delete-records", "t", "--before", "4")
    assert result.exit_code == ExitCode.FAILED
    assert ("beyond the end of partition 1 of t, which has the offsets 0 to 2, and 3 is the next; "
            "nothing was deleted.") in result.stderr
    assert not cluster.deleted


def test_the_end_of_an_empty_partition_is_named(run, cluster):
    cluster.topics["t"] = [[]]
    result = run("topic", "delete-records", "t", "--before", "4")
    assert "of partition 0 of t, which is empty, and 0 is the next;" in result.stderr


@pytest.mark.parametrize("options", [("--before", "2"), ("--before", "1"), ("--before", "0")])
def test_offsets_that_are_deleted_already_are_no_question_and_no_error(
        run, cluster, monkeypatch, options):
    cluster.log_starts["t", 0] = 2
    monkeypatch.setattr(record_deletion.click, "confirm", lambda text, err: pytest.fail(text))
    monkeypatch.setattr(record_deletion, "sys", SimpleNamespace(
        stdin=SimpleNamespace(isatty=lambda: True)))
    result = run("topic", "delete-records", "t", "-p", "0", *options)
    assert result.exit_code == 0
    assert result.stderr == "Nothing to delete: topic t has no records below that offset.\n"
    assert result.stdout.split() == ["partition", "start_offset", "0", "2"]


def test_an_internal_topic_is_left_to_its_retention(run, cluster):
    cluster.topics["__metrics"] = [[(None, b"v")]]
    result = run("topic", "delete-records", "__metrics", "--all")
    assert result.exit_code == ExitCode.FAILED
    assert "multiraft topic describe __metrics --settings" in result.stderr
    assert not cluster.deleted


def test_unknown_topics_and_partitions_are_not_found(run, cluster):
    assert run("topic", "delete-records", "x", "--all").exit_code == ExitCode.NOT_FOUND
    assert run("topic", "delete-records", "t", "--all", "-p", "2").exit_code == ExitCode.NOT_FOUND
    assert not cluster.deleted


@pytest.mark.parametrize("answer, code", [("n\n", ExitCode.FAILED), ("y\n", ExitCode.OK)])
def test_a_terminal_is_asked_with_the_offsets(run, cluster, monkeypatch, answer, code):
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(record_deletion, "sys", SimpleNamespace(stdin=terminal))
    asked = []
    monkeypatch.setattr(record_deletion.click, "confirm",
                        lambda text, err: asked.append(text) or answer == "y\n")
    assert run("topic", "delete-records", "t", "--before", "2").exit_code == code
    assert asked == ["Delete the records of 4 offsets of topic t: 0 to 1 of partition 0, 0 to 1 "
                     "of partition 1?"]
    assert bool(cluster.deleted) is (code == ExitCode.OK)
    assert run("topic", "delete-records", "t", "--before", "2", "--yes").exit_code == 0
    assert len(asked) == 1


def test_each_partition_has_its_outcome(run, cluster):
    result = run("topic", "delete-records", "t", "--before", "2", "--json")
    assert json.loads(result.stdout) == {"name": "t", "partitions": [
        {"partition": 0, "start_offset": 2, "error": None},
        {"partition": 1, "start_offset": 2, "error": None}]}


@pytest.mark.parametrize("error, code", [
    (errors.LeaderUnknown("an election"), ExitCode.FAILED),
    (errors.AmbiguousOutcome("an answer was lost"), ExitCode.AMBIGUOUS)])
def test_a_partition_that_was_not_deleted_fails_the_command(run, cluster, error, code):
    cluster.deletion_outcomes[1] = DeletedRecords(None, error)
    result = run("topic", "delete-records", "t", "--before", "2")
    assert result.exit_code == code
    assert f"partition 1: {error}" in result.stderr
    assert [row.split() for row in result.stdout.splitlines()] == [
        ["partition", "start_offset"], ["0", "2"], ["1", "-"]]
