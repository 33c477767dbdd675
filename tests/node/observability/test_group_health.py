"""The group health scan: replicas behind and under-replicated groups, in slices, shared by
requests.
"""

import itertools
import os
from types import SimpleNamespace

import pytest
import trio

from multiraft.errors import UnknownGroup
from multiraft.raft.status import GroupStatus, MemberStatus, Role
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.plans import REPLICA_CHANGE, PlanLimits, PlannedMove
from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from node.observability import group_health as survey_module
from node.observability.group_health import SLICE, GroupHealthScan, Survey, measure_space
from tests.node.harness import Client, in_trio, serving

LAG_MAX = 10


def status(group: int = 1, **changes) -> GroupStatus:
    """A follower of node 2 that has everything."""
    values = dict(
        group=group, incarnation=1, role=Role.FOLLOWER, term=3, vote=0, leader=2, first_index=1,
        last_index=100, durable_index=100, commit=100, applied_index=100, committed_in_term=False,
        configuration=Configuration((1, 2, 3), (4,)), quarantined="", quiesced=True, transferee=0,
        uncommitted_bytes=0, members=(), leader_commit_seen=100)
    return GroupStatus(**values | changes)


def leader(*members: MemberStatus, **changes) -> GroupStatus:
    return status(role=Role.LEADER, leader=1, committed_in_term=True, members=members, **changes)


def member(node: int, match: int = 100, state: str = "replicate") -> MemberStatus:
    return MemberStatus(node, state, match, match + 1, match, 0)


class ClusterView:
    """A core whose groups are what a test says; an entry is 10 bytes."""

    def __init__(self, *statuses: GroupStatus, down: tuple[int, ...] = (),
                 plan: ActivePlan | None = None):
        self.statuses = {one.group: one for one in statuses}
        self.space = (1, 2, 3)
        self.full = False
        self.looked: list[int] = []
        core = SimpleNamespace(
            node=1, status=SimpleNamespace(
                groups=lambda: tuple(self.statuses), of=self.status,
                is_up=lambda node: node not in down))
        store = SimpleNamespace(bytes_between=lambda group, first, last: 10 * (last - first + 1),
                                records_kept=lambda group: (3, 300))
        metadata_log = SimpleNamespace(state=SimpleNamespace(plans=SimpleNamespace(active=plan)))
        self.group_health = GroupHealthScan(core, store, metadata_log, LAG_MAX,
                                            self.measure, lambda: self.full)

    def measure(self, used: int | None) -> tuple[int, int, int]:
        """Return the space of the test; ``used`` as in ``measure_space``."""
        return self.space if used is None else (used, *self.space[1:])

    def status(self, group: int) -> GroupStatus:
        self.looked.append(group)
        if self.statuses[group] is None:
            raise UnknownGroup(f"group {group}")
        return self.statuses[group]


def taken(*statuses: GroupStatus, down: tuple[int, ...] = ()) -> Survey:
    return trio.run(ClusterView(*statuses, down=down).group_health.take)


def test_a_follower_that_has_what_its_leader_committed_is_not_behind():
    found = taken(status())
    assert (found.groups, found.behind.count, found.leaderless.count) == (1, 0, 0)
    assert found.lag_entries == 0


def plan_that_moves(group: int, phase: Phase, new: tuple[int, ...]) -> ActivePlan:
    """One move, of a group with the voters 2, 3 and 4."""
    move = PlannedMove(1, REPLICA_CHANGE, group, 0, 1, (2, 3, 4), new, 0, 0, "OVERLOAD", ())
    plan = ActivePlan("p", "all", 0, PlanLimits(1_000_000), (move,))
    plan.records[1] = plan.records[1]._replace(phase=phase)
    plan.under_way[1] = None
    return plan


LEARNER = Configuration((2, 3, 4), (1,))


