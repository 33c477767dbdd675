"""CLOCK entries of a group that tell the age of its records, in a bounded list.

Contract.  A list is an immutable byte string of (index, milliseconds), both ascending, so that the
state of a group is a value.  ``with_clock`` adds the next entry; ``index_before`` says up to which
index all entries of the log were appended by a given time, and ``time_after`` by which time an
entry was.  All are functions of their arguments alone: replicas with the same log have the same
list.

Invariants.  At most ``CLOCKS_MAX`` clocks.  The newest and the oldest one are always kept.  A clock
that is missing from the list makes records seem younger, never older.

Theory.  A record at index i was appended by the time of the first later CLOCK.  A CLOCK that does
not exceed the one before says nothing: its leader's clock was behind, and time had passed.  A full
list is thinned so that the distance of two clocks grows with their age: the error in the age of a
record stays small beside the age.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

#: Clocks in the list of one group: 8 KiB, an hour of CLOCK entries at full resolution.
CLOCKS_MAX = 512

_CLOCK = struct.Struct("<QQ")  # log index, milliseconds since 1970
_BYTES_MAX = CLOCKS_MAX * _CLOCK.size
#: Clocks that thinning leaves at most, so that a full list takes many more before the next one.
_KEPT_MAX = CLOCKS_MAX * 3 // 4
#: Thinning leaves clocks at most 1/24 of their age apart: 7 hours in a week.  Ten years of CLOCK
#: entries every 10 s fit then.  The lower ones are for clocks that no node has: six clocks for each
#: doubling of the age fit in any case.
_SHARES = (24, 12, 6)
_NUMBER_MAX = (1 << 63) - 1


def with_clock(clocks: bytes, index: int, clock_ms: int) -> bytes:
    """Return the list with the CLOCK entry at ``index``, above all others; unchanged if its time
    does not exceed that of the last one.  O(clocks)."""
    last_index, last_ms = last_clock(clocks)
    assert index > last_index, f"CLOCK at {index} after one at {last_index}"
    if clock_ms <= last_ms:
        return clocks
    if len(clocks) == _BYTES_MAX:
        clocks = _thinned(clocks)
    return clocks + _CLOCK.pack(index, clock_ms)


def _thinned(clocks: bytes) -> bytes:
    """Return at most ``_KEPT_MAX`` of the clocks, the newest among them.  O(clocks)."""
    newest_first = list(_CLOCK.iter_unpack(clocks))[::-1]
    now_ms = newest_first[0][1]
    for share in _SHARES:
        kept = newest_first[:1]
        for clock, (_, earlier_ms) in zip(newest_first[1:], newest_first[2:], strict=False):
            later_ms = kept[-1][1]
            if (later_ms - earlier_ms) * share > now_ms - later_ms:
                kept.append(clock)
        kept.append(newest_first[-1])
        if len(kept) <= _KEPT_MAX:
            break
    return b"".join([_CLOCK.pack(*clock) for clock in reversed(kept)])


def last_clock(clocks: bytes) -> tuple[int, int]:
    """Return (index, milliseconds) of the newest clock; (0, 0) = there is none.  O(1)."""
    if not clocks:
        return 0, 0
    index, clock_ms = _CLOCK.unpack_from(clocks, len(clocks) - _CLOCK.size)
    return index, clock_ms


def index_before(clocks: bytes, clock_ms: int) -> int:
    """Return the highest index at or below which every entry was appended by ``clock_ms``, as far
    as the list tells; 0 = none was.  O(log clocks)."""
    numbers = memoryview(clocks).cast("Q")
    later = bisect_right(numbers[1::2], clock_ms)
    return numbers[2 * later - 2] - 1 if later else 0


def time_after(clocks: bytes, index: int) -> int | None:
    """Return a time by which the entry at ``index`` was appended, milliseconds; None = no CLOCK
    follows it yet.  O(log clocks)."""
    numbers = memoryview(clocks).cast("Q")
    at = bisect_right(numbers[::2], index)
    return numbers[2 * at + 1] if 2 * at < len(numbers) else None


def checked(clocks: bytes) -> bytes:
    """Return the list if it is one.  Raises ``ValueError`` for another length, for clocks that are
    not in order, and above ``CLOCKS_MAX``.  O(clocks)."""
    if len(clocks) % _CLOCK.size or len(clocks) > _BYTES_MAX:
        raise ValueError(f"{len(clocks)} bytes are no list of at most {CLOCKS_MAX} clocks")
    before = (0, 0)
    for index, clock_ms in _CLOCK.iter_unpack(clocks):
        if index <= before[0] or clock_ms <= before[1] or max(index, clock_ms) > _NUMBER_MAX:
            raise ValueError(f"a clock of {clock_ms} ms at index {index} follows {before}")
        before = index, clock_ms
    return clocks
