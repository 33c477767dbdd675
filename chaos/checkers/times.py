"""Checker of offsets that are looked up by a time.

Theory.  The answer is the first record at or after the time.  Only records whose append names their
times are evidence: a record of another client may be of any time, so an answer that names it is not
judged.  A record below the committed log start may be gone when the question is asked.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from chaos.checkers.checker import Checker, TimeFound
from chaos.checkers.ledger import Key


class TimeLookup(Checker):
    """A34: the question for the first record at or after a time is answered with the offset of a
    record of an earlier time; or with none or a later offset, though a record of that time or later
    was acknowledged with ``commit``, or shown to a reader, before the question was invoked.
    O(log records) per answer, at the end."""

    id, name = "A34", "offset-for-time"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._times: dict[int, int] = {}  # value -> ms
        self._answers: dict[int, list[TimeFound]] = {}  # by the key's number

    def on_times(self, key: Key, values: Sequence[int], times_ms: Sequence[int]) -> None:
        self._times.update(zip(values, times_ms, strict=True))

    def on_time_found(self, key: Key, answer: TimeFound) -> None:
        self._answers.setdefault(key.number, []).append(answer)

    def on_end(self, time_us: int) -> None:
        for number, answers in self._answers.items():
            self._judge_all(self.ledger.by_number[number], answers)

    def _judge_all(self, key: Key, answers: Sequence[TimeFound]) -> None:
        # Records that are later than all before them, in order of both offset and time.
        offsets, latest = array("q"), array("q")
        for offset in range(key.log_start, len(key.slots)):
            time_ms = self._times.get(key.slots[offset])
            if time_ms is not None and (not latest or time_ms > latest[-1]):
                offsets.append(offset)
                latest.append(time_ms)
        for answer in answers:
            at = bisect_left(latest, answer.asked_ms)
            first = offsets[at] if at < len(offsets) else None
            self._judge(key, answer, first)

    def _judge(self, key: Key, answer: TimeFound, first: int | None) -> None:
        """Judge one answer; ``first``: the first record at or after its time, as far as times are
        known."""
        said = "none" if answer.offset < 0 else f"offset {answer.offset}"
        if first is not None and first < answer.required and not 0 <= answer.offset <= first:
            self.found(f"{said} is the answer to time {answer.asked_ms}, offset {first} is of "
                       f"{self._times[key.slots[first]]}", key, (answer.operation,),
                       answer.time_us)
        elif answer.offset >= key.log_start and key.is_known(answer.offset):
            time_ms = self._times.get(key.slots[answer.offset])
            if time_ms is not None and time_ms < answer.asked_ms:
                self.found(f"{said} is the answer to time {answer.asked_ms}, its record is of "
                           f"{time_ms}", key, (answer.operation,), answer.time_us)


CHECKERS = (TimeLookup,)
