"""Draining of leadership before a node stops, a few groups at a time."""

from __future__ import annotations

from types import SimpleNamespace

from multiraft.errors import ProposalError
from node.replicas.drain_leadership import UNDER_WAY_MAX, LeadershipDrain
from tests.node.harness import in_trio


class Core:
    """A core whose transfers succeed when the world advances, except for groups without a
    target."""

    def __init__(self, led: int, stuck: frozenset[int] = frozenset()):
        self.status = self  # as core.status
        self.led = dict.fromkeys(range(1, led + 1), 0)  # group -> transferee
        self.stuck = stuck
        self.most_under_way = 0

    def led_groups(self):
        return list(self.led)

    def of(self, group):
        return SimpleNamespace(transferee=self.led[group])

    def leader_hint(self, group):
        return 1, 7

    def transfer(self, group, to):
        assert to == 0, "the core chooses"
        if group in self.stuck:
            raise ProposalError(f"group {group} has no other voter that is reached")
        self.led[group] = 2
        self.most_under_way = max(self.most_under_way, sum(map(bool, self.led.values())))

    def elect_others(self):
        self.led = {group: to for group, to in self.led.items() if not to}


class ClusterView:
    """The collaborators of ``LeadershipDrain``; each wait lets the elections happen."""

    def __init__(self, core: Core):
        self.core = core
        self.waits = 0
        self.now_ms = 0
        self.said: list[int] = []
        self.drain_leadership = LeadershipDrain(core, self, lambda: None, self,
                                               lambda: self.now_ms)

    async def wait(self, timeout_s):
        self.waits += 1
        self.now_ms += int(timeout_s * 1000)
        self.core.elect_others()

    def info(self, _event, extra):
        self.said.append(extra["group"])


@in_trio
async def test_all_groups_leave_and_only_some_at_a_time():
    world = ClusterView(Core(led=5 * UNDER_WAY_MAX + 1))
    await world.drain_leadership.run()
    assert not world.core.led
    assert world.core.most_under_way == UNDER_WAY_MAX
    assert world.waits == 6


@in_trio
async def test_groups_that_nobody_can_take_keep_none_of_the_others_and_are_named_once():
    stuck = frozenset(range(1, UNDER_WAY_MAX + 2))  # more than are handed over at a time, and first
    world = ClusterView(Core(led=3 * UNDER_WAY_MAX, stuck=stuck))
    await world.drain_leadership.run()
    assert set(world.core.led) == stuck
    assert world.said == sorted(stuck)


@in_trio
async def test_a_transfer_under_way_is_waited_for_and_not_begun_again():
    core = Core(led=2)
    core.led[1] = 3  # this transfer was begun before
    world = ClusterView(core)
    await world.drain_leadership.run()
    assert not core.led
    assert core.most_under_way == 2


@in_trio
async def test_transfers_that_do_not_end_are_left_at_the_end_of_the_time():
    world = ClusterView(Core(led=2))
    world.core.elect_others = lambda: None
    await world.drain_leadership.run(1_000)
    assert len(world.core.led) == 2
    assert world.now_ms == 1_000
