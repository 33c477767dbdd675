"""Look-ups that lack a block of an index file are made again once it was read."""

import errno

import pytest

from multiraft.storage.errors import BlockNotCached, CorruptRange
from node.errors import DiskFailed
from node.loop.block_reads import BLOCKS_PER_LOOK_UP, BlockReads


class Store:
    """A store whose look-up needs some blocks; reads of them fail with ``error``."""

    def __init__(self, blocks: int, error: Exception | None = None):
        self.lacking = list(range(blocks))
        self.error = error
        self.damage: list = []
        self.reads = BlockReads(self, self._run, self.damage.append)

    async def _run(self, work) -> None:
        work()

    def look_up(self) -> str:
        if self.lacking:
            raise BlockNotCached(3, self.lacking[0])
        return "found"

    def block_job(self, error: BlockNotCached):
        assert error.block == self.lacking[0]
        return self

    def execute(self) -> None:
        if self.error is not None:
            raise self.error

    def block_read(self, job) -> None:
        self.lacking.pop(0)

    def found(self) -> str | None:
        try:
            self.reads.look_up(self.look_up).send(None)
        except StopIteration as result:
            return result.value
        raise AssertionError("it waits")


def test_a_look_up_is_made_again_until_it_lacks_no_block():
    assert Store(3).found() == "found"
    assert Store(BLOCKS_PER_LOOK_UP + 1).found() is None


def test_a_block_that_cannot_be_read_ends_the_look_up():
    damage = CorruptRange(1, 2, "why")
    store = Store(2, damage)
    assert store.found() is None and store.damage == [damage]
    assert Store(2, OSError(errno.EMFILE, "too many")).found() is None
    with pytest.raises(DiskFailed):
        Store(2, OSError(errno.EIO, "broken")).found()
