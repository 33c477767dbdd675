"""The order of a plan's moves: every prefix of it is safe, and nothing waits without need.

Contract.  ``sequenced`` takes where the plan starts and where it ends, and returns the moves in
order.  After each of them

* no node, and no group, is further above its share than the worst one before or after the plan,
  but for the load of one move (``slack`` in ``placement.verify``);
* no disk exceeds its cap, counting every copy that may have begun and no removal that the copy
  does not wait for (``depends_on``).

Repairs come first, then leader transfers and switches, which cost no copying, then replica changes:
the small ones first where a node is relieved, the large ones first where one is drained.

A wave is what may be under way at once: at most so many replicas into a node, and so many out of
the leader that sends them.  A move that could only be done by breaking a rule is left out, and the
plan says so.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from placement.duration import Pace, Work
from placement.outcome import apply_move, touched
from placement.plan import (
    DISK_HARD,
    DRAIN,
    LEADER_TRANSFER,
    RACK_VIOLATION,
    REPAIR_DEAD,
    REPLICA_CHANGE,
    TOPIC_SWITCH,
    UNDER_REPLICATED,
    LeaderTransfer,
    Move,
    ReplicaChange,
    TopicSwitch,
    Why,
)
from placement.policy import NODE_RESOURCES, Options, Policy
from placement.state import DEAD, NO_NODE, R_DISK, State

_URGENT = (REPAIR_DEAD, UNDER_REPLICATED, RACK_VIOLATION, DISK_HARD)


class Reasons(NamedTuple):
    """Reason of each subject's move: groups' replicas, groups' leaders, partitions by
    incarnation."""

    replicas: dict[int, Why]
    leaders: dict[int, Why]
    switches: dict[int, Why]


class Sequence(NamedTuple):
    """Moves in order, those that no order allows, and the time of the former."""

    moves: list[Move]
    left_out: list[Move]
    waves: int
    estimated_ms: int


class _Wave:
    """Moves under way at once."""

    def __init__(self, number: int):
        self.number = number
        self.arriving: dict[int, int] = {}  # node -> replicas
        self.sending: dict[int, int] = {}
        self.changes = 0
        self.others = 0


class _Sequencer:
    """The state while moves are put in order; it begins where the plan begins."""

    def __init__(self, start: State, end: State, policy: Policy, options: Options):
        self.state = start
        self.policy = policy
        self.rows = {row.incarnation: row for row in start.snapshot.partitions}
        self.pace = Pace(options.copy_rate, policy.in_per_node_max, policy.out_per_node_max,
                         policy.at_once_max)
        self.work = Work()
        self.limits = [_limits(start, end, resource) for resource in range(len(NODE_RESOURCES))]
        self.group_limit = max([*start.ingress.values(), *end.ingress.values()], default=0)
        self.departed: dict[int, list[tuple[int, int]]] = {}  # node -> [(seq, bytes)]
        self.relied: dict[int, list[int]] = {}  # node -> seqs whose disk space is in use again
        self.filled = [load[R_DISK] for load in start.load]  # with every copy, and no removal
        self.moves: list[Move] = []
        self.wave = _Wave(1)
        self.wave_of: list[int] = [0]

    def priority(self, move: Move) -> tuple:
        """Return the sort key of a move: repairs, then moves without copies, the heaviest first,
        then copies, the largest first for drains and last otherwise."""
        kind = (LEADER_TRANSFER, TOPIC_SWITCH, REPLICA_CHANGE).index(move.kind)
        urgent = isinstance(move, ReplicaChange) and move.why.reason in _URGENT
        size = -move.bytes if move.why.reason == DRAIN else move.bytes
        if isinstance(move, TopicSwitch):
            size -= self.rows[move.incarnation].ingress
        return (not urgent, kind, size, move.move_id)

    # ---- one move -------------------------------------------------------------------------------

    def admits(self, move: Move, relaxed: bool) -> bool:
        """True if no node or group would be above its limit after the move.

        ``relaxed``: none that was above it before may become fuller, so that the limit is exceeded
        by one move's load at most."""
        nodes = touched(self.state, move)
        before = [list(self.state.load[node]) for node in nodes]
        ingress = self.state.ingress.get(getattr(move, "to_group", NO_NODE), 0)
        apply_move(self.state, move, self.rows)
        after = [list(self.state.load[node]) for node in nodes]
        ingress_after = self.state.ingress.get(getattr(move, "to_group", NO_NODE), 0)
        apply_move(self.state, move, self.rows, backwards=True)
        if ingress_after > self.group_limit and not (relaxed and ingress <= self.group_limit):
            return False
        for place, node in enumerate(nodes):
            for resource, limits in enumerate(self.limits):
                old, new = before[place][resource], after[place][resource]
                if new > old and new > limits[node] and not (relaxed and old <= limits[node]):
                    return False
        return True

    def dependencies(self, move: Move) -> tuple[int, ...] | None:
        """Return the earlier moves whose disk space this one needs; None if all of them together
        free too little."""
        if not isinstance(move, ReplicaChange):
            return ()
        needed: list[int] = []
        size = self.state.groups[move.group].bytes
        for joining in move.joining:
            node = self.state.index[joining]
            excess = self.filled[node] + size - self.state.nodes[node].cap[R_DISK]
            needed += self.relied.get(node, ())
            for seq, freed in self.departed.get(node, ()):
                if excess <= 0:
                    break
                needed.append(seq)
                excess -= freed
            if excess > 0 and size:
                return None
        return tuple(sorted({*needed}))

    def is_full(self, move: Move) -> bool:
        """True if the present wave can take no move of this kind to the same nodes at all."""
        if isinstance(move, ReplicaChange):
            return (self.wave.changes >= self.policy.at_once_max
                    or any(self.wave.arriving.get(node, 0) >= self.policy.in_per_node_max
                           for node in move.joining))
        return self.wave.others >= self.policy.transfers_per_wave_max

    def fits_wave(self, move: Move, depends_on: tuple[int, ...]) -> bool:
        """True if the present wave, which is not full, can take the move: all that it depends on
        are in earlier waves, and its sender sends no more than it may."""
        wave, policy = self.wave, self.policy
        if any(self.wave_of[seq] >= wave.number for seq in depends_on):
            return False
        if not isinstance(move, ReplicaChange):
            return True
        return (not move.joining or wave.sending.get(self.state.sender(move.group), 0)
                + len(move.joining) <= max(policy.out_per_node_max, len(move.joining)))

    def take(self, move: Move, depends_on: tuple[int, ...]) -> None:
        """Append the move to the sequence, in the present wave, and apply it to the state."""
        seq = len(self.moves) + 1
        if isinstance(move, ReplicaChange):
            self._account(move, seq, depends_on)
        else:
            self.wave.others += 1
            self.work.add_transfer()
        apply_move(self.state, move, self.rows)
        self.moves.append(move._replace(seq=seq, wave=self.wave.number, depends_on=depends_on))
        self.wave_of.append(self.wave.number)

    def _account(self, move: ReplicaChange, seq: int, depends_on: tuple[int, ...]) -> None:
        wave, size = self.wave, self.state.groups[move.group].bytes
        wave.changes += 1
        sender = self.state.sender(move.group)
        for joining in move.joining:
            node = self.state.index[joining]
            self.filled[node] += size
            for departure in [each for each in self.departed.get(node, ())
                              if each[0] in depends_on]:
                self.departed[node].remove(departure)
                self.relied.setdefault(node, []).append(departure[0])
                self.filled[node] -= departure[1]
            wave.arriving[joining] = wave.arriving.get(joining, 0) + 1
            wave.sending[sender] = wave.sending.get(sender, 0) + 1
        self.work.add_copy(move.joining, sender + 1, size)  # ``NO_NODE`` becomes 0
        if move.leaving:
            self.work.add_grace()
        for leaving in move.leaving:
            self.departed.setdefault(self.state.index[leaving], []).append((seq, size))

    def next_wave(self) -> None:
        """Begin the next wave."""
        self.wave = _Wave(self.wave.number + 1)


