"""Bit rot: durable bytes change by themselves, such that at least one good copy is left.

Contract.  ``Atlas.choose`` names a place whose damage the cluster must survive, or none; ``note``
remembers that it is damaged until its node is whole again.  Damage below the durable mark only: the
newest write is what a crash may take, too (docs/decisions/0002).

Theory.  TigerBeetle's fault atlas: faults are placed such that recovery is possible, and then it is
required.  A damaged batch costs its node that one entry, so that every node may have some, each at
another place (helix).  A damaged header may have been anybody's end or vote, so that its node
counts as lost until it was cleared, and nothing else may be damaged meanwhile.
"""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from multiraft import _layout, core
from multiraft.types import EntryKind

_U32 = struct.Struct("<I")


class Place(NamedTuple):
    """An entry on a disk."""

    path: str
    at: int  # byte of the file
    length: int
    kind: int
    group: int
    index: int
    term: int


class Rot(NamedTuple):
    """A place to be damaged."""

    place: Place
    byte: int  # of the file
    header: bool  # nobody will know whose it was


def durable_places(images: dict[str, bytes]) -> list[Place]:
    """Entries of a lane that a later intact entry calls durable, oldest first."""
    found: list[tuple[int, Place]] = []
    durable = 0
    for path, data in sorted(images.items()):
        start = int(path.rpartition("/")[2].partition(".")[0])
        if len(data) < _layout.SEGMENT_HEADER_BYTES:
            continue
        seed, = _U32.unpack_from(data, _layout.SEGMENT_SEED_AT)
        for entry in core.scan_entries(data, _layout.SEGMENT_HEADER_BYTES, seed).entries:
            durable = max(durable, entry.durable)
            found.append((start + entry.at + entry.length,
                          Place(path, entry.at, entry.length, entry.kind, entry.group,
                                entry.index, entry.term)))
    return [place for end, place in found if end <= durable]


class Atlas:
    """What is damaged where, in the whole cluster."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._entries: dict[tuple[int, int], int] = {}  # (group, index) -> node
        self._lost: int = 0  # node with damage of unknown ownership

    @property
    def damaged_nodes(self) -> set[int]:
        """Nodes that are not known to be whole."""
        return {*self._entries.values()} | ({self._lost} if self._lost else set())

    def whole(self, node: int) -> None:
        """All its damage was found and repaired."""
        self._entries = {place: owner for place, owner in self._entries.items() if owner != node}
        if self._lost == node:
            self._lost = 0

    def choose(self, node: int, places: list[Place], witness) -> Rot | None:
        """Where to damage a node."""
        others = self.damaged_nodes - {node}
        if not places or self._lost not in (0, node):
            return None
        if not others and self._rng.random() < 0.3:
            place = self._rng.choice(places)
            return Rot(place, place.at + self._rng.randrange(_layout.ENTRY_HEADER_BYTES), True)
        batches = [place for place in places
                   if place.kind == EntryKind.DATA and self._is_elsewhere(node, place, witness)]
        if not batches:
            return None
        place = self._rng.choice(batches)
        checked = _layout.ENTRY_HEADER_BYTES + _layout.BATCH_UNCHECKED_BYTES
        return Rot(place, place.at + self._rng.randrange(checked, place.length), False)

    def _is_elsewhere(self, node: int, place: Place, witness) -> bool:
        """Whether another disk holds the committed entry, undamaged."""
        group = witness.groups[place.group]
        owner = self._entries.get((place.group, place.index), node)
        if owner != node or place.index > group.commit:
            return False
        holders = group.durable_holders(place.index, group.committed[place.index - 1])
        return len([holder for holder in holders if holder != node]) > 0

    def note(self, node: int, rot: Rot) -> None:
        if rot.header:
            self._lost = node
        else:
            self._entries[rot.place.group, rot.place.index] = node
