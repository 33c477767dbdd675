"""`/readyz` as a rolling restart uses it: who is ready has what was acknowledged meanwhile."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from multiraft.client import blocking
from multiraft.client.blocking import Record
from tests.e2e.world import wait_for

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
RECORDS = 2_000


@pytest.fixture(autouse=True)
def whole_again(world):
    """A test that fails half way leaves no dead nodes to the next one."""
    yield
    world.dev.up()


def readiness(world, node: int) -> tuple[int, dict]:
    """(status, answer) of a node's ``/readyz``; (0, {}) when nobody listens."""
    url = f"http://{world.dev.record.node(node).http_address}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def is_ready(world, node: int) -> bool:
    return readiness(world, node)[0] == 200


def append(world, topic: str, count: int) -> None:
    """So many records, acknowledged."""
    with blocking.Client(world.addresses) as client, client.producer() as producer:
        for number in range(count):
            producer.send(Record(topic, str(number).encode()))


def commits(world, node: int) -> dict[int, int]:
    """Group -> commit index on a node."""
    with blocking.Client([world.address(node)]) as client:
        return {row.group: client.group_describe(row.group, world.address(node)).commit
                for row in client.group_list()}


def test_whoever_is_ready_again_has_what_was_committed_while_it_was_away(world):
    world.create("rolling", 4)
    for node in world.ids():
        for each in world.ids():
            wait_for(lambda each=each: is_ready(world, each), f"node {each} is ready")
        world.dev.stop(node)
        assert readiness(world, node)[0] == 0
        append(world, "rolling", RECORDS)
        committed: dict[int, int] = {}
        for other in set(world.ids()) - {node}:
            for group, index in commits(world, other).items():
                committed[group] = max(index, committed.get(group, 0))
        world.dev.start(node)
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready again")
        caught_up = commits(world, node)
        lacking = {group: (index, caught_up[group]) for group, index in committed.items()
                   if caught_up[group] < index}
        assert not lacking, f"node {node} called itself ready"


def test_without_a_majority_nobody_is_ready_and_the_reason_says_why(world):
    for node in world.ids():
        wait_for(lambda node=node: is_ready(world, node), f"node {node} is ready")
    world.dev.kill(2)
    world.dev.kill(3)
    status, answer = wait_for(
        lambda: (said := readiness(world, 1))[0] == 503 and said, "node 1 notices")
    assert "no leader is known" in answer["reason"]
    assert answer["leaderless"] == 9
