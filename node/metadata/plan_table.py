"""The plan under way, as a part of the metadata state machine.

Contract.  Functions of state and command: no clock, no randomness, no I/O.  A wrong request is a
``Result`` with a code and changes nothing.  Every command may arrive twice, late, or after others:
a step that has happened or was overtaken is answered with OK and False.

Invariants.  At most one plan is under way, and one repair waits for its end.  A move starts only in
a running plan, after the moves it depends on have ended, and within the plan's limits per node and
in all; lowered limits bind moves that start afterwards.  A move in phase JOINT cannot be undone.  A
plan is over when all its moves have ended; its throttle ends with it on every node, because the
throttle is stored nowhere else.

Theory.  The controller may be killed between any two steps.  Its intention is in this table and its
effect in the groups' own configurations; a successor needs nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.wire.errors import Code
from multiraft.wire.plans import (
    CANCEL,
    LEADER_TRANSFER,
    MOVES_MAX,
    PAUSE,
    REPLICA_CHANGE,
    RESUME,
    TOPIC_SWITCH,
    PlanLimits,
    PlannedMove,
)
from node.metadata.move_phases import FIRST, TERMINAL, Phase, Step, after
from node.metadata.plan_commands import ApplyPlan, ControlPlan, StepMove
from node.metadata.result import Result, over, refused

RUNNING = "running"
PAUSED = "paused"
CANCELLING = "cancelling"
DONE = "done"
CANCELLED = "cancelled"
#: States of a plan that is over.
OVER = (DONE, CANCELLED)

#: Code of the only safety pause that an operator may resume.
SLOW_COMMITS = "SLOW_COMMITS"

#: The scope of a plan that may cancel the active one and take its place.
REPAIR = "repair"

#: Groups with a preferred leader that a plan chose.  A group whose entry was evicted is led by the
#: node that wins an election.
PREFERRED_MAX = 1 << 16
#: Groups, and partitions, with the time when a plan moved them last.  Those whose entry was evicted
#: may be moved again at once.
MOVED_MAX = 1 << 16

_MOVE = (shapes.UINT, shapes.TEXT, shapes.UINT, shapes.UINT, shapes.UINT, [shapes.UINT],
         [shapes.UINT], shapes.UINT, shapes.UINT, shapes.TEXT, [shapes.UINT])
_RECORD = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.UINT, shapes.TEXT)
_LIMITS = (shapes.UINT,) * len(PlanLimits._fields)
_PLAN = {"plan_id": shapes.TEXT, "scope": shapes.TEXT, "state": shapes.TEXT, "reason": shapes.TEXT,
         "by_safety": shapes.FLAG, "waited": shapes.FLAG, "applied_ms": shapes.UINT,
         "limits": _LIMITS, "moves": [_MOVE], "records": [_RECORD]}
_NEXT = (shapes.TEXT, shapes.TEXT, shapes.TEXT, shapes.UINT, shapes.UINT, _LIMITS, [_MOVE])
_SHAPE = {"plan": shapes.Optional(_PLAN), "next": shapes.Optional(_NEXT),
          "preferred": [(shapes.UINT, shapes.UINT)], "moved": [(shapes.UINT, shapes.UINT)],
          "switched": [(shapes.UINT, shapes.UINT)]}


class Record(NamedTuple):
    """The progress of a move: its phase, since when, the node that sends its data (0 = not chosen
    yet) and the reason of its end."""

    phase: Phase = Phase.PENDING
    attempt: int = 0
    source: int = 0
    since_ms: int = 0
    reason: str = ""

    @property
    def has_ended(self) -> bool:
        """True if the move is done, skipped, failed or cancelled."""
        return self.phase in TERMINAL


class ActivePlan:
    """A plan and the progress of each of its moves."""

    __slots__ = ("plan_id", "scope", "state", "reason", "by_safety", "applied_ms", "limits",
                 "moves", "records", "under_way", "left", "waited")

    def __init__(self, plan_id: str, scope: str, applied_ms: int, limits: PlanLimits,
                 moves: tuple[PlannedMove, ...]):
        self.plan_id = plan_id
        self.scope = scope
        self.state = RUNNING
        self.reason = ""  # of a state other than running
        self.by_safety = False  # paused by the safety check, which also resumes it
        self.applied_ms = applied_ms
        self.limits = limits
        self.moves: dict[int, PlannedMove] = {move.seq: move for move in moves}
        self.records: dict[int, Record] = {move.seq: Record() for move in moves}
        #: Moves that have started and not ended, in the order of their start.
        self.under_way: dict[int, None] = {}
        self.left = len(moves)  # moves that have not ended
        #: Another plan was undone first, which changed configurations: moves are compared with the
        #: voters that they were planned for, not with the index of the configuration.
        self.waited = False

    @property
    def is_over(self) -> bool:
        """True if the plan is done or cancelled: every move has ended."""
        return self.state in OVER

    def replicas_under_way(self) -> tuple[dict[int, int], dict[int, int], int]:
        """Return (node -> replicas that it receives, node -> replicas that it sends, number of
        moves that copy), of moves in phase LEARNING. O(moves under way)."""
        into: dict[int, int] = {}
        out: dict[int, int] = {}
        copying = 0
        for seq in self.under_way:
            record = self.records[seq]
            if record.phase is Phase.LEARNING:
                copying += 1
                for node in self.moves[seq].joining:
                    into[node] = into.get(node, 0) + 1
                    out[record.source] = out.get(record.source, 0) + 1
        return into, out, copying

    def obstacle(self, move: PlannedMove, source: int) -> Result | None:
        """Return the refusal of a start of the move now, sending from ``source``; None = it may
        start.  O(moves under way)."""
        if self.state != RUNNING:
            return refused(Code.STALE_PLAN, f"the plan is {self.state}")
        for seq in move.depends_on:
            if not self.records[seq].has_ended:
                return refused(Code.STALE_PLAN, f"needs the room that {self.moves[seq].move_id} "
                               f"frees, which is {self.records[seq].phase.name.lower()}: begins "
                               f"when that is done and its old replica is removed")
        if move.kind == REPLICA_CHANGE:
            return self._copies_at_limit(move, source)
        others = sum(self.moves[seq].kind != REPLICA_CHANGE for seq in self.under_way)
        if others < self.limits.transfers_at_once_max:
            return None
        under_way = ("1 leader transfer or switch is" if others == 1 else
                     f"{others} leader transfers and switches are")
        which = "it" if others == 1 else "one of them"
        return self._at_limit("transfers_at_once_max", others + 1, f"{under_way} under way",
                              f"begins when {which} is through, which takes seconds")

    def _copies_at_limit(self, move: PlannedMove, source: int) -> Result | None:
        """Return the refusal by the limit of copies that the move would exceed; None = by none."""
        limits = self.limits
        into, out, copying = self.replicas_under_way()
        if copying >= limits.at_once_max:
            return self._copying("at_once_max", copying + 1,
                                 f"{_counted(copying, 'replica change')} "
                                 f"{'copies' if copying == 1 else 'copy'}")
        for node in move.joining:
            if into.get(node, 0) >= limits.in_per_node_max:
                return self._copying("in_per_node_max", into[node] + 1, f"node {node} receives "
                                     f"{_counted(into[node], 'replica')}")
        sent, more = out.get(source, 0), len(move.joining)
        # A change of several replicas sends one stream for each of them.  It may exceed the limit
        # when its source sends nothing else; otherwise it would wait without end.
        if sent and sent + more > limits.out_per_node_max:
            what = f"node {source} sends {_counted(sent, 'replica')}"
            return self._copying("out_per_node_max", sent + more, what if more == 1 else
                                 f"{what}, this move is {more} more")
        return None

    def _copying(self, name: str, value: int, what: str) -> Result:
        return self._at_limit(name, value, what, "begins when one of them has caught up. For more "
                              "at once cancel this plan, and make one by `multiraft rebalance plan "
                              f"--policy` with a larger {name}")

    def _at_limit(self, name: str, value: int, what: str, end: str) -> Result:
        """Return the refusal of a move that waits for its turn: the moves under way, the limit, and
        the event that ends the wait.  ``value``: the count including the move."""
        limit = getattr(self.limits, name)
        return refused(Code.LIMIT_EXCEEDED, f"{what}, and {name} of the plan is {limit}: {end}",
                       limit, value)


class PlanTable:
    """The plan under way or the last one, the repair that waits, preferred leaders and times of
    moves. ``version`` grows with each change, in this process only."""

    __slots__ = ("plan", "next", "preferred", "moved", "switched", "version")

    def __init__(self) -> None:
        self.plan: ActivePlan | None = None  # under way, or the last one
        self.next: ApplyPlan | None = None  # a repair that waits for the end of the plan
        self.preferred: dict[int, int] = {}  # group -> leader that a plan chose
        #: Group -> when a plan last changed its voters; partition -> when a plan last switched it,
        #: in milliseconds since 1970, the latest last.  The next plans leave them alone for a
        #: cool-down.
        self.moved: dict[int, int] = {}
        self.switched: dict[int, int] = {}
        self.version = 0

    @property
    def active(self) -> ActivePlan | None:
        """The plan under way, None without one."""
        return self.plan if self.plan is not None and not self.plan.is_over else None

    # ---- commands -------------------------------------------------------------------------------

    def apply(self, command: ApplyPlan, cluster_id: str) -> Result:
        """Start a plan, or queue a repair and cancel the plan under way for it. The value is the
        plan's state. Refused for another cluster, after its expiry, or while another plan is
        active. A repetition changes nothing. O(moves)."""
        if self.plan is not None and self.plan.plan_id == command.plan_id:
            return Result(Code.OK, self.plan.state)  # proposed twice
        if self.next is not None and self.next.plan_id == command.plan_id:
            return Result(Code.OK, "waiting")
        refusal = self._fault(command, cluster_id)
        if refusal is not None:
            return refusal
        self.version += 1
        active = self.active
        if active is None:
            self._begin(command)
            return Result(Code.OK, RUNNING)
        if command.scope != REPAIR or active.scope == REPAIR:
            return refused(Code.PLAN_ACTIVE, f"plan {active.plan_id:.12} is {active.state}: wait "
                           f"for its end, or cancel it with `multiraft rebalance cancel`")
        self.next = command
        self._cancel(active, f"repair plan {command.plan_id:.12} goes first", command.now_ms)
        return Result(Code.OK, RUNNING if self.next is None else "waiting")

    @staticmethod
    def _fault(command: ApplyPlan, cluster_id: str) -> Result | None:
        """Return the refusal of a plan that is for another cluster, has expired, has no move or
        more than ``MOVES_MAX``, or whose moves contradict each other; None = it may start."""
        if command.cluster_id != cluster_id:
            return refused(Code.STALE_PLAN, f"the plan is for cluster {command.cluster_id:.40}, "
                           f"this is {cluster_id}")
        if command.now_ms > command.expires_ms:
            return refused(Code.STALE_PLAN, f"the plan has expired "
                           f"{(command.now_ms - command.expires_ms) // 1000} s ago: make a new one")
        if not command.moves:
            return refused(Code.INVALID_REQUEST, "a plan without moves has nothing to be carried "
                           "out")
        if len(command.moves) > MOVES_MAX:
            return over("moves of a plan", MOVES_MAX, len(command.moves))
        fault = _contradiction(command.moves)
        return refused(Code.INVALID_REQUEST, fault) if fault else None

    def _begin(self, command: ApplyPlan) -> None:
        self.plan = ActivePlan(command.plan_id, command.scope, command.now_ms, command.limits,
                               command.moves)

    def control(self, command: ControlPlan) -> Result:
        """Pause, resume, cancel or throttle the plan; the value is the plan's state afterwards. A
        pause or resumption that is not permitted changes nothing. Refused if the plan is not the
        present one or is over. O(moves) for a cancellation, else O(1)."""
        plan = self.plan
        if plan is None or plan.plan_id != command.plan_id:
            return refused(Code.STALE_PLAN, f"plan {command.plan_id:.12} is not being carried out")
        if plan.is_over:
            if command.action == CANCEL:
                return Result(Code.OK, plan.state)
            return refused(Code.STALE_PLAN, f"plan {plan.plan_id:.12} is {plan.state}")
        self.version += 1
        if command.action == CANCEL:
            if plan.state != CANCELLING:
                self._cancel(plan, command.reason or "cancelled by the operator", command.now_ms)
        elif command.action == PAUSE:
            self._pause(plan, command)
        elif command.action == RESUME:
            self._resume(plan, command.by_safety)
        else:
            if command.value < 1:
                return refused(Code.INVALID_REQUEST, "a throttle is at least 1 byte per second; "
                               "to stop copying, pause the plan")
            plan.limits = plan.limits._replace(throttle=command.value)
        return Result(Code.OK, plan.state)

    @staticmethod
    def _pause(plan: ActivePlan, command: ControlPlan) -> None:
        if plan.state == RUNNING or (plan.state == PAUSED and plan.by_safety):
            plan.state = PAUSED
            plan.reason = command.reason or "paused by the operator"
            plan.by_safety = command.by_safety

    @staticmethod
    def _resume(plan: ActivePlan, by_safety: bool) -> None:
        """Resume the plan if the side that asks may do so.

        The safety check does not resume a plan that an operator paused.  An operator cannot resume
        a plan whose cause of the pause persists, since it would be paused again at once.  Slow
        commits are the exception: an operator may accept them for the rest of the plan, because the
        plan may be their cure.
        """
        if plan.state != PAUSED or (by_safety and not plan.by_safety):
            return
        if plan.by_safety and not by_safety:
            if not plan.reason.startswith(SLOW_COMMITS):
                return
            plan.limits = plan.limits._replace(commit_ms_max=0)
        plan.state, plan.reason, plan.by_safety = RUNNING, "", False

    def _cancel(self, plan: ActivePlan, reason: str, now_ms: int) -> None:
        """Cancel moves that have not started, and end the plan if none is left; the controller
        undoes or finishes the others."""
        plan.state, plan.reason, plan.by_safety = CANCELLING, reason, False
        for seq, record in plan.records.items():
            if record.phase is Phase.PENDING:
                plan.records[seq] = record._replace(phase=Phase.CANCELLED, since_ms=now_ms,
                                                    reason=reason[:100])
                plan.left -= 1
        self._end_if_over(plan)

    def step(self, command: StepMove) -> Result:
        """Record that a move enters a phase. The value is True if the step was new, False if it is
        old or of another plan. Refused if it cannot follow, or the move may not start yet. O(moves
        under way)."""
        plan = self.plan
        if plan is None or plan.plan_id != command.plan_id or command.seq not in plan.moves:
            return Result(Code.OK, False)  # of a plan that is over or was replaced
        move, record = plan.moves[command.seq], plan.records[command.seq]
        phase = Phase(command.phase)
        step = after(move.kind, record.phase, record.attempt, phase, command.attempt)
        if step is Step.IMPOSSIBLE:
            return refused(Code.INVALID_REQUEST, f"{move.move_id} is {record.phase.name} in "
                           f"attempt {record.attempt}: {phase.name} in attempt "
                           f"{command.attempt} does not follow")
        if step is Step.OLD:
            return Result(Code.OK, False)
        if phase is FIRST[move.kind]:
            obstacle = plan.obstacle(move, command.source)
            if obstacle is not None:
                return obstacle
        self.version += 1
        self._enter(plan, command, phase)
        return Result(Code.OK, True)

    def _enter(self, plan: ActivePlan, command: StepMove, phase: Phase) -> None:
        seq = command.seq
        if phase is Phase.PENDING and plan.state == CANCELLING:
            phase = Phase.CANCELLED  # a cancelled plan starts no further attempt
        source = command.source or plan.records[seq].source
        plan.records[seq] = Record(phase, command.attempt, source, command.now_ms, command.reason)
        if phase in TERMINAL or phase is Phase.PENDING:
            plan.under_way.pop(seq, None)
        else:
            plan.under_way[seq] = None
        self._date(plan.moves[seq], phase, command.now_ms)
        if phase in TERMINAL:
            plan.left -= 1
            if phase is Phase.DONE:
                self._prefer(plan.moves[seq])
        self._end_if_over(plan)

    def _date(self, move: PlannedMove, phase: Phase, now_ms: int) -> None:
        """Record ``now_ms`` as the time of the group's or partition's last move, if ``phase`` is
        the one in which it reaches its new place."""
        if phase is Phase.GRACE:
            _put_last(self.moved, move.subject, now_ms, MOVED_MAX)
        elif phase is Phase.DONE and move.kind == TOPIC_SWITCH:
            _put_last(self.switched, move.subject, now_ms, MOVED_MAX)

    def _prefer(self, move: PlannedMove) -> None:
        """Record the leader that a finished move names as the group's preferred one, and forget a
        preferred leader that left the group."""
        leader = move.new[0] if move.kind == LEADER_TRANSFER else move.leader
        if move.kind == REPLICA_CHANGE and self.preferred.get(move.subject) in move.leaving:
            del self.preferred[move.subject]
        if leader and move.kind in (LEADER_TRANSFER, REPLICA_CHANGE):
            _put_last(self.preferred, move.subject, leader, PREFERRED_MAX)

    def _end_if_over(self, plan: ActivePlan) -> None:
        if plan.left:
            return
        plan.state = CANCELLED if plan.state == CANCELLING else DONE
        if self.next is not None:
            waiting, self.next = self.next, None
            self._begin(waiting)
            assert self.plan is not None
            self.plan.waited = True

    def forget_node(self, node: int) -> None:
        """Drop the preferred leaders that are ``node``, which was removed from the cluster."""
        for group in [group for group, leader in self.preferred.items() if leader == node]:
            del self.preferred[group]

    def forget_partition(self, partition: int) -> None:
        """Drop the time of the last switch of a partition whose topic was deleted."""
        self.switched.pop(partition, None)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the table as values that CBOR can encode."""
        plan, waiting = self.plan, self.next
        return {
            "plan": None if plan is None else {
                "plan_id": plan.plan_id, "scope": plan.scope, "state": plan.state,
                "reason": plan.reason, "by_safety": plan.by_safety, "waited": plan.waited,
                "applied_ms": plan.applied_ms, "limits": list(plan.limits),
                "moves": [list(move) for move in plan.moves.values()],
                "under_way": list(plan.under_way),
                "records": [[int(record.phase), *record[1:]]
                            for record in plan.records.values()]},
            "next": None if waiting is None else [*waiting[:5], list(waiting.limits),
                                                  [list(move) for move in waiting.moves]],
            "preferred": list(self.preferred.items()), "moved": list(self.moved.items()),
            "switched": list(self.switched.items())}

    def fill(self, snapshot: dict) -> None:
        """Restore the table from a snapshot.

        Snapshots of versions 4 and 5 have no times of moves.  Raises ``KeyError``, ``TypeError`` or
        ``ValueError`` when the snapshot is malformed.
        """
        snapshot = {"moved": (), "switched": (), **snapshot}
        shapes.check(snapshot, _SHAPE, "plans")
        fields, waiting = snapshot["plan"], snapshot["next"]
        if fields is not None:
            self.plan = _restored(fields)
        if waiting is not None:
            self.next = ApplyPlan._make(
                (*waiting[:5], PlanLimits(*waiting[5]), _moves(waiting[6])))
        self.preferred = dict(snapshot["preferred"])
        self.moved = dict(snapshot["moved"])
        self.switched = dict(snapshot["switched"])

    def _check(self) -> None:
        """Assert that the plan's counts, phases and state agree. O(moves)."""
        assert max(len(self.moved), len(self.switched)) <= MOVED_MAX
        assert self.next is None or (self.active is not None and self.next.scope == REPAIR)
        plan = self.plan
        if plan is None:
            return
        assert len(plan.moves) == len(plan.records)
        assert plan.left == sum(not record.has_ended for record in plan.records.values())
        assert plan.is_over == (plan.left == 0), f"{plan.state} with {plan.left} moves left"
        begun = {seq for seq, record in plan.records.items()
                 if not record.has_ended and record.phase is not Phase.PENDING}
        assert begun == {*plan.under_way}, f"{begun} != {plan.under_way}"
        assert plan.state in (RUNNING, PAUSED) or not any(
            record.phase is Phase.PENDING for record in plan.records.values())


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _put_last(table: dict[int, int], key: int, value: int, count_max: int) -> None:
    """Set a value as the latest of at most ``count_max``; the oldest ones are evicted."""
    table.pop(key, None)
    while len(table) >= count_max:
        del table[next(iter(table))]
    table[key] = value


