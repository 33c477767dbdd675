"""Checkers of consumers: a poll begins where the previous one ended.

Theory.  Only polls that ended ``ok`` advance a position, and an assignment sets it to any offset.
Nothing else may change a position: there are no consumer groups, so nothing is rebalanced, and the
exceptions that Jepsen grants to subscribers are not granted here.
"""

from __future__ import annotations

from chaos.checkers.checker import Checker, Result
from chaos.checkers.ledger import PLACE_BITS, Key

_SATURATED = 255
_PLUS_ONE = bytes(min(count + 1, _SATURATED) for count in range(256))


class _Positions(Checker):
    """Position of each consumer per key; a poll that does not begin there is given to
    ``_judge``."""

    def __init__(self, *shared):
        super().__init__(*shared)
        self._at: dict[int, dict[str, int]] = {}  # process -> key -> next offset

    def on_assigned(self, process: int, positions: dict[str, int]) -> None:
        self._at[process] = {key: offset for key, offset in positions.items() if offset >= 0}

    def on_polled(self, process: int, key: Key, result: Result) -> None:
        if not result.runs:
            return
        positions = self._at.setdefault(process, {})
        at = positions.get(key.name)
        if at is not None:
            self._judge(key, at, result.runs[0][0], result)
        base, values = result.runs[-1]
        positions[key.name] = base + len(values)

    def _judge(self, key: Key, at: int, first: int, result: Result) -> None:
        raise NotImplementedError


class PollSkip(_Positions):
    """A9 (poll-skip): the first record of a poll is above the position of its consumer: behind
    where it was assigned, or behind the last record of its last ``ok`` poll.  O(1) per poll and
    key."""

    id, name = "A9", "poll-skip"

    def _judge(self, key: Key, at: int, first: int, result: Result) -> None:
        if first > at:
            self.found(f"a consumer at offset {at} gets offset {first} next", key,
                       (result.operation,), result.time_us)


class NonmonotonicPoll(_Positions):
    """A10 (nonmonotonic-poll): the same, and the record is below the position.  O(1) per poll and
    key."""

    id, name = "A10", "nonmonotonic-poll"

    def _judge(self, key: Key, at: int, first: int, result: Result) -> None:
        if first < at:
            self.found(f"a consumer at offset {at} gets offset {first} next", key,
                       (result.operation,), result.time_us)


class ConsumerNotes(_Positions):
    """Not judged: ``realtime-lag``, how long before a poll was invoked the record at its position
    had been acknowledged (a lower bound of how stale the consumer was), and ``consume-counts``, how
    often a record was polled.  O(1) per poll and key."""

    id, name = "-", "consumer-notes"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._lag_us, self._lag_key = 0, ""
        self._counts: dict[int, bytearray] = {}

    def on_polled(self, process: int, key: Key, result: Result) -> None:
        super().on_polled(process, key, result)
        counts = self._counts.setdefault(key.number, bytearray())
        for base, values in result.runs:
            end = min(base + len(values), len(key.slots))
            counts.extend(bytes(max(0, end - len(counts))))
            if 0 <= base < end:
                counts[base:end] = counts[base:end].translate(_PLUS_ONE)

    def _judge(self, key: Key, at: int, first: int, result: Result) -> None:
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
