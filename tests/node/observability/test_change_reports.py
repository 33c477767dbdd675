"""Lines about lost nodes, lost majorities and moved leadership: few, complete and true."""

import functools
import io
import json
from types import SimpleNamespace

import pytest
import trio.testing

from multiraft.raft.status import Role
from multiraft.types import Configuration
from node.observability import change_reports as module
from node.observability.change_reports import ChangeReports
from node.observability.logging import logger
from tests.node.harness import in_trio

HERE = 1
LEASE_MS = 1_000


def in_mock_time(test):
    """Run an async test function in trio, whose clock jumps when all tasks wait."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        trio.run(functools.partial(test, *args, **kwargs),
                 clock=trio.testing.MockClock(autojump_threshold=0))

    return run


class Cluster:
    """Node 1 as its change reports see it."""

    def __init__(self, groups: dict[int, Configuration] | None = None):
        self.groups = groups or {}
        self.leaders: dict[int, int] = {}
        self.examined: list[int] = []
        self.announced: set[tuple[int, int]] = set()
        self.refusing: set[int] = set()
        self.stalls: list[tuple[int, str]] = []  # (time in milliseconds, what stalled here)
        self.members = {1, 2, 3, 4, 5}
        self.stream = io.StringIO()
        status = SimpleNamespace(
            led_count=31, groups=lambda: tuple(self.groups), configuration=self.configuration,
            leader_hint=lambda group: (self.leaders.get(group, 0), 7))
        self.reports = ChangeReports(
            SimpleNamespace(node=HERE, status=status),
            SimpleNamespace(has_announced_stop=lambda *boot: boot in self.announced,
                            is_refusing=lambda peer: peer in self.refusing,
                            own_stall_since=self.own_stall_since),
            lambda node: node in self.members, logger(HERE, self.stream), lease_ms=LEASE_MS,
            pause_s=0)

    def own_stall_since(self, since_ms: int) -> str:
        return next((what for at_ms, what in self.stalls if at_ms >= since_ms), "")

    def configuration(self, group: int) -> Configuration | None:
        self.examined.append(group)
        return self.groups.get(group)

    def up(self, *peers: int, epoch: int = 1) -> None:
        for peer in peers:
            self.reports.support_changed(peer, "granted", epoch)
            self.reports.support_changed(peer, "held", epoch)

    def down(self, *peers: int) -> None:
        for peer in peers:
            self.reports.support_changed(peer, "withdrawn")
            self.reports.support_changed(peer, "lost")

    def lead(self, group: int, leader: int, reason: str = "") -> None:
        self.leaders[group] = leader
        role = Role.LEADER if leader == HERE else Role.FOLLOWER
        self.reports.role_changed(group, role, leader, reason)

    async def lines(self, *names: str) -> list[dict]:
        """Write what is due. Return the lines of these events; all without names."""
        await self.reports.write()
        return self.written(*names)

    def written(self, *names: str) -> list[dict]:
        """Return the lines since the last call, of these events; all without names."""
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        self.stream.seek(0)
        self.stream.truncate()
        for line in lines:
            del line["at"], line["node"]
        return [line for line in lines if not names or line["event"] in names]


# ---- nodes ---------------------------------------------------------------------------------------


@in_trio
async def test_a_lost_node_is_a_warning_with_reason_and_number_of_groups_led_here():
    cluster = Cluster()
    cluster.up(2, 3, epoch=4)
    assert await cluster.lines() == []
    cluster.down(2)
    cluster.refusing = {2}
    assert await cluster.lines() == [{
        "level": "warning", "event": "node_lost", "peer": 2, "boot_epoch": 4,
        "groups_leading_here": 31,
        "reason": "its process ended: its peer port refuses connections"}]
    assert await cluster.lines() == []


@in_trio
async def test_a_node_without_heartbeats_is_lost_for_another_reason():
    cluster = Cluster()
    cluster.up(2)
    cluster.down(2)
    [line] = await cluster.lines()
    assert line["reason"].startswith("its heartbeats stopped")
    assert "or this node is cut off" in line["reason"]


@pytest.mark.parametrize("what", ["disk", "event loop", "process"])
@in_trio
async def test_a_node_that_stalled_itself_does_not_blame_the_others(monkeypatch, what):
    monkeypatch.setattr(module, "monotonic_ms", lambda: 60_000)
    cluster = Cluster({7: Configuration((1, 2, 3))})
    cluster.up(2, 3)
    cluster.stalls = [(60_000 - LEASE_MS, what)]
    cluster.down(2, 3)
    lines = await cluster.lines()
    assert [line["event"] for line in lines] == ["node_lost", "node_lost", "quorum_lost"]
    for line in lines:
        assert line["reason"].startswith(f"the {what} of this node stalled"), line
        assert "heartbeats stopped" not in line["reason"]


@in_trio
async def test_an_old_stall_of_this_node_explains_no_loss(monkeypatch):
    monkeypatch.setattr(module, "monotonic_ms", lambda: 60_000)
    cluster = Cluster({7: Configuration((1, 2, 3))})
    cluster.up(2, 3)
    cluster.stalls = [(60_000 - 10 * LEASE_MS, "disk")]
    cluster.down(2, 3)
    for line in await cluster.lines():
        assert "disk" not in line["reason"]


@in_trio
async def test_a_process_that_ended_is_the_reason_also_while_this_node_stalls(monkeypatch):
    monkeypatch.setattr(module, "monotonic_ms", lambda: 60_000)
    cluster = Cluster()
    cluster.up(2)
    cluster.stalls = [(60_000, "disk")]
    cluster.refusing = {2}
    cluster.down(2)
    [line] = await cluster.lines()
    assert line["reason"].startswith("its process ended")


@in_trio
async def test_one_direction_of_support_is_enough_not_to_be_lost():
    cluster = Cluster()
    cluster.up(2)
    cluster.reports.support_changed(2, "lost")
    assert await cluster.lines() == []


@in_trio
async def test_a_cluster_that_starts_writes_no_warning():
    cluster = Cluster({7: Configuration((1, 2, 3))})
    cluster.reports.support_changed(2, "granted", 1)
    cluster.reports.support_changed(2, "held", 1)
    cluster.up(3)
    cluster.lead(7, 1)
    assert [line["level"] for line in await cluster.lines()] == ["info"]
    assert cluster.examined == []


@in_trio
async def test_a_returned_node_is_reported_with_the_time_it_was_down(monkeypatch):
    now_ms = [1_000]
    monkeypatch.setattr(module, "monotonic_ms", lambda: now_ms[0])
    cluster = Cluster()
    cluster.up(2)
    cluster.down(2)
    assert len(await cluster.lines("node_lost")) == 1
    now_ms[0] = 61_000
    cluster.up(2, epoch=2)
    assert await cluster.lines() == [{
        "level": "warning", "event": "node_returned", "peer": 2, "boot_epoch": 2,
        "down_ms": 60_000}]


@in_trio
async def test_a_crash_is_reported_also_when_the_node_is_back_at_once():
    cluster = Cluster()
    cluster.up(2, epoch=3)
    cluster.down(2)
    cluster.up(2, epoch=4)
    lost, returned = await cluster.lines()
    assert (lost["event"], lost["boot_epoch"], lost["reason"]) == (
        "node_lost", 3, "its process ended and was started again")
    assert (returned["event"], returned["boot_epoch"]) == ("node_returned", 4)


@in_trio
async def test_a_flapping_node_is_two_lines_per_pause():
    cluster = Cluster()
    cluster.up(2)
    for _ in range(100):
        cluster.down(2)
        cluster.up(2)
    assert [line["event"] for line in await cluster.lines()] == ["node_lost", "node_returned"]


@in_trio
async def test_a_node_that_returned_and_is_lost_again_is_reported_again():
    cluster = Cluster()
    cluster.up(2)
    cluster.down(2)
    await cluster.lines()
    cluster.up(2)
    cluster.down(2)
    assert [line["event"] for line in await cluster.lines()] == []  # it never came back for long
    cluster.up(2)
    assert [line["event"] for line in await cluster.lines()] == ["node_returned"]
    cluster.down(2)
    assert [line["event"] for line in await cluster.lines()] == ["node_lost"]


@in_trio
async def test_a_node_that_announced_its_stop_is_not_lost():
    cluster = Cluster()
    cluster.up(2, epoch=5)
    cluster.announced = {(2, 5)}
    cluster.down(2)
    assert await cluster.lines() == [{"level": "info", "event": "peer_stopped", "peer": 2,
                                      "boot_epoch": 5, "groups_leading_here": 31}]
    cluster.up(2, epoch=6)
    assert await cluster.lines() == []  # ``peer_restarted`` reports that
    cluster.down(2)
    assert [line["event"] for line in await cluster.lines()] == ["node_lost"]


@in_trio
async def test_a_crash_soon_after_an_orderly_restart_is_reported():
    cluster = Cluster()
    cluster.up(2, epoch=5)
    cluster.announced = {(2, 5)}
    cluster.down(2)
    assert [line["event"] for line in await cluster.lines()] == ["peer_stopped"]
    cluster.up(2, epoch=6)
    cluster.down(2)
    [line] = await cluster.lines()
    assert (line["event"], line["boot_epoch"]) == ("node_lost", 6)


@in_trio
async def test_a_stop_a_return_and_a_crash_within_a_pause_are_all_reported():
    cluster = Cluster()
    cluster.up(2, epoch=5)
    cluster.announced = {(2, 5)}
    cluster.down(2)
    cluster.up(2, epoch=6)
    cluster.down(2)
    cluster.up(2, epoch=7)
    lines = await cluster.lines()
    assert [(line["event"], line["boot_epoch"]) for line in lines] == [
        ("peer_stopped", 5), ("node_lost", 6), ("node_returned", 7)]


@in_trio
async def test_a_lost_node_that_is_removed_leaves_nothing_behind():
    cluster = Cluster()
    cluster.up(2, 3)
    cluster.down(2)
    await cluster.lines()
    cluster.members.discard(2)
    cluster.down(3)
    await cluster.lines()
    assert set(cluster.reports._down) == {3}


@in_trio
async def test_a_removed_node_is_not_lost():
    cluster = Cluster()
    cluster.up(2)
    cluster.members.discard(2)
    cluster.down(2)
    assert await cluster.lines() == []


# ---- majorities ----------------------------------------------------------------------------------


@in_trio
async def test_lost_majorities_are_one_line_and_regained_ones_another():
    cluster = Cluster({group: Configuration((1, 2, 3)) for group in range(1_000)})
    cluster.groups[1_000] = Configuration((1,))
    cluster.up(2, 3)
    cluster.down(2)
    assert await cluster.lines("quorum_lost") == []
    cluster.down(3)
    assert await cluster.lines("quorum_lost") == [{
        "level": "warning", "event": "quorum_lost", "groups": 1_000,
        "first_groups": list(range(10)), "peers": [2, 3],
        "reason": "too few of their voters are up, or this node is cut off"}]
    cluster.up(3)
    assert await cluster.lines("quorum_regained") == [{
        "level": "warning", "event": "quorum_regained", "groups": 1_000,
        "first_groups": list(range(10)), "groups_remaining": 0}]


@in_trio
async def test_groups_are_examined_after_a_loss_only_and_in_slices():
    cluster = Cluster({group: Configuration((1, 2, 3)) for group in range(1_000)})
    cluster.up(2, 3)
    for group in range(100):
        cluster.lead(group, 1)
    await cluster.lines()
    assert cluster.examined == []
    cluster.down(2)
    largest, before = 0, 0
    async with trio.open_nursery() as nursery:
        async def watch() -> None:
            nonlocal largest, before
            while len(cluster.examined) < 1_000:
                largest, before = (max(largest, len(cluster.examined) - before),
                                   len(cluster.examined))
                await trio.lowlevel.checkpoint()

        nursery.start_soon(watch)
        await cluster.lines()
    assert len(cluster.examined) == 1_000
    assert 0 < largest <= 2 * module.SLICE


@in_trio
async def test_a_change_of_voters_regains_a_majority():
    cluster = Cluster({7: Configuration((1, 2)), 8: Configuration((1, 2))})
    cluster.up(2)
    cluster.down(2)
    assert (await cluster.lines("quorum_lost"))[0]["groups"] == 2
    cluster.groups[7] = Configuration((1,))
    cluster.reports.configuration_changed(7)
    [line] = await cluster.lines()
    assert (line["event"], line["first_groups"], line["groups_remaining"]) == (
        "quorum_regained", [7], 1)


@in_trio
async def test_both_halves_of_a_joint_configuration_count():
    cluster = Cluster({7: Configuration((1, 3, 4), outgoing=(1, 2, 5))})
    cluster.up(2, 3, 4)
    cluster.down(2)
    [line] = await cluster.lines("quorum_lost")
    assert line["peers"] == [2, 5]


@in_mock_time
async def test_a_node_that_starts_alone_reports_the_majorities_that_it_lacks():
    cluster = Cluster({7: Configuration((1, 2, 3)), 8: Configuration((1,))})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.reports.run)
        await trio.sleep(100 * LEASE_MS / 1_000)
        assert cluster.written() == [], "the replicas were not added yet"
        cluster.reports.replicas_added()
        await trio.sleep(LEASE_MS / 1_000)
        assert cluster.written() == [], "the others may still be starting"
        await trio.sleep(100 * LEASE_MS / 1_000)
        [line] = cluster.written()
        assert (line["event"], line["first_groups"], line["peers"]) == ("quorum_lost", [7], [2, 3])
        cluster.up(2)  # for the first time
        await trio.sleep(LEASE_MS / 1_000)
        [line] = cluster.written()
        assert (line["event"], line["first_groups"]) == ("quorum_regained", [7])
        nursery.cancel_scope.cancel()


@in_mock_time
async def test_a_node_that_starts_with_the_others_writes_no_warning():
    cluster = Cluster({7: Configuration((1, 2, 3))})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.reports.run)
        cluster.reports.replicas_added()
        cluster.up(2)
        await trio.sleep(100 * LEASE_MS / 1_000)
        assert cluster.examined and cluster.written() == []
        nursery.cancel_scope.cancel()


@in_trio
async def test_the_last_lines_wait_for_an_examination_under_way():
    """A node that stops writes the collected changes, and must not end before an examination that
    found lost majorities has logged them."""
    cluster = Cluster({group: Configuration((1, 2, 3)) for group in range(1_000)})
    cluster.up(2, 3)
    cluster.down(2, 3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.reports.write)
        while not cluster.examined:
            await trio.lowlevel.checkpoint()
        assert len(cluster.examined) < 1_000
        await cluster.reports.write()
        nursery.cancel_scope.cancel()
    assert [line["event"] for line in cluster.written()].count("quorum_lost") == 1


# ---- leadership ----------------------------------------------------------------------------------


@in_trio
async def test_a_failover_of_a_thousand_groups_is_a_few_lines_that_name_all_groups():
    cluster = Cluster()
    cluster.up(2, 3)
    for group in range(1_000):
        cluster.lead(group, 2)
    assert await cluster.lines() == []
    cluster.down(2)
    for group in range(1_000):
        cluster.reports.role_changed(group, Role.PRE_CANDIDATE, 0, "")
        cluster.reports.role_changed(group, Role.CANDIDATE, 0, "")
        cluster.lead(group, 1)
    lines = await cluster.lines("leadership_changed")
    assert len(lines) == 2
    assert [line["groups"] for line in lines] == [500, 500]
    assert [group for line in lines for group in line["group_ids"]] == list(range(1_000))
    assert {(line["level"], line["leader_before"], line["leader"], line["reason"])
            for line in lines} == {("info", 2, 1, "node 2 is down")}


@in_trio
async def test_the_lines_of_a_storm_are_bounded_and_count_all_groups():
    cluster = Cluster()
    for group in range(20_000):
        cluster.lead(group, 1)
    lines = await cluster.lines()
    assert len(lines) == module.LINES_PER_CAUSE
    assert sum(line["groups"] for line in lines) == 20_000
    assert len(lines[-1]["group_ids"]) == module.GROUPS_PER_LINE


@in_trio
async def test_a_leader_that_steps_down_is_reported_with_its_reason_and_its_successor():
    cluster = Cluster()
    cluster.up(2)
    cluster.lead(7, 1)
    cluster.lead(8, 1)
    await cluster.lines()
    cluster.lead(7, 0, "lost quorum support")
    cluster.reports.transfer_changed(8, 2, "started")
    cluster.reports.role_changed(8, Role.FOLLOWER, 0, "")
    cluster.lead(8, 2)
    seven, eight = await cluster.lines()
    assert (seven["group_ids"], seven["leader_before"], seven["leader"], seven["reason"]) == (
        [7], 1, 0, "lost quorum support")
    assert (eight["group_ids"], eight["leader_before"], eight["leader"], eight["reason"]) == (
        [8], 1, 2, "transfer to node 2")


@in_trio
async def test_a_transferred_group_names_the_node_that_gave_it():
    cluster = Cluster()
    cluster.up(2)
    cluster.lead(7, 2)
    cluster.reports.role_changed(7, Role.CANDIDATE, 0, "transfer")
    cluster.lead(7, 1)
    [line] = await cluster.lines()
    assert (line["leader_before"], line["leader"], line["reason"]) == (2, 1, "transfer by node 2")


@in_trio
async def test_an_aborted_transfer_is_no_reason():
    cluster = Cluster()
    cluster.lead(7, 1)
    await cluster.lines()
    cluster.reports.transfer_changed(7, 2, "started")
    cluster.reports.transfer_changed(7, 2, "aborted")
    cluster.lead(7, 3, "higher term")
    assert (await cluster.lines())[0]["reason"] == "higher term"


@in_trio
async def test_a_leader_that_loses_its_majority_during_a_transfer_was_not_transferred():
    cluster = Cluster()
    for group in (7, 8, 9):
        cluster.lead(group, 1)
    await cluster.lines()
    for group, reason in ((7, "lost quorum support"), (8, "stuck"), (9, "quarantined")):
        cluster.reports.transfer_changed(group, 2, "started")
        cluster.lead(group, 0, reason)
    assert {line["reason"]: line["group_ids"] for line in await cluster.lines()} == {
        "lost quorum support": [7], "stuck": [8], "quarantined": [9]}
    cluster.lead(7, 1)
    await cluster.lines()
    cluster.lead(7, 3, "higher term")
    [line] = await cluster.lines()
    assert line["reason"] == "higher term", "the transfer ended with the earlier leadership"


@pytest.mark.parametrize("reason", ["", "higher term", "digest"])
@in_trio
async def test_a_later_term_during_a_transfer_is_the_transfer(reason):
    cluster = Cluster()
    cluster.lead(7, 1)
    await cluster.lines()
    cluster.reports.transfer_changed(7, 2, "started")
    cluster.lead(7, 2, reason)
    assert (await cluster.lines())[0]["reason"] == "transfer to node 2"


@in_trio
async def test_a_leader_of_a_higher_term_has_one_name():
    cluster = Cluster()
    cluster.lead(7, 1)
    await cluster.lines()
    cluster.lead(7, 2)
    assert (await cluster.lines())[0]["reason"] == "higher term"


@pytest.mark.parametrize("ended", [(Role.FOLLOWER, "lost the election"), (Role.FOLLOWER, ""),
                                   (Role.PRE_CANDIDATE, "")])
@in_trio
async def test_a_transfer_whose_election_failed_is_no_reason_for_the_next_one(ended):
    role, reason = ended
    cluster = Cluster()
    cluster.up(2)
    cluster.lead(7, 2)
    cluster.reports.role_changed(7, Role.CANDIDATE, 0, "transfer")
    cluster.reports.role_changed(7, role, 0, reason)
    cluster.down(2)
    cluster.reports.role_changed(7, Role.CANDIDATE, 0, "")
    cluster.lead(7, 1)
    [line] = await cluster.lines("leadership_changed")
    assert line["reason"] == "node 2 is down"


@in_trio
async def test_a_group_that_other_nodes_lead_is_theirs_to_report():
    cluster = Cluster()
    cluster.lead(7, 2)
    cluster.lead(7, 3)
    assert await cluster.lines() == []


@in_trio
async def test_revoked_trust_and_a_repeated_election_are_told_apart():
    cluster = Cluster()
    cluster.up(2)
    cluster.lead(7, 2)
    cluster.reports.role_changed(7, Role.FOLLOWER, 0, "trust in the leader revoked")
    cluster.reports.role_changed(7, Role.PRE_CANDIDATE, 0, "")
    cluster.lead(7, 1)
    assert (await cluster.lines())[0]["reason"] == "trust in node 2 revoked"
    cluster.lead(7, 0, "higher term")
    await cluster.lines()
    cluster.lead(7, 1)
    [line] = await cluster.lines()
    assert (line["leader_before"], line["leader"], line["reason"]) == (1, 1, "elected again")


@in_trio
async def test_a_removed_replica_leaves_nothing_behind():
    cluster = Cluster({7: Configuration((1, 2))})
    cluster.up(2)
    cluster.lead(7, 1)
    cluster.down(2)
    await cluster.lines()
    cluster.reports.replica_removed(7)
    del cluster.groups[7]
    cluster.up(2)
    assert [line["event"] for line in await cluster.lines()] == ["node_returned"]


@in_trio
async def test_the_task_writes_what_was_reported():
    cluster = Cluster()
    cluster.up(2)
    cluster.down(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.reports.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert '"node_lost"' in cluster.stream.getvalue()