def _moves(rows: list) -> tuple[PlannedMove, ...]:
    return tuple(PlannedMove._make((*row[:5], tuple(row[5]), tuple(row[6]), *row[7:10],
                                    tuple(row[10]))) for row in rows)


def _restored(fields: dict) -> ActivePlan:
    plan = ActivePlan(fields["plan_id"], fields["scope"], fields["applied_ms"],
                      PlanLimits(*fields["limits"]), _moves(fields["moves"]))
    plan.state, plan.reason = fields["state"], fields["reason"]
    plan.by_safety, plan.waited = fields["by_safety"], fields["waited"]
    records = [Record(Phase(phase), *rest) for phase, *rest in fields["records"]]
    plan.records = dict(zip(plan.moves, records, strict=True))
    plan.under_way = dict.fromkeys(fields["under_way"])
    plan.left = sum(not record.has_ended for record in records)
    return plan


def _contradiction(moves: tuple[PlannedMove, ...]) -> str:
    """Return the first contradiction among the moves: repeated numbers or subjects, dependencies
    that do not come before, impossible destinations; empty = none. O(moves)."""
    seqs: dict[int, None] = {}
    subjects: dict[str, None] = {}
    for move in moves:
        if move.seq in seqs:
            return f"two moves are number {move.seq}"
        if any(seq not in seqs for seq in move.depends_on):
            return f"move {move.seq} depends on {move.depends_on!r:.60}, which do not come before"
        subject = "switch" if move.kind not in (LEADER_TRANSFER, REPLICA_CHANGE) else "group"
        subject += f" {move.subject}"
        if subject in subjects:
            return f"move {move.seq} is the second one of {subject}"
        seqs[move.seq] = None
        subjects[subject] = None
        fault = _move_fault(move)
        if fault:
            return f"move {move.seq}: {fault}"
    return ""


def _move_fault(move: PlannedMove) -> str:
    if len({*move.new}) != len(move.new) or not move.new:
        return f"{move.new!r:.60} is no destination"
    if move.kind != REPLICA_CHANGE:
        return "" if len(move.new) == 1 else f"{move.new!r:.60} is more than one destination"
    if {*move.new} == {*move.old} or not move.old:
        return "it changes nothing"
    if move.leader and move.leader not in move.new:
        return f"node {move.leader} is to lead and is no voter"
    return ""
