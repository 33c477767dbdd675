"""Administrative requests at a real node: each answered once, with a code that says what to do."""

from multiraft.raft.status_view import StatusView
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    ClusterStatus,
    CreateTopic,
    DeleteTopic,
    InitProducer,
    ListGroups,
    ListTopics,
    Metadata,
    NodeStatus,
    TransferLeadership,
)
from multiraft.wire.nodes import DescribeNode, ListNodes
from node.admin import requests as admin_module
from node.clients import request_tasks
from node.metadata import state_machine
from tests.node.harness import Client, in_trio, serving, until


@in_trio
async def test_topics_live_and_die(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        incarnation = await client.create("orders", 3)
        [topic] = (await client.ask(Metadata(("orders", "none")))).reply.topics
        assert [row.incarnation for row in topic.partitions] == list(
            range(incarnation, incarnation + 3))
        assert {row.leader for row in topic.partitions} == {1}
        assert (await client.ask(CreateTopic("orders"))).code == Code.TOPIC_EXISTS
        assert (await client.ask(CreateTopic("or/ders"))).code == Code.INVALID_TOPIC_NAME
        assert (await client.ask(CreateTopic("x", 1, 3))).code == Code.LIMIT_EXCEEDED
        assert [row.name for row in (await client.ask(ListTopics())).reply.topics] == ["orders"]
        assert (await client.ask(DeleteTopic("orders"))).code == Code.OK
        assert (await client.ask(DeleteTopic("orders"))).code == Code.UNKNOWN_TOPIC
        assert (await client.ask(Metadata(("orders",)))).reply.missing == ("orders",)


@in_trio
async def test_a_deletion_that_comes_late_spares_the_next_topic_of_that_name(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        old = await client.create("orders")
        assert (await client.ask(DeleteTopic("orders", old))).code == Code.OK
        new = await client.create("orders")
        late = await client.ask(DeleteTopic("orders", old))
        assert late.code == Code.UNKNOWN_TOPIC and "given away again" in late.error.text
        [topic] = (await client.ask(Metadata(("orders",)))).reply.topics
        assert topic.incarnation == new
        assert (await client.ask(DeleteTopic("orders", new))).code == Code.OK


@in_trio
async def test_topics_and_partitions_have_limits_that_the_refusal_names(tmp_path):
    async with serving(tmp_path, topics_max=2, partitions_max=5,
                       partitions_per_topic_max=4) as node, await Client.open(node) as client:
        await client.create("one", 2)
        for request, limit, value in ((CreateTopic("wide", 5), 4, 5),
                                      (CreateTopic("many", 4), 5, 6)):
            answer = await client.ask(request)
            assert answer.code == Code.LIMIT_EXCEEDED
            assert (answer.error.limit, answer.error.value) == (limit, value)
        await client.create("two", 1)
        answer = await client.ask(CreateTopic("three"))
        assert (answer.code, answer.error.limit) == (Code.LIMIT_EXCEEDED, 2)
        assert (await client.ask(DeleteTopic("two"))).code == Code.OK
        await client.create("three")


@in_trio
async def test_a_topic_deleted_as_soon_as_it_is_there_is_still_an_answer(tmp_path):
    async with serving(tmp_path) as node:
        state = node.metadata.log.state
        created = state.apply(
            state.version + 1, state_machine.CreateTopic("brief", bytes(16), 2)
        ).value
        state.apply(state.version + 1, state_machine.DeleteTopic("brief", bytes(16)))
        described = await node.admin.requests._topic_metadata(created)
        assert len(described.partitions) == 2


@in_trio
async def test_producer_ids_are_never_given_twice(tmp_path):
    async with serving(tmp_path, producer_id_gap_max=2) as node, await Client.open(node) as client:
        given = [(await client.ask(InitProducer())).reply for _ in range(5)]
        assert len({reply.producer_id for reply in given}) == 5
        bumped = (await client.ask(InitProducer(given[0].producer_id, 0))).reply
        assert bumped == (given[0].producer_id, 1)
        assert (await client.ask(InitProducer(1 << 40, 0))).code == Code.INVALID_REQUEST


@in_trio
async def test_groups_and_nodes_are_listed(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        status = (await client.ask(ClusterStatus())).reply
        assert [(row.id, row.state, row.groups, row.leads) for row in status.nodes] == [
            (1, "up", 3, 3)]
        assert status.metadata_leader == 1
        page = (await client.ask(ListGroups(1, 1))).reply
        assert ([row.group for row in page.groups], page.more) == ([1], True)


@in_trio
async def test_leaders_that_are_gone_lead_nothing(tmp_path, monkeypatch):
    """A node keeps the last leader that it heard of."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        async def leaders() -> list:
            status = (await client.ask(ClusterStatus())).reply
            nodes = (await client.ask(ListNodes())).reply.nodes
            described = (await client.ask(DescribeNode(1))).reply
            groups = (await client.ask(ListGroups())).reply.groups
            statistics = (await client.ask(NodeStatus())).reply.status
            return [status.metadata_leader, status.nodes[0].leads, nodes[0].leads,
                    described.node.leads, described.leader_of, [row.leader for row in groups],
                    statistics["metadata_leader"]]

        assert await leaders() == [1, 3, 3, 3, (0, 1, 2), [1, 1, 1], 1]
        terms = [row.term for row in (await client.ask(ListGroups())).reply.groups]
        monkeypatch.setattr(StatusView, "is_up", lambda _status, _node: False)
        assert await leaders() == [0, 0, 0, 0, (), [0, 0, 0], 0]
        groups = (await client.ask(ListGroups())).reply.groups
        assert [row.term for row in groups] == terms


@in_trio
async def test_transfers_that_cannot_be_say_why(tmp_path, monkeypatch):
    monkeypatch.setattr(admin_module, "TRANSFER_WAIT_S", 0.05)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        assert (await client.ask(TransferLeadership(9))).code == Code.INVALID_REQUEST
        stranger = await client.ask(TransferLeadership(1, 7))
        assert (stranger.code, "not a voter" in stranger.error.text) == (Code.INVALID_REQUEST, True)
        alone = await client.ask(TransferLeadership(1))
        assert (alone.code, "no other voter" in alone.error.text) == (Code.TIMED_OUT, True)
        assert (await client.ask(TransferLeadership(1, 1))).reply.leader == 1


@in_trio
async def test_a_node_that_is_behind_its_client_waits_and_then_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(admin_module, "METADATA_WAIT_S", 0.05)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        ahead = node.metadata.log.state.version + 1000
        assert (await client.ask(ListTopics(), seen_index=ahead)).code == Code.STALE_METADATA


@in_trio
async def test_a_node_that_catches_up_in_time_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(admin_module, "METADATA_WAIT_S", 60.0)
    async with (serving(tmp_path) as node, await Client.open(node) as client,
                await Client.open(node) as other):
        ahead = node.metadata.log.state.version + 1
        await client.begin(ListTopics(), seen_index=ahead)
        await until(lambda: node.admin.requests._tasks.in_progress)
        await other.create("t")
        assert [row.name for row in (await client.event()).reply.topics] == ["t"]


@in_trio
async def test_too_many_requests_at_a_time_are_refused_with_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(request_tasks, "ADMIN_REQUESTS_MAX", 1)
    monkeypatch.setattr(admin_module, "METADATA_WAIT_S", 60.0)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        await client.begin(ListTopics(), seen_index=1 << 40)
        await until(lambda: node.admin.requests._tasks.in_progress)
        refused = await client.ask(ListTopics())
        assert (refused.code, refused.error.limit, refused.error.value) == (Code.QUEUE_FULL, 1, 2)


@in_trio
async def test_changes_go_to_the_metadata_leader_only(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        start_next, node.storage.gather.start_next = node.storage.gather.start_next, lambda: None
        node.core.resign(0, "test")
        node.request_round()
        refused = await client.ask(CreateTopic("t"))
        assert refused.code == Code.LEADER_UNKNOWN
        node.storage.gather.start_next = start_next  # its vote for itself is not durable before
        node.storage.gather.start_next()
        await until(lambda: node.core.status.has_applied_in_term(0), "it leads again")
        assert (await client.ask(CreateTopic("t"))).code == Code.OK


@in_trio
async def test_a_command_whose_leader_steps_down_is_ambiguous(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        node.storage.gather.start_next = lambda: None  # from here on nothing is committed
        await client.begin(CreateTopic("t"))
        await until(lambda: node.metadata.log.oldest_waiting)
        node.core.resign(0, "test")
        node.request_round()
        assert (await client.event()).code == Code.AMBIGUOUS


@in_trio
async def test_the_status_of_a_node_is_whole_numbers_texts_and_lists_of_groups(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        status = (await client.ask(NodeStatus())).reply.status
        texts = {"version", "phase", "not_ready", "plan_state"}
        lists = {"quarantined", "leaderless", "under_replicated"}
        assert {key for key, value in status.items() if type(value) is str} == texts
        assert {key for key, value in status.items() if type(value) is list} == lists
        assert all(type(value) is int for key, value in status.items()
                   if key not in texts | lists)
        assert status["groups"] == status["groups_leading"] == 3


@in_trio
async def test_a_creation_that_is_repeated_is_answered_with_its_topic(tmp_path):
    limits = {"topics_max": 2, "partitions_per_topic_max": 4, "partitions_max": 4}
    async with (serving(tmp_path, **limits) as node,
                await Client.open(node) as client):
        request = CreateTopic("orders", 2, 0, bytes(range(16)))
        first, again = [(await client.ask(request)).reply.topic for _ in range(2)]
        assert first == again and node.metadata.log.state.topics_count == 1
        other = request._replace(nonce=bytes(16))
        assert (await client.ask(other)).code == Code.TOPIC_EXISTS
        assert (await client.ask(request._replace(nonce=None))).code == Code.TOPIC_EXISTS
        assert (await client.ask(request._replace(name="more"))).reply.topic.id != first.id
        assert (await client.ask(request)).reply.topic == first, "also where there is no room left"
        assert (await client.ask(DeleteTopic("orders", first.incarnation))).code == Code.OK
        assert (await client.ask(DeleteTopic("orders", first.incarnation))).code == (
            Code.UNKNOWN_TOPIC)
