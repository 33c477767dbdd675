"""Kafka's errors for the outcomes of handlers: those that clients repeat a request after."""

import pytest

from multiraft.kafka.error_codes import ErrorCode
from multiraft.wire.errors import Code
from node.kafka.error_codes import of_append, of_fetch, of_identity, of_offsets

#: Errors of a fetch after which Java's consumer continues, or raises an error that names the cause.
#: It ends with an IllegalStateException after any other.
KNOWN_TO_CONSUMERS = {
    ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE}
#: Outcomes that the fetch handler has.
OF_FETCHES = (Code.OK, Code.NOT_LEADER, Code.MOVED, Code.STALE_METADATA, Code.SHUTTING_DOWN,
              Code.LEADER_UNKNOWN, Code.OFFSET_OUT_OF_RANGE, Code.OFFSET_NOT_AVAILABLE,
              Code.UNKNOWN_PARTITION, Code.QUEUE_FULL, Code.AMBIGUOUS, Code.TIMED_OUT,
              Code.QUARANTINED)
#: Outcomes that pass by themselves.
PASSING = (Code.NOT_LEADER, Code.MOVED, Code.STALE_EPOCH, Code.STALE_METADATA, Code.SHUTTING_DOWN,
           Code.LEADER_UNKNOWN, Code.QUEUE_FULL, Code.TIMED_OUT, Code.AMBIGUOUS)
#: Errors after which producers repeat a batch.
REPEATED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("code", OF_FETCHES)
def test_consumers_know_the_errors_of_a_fetch(code):
    assert of_fetch(code) in KNOWN_TO_CONSUMERS


@pytest.mark.parametrize("code", PASSING)
def test_producers_repeat_a_batch_after_an_outcome_that_passes(code):
    assert of_append(code) in REPEATED


@pytest.mark.parametrize("code", [code for code in PASSING if code not in (
    Code.MOVED, Code.STALE_EPOCH)])
def test_producers_repeat_the_request_for_an_identity(code):
    assert of_identity(code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_old_clients_are_not_sent_an_error_that_they_do_not_know():
    assert of_offsets(Code.OFFSET_NOT_AVAILABLE, 4) == ErrorCode.LEADER_NOT_AVAILABLE
    assert of_offsets(Code.OFFSET_NOT_AVAILABLE, 5) == ErrorCode.OFFSET_NOT_AVAILABLE
    assert of_offsets(Code.OK, 1) == ErrorCode.NONE
