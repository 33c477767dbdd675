"""Bit rot: durable bytes change by themselves, such that at least one good copy is left.

Contract.  ``FaultAtlas.choose`` names a place whose damage the cluster must survive, or none;
``note`` remembers that it is damaged until its node is whole again.  Damage below the durable mark
only: the newest write is what a crash may take, too (docs/decisions/0002).

Theory.  TigerBeetle's fault atlas: faults are placed such that recovery is possible, and then it is
required.  A damaged batch costs its node that one entry, so that every node may have some, each at
another place (helix).  A damaged header may have been anybody's end or vote, so that its node
counts as lost until it was cleared, and nothing else may be damaged meanwhile.  So may a damaged
copy (docs/decisions/0009): it may be all that says that there ever was such an entry.

Members.  Under every configuration that is in a log the others must be a majority without a voter
that is damaged, and stay one: ``permits`` is asked before members change.  Then each majority of
any later configuration has a member that holds the whole committed log, its own damage elsewhere
apart, because it had to follow to the configuration's entry.

Relaxed durability.  What a loss of power took from a member counts as committed still, and fewer
have it: a voter is not damaged while the others could elect a leader without it.  Nor does anybody
lose what is not synced while another node is damaged (``Ailing._is_spared``).
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
    """A place to be damaged."""

    place: Place
    byte: int  # of the file
    header: bool  # nobody will know whose it was


class Misdirected(NamedTuple):
    """A write that landed elsewhere: its own place holds nothing, the other one these bytes."""

    place: Place
    to_path: str
    to: int  # byte of that file


class Node(Protocol):
    """Whose disk it is."""

    node: int
    is_settled: bool


def durable_places(images: dict[str, bytes]) -> list[Place]:
    """Entries of a journal that a later intact entry calls durable, oldest first."""
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
    """Those that are copies of damaged entries, or may be taken for one: behind a REPAIR record, or
    where the log of their group does not go on."""
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
    """What is damaged where, in the whole cluster."""

    def __init__(self, rng: random.Random, groups: dict[int, GroupModel], nodes: Iterable[Node]):
        """``groups`` and ``nodes`` are those of the run, as they are when asked."""
        self._rng = rng
        self._groups = groups
        self._nodes = nodes
        self._entries: dict[tuple[int, int], int] = {}  # (group, index) -> node
        self._lost: int = 0  # node with damage of unknown ownership
        self._seen: dict[int, list[Configuration]] = {}
        self._lasting: dict[int, set[int]] = {}
        self._lacking: dict[int, set[int]] = {}
        self._gone: set[int] = set()  # nodes whose directory is lost
        self._away: tuple[int, ...] = ()  # nodes that stay down

    @property
    def damaged_nodes(self) -> set[int]:
        """Nodes that are not known to be whole."""
        return {*self._entries.values()} | ({self._lost} if self._lost else set())

    def refresh(self) -> None:
        """Forget what was found and repaired."""
        whole = {node.node for node in self._nodes if node.is_settled}
        self._entries = {place: owner for place, owner in self._entries.items()
                         if owner not in whole}
        if self._lost in whole:
            self._lost = 0
        self._seen.clear()
        self._lasting.clear()
        self._lacking.clear()

    def permits(self, voters: tuple[int, ...], repaired: bool = False) -> bool:
        """Whether a group may get these voters: they can do without any of them that is damaged,
        and without those that stay down.  ``repaired``: nobody is damaged any more, whether or not
        a start has met it."""
        self.refresh()
        if {*voters} & self._gone or 2 * len({*voters} & {*self._away}) >= len(voters):
            return False
        return repaired or len(voters) > 2 or not {*voters} & self.damaged_nodes

    def stay_down(self, nodes: Iterable[int]) -> None:
        """These do from now on, so that no group may come to need them."""
        self._away = tuple(nodes)

    def may_lose(self, node: int) -> bool:
        """Whether all that a node has may be lost for good."""
        self.refresh()
        return not self.damaged_nodes - {node} and self._can_do_without(node)

    def lose(self, node: int) -> None:
        """It is: nothing else may be damaged until it is replaced."""
        self._entries = {place: owner for place, owner in self._entries.items() if owner != node}
        self._lost = node
        self._gone.add(node)

    def replaced(self, node: int) -> None:
        """No group needs it any more."""
        self._lost = 0 if self._lost == node else self._lost

    def choose(self, node: int, places: list[Place]) -> Rot | None:
        """Where to damage a node."""
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
        """Which write went elsewhere, and where: by whole sectors, over what is durable."""
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
        """All that are in a log, or committed."""
        found = self._seen.get(group)
        if found is None:
            found = self._seen[group] = self._groups[group].configurations()
        return found

    def _lasting_members(self, group: int) -> set[int]:
        """Members by each of these configurations."""
        found = self._lasting.get(group)
        if found is None:
            found = self._lasting[group] = set.intersection(
                *[{*configuration.members()} for configuration in self._configurations(group)])
        return found

    def _can_do_without(self, node: int) -> bool:
        """Whether every group can, whoever turns out to be its members."""
        return all(self._has_others(group, node) for group in self._groups)

    def _has_others(self, group: int, node: int) -> bool:
        lacking = self._lacking_members(group) - {node}
        return all(len(half) > 2 for configuration in self._configurations(group)
                   for half in (configuration.voters, configuration.outgoing) if node in half
                   ) and not any(is_majority(configuration, [*lacking])
                                 for configuration in self._configurations(group))

    def _lacking_members(self, group: int) -> set[int]:
        """Members without the last committed entry that a loss of power took from one of them:
        whoever has that has those before it."""
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
        """Whether another member's disk holds the committed entry, undamaged; now, not once."""
        group = self._groups[place.group]
        owner = self._entries.get((place.group, place.index), node)
        if owner != node or place.index > group.commit:
            return False
        chain, lasting = group.committed[place.index - 1], self._lasting_members(place.group)
        return any(other != node and other in lasting and replica.durable.holds(place.index, chain)
                   for other, replica in group.replicas.items())

    def note(self, node: int, rot: Rot) -> None:
        """It was damaged there."""
        if rot.header:
            self.note_lost(node)
        else:
            self._entries[rot.place.group, rot.place.index] = node

    def note_lost(self, node: int) -> None:
        """It was damaged, and nobody knows what that was."""
        self._lost = node
