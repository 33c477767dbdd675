"""Checkers of consumers: a poll begins where the previous one ended.

Theory.  Only polls that ended ``ok`` advance a position, and an assignment sets it to any offset.
Nothing else may change a position: there are no consumer groups, so nothing is rebalanced, and the
exceptions that Jepsen grants to subscribers are not granted here.
"""

from __future__ import annotations

from chaos.checkers.checker import Checker, ReadResult
from chaos.checkers.ledger import PLACE_BITS, Key

#: Skips kept per key until the logs are known; more would add no information.
SKIPS_KEPT_MAX = 1000
_SATURATED = 255
_PLUS_ONE = bytes(min(count + 1, _SATURATED) for count in range(256))


class _Positions:
    """Position of each consumer per key."""

    def __init__(self) -> None:
        self._at: dict[int, dict[str, int]] = {}  # process -> key -> next offset

    def assign(self, process: int, positions: dict[str, int]) -> None:
        """Replace the positions of a consumer by these, key -> next offset; it has none at keys
        with a negative offset."""
        self._at[process] = {key: offset for key, offset in positions.items() if offset >= 0}

    def advance(self, process: int, key: Key, result: ReadResult) -> int | None:
        """Move a consumer's position at a key behind the records of a poll, if any; return its
        position before, None = unknown or no records."""
        if not result.runs:
            return None
        positions = self._at.setdefault(process, {})
        at = positions.get(key.name)
        base, values = result.runs[-1]
        positions[key.name] = base + len(values)
        return at


class PollSkip(Checker):
    """A9 (poll-skip): the first record of a poll is above the position of its consumer: behind
    where it was assigned, or behind the last record of its last ``ok`` poll.  Records below the
    committed log start may be passed over.  O(1) per poll and key."""

    id, name = "A9", "poll-skip"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._positions = _Positions()
        self.on_assigned = self._positions.assign
        #: key's number -> (position, next offset, operation, time), until the log start is known
        self._skips: dict[int, list[tuple[int, int, int, int]]] = {}

    def on_polled(self, process: int, key: Key, result: ReadResult) -> None:
        at = self._positions.advance(process, key, result)
        if at is None or result.runs[0][0] <= at:
            return
        skips = self._skips.setdefault(key.number, [])
        skip = (at, result.runs[0][0], result.operation, result.time_us)
        if len(skips) < SKIPS_KEPT_MAX:
            skips.append(skip)
        elif skip[1] > skips[-1][1]:  # a lower log start does not explain it
            skips[-1] = skip

    def on_end(self, time_us: int) -> None:
        for number, skips in self._skips.items():
            key = self.ledger.by_number[number]
            for at, base, operation, at_us in skips:
                if base > key.log_start:
                    self.found(f"a consumer at offset {at} gets offset {base} next", key,
                               (operation,), at_us)


class NonmonotonicPoll(Checker):
    """A10 (nonmonotonic-poll): the same, and the record is below the position.  O(1) per poll and
    key."""

    id, name = "A10", "nonmonotonic-poll"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._positions = _Positions()
        self.on_assigned = self._positions.assign

    def on_polled(self, process: int, key: Key, result: ReadResult) -> None:
        at = self._positions.advance(process, key, result)
        if at is not None and result.runs[0][0] < at:
            self.found(f"a consumer at offset {at} gets offset {result.runs[0][0]} next", key,
                       (result.operation,), result.time_us)


class ConsumerNotes(Checker):
    """Not judged: ``realtime-lag``, how long before a poll was invoked the record at its position
    had been acknowledged (a lower bound of how stale the consumer was), and ``consume-counts``, how
    often a record was polled.  O(1) per poll and key."""

    id, name = "-", "consumer-notes"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._positions = _Positions()
        self.on_assigned = self._positions.assign
        self._lag_us, self._lag_key = 0, ""
        self._counts: dict[int, bytearray] = {}

    def on_polled(self, process: int, key: Key, result: ReadResult) -> None:
        at = self._positions.advance(process, key, result)
        if at is not None:
            self._measure_lag(key, at, result)
        counts = self._counts.setdefault(key.number, bytearray())
        for base, values in result.runs:
            end = min(base + len(values), len(key.slots))
            counts.extend(bytes(max(0, end - len(counts))))
            if 0 <= base < end:
                counts[base:end] = counts[base:end].translate(_PLUS_ONE)

    def _measure_lag(self, key: Key, at: int, result: ReadResult) -> None:
        """Keep the longest time, and its key, from an acknowledgement with ``commit`` to the
        invocation of the poll that begins at its record, offset ``at``. Other records are
        ignored."""
        if not key.is_known(at) or not key.acked[at]:
            return
        home = self.ledger.values.home(key.slots[at])
        if home < 0:
            return
        lag_us = result.invoked_us - self.ledger.appends.time_us[home >> PLACE_BITS]
        if lag_us > self._lag_us:
            self._lag_us, self._lag_key = lag_us, key.name

    def notes(self) -> list[str]:
        total = [0] * 256
        for counts in self._counts.values():
            for times in range(1, 256):
                total[times] += counts.count(times)
        if not any(total):
            return []
        shown = ", ".join(f"{count} polled {times} times" for times, count in enumerate(total)
                          if count and times < 6)
        more = sum(total[6:])
        return [f"consume-counts: {shown}" + (f", {more} more often" if more else ""),
                f"realtime-lag: at most {self._lag_us / 1e6:.3f} s"
                + (f", {self._lag_key}" if self._lag_key else "")]


CHECKERS = (PollSkip, NonmonotonicPoll, ConsumerNotes)
