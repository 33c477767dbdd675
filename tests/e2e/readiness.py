"""Readiness of nodes and of partitions, as a restart waits for it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import trio

from tests.e2e.load import Load
from tests.e2e.world import WAIT_S, World


def readiness(world: World, node: int) -> tuple[int, dict]:
    """Return (status, answer) of a node's ``/readyz``; (0, {}) when the port is closed."""
    url = f"http://{world.dev.record.node(node).http_address}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
    except OSError:
        return 0, {}


def is_ready(world: World, node: int) -> bool:
    """True if the node answers that it is ready."""
    return readiness(world, node)[0] == 200


async def served_everywhere(load: Load, partitions: int) -> None:
    """Check that each partition accepts appends."""
    async with trio.open_nursery() as nursery:
        for partition in range(partitions):
            nursery.start_soon(load.acknowledged_more, 1, partition)
