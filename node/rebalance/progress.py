"""Progress of a plan: bytes done, their rate, the expected end, and moves that wait.

The expected end is that of the moves that are left, by the model of the planner
(``placement.duration``), times the ratio of the time that the moves before took to what the model
said of them.

Contract.  ``Meter.update`` receives the observations of each iteration; ``report`` makes the reply
to ``plan_status``.  Nothing is decided by it.  The bytes of a move that copies are the larger of
the planned bytes and those that its learners lack now; they count as done when its replicas vote.
"""

from __future__ import annotations

from multiraft.wire import plans as wire
from node.clock import wall_ms
from node.metadata.move_phases import Phase
from node.metadata.plan_table import RUNNING, ActivePlan, PlanTable, Record
from node.rebalance.cluster_view import ClusterView, member_of
from placement.duration import Pace, Work

#: Weight of the newest interval in the rate.
FRESH = 0.3
#: Least interval over which the rate is taken, in milliseconds.
RATE_MS = 1_000
#: Time of the model that is believed as much as the same time of progress, in milliseconds.
MODEL_TRUST_MS = 5_000
#: Moves that a report names, besides those under way.
NAMED_MAX = 50

_COPIED = (Phase.JOINT, Phase.GRACE, Phase.DONE)
_TO_COPY = (Phase.PENDING, Phase.LEARNING, Phase.UNDOING)
_NOTEWORTHY = (Phase.FAILED, Phase.SKIPPED)

NO_LIMITS = wire.PlanLimits(1)


