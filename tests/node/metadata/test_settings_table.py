"""Settings in the metadata: changes, limits, snapshots."""

from __future__ import annotations

import cbor2
import pytest

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.errors import CodecError
from multiraft.wire.errors import Code
from multiraft.wire.settings import SETTING_VALUE_MAX, SETTINGS_PER_TOPIC_MAX, SettingChange
from node.metadata import settings_table
from node.metadata.commands import InvalidCommand, encode_command
from node.metadata.state_machine import AlterSettings, DeleteTopic, MetadataState
from tests.node.metadata.test_state_machine import Replica, create, uuid


def alter(topic="t", expected=None, number=1, **values):
    """Return a command; names have _ for their dots."""
    changes = tuple(SettingChange(name.replace("_", "."), value) for name, value in values.items())
    return AlterSettings(topic, uuid(number if topic else 0), changes, expected)


def of(replica, topic="t"):
    found = replica.state.topic(topic)
    return dict(replica.state.settings.of(found.incarnation if found else 0).pairs)


def test_a_topic_is_created_with_settings():
    replica = Replica()
    replica(create("t")._replace(settings=(("retention.ms", "7"), ("cleanup.policy", "delete"))))
    assert of(replica) == {"cleanup.policy": "delete", "retention.ms": "7"}


def test_a_change_sets_and_deletes_and_leaves_the_rest():
    replica = Replica(create("t"))
    assert replica(alter(retention_ms="7", segment_ms="5")).value is True
    assert replica(alter(retention_ms=None, retention_bytes="9")).value is True
    assert of(replica) == {"retention.bytes": "9", "segment.ms": "5"}


def test_a_change_to_the_same_values_changes_nothing():
    replica = Replica(create("t"), alter(retention_ms="7"))
    before = replica.state.settings.of(1)
    assert replica(alter(retention_ms="7", segment_ms=None)) == (Code.OK, False, None)
    assert replica.state.settings.of(1) is before


def test_a_change_that_was_judged_by_other_settings_is_refused():
    replica = Replica(create("t"), alter(retention_ms="7"))
    version = replica.state.settings.of(1).version
    assert replica(alter(retention_ms="8", expected=0)).code == Code.STALE_METADATA
    assert replica(alter(retention_ms="8", expected=version)).code == Code.OK
    assert replica(alter(retention_ms="9", expected=version)).code == Code.STALE_METADATA
    assert of(replica) == {"retention.ms": "8"}


def test_settings_belong_to_one_life_of_a_topic():
    replica = Replica(create("t"), alter(retention_ms="7"))
    replica(DeleteTopic("t", uuid(1)))
    assert replica(alter(retention_ms="8")).code == Code.UNKNOWN_TOPIC
    replica(create("t", 2))
    assert of(replica) == {}
    assert replica(alter(retention_ms="8")).code == Code.UNKNOWN_TOPIC, "the id is the first one's"


def test_the_limit_of_batches_is_the_topics_then_the_clusters():
    replica = Replica(create("t"), create("__internal", 2))

    def limits():
        return [replica.state.locate(incarnation).batch_bytes_max for incarnation in (1, 2)]

    assert limits() == [BATCH_BYTES_MAX] * 2
    replica(alter("", max_message_bytes="1000"))
    assert limits() == [1000, BATCH_BYTES_MAX], "an internal topic has no share in the default"
    replica(alter(max_message_bytes="500"))
    assert limits() == [500, BATCH_BYTES_MAX]
    replica(alter(max_message_bytes=None))
    replica(alter("", max_message_bytes=None))
    assert limits() == [BATCH_BYTES_MAX] * 2


def test_a_topic_is_compacted_by_its_own_policy_then_by_the_clusters():
    replica = Replica(create("t"), create("__internal", 2))

    def compacted():
        return [replica.state.settings.is_compacted(incarnation, name)
                for incarnation, name in ((1, "t"), (2, "__internal"))]

    assert compacted() == [False, False]
    replica(alter("", cleanup_policy="compact"))
    assert compacted() == [True, False], "an internal topic has no share in the default"
    replica(alter(cleanup_policy="delete"))
    assert compacted() == [False, False]
    replica(alter(cleanup_policy="compact,delete"))
    replica(alter("", cleanup_policy=None))
    assert compacted() == [True, False]
    assert MetadataState.restore(saved(replica)).settings.is_compacted(1, "t")
    replica(DeleteTopic("t", uuid(1)))
    assert compacted() == [False, False]


def test_the_type_of_timestamps_is_the_topics_then_the_clusters():
    replica = Replica(create("t"), create("__internal", 2))

    def stamped():
        return [replica.state.locate(incarnation).has_append_time for incarnation in (1, 2)]

    assert stamped() == [False, False]
    replica(alter("", message_timestamp_type="LogAppendTime"))
    assert stamped() == [True, True]
    replica(alter(message_timestamp_type="CreateTime"))
    assert stamped() == [False, True]
    replica(alter("", message_timestamp_type=None))
    replica(alter(message_timestamp_type="LogAppendTime"))
    assert stamped() == [True, False]
    assert MetadataState.restore(saved(replica)).locate(1).has_append_time
    replica(DeleteTopic("t", uuid(1)))
    replica(create("t", 3))
    assert not replica.state.locate(3).has_append_time


