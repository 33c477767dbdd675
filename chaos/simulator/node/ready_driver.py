"""Rounds of one boot: they take input, and execute ``Ready`` in the order of the real node.

Contract.  One round takes the frames that have arrived, steps and proposes, asks for a ``Ready``,
and executes it in the order of its fields: stage, messages, disk write (which takes virtual time),
written, apply, answers to clients.  Each of these is an effect; ``FailPoints.arm_crash`` places a
crash between any two of them.  Every effect is reported to the state checker when it takes place.

Invariants.  One disk operation is in flight at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.disk.disk_worker import DiskWorker, Flight
from chaos.simulator.node.applier import Applier
from chaos.simulator.node.client_replies import ClientReplies
from chaos.simulator.node.core_events import CoreEvents
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints
from chaos.simulator.node.frames import FrameHandlers
from chaos.simulator.node.linearizable_reads import LinearizableReads
from chaos.simulator.node.liveness import LivenessExchange
from chaos.simulator.node.process import ProcessScheduler
from chaos.simulator.node.round_queue import RoundQueue
from chaos.simulator.node.sessions import Sessions
from chaos.simulator.node.transport import Transport
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Ready
from multiraft.storage.store import Store


class ReadyDriver:
    """Driver of the core in one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 fail_points: FailPoints, raft: MultiRaft, store: Store, worker: DiskWorker,
                 frames: FrameHandlers, events: CoreEvents, transport: Transport,
                 reads: LinearizableReads, applier: Applier, sessions: Sessions,
                 replies: ClientReplies, liveness: LivenessExchange):
        self._node = env.node
        self._clock = env.clock
        self._state_checker = env.state_checker
        self._process = process
        self._rounds = rounds
        self._effect = fail_points.effect
        self._raft = raft
        self._store = store
        self._worker = worker
        self._frames = frames
        self._events = events
        self._transport = transport
        self._reads = reads
        self._applier = applier
        self._sessions = sessions
        self._replies = replies
        self._liveness = liveness
        self._wake_ms: int | None = None
        self._relaxed = env.parameters.disk.flush_interval_ms > 0

    # ---- rounds ----------------------------------------------------------------------------

    def round(self) -> None:
        """Take the frames that have arrived, and execute everything that follows from them."""
        for arrival in self._rounds.take():
            self._frames.handle(arrival)
            if not self._process.is_alive:
                return  # the disk failed during the handler
        self._raft.tick(self._clock.now_ms)
        changed = False
        while self._raft.has_work:
            ready = self._raft.ready(with_writes=self._worker.takes_writes)
            if not ready:
                break  # the rest of the work waits for the disk
            changed = changed or bool(ready.events)
            self._execute(ready)
        self._replies.send()
        self._schedule_wake_up()
        if changed:
            self._liveness.publish()

    def _execute(self, ready: Ready) -> None:
        """Execute a ``Ready``; the order of effects is the order of its fields."""
        if ready.events:
            self._events.handle(ready.events)
        if ready.writes is not None:
            self._effect()
            self._state_checker.staged(self._node, ready.writes)
            staged = self._store.stage(ready.writes)
            self._worker.submit(Flight(ready.writes, staged))
        if ready.messages:
            # A power loss can take nothing back that these say, so they leave before the write.
            self._transport.send_all(ready.messages)
        if ready.writes is not None:
            self._effect()
            self._worker.start_next()
        for read in ready.reads:
            self._state_checker.confirmed(self._node, read.group, read.index, read.token)
            self._reads.answered(read.group)
        self._applier.apply(ready.committed)

    # ---- wake-ups --------------------------------------------------------------------------

    def _schedule_wake_up(self) -> None:
        """Schedule the next round at the core's next deadline, unless there is none or a sooner one
        is scheduled."""
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms is None or self._wake_ms is not None and self._wake_ms <= deadline_ms:
            return
        self._wake_ms = deadline_ms
        self._process.later(self._clock.until_us(deadline_ms), self._wake_up, deadline_ms)

    def _wake_up(self, deadline_ms: int) -> None:
        if self._wake_ms == deadline_ms:
            self._wake_ms = None
        self._rounds.request()

    def clock_changed(self) -> None:
        """Compute the next wake-up again, in a round that this requests."""
        self._wake_ms = None
        self._rounds.request()

    # ---- completed writes ------------------------------------------------------------------

    def report_durable(self, flights: Sequence[Flight]) -> None:
        """Report to the state checker that the writes of ``flights`` are durable now, and with
        relaxed durability whether nothing is unsynced."""
        for flight in flights:
            if flight.writes is not None:
                self._state_checker.durable(self._node, flight.writes)
        if self._relaxed and self._worker.is_synced:
            self._state_checker.synced(self._node)

    def wrote(self, flights: Sequence[Flight]) -> None:
        """Handle the completion of writes, in the process: advance durable indexes, and send the
        answers that waited. The messages that waited leave in the next round."""
        self._effect()
        for flight in flights:
            self._store.finish(flight.staged)
        rounds = [flight.writes.sequence for flight in flights if flight.writes is not None]
        if rounds:
            self._raft.written(rounds[-1])
        self._effect()
        self._sessions.written()
        self._replies.send()
        if self._raft.has_work:
            self._rounds.request()