@pytest.mark.parametrize(("phase", "new", "configuration", "catching_up"), [
    (Phase.LEARNING, (1, 2, 3), LEARNER, True),
    (Phase.UNDOING, (1, 2, 3), LEARNER, True),
    (Phase.JOINT, (1, 2, 3), LEARNER, False),  # it may vote already, and not know it
    (Phase.LEARNING, (2, 3, 5), LEARNER, False),  # for another node
    (Phase.LEARNING, (1, 2, 3), Configuration((1, 2, 3)), False),
])
def test_a_replica_that_a_plan_is_filling_is_not_behind(phase, new, configuration, catching_up):
    lacking = status(leader_commit_seen=100 + 10 * LAG_MAX, configuration=configuration)
    world = ClusterView(status(METADATA_GROUP), lacking, plan=plan_that_moves(1, phase, new))
    found = trio.run(world.group_health.take)
    assert (found.catching_up.groups, found.behind.groups) == (
        ([1], []) if catching_up else ([], [1])
    )


@pytest.mark.parametrize("metadata", [
    dict(leader_commit_seen=101),  # what is lacking may say that it votes by now
    dict(leader_commit_seen=-1), dict(leader=0), dict(configuration=Configuration(()))])
def test_what_a_plan_is_filling_is_believed_by_metadata_of_today_only(metadata):
    world = ClusterView(
        status(METADATA_GROUP, **metadata),
        status(configuration=LEARNER, leader_commit_seen=-1),
        plan=plan_that_moves(1, Phase.LEARNING, (1, 2, 3)),
    )
    found = trio.run(world.group_health.take)
    assert not found.catching_up.groups and 1 in found.behind.groups


def test_a_follower_that_heard_no_leader_since_the_start_is_behind():
    assert taken(status(leader_commit_seen=-1)).behind.groups == [1]


def test_a_follower_far_below_what_its_leader_committed_is_behind_by_so_much():
    found = taken(status(commit=50, leader_commit_seen=100))
    assert (found.behind.count, found.lag_entries) == (1, 50)
    found = taken(status(commit=95, leader_commit_seen=100))
    assert (found.behind.count, found.lag_entries) == (0, 5), "what is under way is no lag"


def test_what_is_committed_and_not_durable_here_counts_as_missing():
    assert taken(status(durable_index=50)).behind.count == 1


def test_a_follower_without_a_leader_or_with_one_that_is_down_has_none():
    for found in (taken(status(leader=0)), taken(status(), down=(2,))):
        assert (found.leaderless.groups, found.behind.groups) == ([1], [1])


def test_a_quarantined_replica_is_that_and_behind():
    learns = Configuration((2, 3), (1,))
    of_voters = [taken(status(quarantined="bit rot", configuration=configuration)).damaged_voters
                 for configuration in (Configuration((1, 2)), learns, Configuration(()))]
    assert of_voters == [1, 0, 0]
    found = taken(status(quarantined="bit rot"))
    assert (found.quarantined.groups, found.behind.groups) == ([1], [1])
    assert found.leaderless.count == 0


def test_an_empty_replica_is_behind():
    assert taken(status(configuration=Configuration((), ()))).behind.count == 1


def test_a_leader_is_behind_until_it_has_committed_in_its_term():
    assert taken(leader()).behind.count == 0
    assert taken(leader()._replace(committed_in_term=False)).behind.count == 1


def test_a_group_is_under_replicated_when_a_voter_lacks_much_cannot_be_fed_or_is_down():
    assert taken(leader(member(2), member(3))).under_replicated.count == 0
    assert taken(leader(member(2, match=89), member(3))).under_replicated.groups == [1]
    assert taken(leader(member(2, state="unknown_group"), member(3))).under_replicated.count == 1
    assert taken(leader(member(2), member(3)), down=(3,)).under_replicated.count == 1


def test_a_learner_may_lag():
    found = taken(leader(member(2), member(3), member(4, match=0)))
    assert found.under_replicated.count == 0
    assert found.peer_lag[4] == (100, 1000)


def test_what_a_peer_lacks_is_the_most_of_one_group_and_the_bytes_of_all():
    found = taken(leader(member(2, match=97)), leader(member(2, match=99))._replace(group=2))
    assert found.peer_lag == {2: (3, 40)}


def test_a_group_that_is_removed_meanwhile_is_left_out():
    world = ClusterView(status(1), status(2))
    world.statuses[1] = None
    assert trio.run(world.group_health.take).groups == 1


def test_others_run_between_slices_of_a_large_pool():
    slices = 10
    world = ClusterView(*map(status, range(SLICE * slices)))
    seen = []

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.group_health.take)
            while len(world.looked) < SLICE * slices:
                seen.append(len(world.looked))
                await trio.lowlevel.checkpoint()

    trio.run(main)
    # The scheduler may let one run last in a turn and first in the next.
    assert all(after - before <= 2 * SLICE for before, after in itertools.pairwise(seen))
    assert len(seen) >= slices // 2


