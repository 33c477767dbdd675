"""Work in turns: the rows of a turn, and the order in which owners are served."""

import pytest
import trio
import trio.testing

from node.loop.steps import ROWS_PER_STEP, parts
from node.loop.turns import Turns
from tests.node.harness import in_trio


class Count:
    """Rows worked on in each turn of the loop."""

    def __init__(self, turns: Turns):
        self.turns = turns
        self.rows: list[tuple[object, int]] = []

    async def work(self, whom, count: int) -> None:
        """Run a task that works for ``whom``."""
        self.turns.work_for(whom)
        for part in parts(count):
            await self.turns.take(len(part))
            self.rows.append((whom, len(part)))

    def steps(self, whom, count: int):
        """Yield the same work as an iterator."""
        for _ in range(count):
            self.rows.append((whom, ROWS_PER_STEP))
            yield


@pytest.mark.parametrize("count, expected", [
    (0, []), (1, [range(0, 1)]), (300, [range(0, 128), range(128, 256), range(256, 300)])])
def test_rows_are_cut_into_parts(count, expected):
    assert list(parts(count)) == expected


@in_trio
async def test_a_turn_has_room_for_a_few_steps_and_what_is_more_waits():
    turns = Turns(2 * ROWS_PER_STEP)
    count = Count(turns)
    async with trio.open_nursery() as nursery:
        for whom in "abcd":
            nursery.start_soon(count.work, whom, 10 * ROWS_PER_STEP)
        await trio.testing.wait_all_tasks_blocked()  # no turn has begun yet
        assert len(count.rows) == 2 and turns.waiting > 0
        while turns.waiting:
            before = len(count.rows)
            turns.turn()
            await trio.testing.wait_all_tasks_blocked()
            assert len(count.rows) - before <= 2
    assert sum(rows for _, rows in count.rows) == 40 * ROWS_PER_STEP


@in_trio
async def test_those_who_wait_are_served_in_turn_however_much_each_of_them_wants():
    turns = Turns(ROWS_PER_STEP)
    count = Count(turns)
    for _ in range(50):
        turns.start("greedy", count.steps("greedy", 50))
    turns.start("modest", count.steps("modest", 2))
    for _ in range(6):
        turns.turn()
    assert [whom for whom, _ in count.rows[:4]] == ["greedy", "modest", "greedy", "modest"]


@in_trio
async def test_what_is_begun_for_the_same_ends_in_that_order():
    turns = Turns(ROWS_PER_STEP)
    ended = []

    def steps(name, count):
        for _ in range(count):
            yield
        ended.append(name)

    turns.start("session", steps("first", 5))
    turns.start("session", steps("second", 1))
    while turns.waiting:
        turns.turn()
    assert ended == ["first", "second"]


@in_trio
async def test_what_a_task_began_first_ends_first_though_others_wait_for_the_same():
    turns = Turns(ROWS_PER_STEP)
    ended: list[int] = []

    async def work(number):
        turns.work_for("session")
        for part in parts(3 * ROWS_PER_STEP):
            await turns.take(len(part))
        ended.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(work, number)
            await trio.testing.wait_all_tasks_blocked()
        while turns.waiting:
            turns.turn()
            await trio.testing.wait_all_tasks_blocked()
    assert ended == list(range(10))


@in_trio
async def test_work_goes_on_turn_by_turn_and_nothing_runs_when_there_is_none():
    turns = Turns(2 * ROWS_PER_STEP)
    count = Count(turns)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        async with trio.open_nursery() as work:
            for whom in range(20):
                work.start_soon(count.work, whom, 1000)
        assert sum(rows for _, rows in count.rows) == 20_000
        await trio.testing.wait_all_tasks_blocked()
        before = turns.turns
        await trio.testing.wait_all_tasks_blocked()
        assert turns.turns == before and not turns.waiting
        nursery.cancel_scope.cancel()
