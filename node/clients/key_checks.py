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

Invariants. ``waiting`` has a partition as long as batches of it wait. One task at a time works on a
partition, and it removes a batch only right before it resumes that one, so nothing overtakes a
batch between check and append.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from multiraft.errors import CodecError, QueueFull
from node.clients.metadata_wait import Background
from node.clients.record_keys import KeyCheck
from node.limits import TASKS_MAX

#: Batches that wait: some 500 bytes each, beside their own bytes.
WAITING_MAX = 16_384
#: Threads that check, and tasks that wait for them: each has at most 64 MiB of
#: decompressed records, and a codec as much again for a moment.
THREADS_MAX = 2

Resume = Callable[[Exception | None], None]


class _Batch(NamedTuple):
    """A batch of ``size`` bytes that waits. ``check`` None: it waits for those before it only."""

    check: KeyCheck | None
    resume: Resume
    size: int


class KeyChecks:
    """Batches of one node that wait for the check of their keys, or behind such ones."""

    def __init__(self, background: Background,
                 on_thread: Callable[[Callable[[], None]], Awaitable[None]],
                 take_turn: Callable[[], Awaitable[None]], request_round: Callable[[], None],
                 bytes_max: int):
        """``bytes_max``: of appends in flight. What waits counts as in flight, but no longer when
        its time has passed and it was answered."""
        self._background = background
        self._on_thread = on_thread
        self._take_turn = take_turn  # returns when the loop may append one more batch
        self._request_round = request_round
        self._bytes_max = bytes_max
        #: Partition -> its batches that wait, the first of which is checked before the others.
        self.waiting: dict[int, deque[_Batch]] = {}
        self._next: deque[int] = deque()  # partitions that no task works on, each once
        self._tasks = 0
        self.count = 0  # batches that wait
        self._bytes = 0  # of these

    def waits(self, partition: int, size: int, check: KeyCheck | None, resume: Resume) -> bool:
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
        if self._bytes + size > self._bytes_max:
            raise QueueFull("bytes of batches that wait for the check of their keys",
                            self._bytes_max, self._bytes + size)
        if queue is None:
            self._start_task()
            queue = self.waiting[partition] = deque()
            self._next.append(partition)
        self.count += 1
        self._bytes += size
        queue.append(_Batch(check, resume, size))
        return True

    def _start_task(self) -> None:
        """Start one more task, unless ``THREADS_MAX`` work already. Raises ``QueueFull`` if there
        is none to work on another partition."""
        if self._tasks == THREADS_MAX:
            return
        if self._background.start(self._work):
            self._tasks += 1
        elif not self._tasks:
            raise QueueFull("tasks, one of which would check the keys of a batch", TASKS_MAX,
                            TASKS_MAX + 1)

    async def _work(self) -> None:
        """Check and resume one batch of each partition in turn, until none waits."""
        while self._next:
            partition = self._next.popleft()
            queue = self.waiting[partition]
            error = await self._fault(queue[0].check)
            await self._take_turn()
            batch = queue.popleft()
            self.count -= 1
            self._bytes -= batch.size
            batch.resume(error)
            if queue:
                self._next.append(partition)
            else:
                del self.waiting[partition]
            self._request_round()  # it sends the append or the refusal
        self._tasks -= 1

    async def _fault(self, check: KeyCheck | None) -> CodecError | None:
        if check is not None:
            try:
                await self._on_thread(check.execute)
            except CodecError as error:
                return error
        return None
