"""The ledger: facts that a history has established so far, packed, shared by all checkers.

Contract.  ``chaos.checkers.stream`` passes every event to the ledger; the ledger keeps, per key,
the value at each offset, and per append, its base offset.  A contradiction is passed to the
checkers as a hook (``checker.HOOKS``); the ledger itself judges nothing.

Invariants.  A value stands at an offset when an acknowledgement with acks ``commit`` or a read put
it there; an acknowledgement with acks ``leader`` is a claim, kept apart, until a read confirms it.
Per record: 8 bytes for the value at its offset, 8 for the append that a value belongs to, a few
flags of a byte each.  Per append ``Appends`` keeps some 60 bytes.  Nothing else grows with the
history but open operations and anomalies.

Theory.  Most runs of records were seen before, by another reader; those are compared as memory.
Only a record that is new at its offset costs Python, once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from chaos.checkers.transactions import Transactions
from chaos.history import topic_of

#: A slot of which nothing is known; values are at least -2 (``chaos.history``).
EMPTY = -3
#: Bits of a value's home that hold the value's place within its append.
PLACE_BITS = 20
PLACES_MAX = 1 << PLACE_BITS
#: Largest gap in a producer's numbers that is kept as an array; numbers further off are kept one by
#: one.
SPARSE_MIN = 1 << 16

#: The base of an append whose offset is unknown.
NOWHERE = -1 << 62

COMMIT, LEADER, NONE = 0, 1, 2
ACKS = {"commit": COMMIT, "leader": LEADER, "none": NONE}
#: Outcomes of an append; ``UNKNOWN`` until its completion decides.
UNKNOWN, ACKED, FAILED = 0, 1, 2

class Evidence(NamedTuple):
    """Evidence that a record is at an offset."""

    operation: int  # of the history; -1 = the logs that the replicas left
    reads: bool  # a read or a log; False = an acknowledgement
    time_us: int


class Values:
    """Map from a value to its append and its place in it.  A producer's numbers are dense, so its
    values are an array; stray ones are kept one by one."""

    __slots__ = ("_arrays", "_strays")

    def __init__(self) -> None:
        self._arrays: dict[int, array] = {}
        self._strays: dict[int, int] = {}

    def home(self, value: int) -> int:
        """Return ``append << PLACE_BITS | place``; -1 = the value was not appended."""
        homes, number = self._arrays.get(value >> 32), value & 0xFFFFFFFF
        if homes is not None and number < len(homes) and homes[number] >= 0:
            return homes[number]
        return self._strays.get(value, -1)

    def set_home(self, value: int, home: int) -> None:
        """Record the home of a value, as ``home`` returns it; an earlier one is replaced."""
        homes = self._arrays.get(value >> 32)
        if homes is None:
            homes = self._arrays[value >> 32] = array("q")
        number = value & 0xFFFFFFFF
        missing = number - len(homes)
        if missing == 0:
            homes.append(home)
        elif missing < 0:
            homes[number] = home
        elif missing <= SPARSE_MIN:
            homes.extend(array("q", (-1,)) * missing)
            homes.append(home)
        else:
            self._strays[value] = home


class Appends:
    """Columns of all appends, by their number in the order of invocation."""

    __slots__ = ("operation", "key", "base", "count", "floor", "anchor", "acks", "outcome",
                 "leader_offset", "identity", "epoch", "sequence", "time_us", "_identities")

    def __init__(self) -> None:
        self.operation = array("q")
        self.key = array("i")
        self.base = array("q")  # offset of its first record, once established; or NOWHERE
        self.count = array("i")
        self.floor = array("q")  # end of what was committed when the append was invoked
        self.anchor = array("i")  # the place that established the base; -1 = none did
        self.acks = array("b")
        self.outcome = array("b")
        self.leader_offset = array(
            "q"
        )  # the offset of an acknowledgement with acks "leader"; -1 = none
        self.identity = array("i")  # of its producer; -1 = a plain one
        self.epoch = array("i")
        self.sequence = array("q")
        self.time_us = array("q")  # of its completion; -1 before
        self._identities: dict[tuple[int, bool], int] = {}

    def __len__(self) -> int:
        return len(self.operation)

    def add(self, operation: int, key: int, floor: int, data: dict) -> int:
        """Add an append and return its number. ``key``: the key's number; ``data``: of its
        invocation; ``floor``: the column."""
        producer, sequence = data.get("producer", -1), data.get("sequence", -1)
        identity = -1
        if producer >= 0:
            # Workloads number producers whose id they do not see; their numbers are another range.
            identity = self._identities.setdefault((producer, sequence >= 0),
                                                   len(self._identities))
        self.operation.append(operation)
        self.key.append(key)
        self.base.append(NOWHERE)
        self.count.append(len(data["values"]))
        self.floor.append(floor)
        self.anchor.append(-1)
        self.acks.append(ACKS[data["acks"]])
        self.outcome.append(UNKNOWN)
        self.leader_offset.append(-1)
        self.identity.append(identity)
        self.epoch.append(data.get("epoch", -1))
        self.sequence.append(sequence)
        self.time_us.append(-1)
        return len(self.operation) - 1


class Key:
    """State of one key: one incarnation of a partition."""

    __slots__ = ("name", "number", "topic", "slots", "read", "acked", "final", "sent", "seen_end",
                 "final_end", "final_certain", "deleted", "deleted_us", "gaps", "displaced",
                 "log_start", "shown_start",
                 "group", "high_watermark")

    def __init__(self, name: str, number: int):
        self.name = name
        self.number = number
        self.topic = topic_of(name)
        self.slots = array("q")  # value at each offset, or EMPTY
        self.read = bytearray()  # 1 = a read returned it
        self.acked = bytearray()  # 1 = acknowledged with commit
        self.final = bytearray()  # 1 = a final read returned it
        self.sent = 0  # values that were ever sent; every offset is lower
        self.seen_end = 0  # every record below was acknowledged with commit, or shown to a reader
        self.high_watermark = 0  # the highest that a reader was shown
        self.final_end = -1  # the highest end that a final read or question saw
        self.final_certain = False  # one of those was linearizable
        self.deleted = 0  # deletions that were asked for and not refused
        self.deleted_us = -1  # a deletion was confirmed
        self.gaps: list[tuple[int, int, int]] = []  # [begin, end) a result left out, operation
        self.log_start = 0  # the highest that a committed entry sets, by the logs; for ``on_end``
        self.shown_start = (0, -1, -1)  # the highest that an answer gave: offset, operation, time
        self.displaced: dict[int, tuple[int, int]] = {}  # value -> offset, operation: see A3
        self.group = -1

    def grow(self, end: int) -> None:
        """Extend the columns to offsets below ``end``, with nothing known there; does nothing when
        they are as long."""
        missing = end - len(self.slots)
        if missing > 0:
            self.slots.extend(array("q", (EMPTY,)) * missing)
            for flags in (self.read, self.acked, self.final):
                flags.extend(bytes(missing))

    def is_known(self, offset: int) -> bool:
        """True if a record is known to be at the offset."""
        return 0 <= offset < len(self.slots) and self.slots[offset] != EMPTY


class Ledger:
    """Packed state of a history: keys, appends and values.  Methods take what an event says."""

    def __init__(self, hooks: dict[str, tuple[Callable[..., None], ...]]):
        self._hooks = hooks
        self.keys: dict[str, Key] = {}
        self.by_number: list[Key] = []
        self.by_topic: dict[str, list[Key]] = {}
        # topic's incarnation -> count, confirmed at
        self._deletions: dict[str, tuple[int, int]] = {}
        self.values = Values()
        self.appends = Appends()
        self.transactions = Transactions(self.ask)
        self.repeated: dict[int, int] = {}  # append that was recorded again -> the first one
        self._ones = bytes((1,)) * 4096

    def ask(self, hook: str, *arguments: object) -> None:
        """Call a hook (``checker.HOOKS``) of all checkers that have it."""
        for check in self._hooks[hook]:
            check(*arguments)

    def key(self, name: str) -> Key:
        """Return the key of this name; a new one is created and reported by ``on_key``."""
        found = self.keys.get(name)
        if found is None:
            found = self.keys[name] = Key(name, len(self.by_number))
            self.by_number.append(found)
            self.by_topic.setdefault(found.topic, []).append(found)
            found.deleted, found.deleted_us = self._deletions.get(found.topic, (0, -1))
            self.ask("on_key", found)
        return found

    def deletion(self, topic: str, change: int, confirmed_us: int) -> None:
        """Add ``change`` to the number of deletions asked for a topic's incarnation, for its
        present and later keys. ``confirmed_us``: when one was confirmed; -1 = none was."""
        count, before_us = self._deletions.get(topic, (0, -1))
        now = self._deletions[topic] = (count + change, max(before_us, confirmed_us))
        for key in self.by_topic.get(topic, ()):
            key.deleted, key.deleted_us = now

    # ---- appends ---------------------------------------------------------------------------

    def invoke_append(self, operation: int, data: dict) -> int:
        """Record an invoked append and return its number. One with a value that was appended before
        is a repetition of that value's append."""
        key = self.key(data["key"])
        number = self.appends.add(operation, key.number, key.seen_end, data)
        home = number << PLACE_BITS
        set_home, home_of = self.values.set_home, self.values.home
        for value in data["values"]:
            first = home_of(value)
            if first >= 0:
                self._repeat(number, first >> PLACE_BITS)
                return number
            set_home(value, home)
            home += 1
        key.sent += len(data["values"])
        if "transaction" in data:
            self.transactions.stage(number, data)
        return number

    def _repeat(self, number: int, first: int) -> None:
        """Record a repetition of an append; the outcome of the first one is open again."""
        self.repeated[number] = first
        if self.appends.outcome[first] == FAILED:
            self.appends.outcome[first] = UNKNOWN

    def complete_append(self, number: int, outcome: int, offset: int, values: Sequence[int],
                        time_us: int) -> None:
        """Record the end of an append: its ``outcome``, and if acknowledged its ``offset`` (-1 =
        none given); call the hooks that it concerns. Only an acknowledgement with acks ``commit``
        places its ``values``; one with ``leader`` is kept as claimed."""
        appends = self.appends
        appends.outcome[number], appends.time_us[number] = outcome, time_us
        key = self.by_number[appends.key[number]]
        if outcome == FAILED:
            if appends.base[number] != NOWHERE:
                self.ask("on_aborted", key, number, appends.base[number],
                         Evidence(appends.operation[number], False, time_us))
        elif outcome == ACKED and offset >= 0:
            source = Evidence(appends.operation[number], False, time_us)
            first = self.repeated.get(number, number)
            if first != number and appends.base[first] not in (NOWHERE, offset):
                self.ask("on_repeated", key, number, first, offset, source)
            elif appends.acks[number] == COMMIT:
                self._acknowledged(key, offset, values, source)
            else:
                appends.leader_offset[number] = offset

    def _acknowledged(self, key: Key, offset: int, values: Sequence[int], source: Evidence) -> None:
        end = offset + len(values)
        if self.place(key, offset, values, source):
            key.acked[offset:end] = self.ones(len(values))
            key.seen_end = max(key.seen_end, end)

    def ones(self, count: int) -> bytes:
        """Return ``count`` bytes of value 1: flags that are set."""
        if count > len(self._ones):
            self._ones = bytes((1,)) * (2 * count)
        return self._ones[:count]

    # ---- records at offsets -----------------------------------------------------------------

    def place(self, key: Key, base: int, values: Sequence[int], source: Evidence) -> bool:
        """Place ``values`` at ``base`` and behind it, on the evidence of ``source``; report what
        contradicts earlier evidence to the hooks.

        Return False, with nothing placed, when they cannot be there: ``base`` is negative or they
        end more than ``SPARSE_MIN`` behind all that was sent.
        """
        end = base + len(values)
        if base < 0 or end > key.sent:
            self.ask("on_beyond", key, base, end, source)
            if base < 0 or end > key.sent + SPARSE_MIN:
                return False
        key.grow(end)
        slots = key.slots
        if slots[base:end].tolist() != values:
            for offset, value in enumerate(values, base):
                if slots[offset] != value:
                    self._place_one(key, offset, value, source)
        return True

    def _place_one(self, key: Key, offset: int, value: int, source: Evidence) -> None:
        """Place one value at an offset that held another value or none, and report a conflict. Over
        another value only the first read there wins; an unreadable value is reported and not
        placed."""
        if value < 0:
            self.ask("on_unreadable", key, offset, value, source)
            return
        before = key.slots[offset]
        if before != EMPTY:
            self.ask("on_conflict", key, offset, before, value, source)
            if source.reads and not key.read[offset]:
                key.displaced[before] = (offset, source.operation)
                key.slots[offset] = value  # a reader's evidence replaces an acknowledgement's
            elif not source.reads:
                key.displaced[value] = (offset, source.operation)
        else:
            key.slots[offset] = value
        self._establish(key, offset, value, source)

    def _establish(self, key: Key, offset: int, value: int, source: Evidence) -> None:
        """Establish the base of a value's append from the value's offset, unless it is known.
        Report a value that is unknown, of another key, elsewhere than its append, or of a failed
        append."""
        home = self.values.home(value)
        if home < 0:
            self.ask("on_unknown", key, offset, value, source)
            return
        number, place = home >> PLACE_BITS, home & (PLACES_MAX - 1)
        appends = self.appends
        if appends.key[number] != key.number:
            self.ask("on_foreign", key, offset, value, number, source)
            return
        base = offset - place
        if appends.base[number] == base:
            return
        if appends.base[number] != NOWHERE:
            self.ask("on_moved", key, offset, value, number, source)
            return
        appends.base[number], appends.anchor[number] = base, place
        if appends.outcome[number] == FAILED:
            self.ask("on_aborted", key, number, base, source)
        self.ask("on_base", key, number, base, source)

    # ---- results ----------------------------------------------------------------------------

    def shown(self, key: Key, base: int, values: Sequence[int], source: Evidence,
              final: bool) -> int:
        """Record that a reader got these records, and return the offset after them. ``final``: by a
        final read. Contradictions are reported to the hooks and recorded; records at negative
        offsets, or far beyond all that were sent, are only reported."""
        end = base + len(values)
        if self.place(key, base, values, source):
            ones = self.ones(len(values))
            key.read[base:end] = ones
            if final:
                key.final[base:end] = ones
            if end > key.seen_end:
                key.seen_end = end
        return end

    def appends_of(self, runs: Sequence[Sequence]) -> Iterator[int]:
        """Yield the numbers of the appends to which runs of records, (base, values), belong. An
        append is yielded once for each time that its records follow other ones."""
        last = -1
        for _, values in runs:
            for value in values:
                home = self.values.home(value) if value >= 0 else -1
                if home >= 0 and home >> PLACE_BITS != last:
                    last = home >> PLACE_BITS
                    yield last

    def told_end(self, key: Key, high_watermark: int, final: bool, certain: bool) -> None:
        """Record that an answer gave this high watermark; one above the number of values ever sent
        is ignored. ``final``: of a final read or question; ``certain``: linearizable."""
        if high_watermark > key.sent:
            return  # reported by ``on_beyond``; believed, it would make every later append wrong
        key.high_watermark = max(key.high_watermark, high_watermark)
        key.seen_end = max(key.seen_end, high_watermark)
        if final:
            key.final_end = max(key.final_end, high_watermark)
            key.final_certain = key.final_certain or certain

    def told_start(self, key: Key, start: int, operation: int, time_us: int) -> None:
        """Record that an answer gave this log start."""
        if start > key.shown_start[0]:
            key.shown_start = start, operation, time_us

    def raise_log_start(self, name: str, log_start: int) -> None:
        """Record a committed log start of a key."""
        key = self.key(name)
        key.log_start = max(key.log_start, log_start)

    # ---- at the end --------------------------------------------------------------------------

    def living(self) -> Iterator[Key]:
        """Return keys without a deletion: none was asked for, or all of them were refused."""
        return (key for key in self.by_number if not key.deleted)

    def walk(self, key: Key) -> Iterable[tuple[int, int, int, int]]:
        """Yield (offset, append, place of the first record in its append, records) for all records
        of a key whose append is known. Consecutive records of an append are one row; the order is
        that of offsets."""
        home_of = self.values.home
        begin, first, following = 0, -1, -1
        for offset, value in enumerate(key.slots):
            home = home_of(value) if value >= 0 else -1
            if home == following and home >= 0 and home & (PLACES_MAX - 1):
                following += 1
                continue
            if offset > begin and first >= 0:
                yield begin, first >> PLACE_BITS, first & (PLACES_MAX - 1), offset - begin
            begin, first = offset, home
            following = home + 1 if home >= 0 else -1
        if first >= 0:
            yield (begin, first >> PLACE_BITS, first & (PLACES_MAX - 1), len(key.slots) - begin)
