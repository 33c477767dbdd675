"""The comparison itself: outcomes, differences, and what is listed."""

import re
from pathlib import Path

import pytest

from multiraft import core
from multiraft.kafka.apis import APIS, GROUP_APIS, ApiKey
from multiraft.kafka.hot_messages import FetchResponse, MetadataResponse
from multiraft.kafka.messages.create_topics import CreateTopicsResponse
from tests.kafka_compare.comparison import Difference, Known, differences, judged
from tests.kafka_compare.known import KNOWN
from tests.kafka_compare.outcome import outcome_of
from tests.kafka_compare.records import describe, make_batch

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
HEADING = "## Differences from Kafka 4.4"


def test_a_batch_that_is_built_field_by_field_is_right():
    data = make_batch(b"a", None, keys=(b"k", b"l"), producer=(7, 1, 5), time_deltas=(0, 3))
    header = core.batch_header(data)
    assert (header.total_bytes, header.producer_id, header.base_sequence) == (len(data), 7, 5)
    core.check_batch(memoryview(bytearray(data)))  # raises if it is not


@pytest.mark.parametrize("codec", range(5))
def test_descriptions_of_batches_tell_their_records_apart(codec):
    same, other = make_batch(b"a", codec=codec), make_batch(b"b", codec=codec)
    assert describe(same) == describe(make_batch(b"a", codec=codec)) != describe(other)
    assert len(describe(same + other)) == 2
    assert describe(same + other[:62])[1].endswith("cut off")
    assert describe(same + other[:20])[1] == "20 bytes more"


def test_elements_are_found_by_name_and_ids_have_words():
    topic = MetadataResponse.MetadataResponseTopic
    response = MetadataResponse(topics=[
        topic(name="b", topic_id=b"1" * 16), topic(name="a", error_code=3),
        topic(name="a", error_code=5)], cluster_id="x", controller_id=1)
    found = outcome_of(ApiKey.METADATA, 13, response, {b"1" * 16: "b"})
    assert found["topics.count"] == 3
    assert found["topics[a].error_code"] == 3 and found["topics[a again 1].error_code"] == 5
    assert found["topics[b].topic_id"] == "id of b" and found["topics[a].topic_id"] == "no id"
    assert found["cluster_id"] == "text"
    assert "throttle_time_ms" not in found


def test_only_fields_of_the_version_are_compared():
    response = MetadataResponse(cluster_id="x")
    assert "cluster_id" not in outcome_of(ApiKey.METADATA, 1, response, {})


def test_records_of_a_response_are_described():
    part = FetchResponse.PartitionData(records=[make_batch(b"a"), make_batch(b"b")])
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(
        topic="t", partitions=[part])])
    found = outcome_of(ApiKey.FETCH, 12, response, {})
    assert len(found["responses[t].partitions[0].records"]) == 2


def test_texts_of_errors_are_not_compared():
    result = CreateTopicsResponse.CreatableTopicResult(name="t", error_message="no")
    found = outcome_of(ApiKey.CREATE_TOPICS, 7, CreateTopicsResponse(topics=[result]), {})
    assert not [path for path in found if "message" in path]


def test_a_difference_has_all_versions_with_the_same_values():
    kafka = {("ask", version): {"code": 0, "same": 1} for version in (1, 2, 3)}
    node = {("ask", 1): {"code": 0, "same": 1}, ("ask", 2): {"code": 4, "same": 1},
            ("ask", 3): {"code": 4}}
    found = differences(kafka, node)
    assert found == [Difference("ask", "code", 0, 4, [2, 3]),
                     Difference("ask", "same", "something", "nothing", [3])]
    assert str(found[0]) == "ask v2-3: code: Kafka 0, here 4"


def test_servers_that_were_asked_other_requests_are_not_compared():
    with pytest.raises(AssertionError, match="not the same requests"):
        differences({("ask", 1): {}}, {})


def test_a_row_expects_differences_by_patterns_and_may_be_in_vain():
    found = [Difference("ask: a", "x.code", 0, 1), Difference("ask: b", "x.code", 0, 1)]
    right, vain = Known("ask: a", "*.code", "row"), Known("tell*", "*", "row")
    unexpected, expected = judged(found, (right, vain))
    assert unexpected == found[1:]
    assert expected == {right: found[:1], vain: []}


def test_each_reason_is_a_row_of_the_page_and_each_row_a_reason():
    text = PAGE.read_text()
    section = text[text.index(HEADING):].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]
    assert sorted(rows) == sorted({row.reason for row in KNOWN})


def test_every_api_that_is_served_is_asked_for():
    asked = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    unserved = {"DESCRIBE_TOPIC_PARTITIONS"}
    lacking = [ApiKey(key).name for key in APIS if key not in GROUP_APIS
               and ApiKey(key).name not in unserved and f"ApiKey.{ApiKey(key).name}" not in asked]
    assert not lacking
