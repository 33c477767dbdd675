"""Changes of the cluster with lost answers: a repetition has no second effect and gets the
reply."""

from __future__ import annotations

import random

import pytest

from multiraft.wire import errors, members, nodes, placements, plans, pool, settings
from multiraft.wire import messages as m
from multiraft.wire.errors import Code, ErrorDetail
from node.metadata import state_machine
from node.metadata.state_machine import MetadataState
from tests.client.test_identity import lose

HERE = bytes(range(16))
PLAN = plans.ApplyPlan("p1", HERE.hex(), "topics", 1 << 40, plans.PlanLimits(1 << 20), (
    plans.PlannedMove(1, plans.TOPIC_SWITCH, 1, 0, 1, (1,), (2,), 0, 0, "", ()),))
NODE = nodes.NodeRow(0, 77, 1, "127.0.0.1:1", "127.0.0.1:2", "r", 100, "", 0)

VERDICTS = pytest.mark.parametrize("verdict", ["cut-after", "ambiguous"])


class Metadata:
    """State machine of the product behind the administrative operations of a fake cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.state = MetadataState()
        self.members = {1: (10, (1, 2, 3), ())}  # group -> index, voters, learners
        self.changes = 0  # of members
        self.apply(state_machine.plan_bootstrap(HERE, (
            state_machine.NodeRecord(node, 100 + node, 1, f"n{node}:1", f"n{node}:2")
            for node in (1, 2, 3)), 4, 3, 5))
        self.apply(state_machine.CreateTopic("t", bytes(16), 1))
        for op, handler in (
                ("join_cluster", self.join), ("remove_node", self.remove),
                ("set_node_state", self.set_state), ("switch_partition", self.switch),
                ("grow_pool", self.grow), ("pool_status", self.pool),
                ("apply_plan", self.plan), ("control_plan", self.control),
                ("plan_status", self.status), ("alter_settings", self.alter),
                ("recover_group", self.recover), ("group_members", self.group_members)):
            setattr(cluster, "_" + op, handler)

    def apply(self, command):
        command = state_machine.decode_command(state_machine.encode_command(command))
        return self.state.apply(self.state.version + 1, command)

    def answer(self, command, reply):
        result = self.apply(command)
        return ((result.code, result.error) if result.code else reply(result.value)), ()

    async def join(self, _node, request):
        return self.answer(
            state_machine.RegisterNode(state_machine.NodeRecord(*request.node), True),
            lambda node: nodes.JoinClusterReply(node.id, HERE, 4, 3, (), (), 1),
        )

    async def remove(self, _node, request):
        return self.answer(
            state_machine.RemoveNode(request.node), lambda _: nodes.RemoveNodeReply()
        )

    async def set_state(self, _node, request):
        return self.answer(
            state_machine.SetNodeState(*request), lambda _: plans.SetNodeStateReply()
        )

    async def switch(self, _node, request):
        return self.answer(state_machine.DecideSwitch(*request),
                           lambda switch: placements.SwitchPartitionReply(*switch))

    async def alter(self, _node, request):
        topic = self.state.topic(request.topic)
        return self.answer(
            state_machine.AlterSettings(request.topic, topic.id if topic else bytes(16),
                                        request.changes),
            lambda _: settings.AlterSettingsReply())

    async def grow(self, _node, request):
        return self.answer(state_machine.GrowPool(request.groups, ((1, 2, 3),)),
                           lambda _: pool.GrowPoolReply(4, request.groups, 3, ()))

    async def pool(self, _node, _request):
        return pool.PoolStatusReply(self.state.pool_size, self.state.last_group, 0, (), 9), ()

    async def plan(self, _node, request):
        return self.answer(state_machine.ApplyPlan(
            request.plan_id, request.cluster_id, request.scope, request.expires_ms, 1,
            request.limits, request.moves),
            lambda state: plans.ApplyPlanReply(request.plan_id, state))

    async def control(self, _node, request):
        plan = self.state.plans.plan
        if plan is None or (plan.is_over and not request.plan_id):
            return (Code.STALE_PLAN, ErrorDetail("no plan is being carried out")), ()
        plan_id = request.plan_id or plan.plan_id
        return self.answer(
            state_machine.ControlPlan(plan_id, request.action, request.value, "", False, 1),
            lambda state: plans.ControlPlanReply(plan_id, state),
        )

    async def status(self, _node, _request):
        plan = self.state.plans.plan
        return plans.PlanStatusReply(
            plan.plan_id if plan else "", "", plan.state if plan else "none", "", 0, 0,
            PLAN.limits, 0, 0, 0, 0, -1, (), (), (), ""), ()

    async def recover(self, _node, request):
        return self.answer(state_machine.RecoverGroup(*request), members.RecoverGroupReply)

    async def group_members(self, node, request):
        index, voters, learners = self.members[request.group]
        if request.voters:
            if request.expected_index not in (-1, index):
                return (Code.TIMED_OUT, ErrorDetail("look again")), ()
            self.changes += 1
            index, voters, learners = index + 1, request.voters, request.learners
            self.members[request.group] = index, voters, learners
        return members.GroupMembersReply(request.group, 1, node, node, 1, 1, index, index, index,
                                         False, voters, learners, (), (), ""), ()


@pytest.fixture
def state(cluster):
    return Metadata(cluster)


def asked(cluster, kind) -> int:
    return sum(type(request) is kind for _, request in cluster.requests)


# ---- topics -------------------------------------------------------------------------------------


@VERDICTS
def test_a_topic_whose_creation_was_not_answered_is_created_once(client, cluster, verdict):
    cluster.script = lose("create_topic", verdict, 2)
    created = client.create_topic("a", partitions=3)
    assert created.incarnation == cluster.topics["a"][0].incarnation
    assert asked(cluster, m.CreateTopic) == 3 and len(cluster.topics) == 1


@VERDICTS
def test_somebody_else_s_topic_is_not_taken_for_the_one_that_was_asked_for(client, cluster, world,
                                                                         verdict):
    world.call(cluster.add_topic, "a")
    cluster.script = lose("create_topic", verdict, 1)
    with pytest.raises(errors.TopicExists):
        client.create_topic("a")


def test_two_creations_of_one_client_are_two(client):
    client.create_topic("a")
    with pytest.raises(errors.TopicExists):
        client.create_topic("a")


def test_a_node_of_an_earlier_release_creates_topics_too(client, cluster):
    cluster.knows_nonces = False
    client.create_topic("a")

    def script(_node, event, _connection):
        lost = type(event.request) is m.CreateTopic and event.request.nonce is None
        return "ambiguous" if lost else None

    cluster.script = script
    with pytest.raises(errors.AmbiguousOutcome):
        client.create_topic("b")


@VERDICTS
def test_a_topic_whose_deletion_was_not_answered_is_gone(client, cluster, verdict):
    client.create_topic("a")
    cluster.script = lose("delete_topic", verdict, 2)
    client.delete_topic("a")
    assert "a" not in cluster.topics and asked(cluster, m.DeleteTopic) == 3


def test_a_deletion_that_is_repeated_leaves_the_next_topic_of_that_name(client, cluster):
    client.create_topic("a")

    def script(_node, event, _connection):
        if type(event.request) is not m.DeleteTopic or asked(cluster, m.DeleteTopic) > 1:
            return None
        del cluster.topics["a"]
        cluster.add_topic("a")  # another client does, before the repetition
        return "cut"

    cluster.script = script
    client.delete_topic("a")
    assert "a" in cluster.topics


def test_a_topic_that_was_not_there_is_still_said_to_be_missing(client):
    with pytest.raises(errors.UnknownTopic):
        client.delete_topic("a")
    with pytest.raises(errors.UnknownTopic):
        client.delete_topic("a", 4711)


# ---- settings -----------------------------------------------------------------------------------


@VERDICTS
def test_settings_whose_change_was_not_answered_are_changed(client, cluster, state, verdict):
    cluster.add_topic("t")
    cluster.script = lose("alter_settings", verdict, 2)
    client.alter_settings("t", {"retention.ms": 7, "preallocate": True}, ["segment.ms"])
    assert asked(cluster, settings.AlterSettings) == 3
    assert state.state.settings.of(1).pairs == (("preallocate", "true"), ("retention.ms", "7"))
    named = {request.incarnation for _, request in cluster.requests
             if type(request) is settings.AlterSettings}
    assert named == {cluster.topics["t"][0].incarnation}


@VERDICTS
def test_a_change_of_settings_that_is_never_answered_is_ambiguous(client, cluster, state, verdict):
    cluster.script = lose("alter_settings", verdict, 1 << 20)
    with pytest.raises(errors.AmbiguousOutcome):
        client.alter_settings("", {"retention.ms": 7})
    assert dict(state.state.settings.of(0).pairs) == {"retention.ms": "7"}


# ---- nodes, members, placement, plans -----------------------------------------------------------


@VERDICTS
def test_a_node_joins_once(client, cluster, state, verdict):
    cluster.script = lose("join_cluster", verdict, 2)
    assert client.join_cluster(NODE).node == 4
    assert len(state.state.nodes()) == 4


@VERDICTS
def test_a_node_is_removed_once(client, cluster, state, verdict):
    joined = client.join_cluster(NODE).node
    cluster.script = lose("remove_node", verdict, 2)
    client.remove_node(joined)
    assert [node.id for node in state.state.nodes()] == [1, 2, 3]


@VERDICTS
def test_a_node_s_state_is_set(client, cluster, state, verdict):
    cluster.script = lose("set_node_state", verdict, 2)
    client.plan_request(plans.SetNodeState(2, plans.DRAINING))
    assert state.state.table.states == {2: plans.DRAINING}


@VERDICTS
def test_a_switch_is_decided_once(client, cluster, state, verdict):
    group = state.state.locate(1).group
    to_group = group % 4 + 1
    cluster.script = lose("switch_partition", verdict, 2)
    client.switch_partition(1, 2, to_group)
    assert state.state.locate(1).switch == (2, to_group)


@VERDICTS
@pytest.mark.parametrize("through", [False, True])
def test_a_pool_grows_once(client, cluster, state, verdict, through):
    left = [1]

    def script(_node, event, _connection):
        if type(event.request) is not pool.GrowPool:
            return None
        if left[0]:
            left[0] -= 1
            return verdict
        if through:  # the growth is complete before the repetition
            state.apply(state_machine.OpenPool(5))
        return None

    cluster.script = script
    told = client.pool_grow(5)
    assert (told.pool_size, told.groups) == (4, 5) and state.state.last_group == 5


def test_a_pool_that_has_the_size_already_is_refused(client, state):
    with pytest.raises(errors.InvalidRequest):
        client.pool_grow(4)


@VERDICTS
def test_a_plan_is_applied_once(client, cluster, state, verdict):
    cluster.script = lose("apply_plan", verdict, 2)
    assert client.plan_request(PLAN).state == "running"
    assert state.state.plans.plan.plan_id == "p1"


@VERDICTS
@pytest.mark.parametrize("action, value, after", [
    ("pause", 0, "paused"), ("resume", 0, "running"), ("throttle", 4096, "running"),
    (plans.CANCEL, 0, "cancelled")])
def test_the_plan_under_way_is_controlled_once(client, cluster, state, verdict, action, value,
                                               after):
    client.plan_request(PLAN)
    cluster.script = lose("control_plan", verdict, 2)
    reply = client.plan_request(plans.ControlPlan(action, "", value))
    assert (reply.plan_id, reply.state) == ("p1", after)


def test_a_control_that_is_repeated_does_not_reach_the_next_plan(client, cluster, state):
    client.plan_request(PLAN)

    def script(_node, event, _connection):
        if type(event.request) is not plans.ControlPlan or asked(cluster, plans.ControlPlan) > 1:
            return None
        state.apply(state_machine.ControlPlan("p1", plans.CANCEL, 0, "", False, 1))
        state.apply(state_machine.ApplyPlan("p2", PLAN.cluster_id, PLAN.scope, PLAN.expires_ms, 1,
                                       PLAN.limits, PLAN.moves))
        return "cut"

    cluster.script = script
    with pytest.raises(errors.StalePlan):
        client.plan_request(plans.ControlPlan(plans.CANCEL, ""))
    assert (state.state.plans.plan.plan_id, state.state.plans.plan.state) == ("p2", "running")


@VERDICTS
def test_a_group_is_recovered_once(client, cluster, state, verdict):
    cluster.script = lose("recover_group", verdict, 2)
    assert client.group_recover(1, 2, 2).incarnation == 2
    assert state.state.recovered(1) == (2, 2)


@VERDICTS
@pytest.mark.parametrize("expected", [10, -1])
def test_members_are_changed_once(client, cluster, state, verdict, expected):
    cluster.script = lose("group_members", verdict, 1)
    found = client.group_members(1, (1, 2), (3,), expected)
    assert (found.voters, found.learners, found.index) == ((1, 2), (3,), 11)
    assert state.changes == 1


def test_a_change_of_members_that_did_not_happen_is_asked_for_again(client, cluster, state):
    cluster.script = lose("group_members", "cut", 1)
    assert client.group_members(1, (1, 2), (), 10).voters == (1, 2)
    assert state.changes == 1


def test_a_change_that_somebody_else_overtook_is_not_known(client, cluster, state):
    def script(_node, event, _connection):
        if type(event.request) is not members.GroupMembers or asked(
                cluster, members.GroupMembers) > 1:
            return None
        state.members[1] = (12, (1, 3), ())
        return "cut"

    cluster.script = script
    with pytest.raises(errors.AmbiguousOutcome):
        client.group_members(1, (1, 2), (), 10)
    assert state.changes == 0


@VERDICTS
@pytest.mark.parametrize("to", [0, 2])
def test_leadership_is_handed_over_once(client, cluster, world, verdict, to):
    world.call(cluster.add_topic, "a", 4)
    cluster.leaders[1] = 1
    moves = []

    async def transfer(node, request):
        if cluster.leaders[1] != node:
            leader = cluster.leaders[1]
            return (Code.NOT_LEADER, ErrorDetail("", leader, cluster.addresses[leader])), ()
        after = request.to or node % 3 + 1
        if after != node:
            moves.append((node, after))
            cluster.leaders[1] = after
        return m.TransferLeadershipReply(after, 2), ()

    cluster._transfer_leadership = transfer
    left = [1]

    def script(node, event, _connection):
        if (type(event.request) is m.TransferLeadership and left[0]
                and cluster.leaders[1] == node):
            left[0] -= 1
            return verdict
        return None

    cluster.script = script
    assert client.group_transfer(1, to).leader == 2
    assert moves == [(1, 2)]


# ---- errors at the time limit ----------------------------------------------------------------


def test_a_change_of_which_no_answer_came_is_ambiguous(client, cluster, state, monkeypatch):
    monkeypatch.setattr("multiraft.client._retries.OPERATION_TIMEOUT_MS", 300)
    cluster.script = lose("remove_node", "ambiguous", 1_000)
    with pytest.raises(errors.AmbiguousOutcome):
        client.remove_node(random.Random(1).randrange(5, 9))
