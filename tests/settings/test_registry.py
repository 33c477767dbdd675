"""The registry: names, values, refusals, and what each setting does."""

import pytest

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.settings import contradictions
from multiraft.settings.carried_out import CARRIED_OUT
from multiraft.settings.effective import Defaults, Source, resolve, values_of
from multiraft.settings.registry import (
    SETTINGS,
    Effect,
    InvalidSetting,
    Role,
    default_of,
    find,
    read_value,
)
from multiraft.settings.values import LONG_MAX, Kind

#: Topic settings of Kafka: those of 4.x, and the three that 4.0 removed and tools still set.
KAFKA = (
    "cleanup.policy", "compression.gzip.level", "compression.lz4.level", "compression.type",
    "compression.zstd.level", "delete.retention.ms", "file.delete.delay.ms", "flush.messages",
    "flush.ms", "follower.replication.throttled.replicas", "index.interval.bytes",
    "leader.replication.throttled.replicas", "local.retention.bytes", "local.retention.ms",
    "max.compaction.lag.ms", "max.message.bytes", "message.downconversion.enable",
    "message.format.version", "message.timestamp.after.max.ms", "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms", "min.insync.replicas", "preallocate", "remote.log.copy.disable",
    "remote.log.delete.on.disable", "remote.storage.enable", "retention.bytes", "retention.ms",
    "segment.bytes", "segment.index.bytes", "segment.jitter.ms", "segment.ms",
    "unclean.leader.election.enable")
#: A cluster without settings.
PLAIN = Defaults({}, 3)


def refused(name: str, value: str, factor: int = 3) -> str:
    with pytest.raises(InvalidSetting) as caught:
        read_value(name, value, factor)
    assert caught.value.name == name
    return str(caught.value)


def test_it_has_kafkas_names_and_one_more():
    assert len(KAFKA) == 36
    assert sorted(SETTINGS) == sorted((*KAFKA, "retention.records"))
    assert [*SETTINGS] == sorted(SETTINGS), "listed by name"


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_default_is_an_accepted_value_in_canonical_form(name):
    value = default_of(find(name), 3)
    assert read_value(name, value, 3) == value


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_each_setting_says_what_it_does(name):
    setting = find(name)
    assert setting.text and setting.type.range_text
    assert setting.effect is {
        Role.INERT: Effect.NO_EFFECT, Role.FIXED: Effect.FIXED,
        Role.IMPLEMENTED: Effect.IN_EFFECT if name in CARRIED_OUT else Effect.STORED}[setting.role]


def test_only_implemented_settings_are_carried_out():
    assert {name for name in CARRIED_OUT if find(name).role is not Role.IMPLEMENTED} == set()
    assert "max.message.bytes" in CARRIED_OUT


@pytest.mark.parametrize("name, text, value", [
    ("retention.ms", "604800000", "604800000"),
    ("retention.ms", "-1", "-1"),
    ("retention.ms", "+007", "7"),
    ("retention.bytes", str(LONG_MAX), str(LONG_MAX)),
    ("max.message.bytes", str(BATCH_BYTES_MAX), str(BATCH_BYTES_MAX)),
    ("min.cleanable.dirty.ratio", ".10", "0.1"),
    ("cleanup.policy", "delete, compact", "compact,delete"),
    ("cleanup.policy", "compact", "compact"),
    ("preallocate", "TRUE", "true"),
    ("follower.replication.throttled.replicas", "0:1,0:2", "0:1,0:2"),
    ("leader.replication.throttled.replicas", "*", "*"),
    ("message.format.version", "2.8-IV1", "2.8-IV1"),
    ("unclean.leader.election.enable", "false", "false"),
    ("min.insync.replicas", "2", "2"),
])
def test_a_value_gets_its_canonical_form(name, text, value):
    assert read_value(name, text, 3) == value


@pytest.mark.parametrize("name, text, why", [
    ("retention.ms", "-2", "expected -1 = unlimited, 0 .. 2^63 - 1 (milliseconds), got '-2'"),
    ("retention.ms", "7d", "expected a whole number"),
    ("retention.ms", "", "expected a whole number"),
    ("retention.ms", "٣", "expected a whole number"),
    ("retention.ms", str(LONG_MAX + 1), "2^63 - 1 (milliseconds), got '9223"),
    ("retention.ms", "9" * 5000, "expected a whole number"),
    ("max.message.bytes", str(BATCH_BYTES_MAX + 1),
     f"expected 62 .. {BATCH_BYTES_MAX} (bytes), got"),
    ("max.message.bytes", "61", "expected 62"),
    ("min.cleanable.dirty.ratio", "1.1", "expected a decimal number, 0 .. 1"),
    ("min.cleanable.dirty.ratio", "nan", "expected a decimal number"),
    ("cleanup.policy", "compact,compact", "expected compact, delete"),
    ("cleanup.policy", "erase", "expected compact, delete"),
    ("preallocate", "yes", "expected true or false"),
    ("leader.replication.throttled.replicas", "1-2", "pairs partition:broker"),
    ("message.timestamp.type", "logappendtime", "expected one of CreateTime, LogAppendTime"),
    ("message.format.version", "0.10.2", "a version from 0.11 on"),
])
def test_a_value_outside_of_its_type_is_refused_with_the_expectation(name, text, why):
    assert why in refused(name, text)


