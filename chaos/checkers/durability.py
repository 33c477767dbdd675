"""Checkers of durability: acknowledged records are readable at the end of the run.

Theory. *Lost* is what is provably gone: a result that covers the record's offset shows another
record or none, the key certainly ends below it, or it is in no majority of the logs. *Unseen* is a
record that no reader was shown although every reader had the time: it is lost, or delayed without
limit.  A record that was read once and is gone is worse, and another anomaly (A17).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from chaos.checkers.checker import Checker
from chaos.checkers.contents import is_at
from chaos.checkers.ledger import ACKED, COMMIT, LEADER, NOWHERE, PLACE_BITS, PLACES_MAX, Key
from chaos.checkers.reads import unexplained
from chaos.history import FINAL, Event

_LEVELS = {COMMIT: "commit", LEADER: "leader"}


class LostWrite(Checker):
    """A3: a record that was acknowledged with ``commit`` was shown to no reader, and

    - another value was read at its offset, and the record itself at no other; or
    - a read, a poll or a final read covers its offset and leaves it out; or
    - the final answers, of which one is linearizable, say that the key ends at or below it; or
    - the logs of a majority of the replicas do not hold it (``chaos.checkers.logs``).

    Keys for which a client asks a deletion are not judged, nor records below the committed log
    start.  O(1) per record, as memory.
    """

    id, name = "A3", "lost-write"

    def on_end(self, time_us: int) -> None:
        for key in self.ledger.living():
            for value, (offset, operation) in key.displaced.items():
                if not self._was_read(key, value):
                    self.found(f"value {value} was acknowledged at offset {offset}, which holds "
                               f"another value", key, (self.operation_of(value), operation))
            for begin, end, operation in unexplained(key):
                for offset in _unread(key, begin, end):
                    self._lost(key, offset, f"a result leaves it out (operation {operation})")
            if key.final_certain:
                for offset in _unread(key, key.final_end, len(key.slots)):
                    self._lost(key, offset, f"the key ends at {key.final_end}")

    def _was_read(self, key: Key, value: int) -> bool:
        home = self.ledger.values.home(value)
        if home < 0:
            return False
        at = self.ledger.appends.base[home >> PLACE_BITS] + (home & (PLACES_MAX - 1))
        return is_at(key, at, value) and bool(key.read[at])

    def _lost(self, key: Key, offset: int, why: str) -> None:
        value = key.slots[offset]
        self.found(f"value {value} was acknowledged at offset {offset}, and {why}", key,
                   (self.operation_of(value),))


class Unseen(Checker):
    """A6: a record that was acknowledged with ``commit`` was shown to no reader until the end of a
    history that has final reads, and is not provably lost (A3).  Without final reads it is not
    judged, and noted.  O(1) per record, as memory."""

    id, name = "A6", "unseen"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._final = False
        self._unjudged = 0

    def on_phase(self, event: Event) -> None:
        self._final = self._final or event.name == FINAL

    def on_end(self, time_us: int) -> None:
        for key in self.ledger.living():
            end = key.final_end if key.final_certain else len(key.slots)
            unseen = [offset for offset in _unread(key, key.log_start, end)
                      if not any(begin <= offset < after for begin, after, _ in key.gaps)]
            if not self._final and key.final_end < 0:
                self._unjudged += len(unseen)
            else:
                for offset in unseen:
                    self.found(f"value {key.slots[offset]} was acknowledged at offset {offset} and "
                               f"never read", key, (self.operation_of(key.slots[offset]),))

    def notes(self) -> list[str]:
        if not self._unjudged:
            return []
        return [f"unseen: {self._unjudged} acknowledged records were not read; there were no final "
                f"reads"]


def _unread(key: Key, begin: int, end: int) -> Iterator[int]:
    """Yield the offsets in [begin, end) whose records were acknowledged with ``commit`` and that no
    reader was shown."""
    end = min(end, len(key.slots))
    at = key.read.find(0, begin, end) if begin < end else -1
    while at >= 0:
        if key.acked[at]:
            yield at
        at = key.read.find(0, at + 1, end)


class Losses(NamedTuple):
    """Losses of one ack level."""

    acknowledged: int  # records
    lost: int
    moved: int  # read, but not where the acknowledgement said


class AcksContract(Checker):
    """A24: promises of each ack level.

    - ``commit``: everything survives.  One anomaly sums up the records that are lost (A3, A17),
      with the faults that came before.
    - ``leader``: everything survives as long as one node leads the group throughout, however often
      that node is restarted.  Judged where a trace shows the leaders: a record that was
      acknowledged with ``leader`` and is lost, or is read elsewhere than it was acknowledged, in a
      group that one node alone has led.
    - ``none``: no promise.

    An append is lost when the final reads, with a linearizable answer, cover the key without it.
    O(appends).
    """

    id, name = "A24", "acks-contract"

    def __init__(self, *shared):
        super().__init__(*shared)
        #: group -> nodes that have led it; None = leaders are unknown
        self.leaders: dict[int, set[int]] | None = None
        self._faults: dict[str, int] = {}
        self.losses: dict[int, Losses] = {}

    def on_fault(self, event: Event) -> None:
        if event.data.get("on"):
            self._faults[event.name] = self._faults.get(event.name, 0) + 1

    def on_end(self, time_us: int) -> None:
        counts = {level: [0, 0, 0] for level in _LEVELS}
        covered = {key.number: _is_covered(key) for key in self.ledger.living()}
        appends = self.ledger.appends
        for number in range(len(appends)):
            level = appends.acks[number]
            if appends.outcome[number] != ACKED or level not in counts \
                    or number in self.ledger.repeated:
                continue
            key = self.ledger.by_number[appends.key[number]]
            lost, moved = self._fate(key, number, covered.get(key.number, False))
            size = appends.count[number]
            for place, amount in enumerate((size, size * lost, size * moved)):
                counts[level][place] += amount
            if level == LEADER and (lost or moved):
                self._judge_leader(key, number, lost)
        self.losses = {level: Losses(*count) for level, count in counts.items()}
        if self.losses[COMMIT].lost:
            faults = ", ".join(f"{name} {count}" for name, count in sorted(self._faults.items()))
            self.found(f"{self.losses[COMMIT].lost} of {self.losses[COMMIT].acknowledged} records "
                       f"acknowledged with commit are lost; faults: {faults or 'none'}")

    def _fate(self, key: Key, number: int, covered: bool) -> tuple[bool, bool]:
        """Return (lost, moved): whether an acknowledged append is gone, and whether its records are
        at another offset than acknowledged. ``covered``: as ``_is_covered``. Both are False for a
        deleted key."""
        appends = self.ledger.appends
        base = appends.base[number]
        if key.deleted:
            return False, False
        if appends.acks[number] == LEADER and base != NOWHERE:
            return False, base != appends.leader_offset[number]
        if base == NOWHERE:
            return covered, False
        if not key.final_certain or base < 0:
            return False, False
        home = self.ledger.values.home(key.slots[base])
        reached = key.final.rfind(1)
        if base < key.log_start:
            return False, False
        gone = (base >= key.final_end or home >> PLACE_BITS != number
                or base < reached and not key.final[base])
        return gone, False

    def _judge_leader(self, key: Key, number: int, lost: bool) -> None:
        led = (self.leaders or {}).get(key.group)
        if led is not None and len(led) == 1:
            leader_offset = self.ledger.appends.leader_offset[number]
            self.found(f"an append acknowledged with leader at offset {leader_offset} is "
                       f"{'lost' if lost else 'elsewhere'}, though node {min(led)} alone led group "
                       f"{key.group}", key, (self.ledger.appends.operation[number],))

    def figures(self) -> dict[str, int]:
        shown = {}
        for level, losses in self.losses.items():
            shown[f"acknowledged_{_LEVELS[level]}"] = losses.acknowledged
            shown[f"lost_{_LEVELS[level]}"] = losses.lost
        return shown


def _is_covered(key: Key) -> bool:
    """True if final reads returned every offset of the key, up to an end that a linearizable answer
    told.  False for a key of which records were deleted: an append that no reader saw may be among
    them."""
    end = key.final_end
    return (not key.log_start and key.final_certain and end <= len(key.final)
            and key.final.count(1, 0, end) == end)


CHECKERS = (LostWrite, Unseen, AcksContract)
