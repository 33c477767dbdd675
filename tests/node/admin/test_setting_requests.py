"""Requests about settings at a real node: judged, stored, described, also after a restart."""

from __future__ import annotations

import pytest
import trio

from multiraft.wire.errors import Code
from multiraft.wire.messages import CreateTopic, DeleteTopic
from multiraft.wire.settings import AlterSettings, DescribeSettings, SettingChange, SettingValue
from node.admin import setting_requests
from node.metadata import setting_commands
from node.observability.load_records import TOPIC
from tests.node.harness import Client, in_trio, serving


def alter(topic="t", incarnation=0, dry_run=False, **values):
    """Return a request; names have _ for their dots."""
    return AlterSettings(topic, tuple(SettingChange(name.replace("_", "."), value)
                                      for name, value in values.items()), incarnation, dry_run)


async def described(client, topic="t"):
    answer = await client.ask(DescribeSettings(topic))
    assert answer.code == Code.OK, answer.error
    return {row.name: row for row in answer.reply.settings}


@in_trio
async def test_settings_are_set_described_and_deleted(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        row = (await described(client))["retention.ms"]
        assert row == ("retention.ms", "-1", "default", "in effect", "long",
                       (("-1", "default"),))
        assert (await client.ask(alter("", retention_ms="9"))).code == Code.OK
        assert (await client.ask(alter(retention_ms="+7"))).code == Code.OK
        row = (await described(client))["retention.ms"]
        assert row.values == (SettingValue("7", "topic"), SettingValue("9", "cluster"),
                              SettingValue("-1", "default"))
        assert (row.value, row.source) == ("7", "topic")
        assert (await described(client, ""))["retention.ms"].values == row.values[1:]
        assert (await client.ask(alter(retention_ms=None))).code == Code.OK
        assert (await described(client))["retention.ms"].source == "cluster"


@in_trio
async def test_the_retention_of_loads_is_that_of_the_node_unless_the_topic_sets_one(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create(TOPIC)
        assert (await client.ask(alter("", retention_ms="9"))).code == Code.OK
        row = (await described(client, TOPIC))["retention.ms"]
        assert (row.value, row.source) == ("86400000", "node")
        assert (await client.ask(alter(TOPIC, retention_ms="7"))).code == Code.OK
        row = (await described(client, TOPIC))["retention.ms"]
        assert row.values == (SettingValue("7", "topic"), SettingValue("86400000", "node"),
                              SettingValue("-1", "default"))


@in_trio
async def test_settings_outlive_a_restart(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        assert (await client.ask(CreateTopic("t", settings=(("segment.ms", "5"),)))).code == Code.OK
        await client.ask(alter("", retention_bytes="9"))
    async with serving(tmp_path) as node, await Client.open(node) as client:
        found = await described(client)
        assert (found["segment.ms"].value, found["segment.ms"].source) == ("5", "topic")
        assert found["segment.ms"].effect == "no effect"
        assert (found["retention.bytes"].value, found["retention.bytes"].source) == ("9", "cluster")


@in_trio
async def test_a_refusal_has_the_reason_and_changes_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        for values, why in (
                ({"retention_m": "1"}, "did you mean retention.ms?"),
                ({"retention_ms": "1d"}, "expected a whole number"),
                ({"unclean_leader_election_enable": "true"}, "by a majority only"),
                ({"min_insync_replicas": "2"}, "only 1 is accepted"),
                ({"segment_ms": "5", "segment_jitter_ms": "6"}, "contradicts"),
                ({"retention_ms": "7", "preallocate": "maybe"}, "true or false"),
                ({"colour": None}, "no such setting")):
            answer = await client.ask(alter(**values))
            assert answer.code == Code.INVALID_SETTING
            assert why in answer.error.text
        assert {row.source for row in (await described(client)).values()} == {"default"}
        created = await client.ask(CreateTopic("u", settings=(("retention.ms", "x"),)))
        assert created.code == Code.INVALID_SETTING
        assert (await client.ask(DescribeSettings("u"))).code == Code.UNKNOWN_TOPIC


@in_trio
async def test_settings_that_contradict_each_other_only_together_are_refused(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        assert (await client.ask(alter(min_compaction_lag_ms="10"))).code == Code.OK
        answer = await client.ask(alter(max_compaction_lag_ms="5"))
        assert answer.code == Code.INVALID_SETTING
        assert "min.compaction.lag.ms=10" in answer.error.text


@in_trio
async def test_a_change_that_is_only_checked_changes_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        version = node.metadata.log.state.version
        assert (await client.ask(alter(dry_run=True, retention_ms="7"))).code == Code.OK
        refused = await client.ask(alter(dry_run=True, retention_ms="x"))
        assert refused.code == Code.INVALID_SETTING
        assert node.metadata.log.state.version == version


@in_trio
async def test_a_change_reaches_the_life_of_the_topic_that_it_names(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        old = await client.create("t")
        await client.ask(DeleteTopic("t", old))
        new = await client.create("t")
        late = await client.ask(alter(incarnation=old, retention_ms="7"))
        assert late.code == Code.UNKNOWN_TOPIC
        assert (await client.ask(alter(incarnation=new, retention_ms="7"))).code == Code.OK
        assert (await client.ask(alter("none", retention_ms="7"))).code == Code.UNKNOWN_TOPIC


@in_trio
async def test_a_setting_of_a_later_release_can_be_deleted_and_contradicts_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        topic = node.metadata.log.state.topic("t")
        later = setting_commands.AlterSettings("t", topic.id, (
            SettingChange("colour", "red"), SettingChange("segment.ms", "never")))
        assert (await node.metadata.log.propose(later)).code == Code.OK
        assert (await client.ask(alter(segment_jitter_ms="5"))).code == Code.OK
        assert (await client.ask(alter(colour=None))).code == Code.OK
        assert dict(node.metadata.log.state.settings.of(topic.incarnation).pairs) == {
            "segment.ms": "never", "segment.jitter.ms": "5"}


@in_trio
async def test_of_two_changes_at_a_time_the_later_is_judged_by_the_earlier(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        log, judged, met = node.metadata.log, setting_requests.judged, []

        def judge(state, topic, before, changes):
            met.append(before.version)
            return judged(state, topic, before, changes)

        monkeypatch.setattr(setting_requests, "judged", judge)
        handler = setting_requests.SettingAdmin(log)
        refused = []

        async def change(**values):
            try:
                await handler._alter(alter(**values))
            except setting_requests.errors.InvalidSetting as error:
                refused.append(str(error))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: change(min_compaction_lag_ms="10"))
            nursery.start_soon(lambda: change(max_compaction_lag_ms="5"))
        assert len(refused) == 1 and "contradicts" in refused[0]
        assert met[:2] == [0, 0] and met[2] > 0, "both were judged by the same settings at first"


@in_trio
async def test_a_change_that_others_always_overtake_is_given_up(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.create("t")
        log = node.metadata.log
        topic = log.state.topic("t")
        propose, tried = log.propose, []

        async def overtaken(command):
            tried.append(command)
            await propose(setting_commands.AlterSettings("t", topic.id, (
                SettingChange("retention.ms", str(len(tried))),)))
            return await propose(command)

        monkeypatch.setattr(log, "propose", overtaken)
        with pytest.raises(setting_requests.errors.StaleMetadata, match="meanwhile"):
            await setting_requests.SettingAdmin(log)._alter(alter(segment_ms="5"))
        assert len(tried) == setting_requests.ATTEMPTS_MAX