def test_compaction_is_the_topics_then_the_clusters():
    replica = Replica(create("t"), create("__internal", 2))

    def compacted():
        return [replica.state.locate(incarnation).is_compacted for incarnation in (1, 2)]

    assert compacted() == [False, False]
    replica(alter("", cleanup_policy="compact"))
    assert compacted() == [True, False], "an internal topic has no share in the default"
    replica(alter(cleanup_policy="delete"))
    assert compacted() == [False, False]
    replica(alter(cleanup_policy="compact,delete"))
    replica(alter("", cleanup_policy=None))
    assert compacted() == [True, False]
    assert MetadataState.restore(saved(replica)).locate(1).is_compacted
    replica(DeleteTopic("t", uuid(1)))
    replica(create("t", 3))
    assert not replica.state.locate(3).is_compacted


def test_a_limit_that_this_release_cannot_read_is_the_default():
    replica = Replica(create("t"), alter(max_message_bytes="unlimited"))
    assert replica.state.locate(1).batch_bytes_max == BATCH_BYTES_MAX
    assert of(replica) == {"max.message.bytes": "unlimited"}


def test_the_number_of_settings_is_limited():
    replica = Replica(create("t"))
    half = SETTINGS_PER_TOPIC_MAX // 2 + 1
    assert replica(alter(**{f"a_{number}": "" for number in range(half)})).code == Code.OK
    result = replica(alter(**{f"b_{number}": "" for number in range(half)}))
    assert result.code == Code.LIMIT_EXCEEDED
    assert (result.error.limit, result.error.value) == (SETTINGS_PER_TOPIC_MAX, 2 * half)


def test_the_sum_of_all_settings_is_limited(monkeypatch):
    monkeypatch.setattr(settings_table, "SETTINGS_BYTES_MAX", 40)
    replica = Replica(create("t"), create("u", 2), alter(retention_ms="1" * 20))
    result = replica(alter("u", number=2, retention_ms="1"))
    assert (result.code, result.error.limit, result.error.value) == (Code.LIMIT_EXCEEDED, 40, 45)
    created = replica(create("v", 3)._replace(settings=(("retention.ms", "1"),)))
    assert created.code == Code.LIMIT_EXCEEDED
    assert replica.state.topic("v") is None
    replica(DeleteTopic("t", uuid(1)))
    assert replica(alter("u", number=2, retention_ms="1")).code == Code.OK


@pytest.mark.parametrize("changes", [
    (SettingChange("a", "x" * (SETTING_VALUE_MAX + 1)),), (SettingChange("a" * 101, "x"),),
    (SettingChange("a", "1"), SettingChange("a", "2")),
    tuple(SettingChange(str(number), "") for number in range(SETTINGS_PER_TOPIC_MAX + 1)),
])
def test_a_command_over_the_limits_is_not_encoded(changes):
    with pytest.raises(InvalidCommand):
        encode_command(AlterSettings("t", uuid(1), changes))


# ---- snapshots ----------------------------------------------------------------------------------


def saved(replica):
    return cbor2.loads(cbor2.dumps(replica.state.snapshot()))


def test_a_snapshot_has_settings():
    replica = Replica(create("t"), alter(max_message_bytes="500"), alter("", retention_ms="3"))
    snapshot = saved(replica)
    version = replica.state.settings.of(1).version
    assert snapshot["version"] == 9
    assert snapshot["settings"] == [[0, version + 2, [["retention.ms", "3"]]],
                                    [1, version, [["max.message.bytes", "500"]]]]
    restored = MetadataState.restore(snapshot)
    restored._check()
    assert restored.locate(1).batch_bytes_max == 500
    assert restored.snapshot() == replica.state.snapshot()


def test_a_snapshot_of_version_8_has_no_settings():
    snapshot = saved(Replica(create("t")))
    for name in ("settings", "users", "quotas", "added_partitions"):
        del snapshot[name]
    restored = MetadataState.restore({**snapshot, "version": 8})
    assert restored.settings.of(1) == (0, ())
    assert restored.snapshot()["version"] == 9


@pytest.mark.parametrize("damage", [
    {"settings": None}, {"settings": [[1, 5, [["a", 3]]]]}, {"settings": [[1, 5, []]]},
    {"settings": [[1, 5, [["b", ""], ["a", ""]]]]},
    {"settings": [[1, 5, [["a", "x" * (SETTING_VALUE_MAX + 1)]]]]},
    {"settings": [[1, 5, [[str(number), ""] for number in range(100, 200)]]]},
    {"users": [["admin"]]}, {"quotas": [[1]]}, {"added_partitions": [[1, [[5, 3]]]]},
])
def test_a_snapshot_with_other_rows_is_refused(damage):
    snapshot = saved(Replica(create("t")))
    with pytest.raises(CodecError):
        MetadataState.restore({**snapshot, **damage})
