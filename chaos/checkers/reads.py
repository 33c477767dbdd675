"""Checkers of reads: results are dense and in order, are never taken back, and are linearizable
when that was requested.

Theory.  Any replica answers a ``committed`` read from what it has applied, so two replicas may show
different ends, and the later answer may show the lower one: no record is taken back by that.  A
``linearizable`` answer covers everything that had been acknowledged with ``commit``, or shown to
any reader, before it was requested.  One process applies in order.  So the end that one node shows
never goes back between two questions that do not overlap, unless a fault affected the node
meanwhile: it may have been restarted from a checkpoint, or have lost its replica.

A refusal (``OFFSET_NOT_AVAILABLE`` or another one) is no statement about the records and is always
allowed; ``OffsetOutOfRange`` says that the offset is below the start or above the end of the log.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.checkers.checker import Certain, Checker, Failure, ReadResult
from chaos.checkers.faults import Faults
from chaos.checkers.ledger import Evidence, Key
from chaos.history import Event

OUT_OF_RANGE = "OffsetOutOfRange"
#: Holes kept per key; more would add no information.
GAPS_KEPT_MAX = 1000


class Gap(Checker):
    """A32: a result leaves out an offset between its records, or between the offset that was asked
    for and its first record; or an offset, an end or a start is shown that cannot be: more records
    than were ever sent, a log that begins above the log start that the replicas' logs have
    committed.  Offsets below that log start are no gap.  O(runs), at the end O(gaps)."""

    id, name = "A32", "gap"

    def on_result(self, key: Key, result: ReadResult) -> None:
        at = result.asked
        for base, values in result.runs:
            if 0 <= at < base:
                self._hole(key, at, base, result)
            at = max(at, base + len(values))

    def _hole(self, key: Key, begin: int, end: int, result: ReadResult) -> None:
        if len(key.gaps) < GAPS_KEPT_MAX:
            key.gaps.append((begin, end, result.operation))
        elif end > key.gaps[-1][1]:  # no log start below its end explains it
            key.gaps[-1] = (begin, end, result.operation)

    def on_end(self, time_us: int) -> None:
        for key in self.ledger.by_number:
            for begin, end, operation in unexplained(key):
                self.found(f"a result leaves out the offsets {begin} to {end - 1}", key,
                           (operation,))
            start, operation, at_us = key.shown_start
            if start > key.log_start:
                self.found(f"the log is said to begin at offset {start}, its committed log start "
                           f"is {key.log_start}", key, (operation,), at_us)

    def on_beyond(self, key: Key, base: int, end: int, source: Evidence) -> None:
        self.found(f"offsets {base} to {end - 1}, but only {key.sent} records were ever sent", key,
                   (source.operation,), source.time_us)


def unexplained(key: Key) -> Iterator[tuple[int, int, int]]:
    """Yield the gaps of a key, [begin, end) and operation, as far as they are not below its
    committed log start.  Only in ``on_end``, when the logs are known."""
    for begin, end, operation in key.gaps:
        if end > key.log_start:
            yield max(begin, key.log_start), end, operation


class PollSkipInside(Checker):
    """A7 (int-poll-skip): within one result a record is left out that is known to exist:
    acknowledged with ``commit``, or read by any client at any time.  (Every such hole is an A32
    too.)  O(holes)."""

    id, name = "A7", "int-poll-skip"

    def on_end(self, time_us: int) -> None:
        for key in self.ledger.by_number:
            for begin, end, operation in unexplained(key):
                known = next((at for at in range(begin, min(end, len(key.slots)))
                              if key.is_known(at)), None)
                if known is not None:
                    self.found(f"a result leaves out offset {known}, which holds value "
                               f"{key.slots[known]}", key,
                               (operation, self.operation_of(key.slots[known])))


class NonmonotonicInside(Checker):
    """A8 (int-nonmonotonic-poll): within one result offsets go back or repeat, or begin below the
    offset that was asked for.  O(runs)."""

    id, name = "A8", "int-nonmonotonic-poll"

    def on_result(self, key: Key, result: ReadResult) -> None:
        at = result.asked
        for base, values in result.runs:
            if base < at:
                self.found(f"a result goes from offset {at} back to {base}", key,
                           (result.operation,), result.time_us)
            at = base + len(values)


class EarlyExposure(Checker):
    """A25 (part): a reader is shown a record at or above the high watermark that comes with it.
    O(1)."""

    id, name = "A25", "early-commit"

    def on_result(self, key: Key, result: ReadResult) -> None:
        if result.runs and result.high_watermark >= 0:
            base, values = result.runs[-1]
            if base + len(values) > result.high_watermark:
                self.found(f"records up to offset {base + len(values) - 1} are shown with the high "
                           f"watermark {result.high_watermark}", key, (result.operation,),
                           result.time_us)


class StaleRead(Checker):
    """A15: a linearizable answer does not cover, with its high watermark, an append that had been
    acknowledged with ``commit``, or a record or an end shown to any reader, before the answer was
    requested.  When it is one of the final answers and no later one covers more, the records are
    lost, not stale: A3 and A17.  O(1)."""

    id, name = "A15", "stale-read"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._final: list[tuple[Key, Certain]] = []

    def on_certain(self, key: Key, answer: Certain) -> None:
        if answer.high_watermark >= answer.required:
            return
        if answer.final:
            self._final.append((key, answer))
        else:
            self._stale(key, answer)

    def on_end(self, time_us: int) -> None:
        for key, answer in self._final:
            if key.final_end >= answer.required:
                self._stale(key, answer)

    def _stale(self, key: Key, answer: Certain) -> None:
        self.found(f"a linearizable answer ends at offset {answer.high_watermark}, "
                   f"{answer.required} was known before it was asked for", key,
                   (answer.operation,), answer.time_us)


class EndGoesBack(Checker):
    """A15b: two reads answered by one node, the second asked for after the first was answered, show
    a lower high watermark the second time, and no fault that names the node (or no node at all) was
    on, began or ended meanwhile.  Across nodes it is allowed (see the module).  O(1)."""

    id, name = "A15b", "end-goes-back"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._shown: dict[tuple[int, int], tuple[int, int, int]] = {}
        self._disturbed = Disturbances()

    def on_fault(self, event: Event) -> None:
        self._disturbed.on_fault(event)

    def on_result(self, key: Key, result: ReadResult) -> None:
        if result.high_watermark < 0 or result.node < 0:
            return
        place = (key.number, result.node)
        end, at_us, operation = self._shown.get(place, (-1, -1, -1))
        calm = result.invoked_us > at_us > self._disturbed.last_us(result.node)
        if result.high_watermark < end and calm:
            self.found(f"node {result.node} shows the end {result.high_watermark} after it showed "
                       f"{end}", key, (operation, result.operation), result.time_us)
        elif result.high_watermark > end or not calm and result.invoked_us > at_us:
            self._shown[place] = (result.high_watermark, result.time_us, result.operation)


class Disturbances:
    """Time at which each node was last affected by a fault."""

    def __init__(self) -> None:
        self._faults = Faults()
        self._last: dict[int, int] = {}
        self._all_us = -1

    def on_fault(self, event: Event) -> None:
        """Record that a fault begins or ends, at the time of the event."""
        nodes = self._faults.take(event)
        for node in nodes:
            self._last[node] = event.time_us
        if not nodes:
            self._all_us = event.time_us

    def last_us(self, node: int) -> float:
        """Return the last time at which a fault that affects the node began or ended; -1 = never,
        infinity while one is active."""
        if self._faults.touch(node):
            return float("inf")
        return max(self._all_us, self._last.get(node, -1))


class TakenBack(Checker):
    """A17: records that a reader was shown are no longer shown: a result that covers the offset
    leaves the record out; a read at an offset below a known end is refused as out of range; the
    final, certain end of the key is at or below the record, or below an end that was shown.
    Illegal for every ack level; only the deletion of the topic explains it, and below the committed
    log start the deletion of the record.  O(1), at the end O(1) per key."""

    id, name = "A17", "read-then-lost"

    def __init__(self, *shared):
        super().__init__(*shared)
        #: key's number -> (offset, anomaly's text, operation, time), until the log start is known
        self._missing: dict[int, list[tuple[int, str, int, int]]] = {}

    def on_result(self, key: Key, result: ReadResult) -> None:
        at = result.asked
        for base, values in result.runs:
            lost = key.read.rfind(1, at, base) if 0 <= at < base else -1
            if lost >= 0:
                self._miss(key, lost, f"offset {lost} was read, and a later result leaves it out",
                           result.operation, result.time_us)
            at = base + len(values)

    def on_read_failed(self, key: Key, failure: Failure) -> None:
        if failure.error == OUT_OF_RANGE and 0 <= failure.offset < failure.required \
                and not key.deleted:
            self._miss(key, failure.offset, f"offset {failure.offset} is refused as out of range, "
                       f"the end {failure.required} was known before", failure.operation,
                       failure.time_us)

    def _miss(self, key: Key, offset: int, text: str, operation: int, time_us: int) -> None:
        missing = self._missing.setdefault(key.number, [])
        if len(missing) < GAPS_KEPT_MAX:
            missing.append((offset, text, operation, time_us))
        elif offset > missing[-1][0]:  # a lower log start does not explain it
            missing[-1] = (offset, text, operation, time_us)

    def on_end(self, time_us: int) -> None:
        for number, missing in self._missing.items():
            key = self.ledger.by_number[number]
            for offset, text, operation, at_us in missing:
                if offset >= key.log_start:
                    self.found(text, key, (operation,), at_us)
        for key in self.ledger.living():
            if not key.final_certain:
                continue
            lost = key.read.find(1, key.final_end)
            if lost >= 0:
                self.found(f"offset {lost} was read (value {key.slots[lost]}), and the key ends at "
                           f"{key.final_end}", key, (self.operation_of(key.slots[lost]),))
            elif key.high_watermark > key.final_end:
                self.found(f"readers were shown the end {key.high_watermark}, and the key ends at "
                           f"{key.final_end}", key)


CHECKERS = (Gap, PollSkipInside, NonmonotonicInside, EarlyExposure, StaleRead, EndGoesBack,
            TakenBack)
