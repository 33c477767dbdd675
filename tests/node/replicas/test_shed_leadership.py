"""Shedding of leadership on a full disk, to nodes that take records."""

from __future__ import annotations

from types import SimpleNamespace

import trio
import trio.testing

from multiraft.errors import NotLeader
from multiraft.types import METADATA_GROUP
from node.replicas.drain_leadership import UNDER_WAY_MAX
from node.replicas.shed_leadership import RETRY_MS, LeadershipShedder

WAIT_S = 30.0


class Core:
    """A core with groups led here; ``takers`` are the groups that have a target."""

    def __init__(self, led, takers=()):
        self.status = self  # as core.status
        self.led = dict.fromkeys(led, 0)  # group -> transferee
        self.takers = set(takers or led)
        self.asked: list[int] = []

    def led_groups(self):
        return list(self.led)

    def of(self, group):
        return SimpleNamespace(transferee=self.led[group])

    def shed_leadership(self, group):
        self.asked.append(group)
        if group not in self.led:
            raise NotLeader(group, 2)
        if group in self.takers:
            self.led[group] = 2
        return group in self.takers

    def elect_others(self, groups):
        for group in groups:
            assert self.led.pop(group) == 2


class ClusterView:
    """The collaborators of ``LeadershipShedder``."""

    def __init__(self, core: Core):
        self.core = core
        self.full = False
        self.rounds = 0
        self.changed = trio.Event()
        self.leadership_shedder = LeadershipShedder(core, self, self, self.request_round, self)

    def request_round(self):
        self.rounds += 1
        self.changed.set()

    async def wait(self, _timeout_s):
        await trio.lowlevel.checkpoint()

    def info(self, _event, extra):
        assert extra["groups"] > 0


def test_all_groups_but_that_of_the_metadata_are_offered():
    world = ClusterView(Core([METADATA_GROUP, 1, 2]))
    world.leadership_shedder.check(0)
    assert world.core.asked == [1, 2]
    assert world.rounds == 1


def test_a_group_that_nobody_can_take_is_kept_and_asked_about_again():
    world = ClusterView(Core([1, 2], takers=[2]))
    world.leadership_shedder.check(0)
    world.core.elect_others([2])
    world.leadership_shedder.check(1)
    assert world.core.asked == [1, 2, 1]
    assert world.rounds == 1, "nothing was begun the second time"


def test_a_group_that_was_not_taken_is_left_in_peace_for_a_while():
    world = ClusterView(Core([1]))
    world.leadership_shedder.check(0)
    world.core.led[1] = 0  # given up
    world.leadership_shedder.check(RETRY_MS - 1)
    assert world.core.asked == [1]
    world.leadership_shedder.check(RETRY_MS)
    assert world.core.asked == [1, 1]


def test_only_some_are_under_way_at_a_time():
    world = ClusterView(Core(range(1, 3 * UNDER_WAY_MAX)))
    world.leadership_shedder.check(0)
    world.leadership_shedder.check(1)
    assert len(world.core.asked) == UNDER_WAY_MAX
    world.core.elect_others(world.core.asked[:5])
    world.leadership_shedder.check(2)
    assert len(world.core.asked) == UNDER_WAY_MAX + 5


def test_a_group_that_is_not_led_any_more_hinders_no_other():
    world = ClusterView(Core([1, 2]))
    world.core.status.led_groups = lambda: [1, 2]
    del world.core.led[1]
    world.core.status.of = lambda group: SimpleNamespace(transferee=0)
    world.leadership_shedder.check(0)
    assert world.core.asked == [1, 2]
    assert world.core.led == {2: 2}


def test_nothing_is_offered_before_the_disk_is_full():
    world = ClusterView(Core([1]))

    async def fill() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.leadership_shedder.run)
            await trio.sleep(WAIT_S)
            assert not world.core.asked
            world.full = True
            with trio.fail_after(WAIT_S):
                await world.changed.wait()
            nursery.cancel_scope.cancel()

    trio.run(fill, clock=trio.testing.MockClock(autojump_threshold=0))
    assert world.core.led == {1: 2}
