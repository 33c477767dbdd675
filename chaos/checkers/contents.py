"""Checkers of contents: one value per offset, one offset per value, no value without an append.

Theory.  Jepsen's kafka checker squeezes gaps out of the offsets; here offsets are dense by promise,
so an offset is a record's place.  An acknowledgement with acks ``leader`` is no evidence until a
read confirms it: such a record may be lost with its leader, and another may take its offset.
"""

from __future__ import annotations

from chaos.checkers.checker import Checker
from chaos.checkers.ledger import PLACE_BITS, PLACES_MAX, Evidence, Key
from chaos.history import FOREIGN, topic_of


class InconsistentOffsets(Checker):
    """A1: two values at one offset of a key, each established by an acknowledgement with acks
    ``commit``, a read, a poll or a replica's committed log.  O(1) per new record."""

    id, name = "A1", "inconsistent-offsets"

    def on_conflict(self, key: Key, offset: int, before: int, value: int, source: Evidence) -> None:
        self.found(f"offset {offset} holds value {before} and value {value}", key,
                   (self.operation_of(before), self.operation_of(value), source.operation),
                   source.time_us)


class ReassignedOffset(Checker):
    """A14b: two appends were acknowledged with ``commit`` at the same offset.  O(1)."""

    id, name = "A14b", "reassigned-offset"

    def on_conflict(self, key: Key, offset: int, before: int, value: int, source: Evidence) -> None:
        if not source.reads and key.acked[offset]:
            self.found(f"offset {offset} was acknowledged for value {before} and for value {value}",
                       key, (self.operation_of(before), source.operation), source.time_us)


class Duplicate(Checker):
    """A2: one value at two offsets of a key.  A value is appended once; a producer without
    idempotence does not retry an append that may have succeeded, so this holds for every producer.
    O(1) per new record."""

    id, name = "A2", "duplicate"

    def on_moved(self, key: Key, offset: int, value: int, number: int, source: Evidence) -> None:
        other = _place_of(self, value)
        if is_at(key, other, value):
            self.found(f"value {value} is at offset {other} and at offset {offset}", key,
                       (self.operation_of(value), source.operation), source.time_us)


class SendOutOfOrder(Checker):
    """A11 (int-nonmonotonic-send): of two records of one append the later one has the lower
    offset.  O(1)."""

    id, name = "A11", "int-nonmonotonic-send"

    def on_moved(self, key: Key, offset: int, value: int, number: int, source: Evidence) -> None:
        known = _known_sibling(self, key, value)
        if known is None:
            return
        place, at = known
        mine = self.ledger.values.home(value) & (PLACES_MAX - 1)
        if (mine > place) != (offset > at):
            self.found(f"records {min(place, mine)} and {max(place, mine)} of one append are at "
                       f"offsets {at if place < mine else offset} and "
                       f"{offset if place < mine else at}", key,
                       (self.operation_of(value), source.operation), source.time_us)


class TornBatch(Checker):
    """A13 (int-send-skip): the records of one append are not at consecutive offsets, or only some
    of them exist.  A batch is one entry, so all of its records are stored or none.  Jepsen allows
    gaps, because transactions of Kafka interleave; here nothing does.  O(1) per batch."""

    id, name = "A13", "int-send-skip"

    def on_moved(self, key: Key, offset: int, value: int, number: int, source: Evidence) -> None:
        known = _known_sibling(self, key, value)
        if known is None:
            return
        place, at = known
        mine = self.ledger.values.home(value) & (PLACES_MAX - 1)
        if (mine > place) == (offset > at):
            self.found(f"records {place} and {mine} of one append are at offsets {at} and "
                       f"{offset}", key, (self.operation_of(value), source.operation),
                       source.time_us)

    def on_batch(self, key: Key, offset: int, number: int, place: int, count: int,
                 dense: bool) -> None:
        appends = self.ledger.appends
        size = appends.count[number]
        if place + count == size and place == 0 or appends.base[number] != offset - place:
            return
        before, after = offset - 1, offset + count
        if place and (place > offset or is_taken(key, before)) \
                or place + count < size and is_taken(key, after):
            self.found(f"only {count} of {size} records of an append are at offset {offset}", key,
                       (appends.operation[number],))


