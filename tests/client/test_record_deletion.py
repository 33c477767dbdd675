"""Deletion of records: outcomes by partition, named ends, redirects and lost answers."""

from __future__ import annotations

import pytest

from multiraft.client import DeletedRecords, Record
from multiraft.wire import errors
from multiraft.wire import messages as m
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.test_identity import lose


def filled(client, cluster, partitions: int = 3, records: int = 5):
    """Return the partitions of topic ``t``, each with some records."""
    parts = cluster.add_topic("t", partitions)
    with client.producer() as producer:
        for number in range(partitions):
            for _ in range(records):
                producer.send(Record("t", b"v", partition=number)).wait()
    return parts


def deletions(cluster) -> list[m.DeleteRecords]:
    return [request for _, request in cluster.requests if type(request) is m.DeleteRecords]


def test_each_partition_gets_its_own_log_start(client, cluster):
    parts = filled(client, cluster)
    assert client.delete_records("t", {0: 2, 2: 5}) == {0: DeletedRecords(2), 2: DeletedRecords(5)}
    assert [part.start_offset for part in parts] == [2, 0, 5]


def test_the_end_is_named_so_that_a_repetition_deletes_nothing_more(client, cluster):
    [part] = filled(client, cluster, 1)
    left = [2]

    def script(_node, event, _connection):
        if type(event.request) is m.DeleteRecords and left[0]:
            left[0] -= 1
            part.next_offset += 7  # appended by another client meanwhile
            return "cut-after"
        return None

    cluster.script = script
    assert client.delete_records("t", {0: -1}) == {0: DeletedRecords(5)}
    assert {row.before_offset for request in deletions(cluster) for row in request.partitions
            } == {5}


@pytest.mark.parametrize("verdict", ["cut-after", "ambiguous", "cut"])
def test_a_lost_answer_is_asked_for_again(client, cluster, verdict):
    [part] = filled(client, cluster, 1)
    cluster.script = lose("delete_records", verdict, 2)
    assert client.delete_records("t", {0: 3}) == {0: DeletedRecords(3)}
    assert part.start_offset == 3


def test_a_deletion_that_is_never_answered_is_ambiguous(client, cluster, monkeypatch):
    from multiraft.client import _retries
    monkeypatch.setattr(_retries, "OPERATION_TIMEOUT_MS", 300)
    filled(client, cluster, 1)
    cluster.script = lose("delete_records", "cut-after", 1 << 20)
    outcome = client.delete_records("t", {0: 3})[0]
    assert outcome.start_offset is None
    assert isinstance(outcome.error, errors.AmbiguousOutcome)


def test_a_new_leader_is_followed(client, cluster):
    [part] = filled(client, cluster, 1)
    cluster.leaders[part.group] = 1 + cluster.leaders[part.group] % 3
    assert client.delete_records("t", {0: 4}) == {0: DeletedRecords(4)}


def test_retriable_refusals_are_repeated_for_the_refused_partitions_only(client, cluster):
    parts = filled(client, cluster, 2)
    left = [3]

    def script(_node, event, _connection):
        rows = getattr(event.request, "partitions", ())
        if (type(event.request) is not m.DeleteRecords or not left[0]
                or parts[1].incarnation not in [row.incarnation for row in rows]):
            return None
        left[0] -= 1
        return ResponseEvent(event.id, m.DeleteRecordsReply(tuple(
            m.DeletionResult(row.incarnation, Code.STALE_METADATA, -1, ErrorDetail("switched"))
            for row in rows)))

    cluster.script = script
    assert client.delete_records("t", {1: 1}) == {1: DeletedRecords(1)}
    assert left == [0]


def test_an_offset_beyond_the_end_has_an_error_beside_the_others(client, cluster):
    filled(client, cluster, 2)
    found = client.delete_records("t", {0: 6, 1: 5})
    assert found[1] == DeletedRecords(5)
    error = found[0].error
    assert isinstance(error, errors.OffsetOutOfRange)
    assert (error.detail.start_offset, error.detail.end_offset) == (0, 5)
    assert (error.topic, error.partition, error.offset) == ("t", 0, 6)


def test_nothing_is_sent_for_unknown_topics_and_partitions_and_impossible_offsets(client, cluster):
    with pytest.raises(errors.UnknownTopic):
        client.delete_records("missing", {0: -1})
    filled(client, cluster, 2)
    with pytest.raises(errors.UnknownPartition, match="partitions 0 to 1, not 2"):
        client.delete_records("t", {0: 1, 2: 1})
    for value in (-2, 1 << 63, "3", True, 1.0):
        with pytest.raises(errors.InvalidRequest, match=r"partition 1: an offset is a whole number "
                           rf"from -1 to 2\^63 - 1, not {value!r}: nothing was deleted"):
            client.delete_records("t", {0: 1, 1: value})
    assert client.delete_records("t", {}) == {}
    assert not deletions(cluster)


def test_many_partitions_take_several_requests(client, cluster, monkeypatch):
    from multiraft.client import _record_deletion
    monkeypatch.setattr(_record_deletion, "REFUSALS_PER_REPLY_MAX", 4)
    parts = cluster.add_topic("t", 30)
    assert client.delete_records("t", dict.fromkeys(range(30), 0)) == dict.fromkeys(
        range(30), DeletedRecords(0))
    assert max(len(request.partitions) for request in deletions(cluster)) == 4
    assert len(parts) == 30
