"""The pool grows: what is decided, who creates which replicas, and when topics may use them."""

from __future__ import annotations

from types import SimpleNamespace

import cbor2
import pytest
import trio

from multiraft.errors import CodecError, NotLeader
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire import pool as wire
from multiraft.wire.errors import AmbiguousOutcome, Code, InvalidRequest, LimitExceeded
from node.admin.pool_requests import Pool
from node.loop.turns import Turns
from node.metadata import placement_table
from node.metadata.state_machine import (
    CreateTopic,
    DecideSwitch,
    GrowPool,
    MetadataState,
    OpenPool,
    RecordMembers,
    RecoverGroup,
    RemoveNode,
    SetNodeState,
    encode_command,
)
from node.replicas import lifecycle as replicas_module
from node.replicas.lifecycle import Replicas
from tests.node.harness import Client, in_trio, make_node, serving, silent_log, until
from tests.node.metadata.test_state_machine import Replica, bootstrap, create, node, uuid

#: Voters of groups 9 and 10.
TWO = ((1, 2, 3), (3, 1, 2))


# ---- what is decided ----------------------------------------------------------------------------


def test_new_groups_exist_at_once_and_topics_use_them_when_the_pool_is_opened():
    replica = Replica(create("old", 1, 40))
    old = [replica.state.locate(number).group for number in range(1, 41)]
    assert replica(GrowPool(10, TWO)).code == Code.OK
    state = replica.state
    assert (state.pool_size, state.last_group) == (8, 10)
    assert state.initial_configuration(10) == Configuration((3, 1, 2))
    assert replica(create("between", 2)).value.pool_size == 8
    assert replica(DecideSwitch(1, 2, 9)).code == Code.INVALID_REQUEST, "not open yet"
    assert replica(OpenPool(10)).code == Code.OK
    assert (state.pool_size, state.last_group) == (10, 10)
    new = replica(create("new", 3, 400)).value
    assert new.pool_size == 10
    groups = {state.locate(new.incarnation + number).group for number in range(400)}
    assert groups == set(range(1, 11))
    assert [state.locate(number).group for number in range(1, 41)] == old, "old ones stay"
    assert replica(DecideSwitch(1, 2, 9)).code == Code.OK, "a plan may move them"


def test_what_is_proposed_twice_happens_once_and_the_first_placement_counts():
    replica = Replica(GrowPool(10, TWO))
    assert replica(GrowPool(10, TWO[::-1])).code == Code.OK
    assert replica.state.table.replicas[9:] == TWO
    assert replica(OpenPool(10)).code == replica(OpenPool(10)).code == Code.OK
    assert replica.state.pool_size == 10


def test_new_topics_fill_the_new_groups_first_and_leave_plans_half_of_the_table(monkeypatch):
    monkeypatch.setattr(placement_table, "EXCEPTIONS_MAX", 100)
    replica = Replica(create("old", 1, 8_000), GrowPool(10, TWO), OpenPool(10))
    state = replica.state
    for number in range(3):
        replica(create(f"new{number}", 2 + number, 10))
    assert state.group_partitions(9) + state.group_partitions(10) > 15, "most of 30"
    for number in range(20):
        assert replica(create(f"more{number}", 100 + number, 10)).code == Code.OK
    assert 20 < state.exceptions_count <= 50
    assert replica(DecideSwitch(1, 2, 9)).code == Code.OK, "there is room for a plan"


@pytest.mark.parametrize("command, why", [
    (GrowPool(8, ()), "only grows: 8 is not more"), (GrowPool(3, ()), "only grows: 3 is not more"),
    (GrowPool(10, TWO[:1]), "replicas of 1 groups, 2 are new"),
    (GrowPool(9, ((1, 2),)), "replication factor is 3"),
    (GrowPool(9, ((1, 2, 2),)), "not distinct"),
    (GrowPool(9, ((1, 2, 7),)), "not distinct nodes of the cluster"),
    (OpenPool(10), "does not grow to 10")])
def test_what_contradicts_itself_is_refused_and_changes_nothing(command, why):
    replica = Replica()
    before = {**replica.state.snapshot(), "index": 0}
    result = replica(command)
    assert result.code == Code.INVALID_REQUEST and why in result.error.text
    assert {**replica.state.snapshot(), "index": 0} == before


