"""`multiraft placement`: what is shown of chains and switches, and how a switch is waited for."""

from __future__ import annotations

import json

import pytest

from admin_cli.commands import placements
from admin_cli.failures import ExitCode
from multiraft.wire.placements import EpochRow, ReplicaRow


@pytest.fixture
def topic(cluster):
    """Two partitions; the first has been in groups 1, 2 and 1."""
    cluster.topics["flights"] = [[], []]
    cluster.links["flights"] = [[EpochRow(1, 1, 0), EpochRow(2, 2, 100), EpochRow(3, 1, 250)],
                                [EpochRow(1, 4, 0)]]
    return cluster


def test_explain_shows_every_link_and_why(run, topic):
    lines = [line.split(None, 6) for line in run("placement", "explain",
                                                 "flights").stdout.splitlines()]
    assert lines == [
        ["partition", "epoch", "group", "leader", "from", "to", "why"],
        ["0", "1", "1", "2", "0", "100", "the hash puts it there"],
        ["0", "2", "2", "3", "100", "250", "switched there; the hash puts it into group 1"],
        ["0", "3", "1", "2", "250", "-", "switched there, where the hash puts it"],
        ["1", "1", "4", "2", "0", "-", "group 2, where the hash puts it, was above its share when "
                                       "the topic was created"]]


def test_explain_of_one_partition_as_json(run, topic):
    answer = json.loads(run("placement", "explain", "flights", "1", "--json").stdout)
    assert answer == {"topic": "flights", "pool_size": 4, "partitions": [{
        "partition": 1, "incarnation": 71, "epoch": 1, "group": 4, "hashed_group": 2,
        "links": [{"epoch": 1, "group": 4, "start_offset": 0, "end_offset": None, "leader": 2,
                   "reason": "group 2, where the hash puts it, was above its share when the topic "
                             "was created"}], "switch": None}]}


@pytest.mark.parametrize("replicas, step, words", [
    ((), "decided", "the leader of group 4 has to seal it"),
    ((ReplicaRow(4, True, 1, True, 9),), "sealed", "the leader of group 3 has to open it"),
    ((ReplicaRow(4, True, 1, True, 9), ReplicaRow(3, True, 2, False, 9)), "opened",
     "the metadata have to publish it")])
def test_explain_says_what_a_switch_waits_for(run, topic, replicas, step, words):
    topic.published_after = 99
    topic.replicas_of_partition = replicas
    run("placement", "switch", "flights", "1", "--to-group", "3", "--no-wait")
    result = run("placement", "explain", "flights", "1")
    assert f"being switched to group 3 (epoch 2, {step})" in result.stderr
    assert words in result.stderr
    found = json.loads(run("placement", "explain", "flights", "--json").stdout)["partitions"][1]
    assert found["switch"]["step"] == step and found["switch"]["to_group"] == 3


def test_explain_does_without_leaders_that_do_not_answer(run, topic):
    topic.published_after = 99
    run("placement", "switch", "flights", "1", "--to-group", "3", "--no-wait")
    topic.silent = {1, 2, 3}
    result = run("placement", "explain", "flights", "1")
    assert result.exit_code == 0 and "(epoch 2, decided)" in result.stderr


def test_switch_waits_until_it_is_published(run, topic):
    topic.published_after = 4
    result = run("placement", "switch", "flights", "1", "--to-group", "3")
    assert result.exit_code == 0, result.stderr
    assert "flights/1 is now in group 3 at epoch 2, from offset 100" in result.stderr
    answer = json.loads(run("placement", "switch", "flights", "1", "--to-group", "4",
                            "--json").stdout)
    assert answer == {"topic": "flights", "partition": 1, "epoch": 3, "to_group": 4,
                      "published": True, "start_offset": 200}


def test_a_switch_that_takes_too_long_is_left_to_itself(run, topic, monkeypatch):
    monkeypatch.setattr(placements, "PROGRESS_TIMEOUT_S", 0.1)
    topic.published_after = 1 << 30
    result = run("placement", "switch", "flights", "1", "--to-group", "3")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "the leader of group 4 has to seal it" in result.stderr
    assert "The switch continues by itself" in result.stderr


@pytest.mark.parametrize("arguments, code, words", [
    (("switch", "flights", "1", "--to-group", "4"), ExitCode.FAILED, "in group 4 already"),
    (("switch", "flights", "2", "--to-group", "4"), ExitCode.NOT_FOUND, "partitions 0 to 1"),
    (("explain", "flights", "7"), ExitCode.NOT_FOUND, "partitions 0 to 1"),
    (("explain", "nothing"), ExitCode.NOT_FOUND, "nothing"),
    (("switch", "flights", "1"), ExitCode.USAGE, "--to-group"),
    (("switch", "flights", "1", "--to-group", "0"), ExitCode.USAGE, "0")])
def test_what_cannot_be_is_refused_with_the_cause(run, topic, arguments, code, words):
    result = run("placement", *arguments)
    assert result.exit_code == code and words in result.stderr