def sequenced(start: State, end: State, reasons: Reasons, policy: Policy,
              options: Options) -> Sequence:
    """Return the moves from ``start`` to ``end`` in order, and those that no order allows;
    ``start`` becomes the state after the former. O(moves * waves) at worst, near O(moves) if
    nothing has to wait."""
    sequencer = _Sequencer(start, end, policy, options)
    pending = _Pending(sorted(_moves_between(start, end, reasons), key=sequencer.priority))
    while pending:
        if _pass(sequencer, pending, relaxed=False):
            continue
        if sequencer.wave.changes or sequencer.wave.others:
            sequencer.next_wave()
            continue
        if not _pass(sequencer, pending, relaxed=True):
            break
    last = sequencer.wave
    if last.changes or last.others:
        sequencer.next_wave()
    return Sequence(sequencer.moves, pending.moves(), sequencer.wave.number - 1,
                    sequencer.work.ms(sequencer.pace))


class _Pending:
    """Moves that are not in the sequence yet, in order, by the nodes that they bring replicas to:
    the moves to a node that receives as many as it may are not checked in vain, wave by wave."""

    def __init__(self, moves: Iterable[Move]):
        self.waiting: dict[tuple[int, ...], deque[tuple[int, Move]]] = {}
        for numbered in enumerate(moves):
            self.waiting.setdefault(_queue_of(numbered[1]), deque()).append(numbered)

    def __bool__(self) -> bool:
        return any(self.waiting.values())

    def moves(self) -> list[Move]:
        """Return the moves in order."""
        return [move for _, move in sorted(
            (numbered for queue in self.waiting.values() for numbered in queue),
            key=itemgetter(0))]


