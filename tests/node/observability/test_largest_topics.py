"""The largest topics: bounded, in steps, and not searched for while nothing changes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from multiraft.wire.errors import Code
from multiraft.wire.sizes import TopicSize
from node.observability import metrics
from node.observability.group_health import Survey
from node.observability.largest_topics import (
    INTERVAL_S,
    PAUSE_S,
    TOPICS_MAX,
    TOPICS_PER_STEP,
    LargestTopics,
)
from node.observability.statistics import Sample
from tests.node.harness import Client, in_trio, serving, until


class Stop(Exception):
    """End of the task of a test."""


class World:
    """Topics with sizes, and a clock that ends the task after some intervals."""

    def __init__(self, sizes: dict[str, int], intervals=1):
        self.sizes = sizes
        self.change = 0
        self.asked = 0
        self.pauses: list[float] = []
        self.steps: list[int] = []
        self.intervals = intervals
        self.largest = LargestTopics(lambda: self, self.size_of, lambda: self.change, self.sleep)

    def list_topics(self, after, count_max):
        names = sorted(name for name in self.sizes if name > after)
        self.steps.append(min(count_max, len(names)))
        return ([SimpleNamespace(name=name, partitions=1) for name in names[:count_max]],
                len(names) > count_max)

    async def size_of(self, topic):
        self.asked += 1
        size = self.sizes[topic.name]
        return TopicSize(topic.name, 1, size // 10, size, 0, 0, size) if size else None

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        if seconds == INTERVAL_S:
            self.intervals -= 1
            self.tick()
            if not self.intervals:
                raise Stop

    def tick(self):
        """Change nothing between two intervals."""

    def run(self):
        with pytest.raises(Stop):
            trio.run(self.largest.run)
        return [topic.name for topic in self.largest.found]


def test_the_largest_topics_are_found_in_steps_with_pauses():
    sizes = {f"t{number:04}": number for number in range(1_000)}
    world = World(sizes)
    assert world.run() == [f"t{number:04}" for number in range(999, 999 - TOPICS_MAX, -1)]
    assert max(world.steps) == TOPICS_PER_STEP and sum(world.steps) == 1_000
    assert world.pauses == [PAUSE_S] * 8 + [INTERVAL_S]


def test_no_size_is_read_while_nothing_changes():
    world = World({"t": 5}, intervals=4)
    assert world.run() == ["t"]
    assert world.asked == 1


def test_names_change_as_topics_change():
    world = World({f"t{number:02}": 100 + number for number in range(TOPICS_MAX)}, intervals=2)

    def tick():
        world.change += 1
        world.sizes.update(new=1_000)

    world.tick = tick
    found = world.run()
    assert len(found) == TOPICS_MAX and found[0] == "new" and "t00" not in found


def test_empty_topics_have_no_series():
    assert World({"t": 0, "u": 3}).run() == ["u"]


def test_each_metric_has_a_series_per_topic_that_was_found():
    world = World({f"t{number:04}": 10 * number for number in range(100)})
    world.run()
    sample = Sample({}, Survey(), largest_topics=world.largest.found)
    for name in ("multiraft_topic_bytes", "multiraft_topic_records"):
        family = next(each for each in metrics.FAMILIES if each.name == name)
        rows = list(family.read(sample))
        assert len({values for values, _ in rows}) == TOPICS_MAX
        assert rows[0] == (("t0099",), 990 if name.endswith("bytes") else 99)


@in_trio
async def test_a_node_finds_its_topics(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        assert (await client.produce(partition, b"a")).code == Code.OK
        largest = node.status.largest_topics
        largest.found = await largest._pass()
        assert [(topic.name, topic.records) for topic in largest.found] == [("t", 1)]
        await until(lambda: node.status.statistics.sample(Survey()).largest_topics, "a sample")
