"""Options as users write them: their effect, and the errors for wrong ones."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from pyspark_multiraft import options  # noqa: E402
from pyspark_multiraft.failures import OptionError, SourceError  # noqa: E402
from pyspark_multiraft.positions import (  # noqa: E402
    Position,
    TopicOffsets,
    dump_offsets,
    load_offsets,
)

BASE = {"servers": "127.0.0.1:9101", "subscribe": "a"}


def read(kind: str = options.BATCH, **more) -> options.ReadOptions:
    return options.parse_read({**BASE, **more}, kind)


def refused(kind: str = options.BATCH, **more) -> str:
    with pytest.raises(OptionError) as caught:
        read(kind, **more)
    return str(caught.value)


def test_defaults_are_those_of_sparks_kafka_source():
    batch, stream = read(), read(options.STREAM)
    assert (batch.starting, batch.ending) == (Position("earliest"), Position("latest"))
    assert (stream.starting, stream.ending) == (Position("latest"), Position("latest"))
    assert batch.fail_on_data_loss and not batch.pushdown
    assert batch.columns == ("topic", "partition", "offset", "timestamp", "key", "value")


def test_names_are_case_insensitive_and_servers_have_kafkas_name_too():
    found = options.parse_read({"KAFKA.bootstrap.servers": "a:1, b:2", "SUBSCRIBE": "x, y,x"})
    assert found.connection.servers == ("a:1", "b:2")
    assert found.topics.names == ("x", "y")


def test_columns_are_chosen_in_one_way_only():
    assert read(columns="offset, Timestamp").columns == ("offset", "timestamp")
    assert "value" not in read(includeValue="false").columns
    assert read(includeHeaders="true").columns[-1] == "headers"
    assert "contradict" in refused(columns="offset", includeValue="false")
    assert "named once" in refused(columns="offset,offset")
    assert "'offsets'" in refused(columns="offsets")


def test_positions_take_words_numbers_and_times():
    assert read(startingOffsets='{"a":{"0":23,"1":-2}}').starting == Position(
        each=((("a", 0), 23), (("a", 1), -2)))
    assert read(startingTimestamp="1700000000000").starting == Position(
        timestamp_ms=1_700_000_000_000)
    assert read(endingOffsetsByTimestamp='{"a":{"0":5}}').ending == Position(
        each=((("a", 0), 5),), by_time=True)


@pytest.mark.parametrize(("more", "said"), [
    ({"startingOfsets": "earliest"}, "Did you mean 'startingOffsets'?"),
    ({"topic": "a"}, "does not belong to reading"),
    ({"kafka.security.protocol": "SSL"}, "Kafka's own client"),
    ({"minOffsetsPerTrigger": "5"}, "processingTime"),
    ({"servers": "nowhere"}, "'nowhere' in the option 'servers' is not host:port"),
    ({"servers": ""}, "no cluster is named"),
    ({"subscribePattern": "b.*"}, "subscribe and subscribePattern"),
    ({"subscribe": ""}, "none of them"),
    ({"subscribe": "", "subscribePattern": "("}, "no regular expression"),
    ({"subscribe": "", "assign": '{"a":0}'}, "no list of partitions"),
    ({"startingOffsets": "latest"}, "would read nothing"),
    ({"endingOffsets": "earliest"}, "would read nothing"),
    ({"startingOffsets": "{"}, "cannot be read"),
    ({"startingOffsets": "[" * 4000}, "cannot be read"),
    ({"startingOffsets": '{"a":{"0":-3}}'}, "-2 the earliest"),
    ({"endingOffsets": '{"a":{"0":-2}}'}, "0 or more, -1 the latest."),
    ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "contradict"),
    ({"startingTimestamp": "yesterday"}, "whole number"),
    ({"minPartitions": "many"}, "whole number"),
    ({"failOnDataLoss": "maybe"}, "neither true nor false"),
    ({"readPreference": "follower"}, "leader, nearest"),
])
def test_a_wrong_option_is_explained(more, said):
    assert said in refused(**more)


def test_a_stream_has_no_end():
    assert "availableNow" in refused(options.STREAM, endingOffsets='{"a":{"0":5}}')


def test_writing_has_options_of_its_own():
    found = options.parse_write({"servers": "a:1", "topic": "t", "mode": "Idempotent",
                                 "sinkId": "s"})
    assert (found.topic, found.mode, found.sink_id) == ("t", "idempotent", "s")
    for more, said in (({"subscribe": "a"}, "does not belong to writing"),
                       ({"mode": "exactly-once"}, "at-least-once, idempotent"),
                       ({"sinkId": "s"}, "goes together")):
        with pytest.raises(OptionError, match=said):
            options.parse_write({"servers": "a:1", **more})


def test_offsets_of_a_checkpoint_come_back_and_others_are_refused():
    offsets = {"b": TopicOffsets(7, ((0, 5), (10, 6))), "a": TopicOffsets(3, ())}
    assert load_offsets(dump_offsets(offsets)) == offsets
    assert list(dump_offsets(offsets)["topics"]) == ["a", "b"]
    with pytest.raises(SourceError, match="version 2, this release reads 1"):
        load_offsets({"version": 2, "topics": {}})
