"""Switches of partitions by hand: those of compacted topics are refused with the cause."""

from __future__ import annotations

from multiraft.wire.errors import Code
from multiraft.wire.messages import CreateTopic
from multiraft.wire.placements import SwitchPartition, SwitchPartitionReply
from multiraft.wire.settings import AlterSettings, SettingChange
from tests.node.harness import Client, in_trio, serving, until


async def create(client: Client, name: str, policy: str) -> int:
    answer = await client.ask(CreateTopic(name, settings=(("cleanup.policy", policy),)))
    return answer.reply.topic.incarnation


async def alter(client: Client, name: str, policy: str | None) -> None:
    answer = await client.ask(AlterSettings(name, (SettingChange("cleanup.policy", policy),)))
    assert answer.reply is not None, answer


@in_trio
async def test_a_partition_of_a_compacted_topic_is_not_switched(tmp_path):
    async with serving(tmp_path) as served, await Client.open(served) as client:
        state = served.metadata.log.state
        for policy in ("compact", "compact,delete"):
            incarnation = await create(client, policy.replace(",", "-"), policy)
            to_group = 3 - state.locate(incarnation).group
            answer = await client.ask(SwitchPartition(incarnation, 2, to_group))
            assert answer.code == Code.PARTITION_COMPACTED
            assert "cleanup.policy=compact" in answer.error.text
        assert not state.placed.switches and state.locate(incarnation).epoch == 1
        await alter(client, "compact-delete", "delete")
        answer = await client.ask(SwitchPartition(incarnation, 2, to_group))
        assert answer.reply == SwitchPartitionReply(2, to_group)


@in_trio
async def test_a_switch_that_was_decided_ends_when_the_topic_becomes_compacted(tmp_path):
    async with serving(tmp_path) as served, await Client.open(served) as client:
        state = served.metadata.log.state
        incarnation = await create(client, "t", "delete")
        await client.produce(incarnation, b"x")
        to_group = 3 - state.locate(incarnation).group
        switch = SwitchPartition(incarnation, 2, to_group)
        assert (await client.ask(switch)).reply == SwitchPartitionReply(2, to_group)
        await alter(client, "t", "compact")
        answer = await client.ask(switch)
        assert answer.reply == SwitchPartitionReply(2, to_group), "a repetition is no new switch"
        await until(lambda: state.locate(incarnation).epoch == 2, "the switch ends")
        answer = await client.ask(SwitchPartition(incarnation, 3, 3 - to_group))
        assert answer.code == Code.PARTITION_COMPACTED
