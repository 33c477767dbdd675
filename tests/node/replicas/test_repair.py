"""The task that requests copies from peers, one request at a time."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    ReplayEntries,
    SendRequest,
)
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.peers.bulk_channel import ANSWER_TIMEOUT_S, NoAnswer
from node.replicas.repair import Repairs
from tests.node.harness import silent_log
from tests.storage.world import open_store

SILENT, ALIVE = 2, 3


class Peers:
    """Two peers, one of which hangs: it takes a request and never replies."""

    def __init__(self):
        self.handlers = {}
        self.asked: list[int] = []

    async def ask(self, peer: int, header: dict) -> SimpleNamespace:
        self.asked.append(peer)
        if peer == SILENT:
            await trio.sleep(ANSWER_TIMEOUT_S)
            raise NoAnswer("too slow")
        known = {"op": header["op"], "known": True, "absent": []}
        return SimpleNamespace(header=known, payload=b"")


class Damaged:
    """Replicas that each lack an entry which both peers have; the peer that hangs is always asked
    first."""

    def __init__(self, groups: int):
        self.groups = {*range(1, groups + 1)}
        self.repaired = 0
        self._turn = dict.fromkeys(self.groups, 0)

    def step(self, group: int) -> SendRequest:
        self._turn[group] += 1
        return SendRequest((SILENT, ALIVE)[(self._turn[group] - 1) % 2],
                           RepairRequest(group, 1, ((1, 1),)))

    def on_response(self, answer) -> None:
        self.groups.discard(answer.group)


async def _repair(groups: int) -> tuple[float, list[int]]:
    repairer, peers = Damaged(groups), Peers()
    repairs = Repairs(repairer, peers, lambda: None, silent_log())
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(repairs.run)
        while repairer.groups:
            await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    return trio.current_time() - began, peers.asked


def test_a_peer_that_hangs_is_waited_for_once_and_not_for_each_replica():
    """A damaged journal causes requests for every group. With one of two peers hanging, a node of a
    thousand groups was out for hours, although the other peer had all entries."""
    lasted_s, asked = trio.run(_repair, 100, clock=trio.testing.MockClock(autojump_threshold=0))
    assert asked.count(SILENT) == 1 and asked.count(ALIVE) == 100
    assert lasted_s < 2 * ANSWER_TIMEOUT_S


def exhausted() -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_without_free_descriptors_a_replay_is_tried_again():
    """Only errors of the disk itself stop the node."""
    read: list[tuple] = []
    jobs = [SimpleNamespace(execute=exhausted), SimpleNamespace(execute=lambda: ("entry",))]

    def on_replay_read(group: int, entries: tuple) -> None:
        read.append((group, entries))
        repairer.groups.clear()

    repairer = SimpleNamespace(groups={1}, step=lambda group: ReplayEntries(group, jobs.pop(0)),
                               on_replay_read=on_replay_read)

    async def repaired() -> None:
        repairs = Repairs(repairer, Peers(), lambda: None, silent_log())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(repairs.run)
            while not read:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    trio.run(repaired)
    assert read == [(1, ("entry",))]


@pytest.mark.parametrize(("number", "raised"), [(errno.EMFILE, OSError), (errno.EIO, DiskFailed)])
def test_without_free_descriptors_a_request_for_copies_ends_its_connection_only(number, raised):
    def execute() -> None:
        raise OSError(number, "cannot read")

    repairer = SimpleNamespace(copies_for=lambda _request: ([SimpleNamespace(execute=execute)],
                                                            None))
    repairs = Repairs(repairer, SimpleNamespace(handlers={}), lambda: None, silent_log())
    header = {"op": "repair", "group": 1, "incarnation": 1, "wanted": [[1, 1]], "term": 1}
    with pytest.raises(raised):
        trio.run(repairs.answer, 2, header, memoryview(b""))


@pytest.mark.parametrize("group, incarnation, term", [
    (99, 0, 0), (-1, 0, 0), (1, -1, 0), (1, 1, -1), (1 << 64, 1, 0), (1, True, 0), ("1", 1, 0)])
def test_what_is_asked_of_a_group_that_cannot_be_is_refused(group, incarnation, term):
    """0 is the incarnation of every group without a replica here: a request with it asked for
    copies from a missing log, and stopped the node."""
    store = open_store(SimulatedFilesystem(), "/node")
    core = SimpleNamespace(status=SimpleNamespace(has_applied_in_term=lambda _group: True))
    answering = Repairs(RepairCoordinator(1, store, core, lambda _staged: None),
                        SimpleNamespace(handlers={}), lambda: None, silent_log())
    header = {"op": "repair", "group": group, "incarnation": incarnation, "wanted": [],
              "term": term}
    with pytest.raises(Malformed):
        trio.run(answering.answer, 2, header, memoryview(b""))
    store.close()
