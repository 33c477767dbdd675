"""The load publisher: appends this node's loads to the topic ``__metrics``, one record set per
window.

Contract.  One task, idle between windows.  At the end of each window it takes the counts
(``load_counts.py``), makes records of them and appends them at the leader of the node's partition
of the topic, here or over the peer port, with acks=commit.  It tries until the middle of the next
window; records that are not appended by then are lost, and counted.  Its failures affect no other
part of the node.

Invariants.  At most one window waits.  ``partitions_max`` bounds the memory, work and bytes of a
window.  A retried record may be in the log twice; node, boot epoch, window and part identify it.

Theory.  Windows begin at multiples of the interval since 1970, so those of all nodes agree as far
as their clocks do.  Old records leave the topic by retention, as those of any other topic
(``node.retention``); ``[metrics] retention_ms`` is the default of its ``retention.ms``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

import trio

from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import Code, ErrorDetail, InvalidRequest, LeaderUnknown, exception_for
from multiraft.wire.messages import ProduceReply
from multiraft.wire.schema import Malformed
from node.clients.fetch import FetchHandler
from node.clients.load_counts import Counted, LoadCounts
from node.clients.produce import Appends, ProduceHandler
from node.clients.router import Router
from node.clock import monotonic_ms, wall_ms
from node.config import NodeConfig
from node.loop.write_gather import WriteGather
from node.metadata import state_machine
from node.metadata.log import MetadataLog
from node.observability import load_records
from node.observability.group_health import GroupHealthScan
from node.observability.load_records import PARTITIONS, ROWS_PER_RECORD, TOPIC, Counters, Window
from node.peers.bulk_channel import Bulk, NoAnswer

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Pause before a record that was not appended is tried again, in seconds.
RETRY_S = 0.1
#: Time for an append, in milliseconds, elections included.
APPEND_TIMEOUT_MS = 5_000
#: The name of the request between nodes.
OP = "append_loads"


class LoadPublisher:
    """Task that publishes loads."""

    def __init__(self, config: NodeConfig, counts: LoadCounts | None, *, core: MultiRaft,
                 store: Store, metadata_log: MetadataLog, directory: Router,
                 produce_handler: ProduceHandler, fetch_handler: FetchHandler, disk: WriteGather,
                 group_health: GroupHealthScan, bulk: Bulk, request_round: Callable[[], None],
                 log: logging.Logger):
        """Create the task.  ``counts``: the loads since the last window, None = nothing is
        published; ``bulk``: the connections for records to leaders on other nodes."""
        self._place = config.node
        self._cluster_id = config.cluster_id
        self._config = config.metrics
        self._counts = counts
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._directory = directory
        self._produce_handler = produce_handler
        self._fetch_handler = fetch_handler
        self._disk = disk
        self._group_health = group_health
        self._bulk = bulk
        self._request_round = request_round
        self._log = log
        self.published = 0  # windows
        self.lost = 0  # windows
        self.left_out = 0  # batches and answers beyond ``partitions_max``

    @property
    def handlers(self) -> dict[str, Callable]:
        """Handlers of requests from other nodes on bulk connections."""
        return {OP: self._asked}

    async def run(self) -> None:
        """Publish the loads of each window at its end, until cancelled. Return at once when
        publishing is off."""
        if self._counts is None:
            return
        interval_ms = self._config.interval_ms
        before, began_ms, end_ms = self._counters(), monotonic_ms(), 0
        while True:
            end_ms = next_end(wall_ms(), end_ms, interval_ms)
            await trio.sleep((end_ms - wall_ms()) / 1000)
            counted, now, now_ms = self._counts.take(), self._counters(), monotonic_ms()
            window = Window(end_ms - interval_ms, interval_ms, max(1, now_ms - began_ms))
            self.left_out += counted.left_out
            with trio.move_on_after(interval_ms / 2000) as waiting:
                await self._publish(window, counted, load_records.counter_fields(now, before))
            if waiting.cancelled_caught:
                self.lost += 1
                self._log.warning("load_window_lost",
                                  extra={"window_begin_ms": window.begin_ms})
            before, began_ms = now, now_ms

    def _counters(self) -> Counters:
        produce_handler, fetch_handler = self._produce_handler, self._fetch_handler
        return Counters(
            (
                produce_handler.bytes,
                produce_handler.records,
                produce_handler.batches,
                fetch_handler.bytes,
                fetch_handler.records,
            ),
            self._disk.latency.copy(),
            produce_handler.latencies["commit"].copy(),
        )

    # ---- one window ---------------------------------------------------------------------------

    async def _publish(self, window: Window, counted: Counted, counters: dict[str, int]) -> None:
        """Append all parts of a window, each again and again until it is in the log; the caller
        limits the time."""
        fields = {**await self._node_fields(window), **counters, "left_out": counted.left_out,
                  "parts": max(1, -(-len(counted.partitions) // ROWS_PER_RECORD))}
        rows = iter(counted.partitions.items())
        for part in range(fields["parts"]):
            groups = counted.groups.items() if part == 0 else ()
            record = {**fields, "part": part,
                      "groups": load_records.group_columns(self._core, self._store, groups),
                      "partitions": load_records.partition_columns(
                          self._metadata_log.state, self._store.partition_states,
                          islice(rows, ROWS_PER_RECORD))}
            batch = load_records.encoded(self._place.id, record,
                                         window.begin_ms + window.interval_ms)
            while not await self._appended(bytes(batch)):
                await trio.sleep(RETRY_S)
        self.published += 1

    async def _node_fields(self, window: Window) -> dict:
        place = self._place
        space = await self._group_health.space_now()
        return {"v": load_records.LOADS_FORMAT, "cluster": self._cluster_id.hex(),
                "node": place.id, "boot_epoch": self._store.boot_epoch,
                "window_ms": window.begin_ms, "interval_ms": window.interval_ms,
                "length_ms": window.length_ms, "rack": place.rack, "weight": place.weight,
                "disk_used": space.used, "disk_capacity": space.capacity,
                "ingress_capacity": self._config.ingress_bytes_per_second,
                "egress_capacity": self._config.egress_bytes_per_second,
                "groups_led": self._core.status.led_count, "lost_windows": self.lost}

    async def _appended(self, batch: bytes) -> bool:
        """Try once to append a batch to this node's partition, here or at its leader. Return True
        if it is in the log; without the topic, have it created."""
        topic = self._metadata_log.state.topic(TOPIC)
        try:
            if topic is None:
                await self._create()
                return False
            incarnation = topic.incarnation_of(self._place.id % topic.partitions)
            place = self._directory.locate(incarnation)
            assert place is not None
            leader = self._core.status.leader_hint(place.group)[0]
            if leader == self._place.id:
                await self._append_here(incarnation, batch)
            elif leader:
                await self._append_there(leader, incarnation, batch)
            return leader != 0
        except (MultiRaftError, NoAnswer, Malformed) as error:
            self._log.debug("load_append_deferred", extra={"reason": str(error)})
            return False

    async def _create(self) -> None:
        """Create the topic if this node leads the metadata group; otherwise do nothing. Raises as
        ``MetadataLog.propose``."""
        if self._core.status.is_leader(METADATA_GROUP):
            await self._metadata_log.propose(state_machine.CreateTopic(
                TOPIC, uuid.uuid4().bytes, PARTITIONS))

    # ---- appending ----------------------------------------------------------------------------

    async def _append_here(self, incarnation: int, batch: bytes) -> None:
        """Append a batch to a partition that is led here, and wait for its commit. Raises the error
        of its result if it was not appended."""
        replies, done = [], trio.Event()

        def answer(reply: ProduceReply) -> None:
            replies.append(reply)
            done.set()

        self._produce_handler.handle(
            Appends(1, ((incarnation, memoryview(bytearray(batch))),),  # the leader stamps it
                    "commit", APPEND_TIMEOUT_MS), answer)
        self._request_round()
        await done.wait()
        result = replies[0].results[0]
        if result.code != Code.OK:
            raise exception_for(result.code, result.error or ErrorDetail(text="not appended"))

    async def _append_there(self, leader: int, incarnation: int, batch: bytes) -> None:
        """Have the node ``leader`` append a batch, and wait for its reply. Raises ``NoAnswer``
        without a reply, ``LeaderUnknown`` if it did not append the batch."""
        answer = await self._bulk.ask(leader, {"op": OP, "incarnation": incarnation},
                                              [batch])
        if answer.header.get("code") != Code.OK:
            raise LeaderUnknown(f"node {leader}: {answer.header.get('text', '')!s:.200}")

    async def _asked(self, _peer: int, header: dict,
                     payload: memoryview) -> tuple[dict, tuple]:
        """Append another node's record to a partition of the topic that is led here, and return the
        code for that node. Raises ``Malformed`` for a request without exactly one incarnation."""
        incarnation = header.get("incarnation")
        if header.keys() != {"op", "incarnation"} or type(incarnation) is not int:
            raise Malformed(f"{OP} takes an incarnation")
        try:
            topic = self._metadata_log.state.topic(TOPIC)
            if topic is None or topic.number_of(incarnation) is None:
                raise InvalidRequest(f"{incarnation} is no partition of {TOPIC}")
            await self._append_here(incarnation, bytes(payload))
        except MultiRaftError as error:
            return {"code": int(Code.LEADER_UNKNOWN), "text": str(error)[:200]}, ()
        return {"code": int(Code.OK), "text": ""}, ()


def next_end(now_ms: int, last_ms: int, interval_ms: int) -> int:
    """Return the end of the window after the one that ended at ``last_ms``.

    A sleep may end a little early: no window ends twice.  After the clock was set back far, windows
    start again from the new time.
    """
    end_ms = (now_ms // interval_ms + 1) * interval_ms
    return last_ms + interval_ms if end_ms == last_ms else end_ms
