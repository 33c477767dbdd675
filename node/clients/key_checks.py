"""Batches whose keys are checked before they are appended, in the order of their arrival.

Contract. ``waits`` is called for each batch that may have to be checked: those of topics with
compaction, and those of partitions in ``waiting``. A short batch is checked at once. Any other one
is kept while a thread checks it (``THREADS_MAX``); its ``resume`` is called on the loop, once, with
the error or None. Behind a batch that is kept, all later batches of its partition are kept too,
whatever their size, codec and producer: they are resumed in the order of their arrival. The
settings that hold when a batch arrives decide about it.

Theory. The sequences of an idempotent producer, and the order of any other one, are those of its
requests. A small batch that overtook a compressed one would be refused for a sequence that is
missing, or change places with it. Partitions do not wait for each other, as a producer has no order
across them.

Invariants. ``waiting`` has a partition while a task checks its batches. The task removes a batch
only right before it resumes that one, so nothing overtakes a batch between check and append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from multiraft.errors import CodecError, QueueFull
from node.clients.metadata_wait import Background
from node.clients.record_keys import KeyCheck
from node.loop.background import TASKS_MAX

#: Batches that wait: some 500 bytes each. Their records count as those of appends in flight.
WAITING_MAX = 16_384
#: Threads that check: each holds up to 64 MiB of decompressed records, and a codec as much again
#: for a moment.
THREADS_MAX = 2

Resume = Callable[[Exception | None], None]


class _Batch(NamedTuple):
    """A batch that waits. ``check`` None: it waits for those before it only."""

    check: KeyCheck | None
    resume: Resume


class KeyChecks:
    """Batches of one node that wait for the check of their keys, or behind such ones."""

    def __init__(self, background: Background,
                 on_thread: Callable[[Callable[[], None]], Awaitable[None]],
                 take_turn: Callable[[], Awaitable[None]], request_round: Callable[[], None]):
        self._background = background
        self._on_thread = on_thread
        self._take_turn = take_turn  # returns when the loop may append one more batch
        self._request_round = request_round
        #: Partition -> its batches that wait, the first of which is being checked.
        self.waiting: dict[int, deque[_Batch]] = {}
        self.count = 0  # batches that wait

    def waits(self, partition: int, check: KeyCheck | None, resume: Resume) -> bool:
        """Return True if a batch was kept, and False if it may be appended now. ``check`` None: its
        topic has no compaction. Raises what ``check.execute`` raises, and ``QueueFull`` with limit
        and value."""
        if check is not None and check.is_short:
            check.execute()
            check = None
        queue = self.waiting.get(partition)
        if check is None and queue is None:
            return False
        if self.count >= WAITING_MAX:
            raise QueueFull("batches that wait for the check of their keys", WAITING_MAX,
                            self.count + 1)
        if queue is None:
            queue = deque()
            if not self._background.start(self._check, partition, queue):
                raise QueueFull("tasks, one of which would check the keys of a batch", TASKS_MAX,
                                TASKS_MAX + 1)
            self.waiting[partition] = queue
        self.count += 1
        queue.append(_Batch(check, resume))
        return True

    async def _check(self, partition: int, queue: deque[_Batch]) -> None:
        """Check and resume the batches of a partition until none waits."""
        while queue:
            error = await self._fault(queue[0].check)
            await self._take_turn()
            self.count -= 1
            queue.popleft().resume(error)
            self._request_round()  # it sends the append or the refusal
        del self.waiting[partition]

    async def _fault(self, check: KeyCheck | None) -> CodecError | None:
        if check is not None:
            try:
                await self._on_thread(check.execute)
            except CodecError as error:
                return error
        return None
