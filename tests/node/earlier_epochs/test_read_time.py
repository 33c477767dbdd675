"""The time that the reads of earlier epochs of one request have together."""

from __future__ import annotations

import math

import pytest
import trio
from trio.testing import MockClock

from multiraft.wire.errors import Code, ErrorDetail
from node.clients.read_view import Refused
from node.earlier_epochs.read_time import ReadTime

LIMIT_S = 5.0


def run(main) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


async def sleep(seconds: float) -> str:
    await trio.sleep(seconds)
    return "read"


def test_reads_take_the_time_together():
    async def main() -> None:
        time = ReadTime(LIMIT_S)
        assert await time.call(sleep, 2) == "read"
        assert await time.call(sleep, 2) == "read"
        begun_s = trio.current_time()
        with pytest.raises(Refused) as refused:
            await time.call(sleep, math.inf)
        assert refused.value.code == Code.OFFSET_NOT_AVAILABLE
        assert trio.current_time() - begun_s == pytest.approx(1)

    run(main)


def test_no_read_begins_after_the_time():
    async def main() -> None:
        time, begun, begun_s = ReadTime(LIMIT_S), [], trio.current_time()

        async def read(name: str) -> None:
            begun.append(name)
            await trio.sleep_forever()

        for name in ("first", "second"):
            with pytest.raises(Refused):
                await time.call(read, name)
        assert begun == ["first"]
        assert trio.current_time() - begun_s == pytest.approx(LIMIT_S)

    run(main)


def test_what_is_done_between_the_reads_is_not_counted():
    async def main() -> None:
        time = ReadTime(LIMIT_S)
        for _ in range(4):
            assert await time.call(sleep, 1) == "read"
            await trio.sleep(LIMIT_S)

    run(main)


def test_a_read_that_fails_takes_time_as_well():
    async def main() -> None:
        time = ReadTime(LIMIT_S)

        async def fail() -> None:
            await trio.sleep(LIMIT_S - 1)
            raise Refused(Code.NOT_LEADER, ErrorDetail())

        async def refused(read, *arguments) -> Code:
            with pytest.raises(Refused) as error:
                await time.call(read, *arguments)
            return error.value.code

        assert await refused(fail) == Code.NOT_LEADER
        assert await refused(sleep, 2) == Code.OFFSET_NOT_AVAILABLE

    run(main)