@in_trio
async def test_who_asks_at_the_same_time_or_soon_after_shares_one_survey(monkeypatch):
    world = ClusterView(status())
    now_ms = [1_000]
    monkeypatch.setattr(survey_module, "monotonic_ms", lambda: now_ms[0])
    got: list[Survey] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.group_health.run)
        for _ in range(3):
            world.group_health.request(got.append)
        first = await world.group_health.fresh()
        assert got == [first] * 3 and len(world.looked) == 1
        assert await world.group_health.fresh() is first
        now_ms[0] += survey_module.FRESH_MS
        assert await world.group_health.fresh() is not first
        nursery.cancel_scope.cancel()


@in_trio
async def test_each_survey_has_the_free_space_of_now(monkeypatch):
    """Files are counted less often."""
    world = ClusterView(status())
    now_ms = [1_000]
    monkeypatch.setattr(survey_module, "monotonic_ms", lambda: now_ms[0])

    async def space() -> tuple[int, int, int]:
        survey = await world.group_health.take()
        return survey.disk_used_bytes, survey.disk_free_bytes, survey.disk_total_bytes

    assert await space() == (1, 2, 3)
    world.space = (7, 0, 3)
    assert await space() == (1, 0, 3)
    now_ms[0] += survey_module.USED_FRESH_MS
    assert await space() == (7, 0, 3)


@in_trio
async def test_the_capacity_of_a_disk_that_fills_does_not_shrink(monkeypatch):
    """The balancer takes used and free bytes together as the capacity."""
    world = ClusterView(status())
    now_ms = [1_000]
    monkeypatch.setattr(survey_module, "monotonic_ms", lambda: now_ms[0])
    for written in (0, 300, 900):
        world.space = (100 + written, 1_000 - written, 2_000)
        survey = await world.group_health.take()
        assert survey.disk_capacity_bytes == 1_100
        assert survey.disk_free_bytes == 1_000 - written
    now_ms[0] += survey_module.USED_FRESH_MS
    world.space = (1_000, 50, 2_000)  # others took 50 bytes
    assert (await world.group_health.take()).disk_capacity_bytes == 1_050


@in_trio
async def test_a_survey_from_before_the_disk_became_full_is_not_used_again():
    world = ClusterView(status())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.group_health.run)
        assert (await world.group_health.fresh()).disk_free_bytes == 2
        world.space, world.full = (1, 0, 3), True
        found = await world.group_health.fresh()
        assert (found.disk_free_bytes, found.disk_full) == (0, True)
        assert await world.group_health.fresh() is found
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_disk_that_does_not_answer_does_not_hold_the_survey(monkeypatch):
    import threading

    monkeypatch.setattr(survey_module, "SPACE_WAIT_S", 0.01)
    world, release = ClusterView(status()), threading.Event()
    world.group_health._space = lambda _used: release.wait() and (7, 8, 9)
    try:
        assert (await world.group_health.take()).disk_free_bytes == 0
        assert (await world.group_health.take()).disk_free_bytes == 0, "no second thread waits"
    finally:
        release.set()


@in_trio
async def test_a_disk_that_cannot_say_how_full_it_is_ends_nothing():
    world = ClusterView(status())

    def fail(_used):
        raise OSError(5, "input/output error")

    world.group_health._space = fail
    assert (await world.group_health.take()).disk_used_bytes == 0


def test_space_counts_all_files_below_and_the_filesystem(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "below" / "b").write_bytes(bytes(234))
    used, free, total = measure_space(str(tmp_path))
    assert used == 1234
    assert 0 < free <= total
    assert measure_space(str(tmp_path), 5)[0] == 5
    assert total == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


@in_trio
async def test_a_real_node_alone_is_caught_up_and_knows_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(survey_module, "SPACE_WAIT_S", 60.0)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"x" * 1000)
        found = await node.admin.group_health.take()
    assert (found.groups, found.led, found.behind.count) == (3, 3, 0)
    assert found.log_bytes > 1000
    assert found.disk_used_bytes >= found.log_bytes
