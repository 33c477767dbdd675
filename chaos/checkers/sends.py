"""Checkers of the order of appends: real time, per producer, and with idempotence.

Theory.  With a known place in a total order, linearizability of appends needs no search: the end of
what is committed is noted at an append's invocation, and the append's offset must not be lower
(O(1) amortized, as in ScyllaDB's and Redpanda's checkers).  An append whose outcome is unknown is
judged by the end noted at its own invocation, once a read shows where it is.
"""

from __future__ import annotations

from chaos.checkers.checker import Checker
from chaos.checkers.ledger import Evidence, Key


class RealTimeOrder(Checker):
    """A14: an append has a lower offset than an append that had been acknowledged with ``commit``,
    or a record or an end that had been shown to a reader, before it was invoked.  Appends of any
    ack level and any outcome are judged once an acknowledgement with ``commit`` or a read
    establishes their offset.  O(1)."""

    id, name = "A14", "real-time-order"

    def on_base(self, key: Key, number: int, base: int, source: Evidence) -> None:
        floor = self.ledger.appends.floor[number]
        if max(base, 0) < floor:
            self.found(f"an append is at offset {base}, the end {floor} was known before it was "
                       f"invoked", key, (self.ledger.appends.operation[number], source.operation),
                       source.time_us)


class ProducerOrder(Checker):
    """A12 (nonmonotonic-send): of two appends of one idempotent producer to one key, of any
    outcome, the one that was sent later is at the lower offset.  (A plain producer promises an
    order only to what it waits for: A14.)  O(1) per batch, at the end."""

    id, name = "A12", "nonmonotonic-send"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._last: dict[tuple[int, int], int] = {}  # key, producer -> append

    def on_batch(self, key: Key, offset: int, number: int, place: int, count: int,
                 dense: bool) -> None:
        appends = self.ledger.appends
        identity = appends.identity[number]
        if identity < 0:
            return
        last = self._last.get((key.number, identity), -1)
        if number < last:
            self.found(f"a producer's append at offset {offset} was sent before the one that is "
                       f"below it, at {appends.base[last]}", key,
                       (appends.operation[last], appends.operation[number]))
        self._last[key.number, identity] = max(last, number)


class Idempotence(Checker):
    """A23: in the log of a key, the batches of a producer whose sequences are known break its
    order: a lower epoch behind a higher one (a fenced producer was accepted), a sequence that
    exists already (a retry was doubled), a sequence that leaves some out, in a log of which nothing
    below is unknown (an out-of-order batch was accepted).  Also: a batch that is sent again is
    acknowledged at another offset.  O(1) per batch, at the end."""

    id, name = "A23", "idempotence"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._next: dict[tuple[int, int], tuple[int, int]] = {}  # -> epoch, next sequence

    def on_batch(self, key: Key, offset: int, number: int, place: int, count: int,
                 dense: bool) -> None:
        appends = self.ledger.appends
        if appends.sequence[number] < 0:
            return
        at = (key.number, appends.identity[number])
        epoch, sequence = appends.epoch[number], appends.sequence[number] + place
        known = self._next.get(at)
        expected = known[1] if known is not None and known[0] == epoch else 0
        wrong = ""
        if known is not None and epoch < known[0]:
            wrong = f"epoch {epoch} behind epoch {known[0]}"
        elif sequence < expected:
            wrong = f"sequence {sequence} again, expected is {expected}"
        elif sequence > expected and dense:
            wrong = f"sequence {sequence}, expected is {expected}"
        if wrong:
            self.found(f"offset {offset} holds a producer's {wrong}", key,
                       (appends.operation[number],))
        if known is None or (epoch, sequence + count) > known:
            self._next[at] = (epoch, sequence + count)

    def on_repeated(self, key: Key, number: int, first: int, offset: int, source: Evidence) -> None:
        appends = self.ledger.appends
        self.found(f"a batch that was sent again is acknowledged at offset {offset}, it is at "
                   f"{appends.base[first]}", key,
                   (appends.operation[first], appends.operation[number]), source.time_us)


CHECKERS = (RealTimeOrder, ProducerOrder, Idempotence)
