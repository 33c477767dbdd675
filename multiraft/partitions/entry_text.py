"""Contents of entries without records as one line of text, for ``multiraft log inspect``.

Contract.  ``describe`` accepts any bytes: a payload that cannot be parsed is described by the
error.  Kinds without a payload of this package have no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multiraft.errors import CorruptEntry
from multiraft.partitions.producer_state import import_windows
from multiraft.partitions.records import NO_PREDECESSOR, parse_open, parse_seal
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    parse_clock,
    parse_compact,
    parse_delete,
    parse_expire,
    parse_log_starts,
)
from multiraft.types import EntryKind, Payload

#: Partitions that a text names; it always tells their number.
ROWS_SHOWN = 4


def describe(kind: int, payload: Payload) -> str:
    """Return what an entry of this kind says, as text; empty for a kind without a text.
    O(payload)."""
    text = _TEXTS.get(kind)
    if text is None:
        return ""
    try:
        return text(payload)
    except CorruptEntry as error:
        return f"malformed: {error}"


def _open(payload: Payload) -> str:
    opening = parse_open(payload)
    text = (f"epoch {opening.epoch} from offset {opening.start_offset}, leader epochs from "
            f"{opening.leader_epoch_base}")
    if opening.log_start == NO_PREDECESSOR:
        return text
    producers = len(import_windows(opening.windows, 0))
    return f"{text}, carried: log start {opening.log_start}, {producers} producers"


def _seal(payload: Payload) -> str:
    return f"epoch {parse_seal(payload)}"


def _log_start(payload: Payload) -> str:
    if not len(payload):
        return ""  # version 1: the entry's base offset says it
    rows = parse_log_starts(payload)
    return _list(len(rows), [
        f"p{row.partition} from {row.log_start}"
        + (f" ({row.live_bytes} bytes kept)" if row.live_bytes != UNKNOWN_BYTES else "")
        for row in rows[:ROWS_SHOWN]])


def _clock(payload: Payload) -> str:
    return f"{parse_clock(payload)} ms since 1970"


def _delete(payload: Payload) -> str:
    deletion = parse_delete(payload)
    shown = [f"p{partition}" for partition in deletion.partitions[:ROWS_SHOWN]]
    return f"{_list(len(deletion.partitions), shown)}, by metadata {deletion.metadata_index}"


def _compact(payload: Payload) -> str:
    found = parse_compact(payload)
    return (f"generation {found.generation} up to offset {found.up_to}, tombstones below "
            f"{found.tombstones_below}")


def _expire(payload: Payload) -> str:
    return f"producers without a batch from index {parse_expire(payload)} on"


def _list(count: int, shown: Sequence[str]) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


_TEXTS: dict[int, Callable[[Payload], str]] = {
    EntryKind.PARTITION_OPEN: _open,
    EntryKind.PARTITION_SEAL: _seal,
    EntryKind.LOG_START: _log_start,
    EntryKind.CLOCK: _clock,
    EntryKind.PARTITION_DELETE: _delete,
    EntryKind.COMPACT: _compact,
    EntryKind.PRODUCERS_EXPIRE: _expire,
}