class Aborted(Checker):
    """A4 (G1a): an append that ended in ``fail`` is read, or is in a committed log: the error was
    reported as definite and was not.  O(1) per new record."""

    id, name = "A4", "aborted-read"

    def on_aborted(self, key: Key, number: int, base: int, source: Evidence) -> None:
        self.found(f"an append that failed for certain is at offset {base}", key,
                   (self.ledger.appends.operation[number], source.operation), source.time_us)


class UnknownValue(Checker):
    """A31: a read returns a value that was never appended, or was appended later: the append was
    invoked after the read's completion.  O(1) per new record."""

    id, name = "A31", "unknown-value"

    def on_unknown(self, key: Key, offset: int, value: int, source: Evidence) -> None:
        self.found(f"value {value} at offset {offset} was not appended before", key,
                   (source.operation,), source.time_us)


class CrossGroupLeak(Checker):
    """A29: a record is read at a key to which it was not appended: another partition, another
    topic, another run.  The record's own tag and its append tell its key.  O(1) per new record."""

    id, name = "A29", "cross-group-leak"

    def on_unreadable(self, key: Key, offset: int, value: int, source: Evidence) -> None:
        if value == FOREIGN:
            self.found(f"the record at offset {offset} was made for another key", key,
                       (source.operation,), source.time_us)

    def on_foreign(self, key: Key, offset: int, value: int, number: int, source: Evidence) -> None:
        home = self.ledger.by_number[self.ledger.appends.key[number]]
        self.found(f"value {value} at offset {offset} was appended to {home.name}", key,
                   (self.ledger.appends.operation[number], source.operation), source.time_us)


class OldLife(Checker):
    """A27 (part): a record of an earlier incarnation of a topic is read in a later one, or the
    reverse.  (Also an A29.)  O(1)."""

    id, name = "A27", "topic-incarnation"

    def on_foreign(self, key: Key, offset: int, value: int, number: int, source: Evidence) -> None:
        home = self.ledger.by_number[self.ledger.appends.key[number]]
        if _name(home) == _name(key) and home.topic != key.topic:
            self.found(f"value {value} at offset {offset} was appended to {home.name}, another "
                       f"incarnation of the topic", key, (source.operation,), source.time_us)


class Corruption(Checker):
    """A30: a reader gets bytes that are no tagged record.  (A node or a client that detects damage
    and refuses is correct.)  O(1)."""

    id, name = "A30", "corruption"

    def on_unreadable(self, key: Key, offset: int, value: int, source: Evidence) -> None:
        if value != FOREIGN:
            self.found(f"the record at offset {offset} is damaged", key, (source.operation,),
                       source.time_us)


class ChangedAfterRead(Checker):
    """A17 (part): two reads or polls returned different values at the same offset.  Illegal for
    every ack level.  O(1)."""

    id, name = "A17", "read-then-lost"

    def on_conflict(self, key: Key, offset: int, before: int, value: int, source: Evidence) -> None:
        if source.reads and key.read[offset]:
            self.found(f"offset {offset} was read as value {before}, and then as value {value}",
                       key, (source.operation,), source.time_us)


def is_at(key: Key, offset: int, value: int) -> bool:
    """True if the value is known to be at the offset."""
    return 0 <= offset < len(key.slots) and key.slots[offset] == value


def is_taken(key: Key, offset: int) -> bool:
    """True if the offset is known to hold a record, or certainly holds none because the key ends at
    or below it."""
    return key.is_known(offset) or (key.final_certain and offset >= key.final_end)


def _name(key: Key) -> str:
    return topic_of(key.name).rpartition("@")[0]


def _place_of(checker: Checker, value: int) -> int:
    """Return the offset at which a value has to be, by the known base of its append."""
    home = checker.ledger.values.home(value)
    return checker.ledger.appends.base[home >> PLACE_BITS] + (home & (PLACES_MAX - 1))


def _known_sibling(checker: Checker, key: Key, value: int) -> tuple[int, int] | None:
    """Return (place, offset) of the record that established the base of the value's append.  None
    when that record is the value itself, which is then a duplicate."""
    if is_at(key, _place_of(checker, value), value):
        return None
    appends = checker.ledger.appends
    number = checker.ledger.values.home(value) >> PLACE_BITS
    return appends.anchor[number], appends.base[number] + appends.anchor[number]


CHECKERS = (InconsistentOffsets, ReassignedOffset, Duplicate, SendOutOfOrder, TornBatch, Aborted,
            UnknownValue, CrossGroupLeak, OldLife, Corruption, ChangedAfterRead)

