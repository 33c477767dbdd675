"""Producer state: the last batches of an idempotent producer in a partition, as a packed window.

Contract.  A *window* is an immutable byte string: the producer's epoch and its last 1 to 5 batches,
oldest first.  Each batch has its sequences, base offset, and the Raft index that must be committed
before a retry of it is answered.  A *carried* window has no indexes; it is in the entry that opens
the partition in another group.  There the index of that entry stands for all of them, because
carried batches are committed in their old group, and a retry is answered once the opening is
committed.

Theory.  The garbage collector does not visit packed state, and a change is undone by restoring the
previous string.  Base offsets of a partition grow with each batch, in any group: the order of the
last base offsets is the order of use, on every replica and across moves.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft.codec.layout import SEQUENCE_MODULUS
from multiraft.errors import CodecError, CorruptEntry
from multiraft.types import BatchInfo

#: Batches kept per producer and partition.  Kafka's number: clients have at most this many in
#: flight, so that a retry can only be one of them.
BATCHES_PER_WINDOW = 5

SEQUENCE_MASK = SEQUENCE_MODULUS - 1

# A window: i16 producer epoch, then 1 to 5 batches, oldest first.
_EPOCH = struct.Struct("<h")
_BATCH = struct.Struct("<iiqQ")  # first sequence, last sequence, base offset, raft index
_FIRST = struct.Struct("<hiiqQ")  # a window of one batch
_BYTES_MAX = _EPOCH.size + BATCHES_PER_WINDOW * _BATCH.size

# A carried window: i64 producer id, i16 epoch, u8 batches, then those.
_EXPORTED = struct.Struct("<qhB")
_EXPORTED_BATCH = struct.Struct("<iiq")  # first sequence, last sequence, base offset


class WindowBatch(NamedTuple):
    """One batch in a producer's window."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    index: int  # type: ignore[assignment]


def window_epoch(window: bytes) -> int:
    """Return the producer epoch of a window."""
    return _EPOCH.unpack_from(window)[0]


def last_sequence(window: bytes) -> int:
    """Return the last sequence of a window's newest batch."""
    return _BATCH.unpack_from(window, len(window) - _BATCH.size)[1]


def last_index(window: bytes) -> int:
    """Return the Raft index of a window's newest batch."""
    return int.from_bytes(window[-8:], "little")


def window_batches(window: bytes) -> tuple[int, list[WindowBatch]]:
    """Return (producer epoch, batches oldest first) of a packed window."""
    batches = _BATCH.iter_unpack(memoryview(window)[_EPOCH.size:])
    return window_epoch(window), [WindowBatch(*fields) for fields in batches]


def extended(window: bytes | None, batch: BatchInfo, base_offset: int, index: int) -> bytes:
    """Return the window with ``batch`` added as the newest of at most five; a new producer epoch
    starts an empty one."""
    first = batch.base_sequence
    last = (first + batch.count - 1) & SEQUENCE_MASK
    if window is None or window_epoch(window) != batch.producer_epoch:
        return _FIRST.pack(batch.producer_epoch, first, last, base_offset, index)
    added = _BATCH.pack(first, last, base_offset, index)
    if len(window) < _BYTES_MAX:
        return window + added
    return window[:_EPOCH.size] + window[_EPOCH.size + _BATCH.size:] + added


def repeated(window: bytes, info: BatchInfo) -> WindowBatch | None:
    """Return the batch of the window with exactly these sequences and this epoch; None = there is
    none."""
    epoch, batches = window_batches(window)
    if epoch != info.producer_epoch:
        return None
    first = info.base_sequence
    last = (first + info.count - 1) & SEQUENCE_MASK
    return next((batch for batch in batches
                 if batch.first_sequence == first and batch.last_sequence == last), None)


def checked_window(window: bytes) -> bytes:
    """Return ``window`` from a snapshot.  Raises ``CodecError`` if it cannot be a window."""
    batches, rest = divmod(len(window) - _EPOCH.size, _BATCH.size)
    if not isinstance(window, bytes) or rest or not 1 <= batches <= BATCHES_PER_WINDOW:
        raise CodecError(f"a producer window of {len(window)} bytes")
    return window


def restore_windows(windows: dict[int, bytes], changed: tuple) -> None:
    """Undo one entry's changes to ``windows``: put back each (producer, window before), None =
    remove it.  Their order is not restored; see ``in_order_of_use``."""
    for producer, window in changed:
        if window is None:
            del windows[producer]
        else:
            windows[producer] = window


def in_order_of_use(windows: dict[int, bytes]) -> dict[int, bytes]:
    """Return the windows, least recently used first.  Last base offsets differ: the order is
    total."""
    return dict(sorted(windows.items(), key=lambda item: _last_base_offset(item[1])))


def unexpired(windows: dict[int, bytes], below_index: int) -> dict[int, bytes]:
    """Return the windows, in order of use, without those whose newest batch has an index below
    ``below_index``: the first ones, because indexes grow in the order of use.  O(expired + 1), and
    O(producers) if there are any."""
    expired = 0
    for window in windows.values():
        if last_index(window) >= below_index:
            break
        expired += 1
    return dict(list(windows.items())[expired:]) if expired else windows


def _last_base_offset(window: bytes) -> int:
    return int.from_bytes(window[-16:-8], "little", signed=True)


# ---- moving to another group --------------------------------------------------------------------


def export_windows(windows: dict[int, bytes]) -> bytes:
    """Return the windows as bytes to carry into another group, without their indexes, in order of
    use.  O(producers)."""
    packed = []
    for producer, window in windows.items():
        epoch, batches = window_batches(window)
        packed.append(_EXPORTED.pack(producer, epoch, len(batches)))
        packed += [_EXPORTED_BATCH.pack(*batch[:3]) for batch in batches]
    return b"".join(packed)


def import_windows(data: bytes | memoryview, index: int) -> dict[int, bytes]:
    """Return producer -> window of the bytes that ``export_windows`` returned, with ``index``, that
    of the entry which opens the partition, as the index of each batch. Raises ``CorruptEntry`` for
    other bytes. O(producers)."""
    windows: dict[int, bytes] = {}
    at, end = 0, len(data)
    while at < end:
        if end - at < _EXPORTED.size:
            raise CorruptEntry("a carried window ends in its header")
        producer, epoch, count = _EXPORTED.unpack_from(data, at)
        at += _EXPORTED.size
        if not (1 <= count <= BATCHES_PER_WINDOW and end - at >= count * _EXPORTED_BATCH.size):
            raise CorruptEntry(f"a carried window of {count} batches in {end - at} bytes")
        if producer < 0 or producer in windows:
            raise CorruptEntry(f"a carried window of producer {producer}")
        window = _EPOCH.pack(epoch)
        for _ in range(count):
            window += _BATCH.pack(*_EXPORTED_BATCH.unpack_from(data, at), index)
            at += _EXPORTED_BATCH.size
        windows[producer] = window
    return windows