@pytest.mark.parametrize("name, text, why", [
    ("unclean.leader.election.enable", "true", "elected by a majority only"),
    ("compression.type", "zstd", "as their producers compressed them"),
    ("message.timestamp.after.max.ms", "3600000", "any timestamp"),
    ("remote.storage.enable", "true", "no tiered storage"),
    ("min.insync.replicas", "1", "only 2 is accepted, not 1"),
    ("min.insync.replicas", "3", "by a majority of the replicas, never by fewer or more"),
])
def test_a_value_that_promises_something_else_is_refused_with_the_reason(name, text, why):
    assert why in refused(name, text)


def test_the_majority_depends_on_the_replication_factor():
    assert read_value("min.insync.replicas", "1", 1) == "1"
    assert read_value("min.insync.replicas", "3", 5) == "3"
    assert "only 3" in refused("min.insync.replicas", "2", 5)


@pytest.mark.parametrize("name, meant", [
    ("retention.m", "did you mean retention.ms?"),
    ("retention_ms", "did you mean retention.ms?"),
    ("Max.Message.Bytes", "did you mean max.message.bytes?"),
    ("log.retention.ms", "topics and the cluster's defaults have retention.ms"),
    ("message.max.bytes", "topics and the cluster's defaults have max.message.bytes"),
])
def test_an_unknown_name_is_refused_with_the_one_that_was_meant(name, meant):
    assert meant in refused(name, "1")


def test_a_name_that_is_like_none_is_refused_without_advice():
    assert refused("colour", "1") == "colour: there is no such setting"
    assert len(refused("x" * 10_000, "1")) < 200


@pytest.mark.parametrize("values, why", [
    ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
     "contradicts max.compaction.lag.ms=5"),
    ({"local.retention.ms": "10", "retention.ms": "5"}, "kept locally"),
    ({"segment.jitter.ms": "10", "segment.ms": "5"}, "variation"),
])
def test_contradicting_values_are_refused(values, why):
    with pytest.raises(InvalidSetting, match=why):
        contradictions.check(values_of(values, PLAIN, "t"), values)


def test_no_limit_contradicts_nothing():
    values = {"local.retention.ms": "10", "retention.ms": "-1"}
    contradictions.check(values_of(values, PLAIN, "t"), values)


def test_a_topics_value_may_contradict_a_default_of_the_cluster():
    defaults = Defaults({"max.compaction.lag.ms": "5"}, 3)
    own = {"min.compaction.lag.ms": "10"}
    with pytest.raises(InvalidSetting, match="min.compaction.lag.ms: 10 contradicts"):
        contradictions.check(values_of(own, defaults, "t"), own)


def test_an_older_contradiction_refuses_no_unrelated_change():
    values = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    contradictions.check(values_of(values, PLAIN, "t"), {"retention.ms"})


def test_the_topics_value_comes_before_the_clusters_and_the_default():
    setting = find("retention.ms")
    defaults = Defaults({"retention.ms": "2"}, 3)
    assert resolve(setting, {"retention.ms": "1"}, defaults, "t") == (
        ("1", Source.TOPIC), ("2", Source.CLUSTER), ("-1", Source.DEFAULT))
    assert resolve(setting, {}, defaults, "t")[0] == ("2", Source.CLUSTER)
    assert resolve(setting, {}, PLAIN, "t") == (("-1", Source.DEFAULT),)


def test_an_internal_topic_has_no_share_in_limits_that_are_meant_for_applications():
    defaults = Defaults({"max.message.bytes": "1000", "retention.ms": "2"}, 3)
    assert values_of({}, defaults, "__metrics")["max.message.bytes"] == str(BATCH_BYTES_MAX)
    assert values_of({}, defaults, "__metrics")["retention.ms"] == "-1"
    assert values_of({}, defaults, "t")["retention.ms"] == "2"
    assert values_of({}, defaults, "t")["max.message.bytes"] == "1000"
    assert values_of({"max.message.bytes": "500"}, defaults, "__metrics")[
        "max.message.bytes"] == "500"


def test_a_topic_of_the_nodes_has_the_settings_of_their_configuration():
    setting = find("retention.ms")
    defaults = Defaults({"retention.ms": "2"}, 3, {"__metrics": {"retention.ms": "3"}})
    assert resolve(setting, {"retention.ms": "1"}, defaults, "__metrics") == (
        ("1", Source.TOPIC), ("3", Source.NODE), ("-1", Source.DEFAULT))
    assert values_of({}, defaults, "__metrics")["retention.ms"] == "3"
    assert values_of({}, defaults, "__other")["retention.ms"] == "-1"
    assert values_of({}, defaults, "t")["retention.ms"] == "2"


def test_types_and_sources_have_the_numbers_of_kafka():
    assert {kind.name: int(kind) for kind in Kind} == {
        "BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}
    assert {source.word: int(source) for source in Source} == {
        "topic": 1, "cluster": 3, "node": 4, "default": 5}