def test_one_growth_at_a_time():
    replica = Replica(GrowPool(10, TWO))
    result = replica(GrowPool(12, ((1, 2, 3),) * 4))
    assert result.code == Code.INVALID_REQUEST and "growing from 8 to 10" in result.error.text


def test_a_growth_is_in_the_snapshot_and_a_node_with_a_new_group_is_not_forgotten():
    replica = Replica(GrowPool(10, TWO))
    replica.state = MetadataState.restore(cbor2.loads(cbor2.dumps(replica.state.snapshot())))
    assert (replica.state.pool_size, replica.state.last_group) == (8, 10)
    refusal = replica(RemoveNode(3))
    assert refusal.code == Code.INVALID_REQUEST and refusal.error.value == 11
    assert replica(OpenPool(10)).code == Code.OK


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_older_snapshot_knows_no_growth(version):
    """Its groups are those of the pool: nodes of those releases wrote nothing else."""
    state = MetadataState.restore({**Replica().state.snapshot(), "version": version})
    assert (state.pool_size, state.last_group) == (8, 8)
    growing = {**Replica(GrowPool(10, TWO)).state.snapshot(), "version": version}
    with pytest.raises(CodecError, match="pool of 8 groups and replicas of 10"):
        MetadataState.restore(growing)
    opened = Replica(GrowPool(10, TWO), OpenPool(10)).state.snapshot()
    assert MetadataState.restore({**opened, "version": version}).pool_size == 10


def test_the_largest_growth_fits_into_a_command():
    ids = tuple(range(2**31 - 10, 2**31 - 1))
    assert encode_command(GrowPool(1 << 15, (ids,) * ((1 << 15) - 1)))


# ---- who creates which replicas -----------------------------------------------------------------


class Core:
    """Replicas that take part."""

    def __init__(self, groups):
        self.status = self  # as core.status
        self.node = groups.node
        self._here = groups.here

    def add_group(self, group, _incarnation, restored, _tail):
        assert group not in self._here
        self._here[group] = restored.configuration

    def groups(self):
        return self._here

    def of(self, _group):
        return SimpleNamespace(incarnation=1)

    def remove_group(self, group):
        del self._here[group]


class Groups:
    """A core, a store and a metadata log, as far as ``Replicas`` needs them."""

    node = 3

    def __init__(self, *commands):
        self.state = Replica(*commands).state
        self.here: dict[int, Configuration] = {}  # in the core
        self.groups: dict[int, object] = {}  # in the store
        self.partition_states: dict[int, None] = {}
        self.tombstones: set[int] = set()
        self.is_admitted = True
        self.replicas = Replicas(Core(self), self, self, 8, lambda: None, silent_log(),
                                 is_admitted=lambda: self.is_admitted)

    def is_removed(self, group):
        return group in self.tombstones

    def create_group(self, group, _incarnation, configuration, _is_new=False):
        known = self.groups.get(group)
        if known is None or known.configuration == replicas_module.NO_MEMBERS:
            self.groups[group] = Recovered(configuration)
        self.partition_states[group] = None
        return self.groups[group]


class Recovered:
    """The recovered state of a group in a store."""

    changes = ()
    vote_barrier_index = 0

    def __init__(self, configuration=replicas_module.NO_MEMBERS):
        self.configuration = configuration


def settled(groups: Groups) -> dict[int, Configuration]:
    """Return the groups here once there is nothing left to do."""
    while groups.replicas.due:
        groups.replicas.reconcile()
    return groups.here


def test_each_of_the_first_voters_creates_its_replica():
    groups = Groups(GrowPool(11, (*TWO, (1, 2, 3))))
    assert settled(groups) == {9: Configuration((1, 2, 3)), 10: Configuration((3, 1, 2)),
                               11: Configuration((1, 2, 3))}
    groups.replicas.due = True
    assert len(settled(groups)) == groups.replicas.created == 3, "and only once"


def test_many_new_groups_are_created_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(replicas_module, "CREATED_PER_ROUND_MAX", 2)
    groups = Groups(GrowPool(13, ((1, 2, 3),) * 5))
    for expected in (2, 4, 5):
        assert groups.replicas.due
        groups.replicas.reconcile()
        assert len(groups.here) == expected
    assert not groups.replicas.due


def test_nobody_creates_what_was_here_or_is_not_wanted_any_more():
    commands = (GrowPool(12, ((1, 2, 3),) * 4), RecordMembers(10, 1, 5, (1, 2)),
                RecoverGroup(11, 1, 2))
    groups = Groups(*commands)
    groups.tombstones = {9}
    assert [*settled(groups)] == [12]


