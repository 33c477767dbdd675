"""Checkers of liveness: appends succeed after healing, and while a quorum is untouched by faults.

Theory.  A cluster that stops answering is safe.  Availability is judged from the side of the
clients: a key to which no client appends is not judged.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.backends.backend import CLIENTS
from chaos.checkers.checker import Checker
from chaos.checkers.faults import Faults
from chaos.checkers.ledger import NONE, Key, Ledger
from chaos.history import HEAL, INVOKE, OK, Event

#: A key without a request for this long counts as unused, and its wait begins again.
PAUSE_US = 5_000_000


class _Demand:
    """Time since when appends to a key are requested and none is acknowledged."""

    __slots__ = ("since_us", "operation", "open", "last_us")

    def __init__(self, time_us: int, operation: int):
        self.since_us = time_us
        self.operation = operation
        self.open = 0
        self.last_us = time_us

    def waited_us(self, now_us: int, from_us: int) -> int:
        """Return how long clients have waited for an acknowledgement since ``from_us``: until now
        or, if no append is open, until the last one ended. Negative = not since ``from_us``."""
        until_us = now_us if self.open else self.last_us
        return until_us - max(self.since_us, from_us)


class _Demands:
    """Demand per key, by appends that are to be acknowledged; ``judge`` is called with the key, its
    demand and the time before a demand ends."""

    def __init__(self, ledger: Ledger, judge: Callable[[Key, _Demand, int], None]):
        self._ledger = ledger
        self._judge = judge
        self._demand: dict[int, _Demand] = {}

    def on_append(self, key: Key, kind: str, number: int, time_us: int) -> None:
        """Count an append that is invoked or ends as ``kind``, unless its acks are ``none``. One
        that ends ``ok`` is judged, and the wait of its key begins again."""
        appends = self._ledger.appends
        if appends.acks[number] == NONE:
            return
        demand = self._demand.get(key.number)
        if demand is None or (not demand.open and time_us - demand.last_us > PAUSE_US):
            demand = self._demand[key.number] = _Demand(time_us, appends.operation[number])
        demand.open += 1 if kind == INVOKE else -(demand.open > 0)
        demand.last_us = time_us
        if kind == OK:
            self._judge(key, demand, time_us)
            demand.since_us, demand.operation = time_us, appends.operation[number]

    def judge_all(self, time_us: int) -> None:
        """Judge the demands of all keys as they stand at ``time_us``."""
        for number, demand in self._demand.items():
            self._judge(self._ledger.by_number[number], demand, time_us)


class Recovery(Checker):
    """A28: after the heal, appends to a key are requested without a pause of 5 s, and for
    ``CheckerLimits.recover_us`` none of them is acknowledged; or the run is over, final reads or
    questions of a key were asked for, and none was answered.  Keys for which a client asks a
    deletion are not judged.  O(1)."""

    id, name = "A28", "no-recovery"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._demands = _Demands(self.ledger, self._judge)
        self.on_append = self._demands.on_append
        self._healed_us = -1
        self._told: set[int] = set()
        self._asked: dict[int, Key] = {}

    def on_phase(self, event: Event) -> None:
        if event.name == HEAL:
            self._healed_us = event.time_us

    def _judge(self, key: Key, demand: _Demand, time_us: int) -> None:
        if self._healed_us < 0 or key.deleted or key.number in self._told:
            return
        waited_us = demand.waited_us(time_us, self._healed_us)
        if waited_us > self.limits.recover_us:
            self._told.add(key.number)
            self.found(f"no append was acknowledged for {waited_us / 1e6:.1f} s after the heal",
                       key, (demand.operation,), time_us)

    def on_final(self, key: Key) -> None:
        self._asked[key.number] = key

    def on_end(self, time_us: int) -> None:
        self._demands.judge_all(time_us)
        for key in self._asked.values():
            if key.final_end < 0 and not key.deleted:
                self.found("no final read was answered", key)


class Availability(Checker):
    """A33: while faults affect fewer nodes than half of a group's copies, and none begins or ends,
    appends to a key are requested without a pause of 5 s, and for ``CheckerLimits.available_us``
    none of them is acknowledged.  A fault that names no node affects all.  A fault that names the
    clients separates them from nodes that continue to lead, which no quorum mends.  Keys for which
    a client asks a deletion are not judged.  O(1) per append, O(keys) per fault."""

    id, name = "A33", "unavailable"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._demands = _Demands(self.ledger, self._judge)
        self.on_append = self._demands.on_append
        self._faults = Faults()
        self._calm_us: int = 0  # since when a quorum is untouched; -1 = it is not

    def on_fault(self, event: Event) -> None:
        self._demands.judge_all(event.time_us)
        self._faults.take(event)
        touched = self._faults.nodes
        healthy = (not self._faults.touch_all and CLIENTS not in touched
                   and 2 * len(touched) < min(self.limits.copies, self.limits.nodes))
        self._calm_us = event.time_us if healthy else -1

    def _judge(self, key: Key, demand: _Demand, time_us: int) -> None:
        if self._calm_us < 0 or key.deleted:
            return
        waited_us = demand.waited_us(time_us, self._calm_us)
        if waited_us > self.limits.available_us:
            self.found(f"no append was acknowledged for {waited_us / 1e6:.1f} s with a quorum left "
                       f"alone", key, (demand.operation,), time_us)
            demand.since_us = time_us

    def on_end(self, time_us: int) -> None:
        self._demands.judge_all(time_us)


CHECKERS = (Recovery, Availability)
