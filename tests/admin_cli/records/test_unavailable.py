"""Groups without a leader: which members are up and which are down."""

from __future__ import annotations

import pytest

from admin_cli.failures import ExitCode
from admin_cli.records import appender, record_source, unavailable, waiting
from admin_cli.records.unavailable import Partition, explain
from multiraft.client.blocking import NoNodeAnswered
from multiraft.wire import errors as wire
from tests.admin_cli.fakes import FakeClient

PARTITIONS = [Partition("t", 0, 1), Partition("t", 1, 2), Partition("u", 0, 2)]


@pytest.fixture
def client(cluster) -> FakeClient:
    """A client of a cluster with the topic ``t`` of two partitions."""
    cluster.topics["t"] = [[], []]
    return FakeClient(cluster)


def test_groups_that_are_led_are_not_named(client):
    assert unavailable.partitions(client, "t") == PARTITIONS[:2]
    assert explain(client, PARTITIONS) == []


def test_a_lost_majority_is_named_with_addresses_though_a_leader_is_believed(client, cluster):
    cluster.up = {2}
    assert explain(client, PARTITIONS[:1]) == [
        "group 1, which holds t/0, has no leader: 1 of its 3 members is up (node 2 at "
        "127.0.0.1:9102), down: node 1 at 127.0.0.1:9101, node 3 at 127.0.0.1:9103."]
    cluster.up = set()
    assert explain(client, PARTITIONS[:1]) == [
        "group 1, which holds t/0, has no leader: 0 of its 3 members are up, down: node 1 at "
        "127.0.0.1:9101, node 2 at 127.0.0.1:9102, node 3 at 127.0.0.1:9103."]


def test_groups_with_the_same_members_share_a_sentence(client, cluster):
    cluster.up = {1}
    (sentence,) = explain(client, PARTITIONS)
    assert sentence.startswith("groups 1 (t/0), 2 (t/1) have no leader: 1 of their 3 members is up")
    many = [Partition("t", number, number % 4 + 1) for number in range(9)]
    unavailable.GROUPS_NAMED_MAX, before = 2, unavailable.GROUPS_NAMED_MAX
    try:
        assert "groups 1 (t/0), 2 (t/1) and 2 others have" in explain(client, many)[0]
    finally:
        unavailable.GROUPS_NAMED_MAX = before


def test_an_election_is_told_from_a_lost_majority(client, cluster):
    cluster.leaders[1] = 0
    (sentence,) = explain(client, PARTITIONS)
    assert "group 1, which holds t/0, has no leader: an election is under way" in sentence


def test_a_dead_leader_whose_followers_are_up_is_named(client, cluster):
    cluster.up = {1, 3}  # node 2 led group 1
    (sentence,) = explain(client, PARTITIONS[:1])
    assert "2 of its 3 members are up" in sentence and "down: node 2" in sentence


def test_the_state_of_the_nodes_is_asked_for_once(client, cluster, monkeypatch):
    asked = []
    given = FakeClient.cluster_status

    def cluster_status(self):
        asked.append(self)
        return given(self)

    monkeypatch.setattr(FakeClient, "cluster_status", cluster_status)
    cluster.up = {1}
    assert explain(client, PARTITIONS)
    assert len(asked) == 1


def test_when_no_node_answers_that_is_the_reason(client, cluster, monkeypatch):
    def fail(_self):
        raise wire.TimedOut("list_groups: no answer")

    monkeypatch.setattr(FakeClient, "group_list", fail)
    assert explain(client, PARTITIONS) == [
        "the state of the groups is not known: list_groups: no answer."]

    def silence(_self):
        raise NoNodeAnswered({"a:1": "silent for 3 s", "b:1": "refused", "c:1": "silent for 3 s"})

    monkeypatch.setattr(FakeClient, "group_list", silence)
    assert explain(client, PARTITIONS) == [
        "no node answers now; a:1, c:1: silent for 3 s; b:1: refused."]


def test_a_producer_that_waits_says_for_whom_and_the_error_repeats_it(run, cluster, monkeypatch):
    cluster.topics["t"] = [[]]
    cluster.up = {1}
    waited = []

    def until(client, is_over, deadline_ms=None):
        """Nothing is answered in the first two waits."""
        waited.append(deadline_ms)
        if len(waited) > 2:
            client.advance()
        return is_over()

    cluster.outcomes[b"a"] = wire.TimedOut("batch of 1 records for t/0 not delivered in 5000 ms")
    monkeypatch.setattr(waiting, "until", until)
    done = run("produce", "t", "--timeout", "5s", input=b"a\n")
    fact = "1 of its 3 members is up (node 1 at 127.0.0.1:9101), down: node 2 at 127.0.0.1:9102"
    before, _, error = done.stderr.partition("Error: ")
    assert before.count("waiting for the leaders of t to answer; group 1") == 2
    assert before.count(fact) == 2 and error.count(fact) == 1
    assert error.startswith("1 record refused: no leader has acknowledged it within 5 s.\n")
    assert done.exit_code == ExitCode.UNREACHABLE
    assert waited[1] - waited[0] >= 1_000 * appender.TOLD_AFTER_S, "it waits longer each time"


@pytest.mark.parametrize("error, words, code", [
    (wire.TimedOut("batch of 1 record for t/0 not delivered in 30 s"),
     "1 record refused: batch of 1 record for t/0 not delivered in 30 s.", ExitCode.UNREACHABLE),
    (wire.LeaderUnknown("no leader"), "1 record refused: no leader.", ExitCode.UNREACHABLE),
    (wire.StorageFull("the disk is full"), "refused: the disk is full.", ExitCode.FAILED),
    (wire.AmbiguousOutcome("last: connection reset"),
     "1 record may or may not have been appended: last: connection reset.", ExitCode.AMBIGUOUS)])
def test_without_a_missing_leader_the_clients_reason_is_told(run, cluster, error, words, code):
    cluster.topics["t"] = [[]]
    cluster.outcomes[b"a"] = error
    done = run("produce", "t", input=b"a\n")
    assert done.exit_code == code
    assert words in done.stderr


def test_the_bytes_that_a_producer_holds_are_bounded(run, cluster, monkeypatch):
    cluster.topics["t"] = [[]]
    cluster.batch_records = 1_000
    held = []
    before = FakeClient.advance

    def advance(self):
        held.append(sum(len(record.value) for producer in cluster.producers
                        for record in producer._records))
        before(self)

    monkeypatch.setattr(FakeClient, "advance", advance)
    monkeypatch.setattr(appender, "HELD_BYTES_MAX", 2_000)
    monkeypatch.setattr(record_source, "BLOCK_BYTES", 500)
    assert run("produce", "t", input=b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 99).exit_code == 0
    assert len(cluster.appended) == 100
    assert max(held) <= 2_000 and len(held) > 4
