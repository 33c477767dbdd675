"""A led group without progress is resigned; one with progress never is."""

from types import SimpleNamespace

from node.loop.watchdog import Watchdog
from tests.node.harness import Client, in_trio, serving, silent_log, until


class ClusterView:
    """A core that leads the groups that a test names."""

    def __init__(self):
        self.waiting: dict[int, int] = {}
        self.resigned: list[int] = []
        self.led = {1, 2, 3}
        status = SimpleNamespace(is_leader=lambda group: group in self.led,
                                 leader_hint=lambda group: (1, 7))
        core = SimpleNamespace(status=status,
                               resign=lambda group, why: self.resigned.append(group))
        self.dog = Watchdog(core, lambda: self.waiting, lambda: None, 1000, silent_log())


def test_only_what_has_not_moved_for_long_enough_is_resigned():
    world = ClusterView()
    for now_ms in range(0, 1500, 500):
        world.waiting = {1: 10, 2: 10 + now_ms}  # group 2 moves
        world.dog.check(now_ms)
    assert world.resigned == [1]
    assert world.dog.resigned == 1


def test_patience_begins_anew_when_the_group_was_quiet():
    world = ClusterView()
    world.waiting = {1: 10}
    world.dog.check(0)
    world.waiting = {}
    world.dog.check(500)
    world.waiting = {1: 10}
    world.dog.check(1000)
    world.dog.check(1900)
    assert world.resigned == []
    world.dog.check(2000)
    assert world.resigned == [1]


def test_after_a_resignation_patience_begins_anew():
    world = ClusterView()
    world.waiting = {1: 10}
    for now_ms in (0, 1000, 1500, 1900):
        world.dog.check(now_ms)
    assert world.resigned == [1]


def test_what_is_not_led_any_more_is_left_alone():
    world = ClusterView()
    world.waiting, world.led = {1: 10}, set()
    world.dog.check(0)
    world.dog.check(5000)
    assert world.resigned == []


@in_trio
async def test_a_node_gives_up_a_group_whose_writes_hang(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        node.driver.watchdog._group_stall_ms_max = 600  # from here on: a disk may be slow before
        node.storage.gather.start_next = lambda: None
        answer = await client.produce(topic, b"stuck")
        assert "stepped down" in answer.error.text
        await until(lambda: node.driver.watchdog.resigned == 1)