def test_a_node_that_may_not_vote_yet_creates_nothing_until_it_may():
    groups = Groups(GrowPool(10, TWO))
    groups.is_admitted = False
    assert not settled(groups)
    groups.is_admitted = True
    groups.replicas.load()
    assert [*settled(groups)] == [9, 10]


def test_a_new_group_that_recovery_found_without_members_waits_for_the_metadata():
    """Nodes that end before their first checkpoint find a term and a vote, and no configuration:
    without members the group would have no leader, permanently."""
    groups = Groups()
    groups.groups = {7: Recovered(Configuration((1, 2, 3))), 9: Recovered()}
    groups.partition_states = {7: None, 9: None}
    groups.replicas.load()
    assert [*settled(groups)] == [7], "the metadata have not been applied yet"
    groups.state = Replica(GrowPool(10, TWO)).state
    groups.replicas.due = True
    assert settled(groups)[9] == Configuration((1, 2, 3))


def test_a_node_that_hears_of_the_growth_by_a_snapshot_creates_its_replicas_too():
    """No command follows it: with most first voters like that the group would have no leader."""
    groups = Groups()
    assert not settled(groups) and not groups.replicas.due
    groups.state = Replica(GrowPool(10, TWO)).state
    groups.replicas.reload()
    assert [*settled(groups)] == [9, 10]


def test_a_new_group_that_was_recovered_by_force_before_its_replica_was_taken_up_is_let_go(
        monkeypatch):
    """Without that, a leader of the later incarnation would be notified of this one without end."""
    monkeypatch.setattr(replicas_module, "CREATED_PER_ROUND_MAX", 1)
    groups = Groups(GrowPool(10, TWO), RecoverGroup(10, 1, 2))
    groups.groups, groups.partition_states = {9: Recovered(), 10: Recovered()}, {9: None, 10: None}
    groups.replicas.load()
    assert [*settled(groups)] == [9]


def test_a_group_without_members_in_which_this_node_did_not_begin_is_told_by_its_leader():
    groups = Groups(GrowPool(9, TWO[:1]))
    groups.node = 4
    groups.replicas = Replicas(Core(groups), groups, groups, 8, lambda: None, silent_log())
    groups.groups, groups.partition_states = {9: Recovered()}, {9: None}
    groups.replicas.load()
    assert settled(groups) == {9: replicas_module.NO_MEMBERS}


# ---- asking and opening -------------------------------------------------------------------------


class Leading:
    """A core and a metadata log that lead; commands are applied at once."""

    node = 1

    def __init__(self, *commands, nodes=4):
        self.replica = Replica()
        self.replica.state = MetadataState()
        racks = "aabbccdd"
        self.replica.state.apply(1, bootstrap(nodes)._replace(nodes=tuple(
            node(number, rack=racks[number - 1]) for number in range(1, nodes + 1))))
        for command in commands:
            self.replica(command)
        self.status = self  # as core.status
        self.leaders: dict[int, int] = {}
        self.down: set[int] = set()
        self.failures: list[Exception] = []

    @property
    def state(self):
        return self.replica.state

    def check_leading(self):
        if self.failures:
            raise self.failures.pop()

    def has_applied_in_term(self, group):
        return group == METADATA_GROUP

    def leader_hint(self, group):
        return self.leaders.get(group, 0), 1

    def is_up(self, number):
        return number not in self.down

    def living_leader(self, group, recorded):
        assert recorded == self.state.configuration(group)
        leader, _term = self.leader_hint(group)
        return leader if self.is_up(leader) else 0

    async def propose(self, command):
        if self.failures:
            raise self.failures.pop()
        return self.replica(command)

    async def applied(self, _version, timeout_s):
        with trio.move_on_after(timeout_s):
            await trio.sleep(0.001)

    def ask(self, request):
        return trio.run(self.pool.handlers[type(request)], request)

    @property
    def pool(self):
        return Pool(self, self, 32, silent_log(), Turns(1 << 30))


