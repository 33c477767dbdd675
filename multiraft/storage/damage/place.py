"""Addresses of stored bytes: a segment file and a byte in it.

Contract.  A place says *where* bytes stand, in which file of which kind whatever; a journal offset
says *when* a record was written, relative to the others of the journal.  Damage is kept by place.
``Journal.place_at`` is the one conversion from an offset; the inverse is ``journal_offset``.

Invariant.  Places of one journal order as their offsets do, because a segment's number is the
offset at which it begins, and ``place_at`` never names a byte behind the next segment's beginning.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """Byte of a segment file."""

    file: int  # number in the file's name: of a journal's segment, the offset where it begins
    byte: int  # in the file, with its header

    @property
    def journal_offset(self) -> int:
        """Offset of a place in a file of the journal."""
        return self.file + self.byte


#: Begin of every journal.  A range that begins here tells how old a log is; damage never does.
ORIGIN = Place(0, 0)

#: [begin, end).
PlaceRange = tuple[Place, Place]
