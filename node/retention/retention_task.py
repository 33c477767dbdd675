"""The task that runs the passes of retention in a node, and asks groups of earlier epochs.

Contract.  ``run`` begins a pass each ``interval_ms`` until cancelled, and earlier when the node has
written ``EARLY_BYTES`` since the last one began: a small disk would fill up between two passes.
The steps of a pass take their share of the loop's turns, so a pass delays no request by more than a
step.  After it the questions of the pass are put: to this node's replica of the group if it has all
of the epoch, else to the leader of the group, one at a time.  A leader that does not answer is
asked again when the partition is examined again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.wire.schema import Malformed
from node.loop.block_reads import BlockReads
from node.loop.steps import ROWS_PER_STEP
from node.peers.errors import NoAnswer
from node.retention.batch_reader import Batches
from node.retention.earlier_epochs import BATCHES_PER_ANSWER, EpochPart, Question, part_of
from node.retention.retention_pass import MetadataCopy, RetentionPasses
from node.retention.retention_policy import StoredBatch

if TYPE_CHECKING:
    from multiraft.wire.frames import Frame

#: Bytes of the journal after which a pass begins before its time.
EARLY_BYTES = 256 << 20
#: Interval at which the bytes are compared, in seconds.
COMPARE_S = 1.0
#: The name of the request between nodes.
OP = "earlier_epoch"
#: Its fields, all of them numbers from -1 on.
FIELDS = ("group", "partition", "epoch", "end_offset", "log_start", "before_ms")


class Leaders(Protocol):
    """The part of ``multiraft.raft.status_view.StatusView`` that is asked here."""

    def leader_hint(self, group: int) -> tuple[int, int]: ...


class Store(Batches, Protocol):
    """The store's part in the task."""

    @property
    def durable_position(self) -> int: ...


class Asker(Protocol):
    """Requests to other nodes: ``bulk_channel.Bulk``."""

    async def ask(self, peer: int, header: dict) -> Frame:
        """Return the reply of ``peer``. Raises ``NoAnswer``."""