def test_a_dry_run_says_who_gets_what_and_changes_nothing():
    leading = Leading(SetNodeState(2, "draining"))
    told = leading.ask(wire.GrowPool(16, dry_run=True))
    assert (told.pool_size, told.groups, told.replication_factor) == (8, 16, 3)
    assert leading.state.last_group == 8
    rows = {row.node: row for row in told.nodes}
    assert rows[2].state == "draining" and rows[2].new_replicas == 0
    assert sum(row.new_replicas for row in told.nodes) == 24
    assert sum(row.new_leads for row in told.nodes) == 8
    assert leading.ask(wire.GrowPool(16)) == told, "and it becomes so"
    assert leading.state.last_group == 16
    assert leading.ask(wire.GrowPool(16)).groups == 16, "asked again it is the same growth"


@pytest.mark.parametrize("groups, error, why", [
    (8, InvalidRequest, "only grows"), (1, InvalidRequest, "only grows"),
    (33, LimitExceeded, "groups_max is 32")])
def test_a_size_that_cannot_be_is_refused(groups, error, why):
    leading = Leading()
    with pytest.raises(error, match=why):
        leading.ask(wire.GrowPool(groups))
    assert leading.state.last_group == 8


def test_a_second_growth_waits_for_the_first():
    leading = Leading(GrowPool(10, TWO))
    with pytest.raises(InvalidRequest, match="growing from 8 to 10"):
        leading.ask(wire.GrowPool(12))


def test_new_groups_are_not_placed_on_nodes_that_are_down():
    leading = Leading(nodes=5)
    leading.down = {2}
    leading.ask(wire.GrowPool(16))
    assert all(2 not in voters for voters in leading.state.table.replicas[9:])


def test_racks_without_a_node_that_is_up_are_a_reason_not_to_grow():
    leading = Leading(nodes=5)  # racks a a b b c
    leading.down = {5}
    with pytest.raises(InvalidRequest, match="no node of rack 'c' is up.*start node 5"):
        leading.ask(wire.GrowPool(16))


def test_too_few_nodes_that_are_up_are_named():
    leading = Leading(nodes=3)
    leading.down = {2, 3}
    with pytest.raises(InvalidRequest, match="start node"):
        leading.ask(wire.GrowPool(16))
    assert leading.state.last_group == 8


def test_only_the_leader_of_the_metadata_decides():
    leading = Leading()
    leading.failures = [NotLeader(METADATA_GROUP, 2)]
    with pytest.raises(NotLeader):
        leading.ask(wire.GrowPool(16))


def test_the_pool_is_opened_when_every_new_group_has_a_leader_and_not_before():
    leading = Leading(GrowPool(10, TWO))
    leading.leaders = {9: 1}
    trio.run(leading.pool.check)
    assert leading.state.pool_size == 8
    status = leading.ask(wire.PoolStatus())
    assert status == wire.PoolStatusReply(8, 10, 1, (10,), 32)
    leading.leaders[10] = 3
    leading.down = {3}
    trio.run(leading.pool.check)
    assert leading.state.pool_size == 8, "that leader is gone"
    assert leading.ask(wire.PoolStatus()).leaderless == (10,)
    leading.down = set()
    leading.failures = [AmbiguousOutcome("leadership was lost")]
    trio.run(leading.pool.check)
    assert leading.state.pool_size == 8, "it is tried again"
    trio.run(leading.pool.check)
    assert leading.state.pool_size == 10
    assert leading.ask(wire.PoolStatus()) == wire.PoolStatusReply(10, 10, 0, (), 32)


@in_trio
async def test_a_leader_that_finds_a_growth_under_way_goes_on_with_it():
    """The one that decided it is gone: nothing but the metadata says that the pool grows."""
    leading = Leading(GrowPool(10, TWO))
    leading.leaders = {9: 2, 10: 3}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leading.pool.run)
        await until(lambda: leading.state.pool_size == 10)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_node_grows_serves_and_starts_again(tmp_path):
    async with serving(tmp_path) as served:
        client = await Client.open(served)
        try:
            reply = (await client.ask(wire.GrowPool(6))).reply
            assert (reply.pool_size, reply.groups) == (2, 6)
            state = served.metadata.log.state
            await until(lambda: state.pool_size == 6, "the pool is open")
            assert served.core.status.led_count == 7
            result = await served.metadata.log.propose(CreateTopic("t", uuid(9), 60))
            assert result.value.pool_size == 6
        finally:
            await client.stream.aclose()
        config = served.config
    again = make_node(config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.run)
        await until(lambda: again.core.status.led_count == 7, "it leads all of them again")
        assert again.metadata.log.state.pool_size == 6
        again.driver.rounds.stop()
        nursery.cancel_scope.cancel()
    again.close()