def _queue_of(move: Move) -> tuple[int, ...]:
    """Return what a move's place in a wave depends on: whether it changes replicas, and the nodes
    that get one."""
    return (1, *move.joining) if isinstance(move, ReplicaChange) else (0,)


def _pass(sequencer: _Sequencer, pending: _Pending, relaxed: bool) -> bool:
    """Append the moves that can be made now, in order (``relaxed``: one move only). Return True if
    there was one. O(moves checked * log queues)."""
    heads = [(queue[0][0], key) for key, queue in pending.waiting.items() if queue]
    heapq.heapify(heads)
    kept: dict[tuple[int, ...], list[tuple[int, Move]]] = {}
    taken = False
    while heads and not (relaxed and taken):
        _, key = heapq.heappop(heads)
        queue = pending.waiting[key]
        if sequencer.is_full(queue[0][1]):
            continue  # for all moves of the queue
        number, move = queue.popleft()
        depends_on = sequencer.dependencies(move)
        if depends_on is not None and sequencer.fits_wave(move, depends_on) \
                and sequencer.admits(move, relaxed):
            sequencer.take(move, depends_on)
            taken = True
        else:
            kept.setdefault(key, []).append((number, move))
        if queue:
            heapq.heappush(heads, (queue[0][0], key))
    for key, found in kept.items():
        pending.waiting[key].extendleft(reversed(found))
    return taken


def _limits(start: State, end: State, resource: int) -> list[int]:
    """Return the limit of each node's load on the way: by its weight, as much as the fullest node
    has before or after the plan."""
    worst = (0, 1)
    for state in (start, end):
        for place, node in enumerate(end.nodes):
            load = state.load[place][resource]
            if node.weight and (node.has_share or state is start) and node.state != DEAD \
                    and load * worst[1] > worst[0] * node.weight:
                worst = (load, node.weight)
    return [worst[0] * node.weight // worst[1] if node.weight
            else max(start.load[place][resource], end.load[place][resource])
            for place, node in enumerate(end.nodes)]


def _moves_between(start: State, end: State, reasons: Reasons) -> Iterable[Move]:
    """Yield one move for each group and partition with another place at the end."""
    ids = [*end.ids, 0]  # ``ids[NO_NODE]`` is 0
    for group in sorted(end.groups):
        row = end.groups[group]
        old, new = start.voters[group], end.voters[group]
        if old != new:
            joining = sum(node not in old for node in new)
            yield ReplicaChange(
                0, 0, (), reasons.replicas[group], group, row.incarnation, row.conf_index,
                tuple(ids[node] for node in old), tuple(ids[node] for node in new),
                ids[start.leader[group]], ids[end.leader[group]], joining * row.bytes)
        elif start.leader[group] != end.leader[group]:
            yield LeaderTransfer(
                0, 0, (), reasons.leaders[group], group, row.incarnation, row.conf_index,
                ids[start.leader[group]], ids[end.leader[group]])
    for partition in end.snapshot.partitions:
        where = end.where[partition.incarnation]
        if where != partition.group:
            yield TopicSwitch(
                0, 0, (), reasons.switches[partition.incarnation], partition.incarnation,
                partition.topic, partition.partition, partition.group, where, partition.epoch,
                partition.bytes if partition.copied else 0)