class Meter:
    """Progress of the plan under way, measured by one controller; a new controller starts without
    any."""

    def __init__(self) -> None:
        self._plan_id = ""
        self._lacking: dict[int, tuple[int, int]] = {}  # move -> (bytes in all, bytes lacking)
        self._before: tuple[int, int] | None = None  # (when, bytes done)
        self._rate = 0.0
        self._observed_ms = 0  # time of the last update
        # (when, the model's time for what was left) where the plan began to run
        self._begun: tuple[int, int] | None = None
        self.waits: dict[int, str] = {}

    def update(self, plan: ActivePlan, view: ClusterView, waits: dict[int, str],
             now_ms: int) -> None:
        """Take in the observations of one iteration, and the reasons for which moves wait; update
        the rate. Another plan starts all measurements anew. O(moves)."""
        if plan.plan_id != self._plan_id:
            self._plan_id, self._lacking, self._before, self._rate = plan.plan_id, {}, None, 0.0
            self._begun = None
        self.waits = waits
        for seq in plan.under_way:
            self._note(plan, seq, view)
        done = self.done(plan)
        if self._before is None:
            self._before = (now_ms, done)
        elif now_ms - self._before[0] >= RATE_MS:
            fresh = max(0, done - self._before[1]) * 1000 / (now_ms - self._before[0])
            self._rate += FRESH * (fresh - self._rate)
            self._before = (now_ms, done)
        self._observed_ms = now_ms
        if plan.state != RUNNING:  # a pause is no slowness
            self._begun = None
        elif self._begun is None:
            self._begun = (now_ms, self._left_ms(plan, 0))

    def _left_ms(self, plan: ActivePlan, clock_ms: int) -> int:
        """Return the time that the moves which have not ended take by the model, in milliseconds.
        ``clock_ms``: the wall clock's time, for grace periods; 0 = all of them are whole.
        O(moves)."""
        work = Work()
        for seq, record in plan.records.items():
            move = plan.moves[seq]
            if record.has_ended:
                continue
            if move.kind != wire.REPLICA_CHANGE:
                work.add_transfer()
                continue
            if record.phase in _TO_COPY and move.joining:
                total, done = self.bytes_of(plan, seq)
                work.add_copy(move.joining, record.source,
                              max(0, total - done) // len(move.joining))
            if move.leaving:
                work.add_grace(_grace_left(plan, record, clock_ms))
        limits = plan.limits
        # Requests with a limit of 0 are refused, but the log may have a command from before.
        return work.ms(Pace(
            max(1, limits.throttle), max(1, limits.in_per_node_max),
            max(1, limits.out_per_node_max), max(1, limits.at_once_max),
            max(1, limits.transfers_at_once_max), limits.grace_ms))

    def _eta_ms(self, plan: ActivePlan) -> int:
        """Return the time to the end of the plan in milliseconds; -1 = not known. O(moves)."""
        if plan.state != RUNNING or self._begun is None or plan.plan_id != self._plan_id:
            return -1
        left_ms = self._left_ms(plan, wall_ms())
        begun_ms, begun_left_ms = self._begun
        took_ms = self._observed_ms - begun_ms + MODEL_TRUST_MS
        said_ms = max(0, begun_left_ms - left_ms) + MODEL_TRUST_MS
        return left_ms * took_ms // said_ms

    def _note(self, plan: ActivePlan, seq: int, view: ClusterView) -> None:
        move = plan.moves[seq]
        seen = view.groups.get(move.subject)
        if seen is None or plan.records[seq].phase is not Phase.LEARNING:
            return
        members = [member_of(seen, node) for node in move.joining]
        lacking = sum(seen.bytes if member is None else member.bytes_left for member in members)
        total = max(move.bytes, lacking, self._lacking.get(seq, (0, 0))[0])
        self._lacking[seq] = (total, lacking)

    def bytes_of(self, plan: ActivePlan, seq: int) -> tuple[int, int]:
        """Return (bytes of a move, bytes of them done)."""
        move, record = plan.moves[seq], plan.records[seq]
        total, lacking = self._lacking.get(seq, (move.bytes, move.bytes))
        if record.phase in _COPIED:
            return total, total
        return (total, total - lacking) if record.phase is Phase.LEARNING else (total, 0)

    def done(self, plan: ActivePlan) -> int:
        """Return the bytes copied.  O(moves)."""
        return sum(self.bytes_of(plan, seq)[1] for seq in plan.moves)

    def report(self, table: PlanTable) -> wire.PlanStatusReply:
        """Return the reply to ``plan_status``, of the plan under way or the last one; state
        ``none`` = there was none. O(moves)."""
        plan = table.plan
        if plan is None:
            return wire.PlanStatusReply("", "", "none", "", 0, wall_ms(), NO_LIMITS, 0, 0, 0, 0,
                                        -1, (), (), (), "")
        total = sum(self.bytes_of(plan, seq)[0] for seq, record in plan.records.items()
                    if record.phase not in (Phase.SKIPPED, Phase.FAILED, Phase.CANCELLED))
        done = self.done(plan)
        rate = 0 if plan.is_over else round(self._rate)
        into, out, _ = plan.replicas_under_way()
        counts: dict[str, int] = {}
        for record in plan.records.values():
            counts[record.phase.name.lower()] = counts.get(record.phase.name.lower(), 0) + 1
        return wire.PlanStatusReply(
            plan.plan_id, plan.scope, plan.state, plan.reason[:wire.TEXT_MAX], plan.applied_ms,
            wall_ms(), plan.limits, len(plan.moves), total, done, rate,
            self._eta_ms(plan),
            tuple(wire.PhaseCount(*item) for item in counts.items()), self._rows(plan),
            tuple(wire.NodeTraffic(node, into.get(node, 0), out.get(node, 0))
                  for node in sorted({*into, *out})),
            table.next.plan_id if table.next is not None else "")

    def _rows(self, plan: ActivePlan) -> tuple[wire.MoveStatus, ...]:
        """Return moves under way, those with the most bytes left first; then those that wait,
        failed or were skipped."""
        under_way = [self._row(plan, seq) for seq in plan.under_way]
        under_way.sort(key=lambda row: (row.bytes_done - row.bytes_total, row.since_ms, row.seq))
        others: list[wire.MoveStatus] = []
        for seq, record in plan.records.items():
            if len(others) == NAMED_MAX:
                break
            if record.phase in _NOTEWORTHY or (record.phase is Phase.PENDING
                                               and seq in self.waits):
                others.append(self._row(plan, seq))
        return (*under_way[:wire.ROWS_MAX - NAMED_MAX], *others)

    def _row(self, plan: ActivePlan, seq: int) -> wire.MoveStatus:
        move, record = plan.moves[seq], plan.records[seq]
        total, done = self.bytes_of(plan, seq)
        wait = record.reason if record.has_ended else self.waits.get(seq, "")
        return wire.MoveStatus(
            seq, move.move_id, move.kind, record.phase.name.lower(), record.attempt,
            record.since_ms, total, done, move.reason, wait[:wire.TEXT_MAX], move.old, move.new)


def _grace_left(plan: ActivePlan, record: Record, clock_ms: int) -> float:
    """Return the part of the grace period that a move still has before it."""
    if record.phase is not Phase.GRACE or not plan.limits.grace_ms:
        return 1.0
    waited_ms = max(0, clock_ms - record.since_ms)
    return max(0.0, 1 - waited_ms / plan.limits.grace_ms)
