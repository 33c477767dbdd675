"""Fault atlas and the disk damage that it permits: bit rot and misdirected writes.

Contract.  ``FaultAtlas.choose`` returns an entry whose damage the cluster must survive, or None;
``note`` records the damage until its node is repaired.  Only entries below the durable watermark
are damaged, because a crash may take what is above it as well (docs/decisions/0002).

Theory.  TigerBeetle's fault atlas: faults are placed such that recovery is possible, and then it is
required.  A damaged batch costs its node one known entry, so every node may have some, each at
another index (helix).  A damaged header may have been the header of the last entry or of a vote of
any group; its node counts as lost until its quarantines are cleared, and nothing else may be
damaged meanwhile.  The same holds for a damaged copy that repair wrote (docs/decisions/0009): it
may be the only evidence that the entry exists.

Members.  Under every configuration that is in a log, the other voters must be a majority without
any one damaged voter, and must remain one: callers ask ``permits`` before they change members.  A
majority of any later configuration then has a member that holds the whole committed log, because
that member had to follow up to the configuration's entry.  Its own damage is at other indexes.

Relaxed durability.  An entry that a power loss took from a member still counts as committed, but
fewer members hold it: a voter is not damaged while the others could elect a leader without the
entry.  Conversely, no node loses unsynced records while another node is damaged
(``page_cache.survives_power_loss``).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from chaos.simulator.oracle.model import GroupModel, is_majority
from multiraft import core
from multiraft.codec import layout
from multiraft.types import LAST_INDEXED_KIND, Configuration, EntryKind

_U32 = struct.Struct("<I")
SECTOR_BYTES = 512


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
    """A bit flip to be made."""

    place: Place
    byte: int  # of the file
    header: bool  # the owner of the entry is unknown after the damage


class Misdirected(NamedTuple):
    """A write that went to another position: zeros are in its own place, its bytes are in the other
    one.
    """

    place: Place
    to_path: str
    to: int  # byte of that file


class DiskOwner(Protocol):
    """The node that owns a disk."""

    node: int
    has_recovered: bool


def durable_places(images: dict[str, bytes]) -> list[Place]:
    """Return the entries of a journal (path of a segment -> bytes) below the durable watermark of
    an intact entry, oldest first."""
    found: list[tuple[int, Place]] = []
    durable = 0
    for path, data in sorted(images.items()):
        start = int(path.rpartition("/")[2].partition(".")[0])
        if len(data) < layout.SEGMENT_HEADER_BYTES:
            continue
        seed, = _U32.unpack_from(data, layout.SEGMENT_SEED_AT)
        for entry in core.scan_entries(data, layout.SEGMENT_HEADER_BYTES, seed).entries:
            durable = max(durable, entry.durable)
            found.append((start + entry.at + entry.length,
                          Place(path, entry.at, entry.length, entry.kind, entry.group,
                                entry.index, entry.term)))
    return [place for end, place in found if end <= durable]


def copies_of(places: list[Place]) -> set[Place]:
    """Return the places that hold copies of damaged entries, or may be taken for copies.

    These are entries behind a REPAIR record, and entries whose index is not above the highest index
    of their group so far.
    """
    found: set[Place] = set()
    ends: dict[int, int] = {}  # group -> highest index so far
    before: Place | None = None
    for place in places:
        if place.kind <= LAST_INDEXED_KIND:
            if (before is not None and before.kind == EntryKind.REPAIR
                    or place.index <= ends.get(place.group, 0)):
                found.add(place)
            ends[place.group] = max(place.index, ends.get(place.group, 0))
        before = place
    return found


class FaultAtlas:
    """Record of all damage in the cluster, and the decision where more is allowed."""

    def __init__(
        self, rng: random.Random, groups: dict[int, GroupModel], nodes: Iterable[DiskOwner]
    ):
        """Begin without damage. ``groups`` and ``nodes`` are read at each call, so they must be the
        live collections of the run."""
        self._rng = rng
        self._groups = groups
        self._nodes = nodes
        self._entries: dict[tuple[int, int], int] = {}  # (group, index) -> node
        self._lost: int = 0  # node with damage that may belong to any group; 0 = none
        self._seen: dict[int, list[Configuration]] = {}
        self._permanent: dict[int, set[int]] = {}
        self._lacking: dict[int, set[int]] = {}
        self._gone: set[int] = set()  # nodes whose directory was wiped or put back
        self._staying_down: tuple[int, ...] = ()  # nodes that stay down

    @property
    def damaged_nodes(self) -> set[int]:
        """Nodes with damage that is not known to be repaired."""
        return {*self._entries.values()} | ({self._lost} if self._lost else set())

    def refresh(self) -> None:
        """Forget the damage of nodes that have found and repaired it, and all cached
        configurations.
        """
        whole = {node.node for node in self._nodes if node.has_recovered}
        self._entries = {place: owner for place, owner in self._entries.items()
                         if owner not in whole}
        if self._lost in whole:
            self._lost = 0
        self._seen.clear()
        self._permanent.clear()
        self._lacking.clear()

    def permits(self, voters: tuple[int, ...], repaired: bool = False) -> bool:
        """True if a group may get these voters.

        Each damaged voter must be dispensable, and the voters that stay down must be a minority.
        With ``repaired`` no replica is damaged any longer, even if no recovery has read the old
        damage.
        """
        self.refresh()
        if {*voters} & self._gone or 2 * len({*voters} & {*self._staying_down}) >= len(voters):
            return False
        return repaired or len(voters) > 2 or not {*voters} & self.damaged_nodes

    def stay_down(self, nodes: Iterable[int]) -> None:
        """Record the nodes that stay down, so that no group comes to need them."""
        self._staying_down = tuple(nodes)

    def may_lose(self, node: int) -> bool:
        """True if everything that a node stores may be lost for good: no other node is damaged, and
        every group can do without this one."""
        self.refresh()
        return not self.damaged_nodes - {node} and self._can_do_without(node)

    def lose(self, node: int) -> None:
        """Record that a node lost its directory: nothing else may be damaged until it is replaced.
        """
        self._entries = {place: owner for place, owner in self._entries.items() if owner != node}
        self._lost = node
        self._gone.add(node)

    def replaced(self, node: int) -> None:
        """Record that no group needs the node ``node`` any longer, so that other nodes may be
        damaged."""
        self._lost = 0 if self._lost == node else self._lost

    def choose(self, node: int, places: list[Place]) -> Rot | None:
        """Return a bit flip in one of ``places`` that a node must survive, or None when none is
        allowed there. It is not made or recorded yet (``note``)."""
        others = self.damaged_nodes - {node}
        if not places or self._lost not in (0, node):
            return None
        copies = copies_of(places)
        if not others and self._rng.random() < 0.3 and self._can_do_without(node):
            place = self._rng.choice(places)
            sure = place.length if place in copies else layout.ENTRY_HEADER_BYTES
            return Rot(place, place.at + self._rng.randrange(sure), True)
        with_others = {group for group in self._groups if self._has_others(group, node)}
        batches = [place for place in places
                   if place.kind == EntryKind.DATA and place.group in with_others
                   and place not in copies and self._is_elsewhere(node, place)]
        if not batches:
            return None
        place = self._rng.choice(batches)
        checked = layout.ENTRY_HEADER_BYTES + layout.BATCH_UNCHECKED_BYTES
        return Rot(place, place.at + self._rng.randrange(checked, place.length), False)

    def misdirect(self, node: int, places: list[Place]) -> Misdirected | None:
        """Return a write of the node, to one of ``places``, that went to another position; None =
        none is allowed, or the draw does not fit. It is not made or recorded yet (``note_lost``).

        The bytes land at the right offset within a sector, over entries that are durable.
        """
        if (not places or self.damaged_nodes - {node} or self._lost not in (0, node)
                or not self._can_do_without(node)):
            return None
        place, victim = self._rng.choice(places), self._rng.choice(places)
        to = victim.at + (place.at - victim.at) % SECTOR_BYTES
        ends = [each.at + each.length for each in places if each.path == victim.path]
        if (victim.path, to) == (place.path, place.at) or to + place.length > max(ends):
            return None
        return Misdirected(place, victim.path, to)

    def _configurations(self, group: int) -> list[Configuration]:
        """Return all configurations of a group that are committed or in a log."""
        found = self._seen.get(group)
        if found is None:
            found = self._seen[group] = self._groups[group].configurations()
        return found

    def _permanent_members(self, group: int) -> set[int]:
        """Return the nodes that are members by each configuration of a group that is committed or
        in a log."""
        found = self._permanent.get(group)
        if found is None:
            found = self._permanent[group] = set.intersection(
                *[{*configuration.members()} for configuration in self._configurations(group)])
        return found

    def _can_do_without(self, node: int) -> bool:
        """True if every group keeps a majority without the node, whichever of its configurations
        wins.
        """
        return all(self._has_others(group, node) for group in self._groups)

    def _has_others(self, group: int, node: int) -> bool:
        lacking = self._lacking_members(group) - {node}
        return all(len(half) > 2 for configuration in self._configurations(group)
                   for half in (configuration.voters, configuration.outgoing) if node in half
                   ) and not any(is_majority(configuration, [*lacking])
                                 for configuration in self._configurations(group))

    def _lacking_members(self, group: int) -> set[int]:
        """Return the members that do not hold durably the last committed entry that a power loss
        took from a replica; empty = none took one.

        A member that has this entry has all entries before it.
        """
        found = self._lacking.get(group)
        if found is None:
            found = self._lacking[group] = self._without_forgotten(self._groups[group])
        return found

    def _without_forgotten(self, group: GroupModel) -> set[int]:
        forgotten = {chain for replica in group.replicas.values() for chain in replica.forgotten}
        last = max((index for chain in forgotten
                    if (index := group.entries[chain].index) <= group.commit
                    and group.committed[index - 1] == chain), default=0)
        if not last:
            return set()
        members = {node for configuration in self._configurations(group.group)
                   for node in (*configuration.voters, *configuration.outgoing)}
        return {node for node in members
                if node not in group.replicas
                or not group.replicas[node].durable.holds(last, group.committed[last - 1])}

    def _is_elsewhere(self, node: int, place: Place) -> bool:
        """True if the disk of another node, a member by every configuration, holds the committed
        entry, and no other node's copy of it is damaged."""
        group = self._groups[place.group]
        owner = self._entries.get((place.group, place.index), node)
        if owner != node or place.index > group.commit:
            return False
        chain, permanent = group.committed[place.index - 1], self._permanent_members(place.group)
        return any(
            other != node and other in permanent and replica.durable.holds(place.index, chain)
            for other, replica in group.replicas.items()
        )

    def note(self, node: int, rot: Rot) -> None:
        """Record that ``rot`` was done to the node, until the node is repaired."""
        if rot.header:
            self.note_lost(node)
        else:
            self._entries[rot.place.group, rot.place.index] = node

    def note_lost(self, node: int) -> None:
        """Record damage of the node that may belong to any group: nothing else may be damaged until
        the node is repaired."""
        self._lost = node
