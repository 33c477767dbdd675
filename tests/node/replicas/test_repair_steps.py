"""Order of the steps of repair, and copies for other nodes."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from multiraft.errors import Compacted
from multiraft.storage.errors import CorruptRange
from multiraft.storage.repair.coordinator import (
    RepairRequest,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.peers.errors import NoAnswer
from node.replicas.repair_steps import TURN_S, RepairSteps
from tests.node.steps import at_once, run

SILENT, ALIVE = 2, 3


def request(group: int) -> RepairRequest:
    return RepairRequest(group, 1, ((1, 1),))


def response(group: int) -> RepairResponse:
    return RepairResponse(group, 1, (), (), False)


def failing(error: Exception):
    def execute():
        raise error

    return SimpleNamespace(execute=execute)


class Node:
    """A node with replicas under repair; ``actions`` are the steps of each group, and no more."""

    def __init__(self, actions: dict | None = None, copies=None):
        self.actions = actions or {}
        self.copies = copies
        self.calls: list = []
        self.damage: list = []
        self.answers: dict = {}
        self.steps = RepairSteps(self, self, at_once, self.pause, self.damage.append,
                                 lambda: self.calls.append("round"), self)

    @property
    def groups(self) -> set[int]:
        return {group for group, actions in self.actions.items() if actions}

    def step(self, group: int):
        return self.actions[group].pop(0)

    async def ask(self, peer: int, asked: RepairRequest):
        self.calls.append((peer, asked.group))
        answer = self.answers.get(peer, response(asked.group))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def on_response(self, answer: RepairResponse) -> None:
        self.calls.append(("response", answer.group))

    def on_replay_read(self, group: int, entries) -> None:
        self.calls.append(("replayed", group, entries))

    def with_entries(self, response: RepairResponse, entries, jobs):
        return response._replace(entries=tuple(entries))

    def copies_for(self, asked: RepairRequest):
        return self.copies

    async def pause(self, pause_s: float) -> None:
        assert pause_s == TURN_S
        self.calls.append("pause")

    def info(self, event: str, *, extra: dict) -> None:
        self.calls.append(event)


def test_a_pass_takes_one_step_of_each_replica_in_order_of_its_group():
    node = Node({5: [SendRequest(ALIVE, request(5)), None],
                 1: [ReplayEntries(1, SimpleNamespace(execute=lambda: ("entry",)))]})
    run(node.steps.repair_all())
    assert node.calls == [("replayed", 1, ("entry",)), (ALIVE, 5), ("response", 5), "round",
                          "pause", "round", "pause"]


@pytest.mark.parametrize("answer", [NoAnswer("too slow"), Malformed("no copies")])
def test_a_peer_without_a_valid_reply_is_left_out_until_the_next_pass(answer):
    node = Node({group: [SendRequest(SILENT, request(group)), SendRequest(SILENT, request(group))]
                 for group in (1, 2)})
    node.answers[SILENT] = answer
    run(node.steps.repair_all())
    one_pass = [(SILENT, 1), "repair_request_failed", "round", "pause"]
    assert node.calls == one_pass * 2


def test_a_peer_that_does_not_know_the_group_is_no_failure():
    node = Node({1: [SendRequest(ALIVE, request(1))], 2: [SendRequest(ALIVE, request(2))]})
    node.answers[ALIVE] = None
    run(node.steps.repair_all())
    assert node.calls == [(ALIVE, 1), (ALIVE, 2), "round", "pause"]


def test_damage_that_a_replay_finds_is_reported_and_a_broken_disk_raises():
    damage = CorruptRange(1, 3, "crc")
    node = Node({1: [ReplayEntries(1, failing(damage))]})
    run(node.steps.repair_all())
    assert node.damage == [damage] and node.calls == ["round", "pause"]
    node = Node({1: [ReplayEntries(1, failing(OSError(errno.EMFILE, "too many")))]})
    run(node.steps.repair_all())
    assert node.calls == ["round", "pause"], "the next pass reads again"
    with pytest.raises(DiskFailed):
        run(Node({1: [ReplayEntries(1, failing(OSError(errno.EIO, "broken")))]})
            .steps.repair_all())


def test_copies_are_what_can_be_read():
    damage = CorruptRange(1, 3, "crc")
    jobs = [SimpleNamespace(execute=lambda: ["a", "b"]), failing(damage),
            failing(Compacted("gone")), SimpleNamespace(execute=lambda: ["c"])]
    node = Node(copies=(jobs, response(1)))
    assert run(node.steps.copies_for(request(1))).entries == ("a", "b", "c")
    assert node.damage == [damage]
    assert run(Node(copies=None).steps.copies_for(request(1))) is None


@pytest.mark.parametrize(("number", "raised"), [(errno.EMFILE, OSError), (errno.EIO, DiskFailed)])
def test_copies_that_cannot_be_read_raise(number, raised):
    node = Node(copies=([failing(OSError(number, "cannot"))], response(1)))
    with pytest.raises(raised):
        run(node.steps.copies_for(request(1)))
