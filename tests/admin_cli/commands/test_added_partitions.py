"""`topic add-partitions`: how many are added, the question, refusals and outcomes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from admin_cli.commands import added_partitions
from admin_cli.failures import ExitCode


@pytest.fixture(autouse=True)
def topic(cluster):
    cluster.topics["t"] = [[(None, b"v")], []]


@pytest.fixture
def terminal(monkeypatch):
    """Questions that were asked at a terminal; the answer is the last element of ``answers``."""
    monkeypatch.setattr(added_partitions, "sys", SimpleNamespace(
        stdin=SimpleNamespace(isatty=lambda: True)))
    asked = SimpleNamespace(texts=[], answer=False)
    monkeypatch.setattr(added_partitions.click, "confirm",
                        lambda text, err: asked.texts.append(text) or asked.answer)
    return asked


@pytest.mark.parametrize("options, after", [
    (("--to", "4"), 4), (("--partitions", "3"), 3), (("-p", "3"), 3), (("--num", "2"), 4),
    (("-n", "1"), 3)])
def test_partitions_are_added_up_to_a_number_or_by_a_number(run, cluster, options, after):
    result = run("topic", "add-partitions", "t", *options)
    assert result.exit_code == 0, result.output
    assert len(cluster.topics["t"]) == after
    assert result.stderr.startswith(f"Topic t has {after} partitions now, 2 before. Records with a "
                                    "key go to other partitions")


@pytest.mark.parametrize("options", [(), ("--to", "4", "--num", "2")])
def test_exactly_one_number_is_needed(run, cluster, options):
    result = run("topic", "add-partitions", "t", *options)
    assert result.exit_code == ExitCode.USAGE
    assert "give one of --to N and --num N" in result.stderr
    assert len(cluster.topics["t"]) == 2


@pytest.mark.parametrize("to, says", [
    ("2", "topic t has 2 partitions already; nothing was changed"),
    ("1", "topic t has 2 partitions, and partitions cannot be taken away; nothing was changed")])
def test_a_number_that_is_not_more_is_refused(run, cluster, terminal, to, says):
    result = run("topic", "add-partitions", "t", "--to", to)
    assert result.exit_code == ExitCode.FAILED and says in result.stderr
    assert not terminal.texts


def test_topics_that_do_not_exist_and_internal_ones(run, cluster):
    assert run("topic", "add-partitions", "x", "--to", "4").exit_code == ExitCode.NOT_FOUND
    cluster.topics["__metrics"] = [[]]
    result = run("topic", "add-partitions", "__metrics", "--to", "4")
    assert result.exit_code == ExitCode.FAILED and "is an internal topic" in result.stderr
    assert len(cluster.topics["__metrics"]) == 1


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_needs_force_and_is_told_why(run, cluster, policy):
    cluster.settings["t"] = {"cleanup.policy": policy}
    refused = run("topic", "add-partitions", "t", "--to", "4", "--yes")
    assert refused.exit_code == ExitCode.FAILED
    assert "keeps its last one in the former partition too" in refused.stderr
    assert "--force" in refused.stderr and len(cluster.topics["t"]) == 2
    assert run("topic", "add-partitions", "t", "--to", "4", "--force").exit_code == 0
    assert len(cluster.topics["t"]) == 4


def test_a_terminal_is_asked_with_the_number_and_the_consequence(run, cluster, terminal):
    refused = run("topic", "add-partitions", "t", "--to", "4")
    assert refused.exit_code == ExitCode.FAILED and "nothing was changed" in refused.stderr
    assert len(cluster.topics["t"]) == 2
    terminal.answer = True
    assert run("topic", "add-partitions", "t", "--num", "1").exit_code == 0
    assert len(cluster.topics["t"]) == 3
    assert terminal.texts == [
        f"{added_partitions.KEYS} Add 2 partitions to topic t, which has 2?",
        f"{added_partitions.KEYS} Add 1 partition to topic t, which has 2?"]
    assert run("topic", "add-partitions", "t", "--to", "5", "--yes").exit_code == 0
    assert run("topic", "add-partitions", "t", "--to", "6", "--dry-run").exit_code == 0
    assert len(terminal.texts) == 2


@pytest.mark.parametrize("dry_run", [False, True])
def test_programs_get_both_numbers(run, cluster, dry_run):
    result = run("topic", "add-partitions", "t", "--to", "4", "--json",
                 *(["--dry-run"] if dry_run else []))
    assert json.loads(result.stdout) == {"name": "t", "partitions_before": 2, "partitions": 4,
                                         "dry_run": dry_run}
    assert len(cluster.topics["t"]) == (2 if dry_run else 4)
    assert ("would be added" in result.stderr) is dry_run
