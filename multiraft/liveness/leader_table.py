"""Who leads which group, for every group of the pool, at the price of changes only.

Contract.  ``LeadershipDelta`` is what this node leads, versioned; ``LeaderTable`` is what the
others said.  A hint may be stale and decides nothing: the node it names refuses when it does not
lead. Theory.  Each change of a group's leadership here gets the next version and replaces the
group's earlier one, so the list holds one change per group ever led, and "everything since version
v" is one walk over what differs.  Each life of a node counts its versions above those of the lives
before it: an answer that an earlier life gave is never taken for the beginning of this life's list.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

#: (group, incarnation, term, leads)
Change = tuple[int, int, int, bool]

#: Low bits of a version, which count the changes of one life; above them is the life's number.
VERSION_BITS = 40
#: Versions have 64 bits on the wire.  Boot epochs, which count starts, do not get so far; if one
#: does, the numbers begin anew.
_LIVES = 1 << (64 - VERSION_BITS)


class LeadershipDelta:
    """The groups led here, and not led any more, by version.  ``boot_epoch``: number of this life
    of the node, larger than those of its lives before."""

    __slots__ = ("version", "led_count", "_before", "_by_version", "_version_of")

    def __init__(self, boot_epoch: int = 0) -> None:
        #: Of the last change; 0 = there was none in this life.
        self.version = 0
        #: No version of an earlier life is larger.
        self._before = boot_epoch % _LIVES << VERSION_BITS
        #: Groups led now.
        self.led_count = 0
        self._by_version: SortedDict = SortedDict()
        self._version_of: dict[int, int] = {}

    def record(self, group: int, incarnation: int, term: int, leads: bool) -> None:
        """Leadership of ``group`` began or ended here."""
        self.led_count += 1 if leads else -1
        replaced = self._version_of.get(group)
        if replaced is not None:
            del self._by_version[replaced]
        self.version = max(self.version, self._before) + 1
        self._version_of[group] = self.version
        self._by_version[self.version] = (group, incarnation, term, leads)

    def since(self, version: int, count_max: int) -> tuple[int, tuple[Change, ...]]:
        """(version reached, changes) after ``version``, oldest first, at most ``count_max``.  A
        version that this life has not reached is of another one's list: all changes."""
        if version > self.version:
            version = 0
        changes: list[Change] = []
        reached = self.version
        for at in self._by_version.irange(minimum=version + 1):
            if len(changes) == count_max:
                reached = at - 1
                break
            changes.append(self._by_version[at])
        return reached, tuple(changes)


class LeaderTable:
    """Leaders as the other nodes reported them, and how far each report has been copied."""

    __slots__ = ("_leaders", "copied", "announced")

    def __init__(self) -> None:
        #: group -> (leader or 0, term)
        self._leaders: dict[int, tuple[int, int]] = {}
        #: node -> version of its list that is copied here
        self.copied: dict[int, int] = {}
        #: node -> version it announced last
        self.announced: dict[int, int] = {}

    def learn(self, node: int, change: Change) -> None:
        """``node`` reports that it leads a group, or that it does not any more."""
        group, _, term, leads = change
        leader, known_term = self._leaders.get(group, (0, 0))
        if leads and term >= known_term:
            self._leaders[group] = (node, term)
        elif not leads and leader == node and term >= known_term:
            self._leaders[group] = (0, term)

    def leader(self, group: int) -> tuple[int, int]:
        """(leader or 0, term); (0, 0) when nothing is known."""
        return self._leaders.get(group, (0, 0))

    def behind(self, node: int) -> bool:
        """Whether ``node`` announced changes that are not copied yet."""
        return self.copied.get(node, 0) != self.announced.get(node, 0)

    def restarted(self, node: int) -> None:
        """``node`` lives anew and counts its versions from 0."""
        self.copied.pop(node, None)
        self.announced.pop(node, None)