class RetentionTask:
    """The driver of one node's ``RetentionPasses``."""

    def __init__(self, node: int, passes: RetentionPasses, store: Store, metadata: MetadataCopy,
                 leaders: Leaders, peers: Asker, blocks: BlockReads, interval_ms: int,
                 wall_ms: Callable[[], int],
                 take_turn: Callable[[int], Awaitable[None]], request_round: Callable[[], None],
                 log: logging.Logger):
        self._node = node
        self._passes = passes
        self._store = store
        self._metadata = metadata
        self._leaders = leaders
        self._peers = peers
        self._blocks = blocks
        self._interval_ms = interval_ms
        self._wall_ms = wall_ms
        self._take_turn = take_turn
        self._request_round = request_round
        self._log = log
        self._silent: set[int] = set()  # nodes that did not answer since the last pass

    @property
    def handlers(self) -> dict[str, Callable]:
        """Handlers of requests from other nodes on bulk connections."""
        return {OP: self._asked}

    async def run(self) -> None:
        """Run passes until cancelled."""
        while True:
            begin = self._store.durable_position
            for _ in self._passes.steps(self._wall_ms()):
                self._request_round()  # for what the step proposed
                wanted = self._passes.reader.wanted_block
                if wanted is not None and await self._blocks.read(wanted):
                    self._passes.reader.wanted_block = None
                await self._take_turn(ROWS_PER_STEP)
            self._request_round()
            await self.ask_all()
            await self._wait(begin)

    async def _wait(self, begin: int) -> None:
        """Wait until the next pass is due.  ``begin``: journal position when the last one began."""
        due_s = trio.current_time() + self._interval_ms / 1000
        while (left_s := due_s - trio.current_time()) > 0:
            await trio.sleep(min(left_s, COMPARE_S))
            if self._store.durable_position - begin >= EARLY_BYTES:
                return

    async def ask_all(self) -> None:
        """Ask about the partitions of which the last pass left a question.  A node that does not
        answer is asked once: each time takes the time limit of an answer, and no pass runs
        meanwhile."""
        self._silent.clear()
        questions = dict(self._passes.questions)
        self._passes.questions.clear()
        for partition, question in questions.items():
            await self._take_turn(ROWS_PER_STEP)
            try:
                parts = await self._parts(partition, question)
            except (NoAnswer, Malformed) as error:
                self._log.debug("retention_deferred", extra={
                    "partition": partition, "reason": str(error)})
                continue
            if parts is not None:
                self._passes.answer(partition, question, parts)

    async def _parts(self, partition: int, question: Question) -> list[EpochPart] | None:
        """Return what is known of the earlier epochs with records, oldest first; None = the
        partition is no more.  Raises ``NoAnswer`` or ``Malformed`` if one of their groups does not
        tell."""
        place = self._metadata.state.locate(partition)
        if place is None:
            return None
        parts = []
        history = place.epoch_history
        for entry, later in zip(history, history[1:], strict=False):
            if later.start_offset <= question.log_start:
                continue
            part = await self._own_part(entry.group, partition, entry.epoch, later.start_offset,
                                        question)
            parts.append(part or await self._asked_part(entry.group, partition, entry.epoch,
                                                        later.start_offset, question))
        return parts

    async def _own_part(self, group: int, partition: int, epoch: int, end_offset: int,
                        question: Question) -> EpochPart | None:
        """Return what this node's replica of the group knows; None = not all of the epoch.  Raises
        ``DiskFailed`` if the disk cannot be read."""
        if group not in self._store.partition_states:
            return None
        batches = await self._blocks.look_up(partial(
            self._batches, group, partition, question.log_start))
        states = self._store.partition_states.get(group)
        if batches is None or states is None:
            return None
        return part_of(states, batches, partition, epoch, end_offset, question)

    def _batches(self, group: int, partition: int, offset: int) -> list[StoredBatch] | None:
        if group not in self._store.partition_states:
            return None  # the replica was removed meanwhile
        return [StoredBatch(*batch) for batch in self._store.batches(
            group, partition, offset, BATCHES_PER_ANSWER)]

    async def _asked_part(self, group: int, partition: int, epoch: int, end_offset: int,
                          question: Question) -> EpochPart:
        leader = self._leaders.leader_hint(group)[0]
        if leader in (0, self._node):
            raise NoAnswer(f"group {group} has no other leader that this node knows of")
        if leader in self._silent:
            raise NoAnswer(f"node {leader} did not answer about another partition")
        asked = (group, partition, epoch, end_offset, *question)
        try:
            reply = await self._peers.ask(leader,
                                          {"op": OP, **dict(zip(FIELDS, asked, strict=True))})
        except NoAnswer:
            self._silent.add(leader)
            raise
        told = reply.header.get("part")
        if (type(told) is not list or len(told) != 2
                or any(type(each) is not int or each < -1 for each in told)):
            raise NoAnswer(f"node {leader} does not have epoch {epoch} of partition {partition}")
        size, expired_to = told
        if not question.log_start <= expired_to <= end_offset:
            raise Malformed(f"expired_to {expired_to} is outside {question.log_start}.."
                            f"{end_offset}")
        return EpochPart(end_offset, size, expired_to)

    async def _asked(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, tuple]:
        """Tell another node of an epoch that ended in a group of this node; an empty answer if it
        does not have all of it.  Raises ``Malformed`` for another request."""
        if header.keys() != {"op", *FIELDS}:
            raise Malformed(f"{OP} takes {FIELDS}")
        numbers: list[int] = [header[name] for name in FIELDS]
        if any(type(each) is not int or each < -1 for each in numbers):
            raise Malformed(f"{OP} takes numbers from -1 on")
        group, partition, epoch, end_offset, *question = numbers
        part = await self._own_part(group, partition, epoch, end_offset, Question(*question))
        return ({"part": [part.bytes, part.expired_to]} if part is not None else {}), ()


def report_pause(log: logging.Logger, reason: str, is_paused: bool) -> None:
    """Log that retention pauses for a reason, or continues."""
    if is_paused:
        log.warning("retention_paused", extra={"reason": reason})
    else:
        log.info("retention_resumed", extra={"reason": reason})
