"""Progress of a plan: bytes done, their rate, the expected end, and moves that wait.

Contract.  ``Meter.update`` receives the observations of each iteration; ``report`` makes the reply
to ``plan_status``.  Nothing is decided by it.  The bytes of a move that copies are the larger of
the planned bytes and those that its learners lack now; they count as done when its replicas vote.
"""

from __future__ import annotations

from multiraft.wire import plans as wire
from node.clock import wall_ms
from node.metadata.move_phases import Phase
from node.metadata.plan_table import RUNNING, ActivePlan, PlanTable
from node.rebalance.cluster_view import ClusterView, member_of

#: Weight of the newest interval in the rate.
FRESH = 0.3
#: Least interval over which the rate is taken, in milliseconds.
RATE_MS = 1_000
#: Moves that a report names, besides those under way.
NAMED_MAX = 50

_COPIED = (Phase.JOINT, Phase.GRACE, Phase.DONE)
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
        self.waits: dict[int, str] = {}

    def update(self, plan: ActivePlan, view: ClusterView, waits: dict[int, str],
             now_ms: int) -> None:
        """Take in the observations of one iteration, and the reasons for which moves wait; update
        the rate. Another plan starts all measurements anew. O(moves)."""
        if plan.plan_id != self._plan_id:
            self._plan_id, self._lacking, self._before, self._rate = plan.plan_id, {}, None, 0.0
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
        runs = plan.state == RUNNING  # a paused plan has no expected end
        eta_ms = (total - done) * 1000 // rate if runs and rate and total > done else -1
        into, out, _ = plan.replicas_under_way()
        counts: dict[str, int] = {}
        for record in plan.records.values():
            counts[record.phase.name.lower()] = counts.get(record.phase.name.lower(), 0) + 1
        return wire.PlanStatusReply(
            plan.plan_id, plan.scope, plan.state, plan.reason[:wire.TEXT_MAX], plan.applied_ms,
            wall_ms(), plan.limits, len(plan.moves), total, done, rate, eta_ms,
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
