"""The task of retention: questions to the leaders of groups with earlier epochs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from node.peers.errors import NoAnswer
from node.retention.earlier_epochs import EpochPart, Question
from node.retention.retention_task import EARLY_BYTES, RetentionTask
from tests.node.harness import silent_log

HANGING, ANSWERING = 2, 3
HISTORY = (SimpleNamespace(group=1, epoch=1, start_offset=0),
           SimpleNamespace(group=9, epoch=2, start_offset=10))


class Peers:
    """Nodes of which one never answers; notes whom it was asked to reach."""

    def __init__(self):
        self.asked: list[int] = []

    async def ask(self, node: int, _header: dict) -> SimpleNamespace:
        self.asked.append(node)
        await trio.lowlevel.checkpoint()
        if node == HANGING:
            raise NoAnswer(f"node {node} did not answer in time")
        return SimpleNamespace(header={"part": [80, 4]})


def test_a_leader_that_does_not_answer_is_asked_once_and_others_still_are():
    """Each question that is not answered takes the time limit of an answer, and no pass runs
    meanwhile."""
    peers, answers = Peers(), {}
    questions = {partition: Question(0, 3_500) for partition in range(100, 110)}
    passes = SimpleNamespace(questions=dict(questions), answer=lambda partition, _question, parts:
                             answers.update({partition: parts}))
    leaders = {100 + at: ANSWERING if at == 5 else HANGING for at in range(10)}
    place = {partition: SimpleNamespace(epoch_history=(
        SimpleNamespace(group=partition, epoch=1, start_offset=0), HISTORY[1]))
        for partition in questions}
    task = RetentionTask(
        1, passes, SimpleNamespace(partition_states={}),
        SimpleNamespace(state=SimpleNamespace(locate=place.get)),
        SimpleNamespace(leader_hint=lambda group: (leaders[group], 1)), peers, None, 1_000,
        lambda: 0,
        lambda _rows: trio.lowlevel.checkpoint(), lambda: None, silent_log())
    trio.run(task.ask_all)
    assert peers.asked == [HANGING, ANSWERING]
    assert answers == {105: [EpochPart(10, 80, 4)]}
    assert not passes.questions
    passes.questions.update(questions)
    trio.run(task.ask_all)
    assert peers.asked.count(HANGING) == 2, "it is asked again after the next pass"


class Passes:
    """Passes without work; notes when they begin."""

    def __init__(self):
        self.begun_s: list[float] = []
        self.questions: dict = {}

    def steps(self, _now_ms):
        self.begun_s.append(trio.current_time())
        return iter(())


@pytest.mark.parametrize("bytes_per_second, expected", [
    (0, [0, 10, 20, 30]), (EARLY_BYTES // 30, [0, 10, 20, 30]),
    (EARLY_BYTES // 4, [0, 4, 8, 12, 16, 20, 24, 28]), (EARLY_BYTES * 2, list(range(31)))])
def test_a_pass_begins_earlier_after_many_bytes(bytes_per_second, expected):
    passes, begin_s = Passes(), []

    class Store:
        partition_states: dict = {}

        @property
        def durable_position(self) -> int:
            return int((trio.current_time() - begin_s[0]) * bytes_per_second)

    task = RetentionTask(
        1, passes, Store(), None, None, Peers(), None, 10_000, lambda: 0,
        lambda _rows: trio.lowlevel.checkpoint(), lambda: None, silent_log())

    async def half_a_minute() -> None:
        begin_s.append(trio.current_time())
        with trio.move_on_after(30.5):
            await task.run()

    trio.run(half_a_minute, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [round(each - begin_s[0]) for each in passes.begun_s] == expected
