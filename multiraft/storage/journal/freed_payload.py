"""Payload of a batch whose bytes were read and freed: its length.

Contract.  Recovery replays entries into the partition states, which take the fields of a batch
(``Entry.batch``) and the number of its bytes.  A ``FreedPayload`` has that number as its length and
supports nothing else.
"""

from __future__ import annotations

from multiraft.types import Payload


class FreedPayload:
    """Length of a payload that is no longer in memory."""

    __slots__ = ("_size",)

    def __init__(self, size: int):
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreedPayload) and other._size == self._size

    __hash__ = None  # type: ignore[assignment]  # like the entries that have it


def freed(size: int) -> Payload:
    """Return a payload of ``size`` bytes without its bytes, for an entry that is replayed only."""
    return FreedPayload(size)  # type: ignore[return-value]  # only its length is asked for
