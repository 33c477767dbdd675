"""Last known leader of every group of the pool, copied from node to node as versioned changes.

Contract.  ``LeadershipChanges`` holds the groups that this node leads, versioned; ``LeaderTable``
holds the reports of other nodes.  An entry may be stale and decides nothing: the node that it names
refuses a request if it does not lead.

Theory.  Each change of a group's leadership here gets the next version and replaces the group's
earlier change.  So the list has one change per group ever led, and one walk over the differences
yields all changes since version v.  The versions of a boot epoch are above those of earlier ones:
an answer from an earlier boot epoch is never taken for the beginning of the present list.
"""

from __future__ import annotations

from sortedcontainers import SortedDict

#: (group, incarnation, term, leads)
Change = tuple[int, int, int, bool]

#: Low bits of a version, which count the changes of one boot epoch; the boot epoch is above them.
VERSION_BITS = 40
#: Versions have 64 bits on the wire.  Boot epochs, which count starts, do not reach this limit; one
#: that does starts again at 0.
_BOOT_EPOCHS_MAX = 1 << (64 - VERSION_BITS)


class LeadershipChanges:
    """Groups led here, and groups no longer led here, by version of the change.

    ``boot_epoch`` is larger than those of all earlier starts of the node."""

    __slots__ = ("version", "led_count", "_before", "_by_version", "_version_of")

    def __init__(self, boot_epoch: int = 0) -> None:
        #: Version of the last change; 0 = none in this boot epoch.
        self.version = 0
        #: Versions of earlier boot epochs are at most this.
        self._before = boot_epoch % _BOOT_EPOCHS_MAX << VERSION_BITS
        #: Number of groups led now.
        self.led_count = 0
        self._by_version: SortedDict = SortedDict()
        self._version_of: dict[int, int] = {}

    def record(self, group: int, incarnation: int, term: int, leads: bool) -> None:
        """Record that leadership of ``group`` began or ended here, under the next version and in
        place of the group's earlier change."""
        self.led_count += 1 if leads else -1
        replaced = self._version_of.get(group)
        if replaced is not None:
            del self._by_version[replaced]
        self.version = max(self.version, self._before) + 1
        self._version_of[group] = self.version
        self._by_version[self.version] = (group, incarnation, term, leads)

    def since(self, version: int, count_max: int) -> tuple[int, tuple[Change, ...]]:
        """Return (version reached, changes) after ``version``, oldest first, at most ``count_max``.
        If more changes exist, a call with the version reached returns the next ones.

        A ``version`` above the present one is of another boot epoch's list: then all changes are
        returned."""
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
    """Leaders as other nodes reported them, and the version up to which each report is copied."""

    __slots__ = ("_leaders", "copied", "announced")

    def __init__(self) -> None:
        #: group -> (leader or 0, term)
        self._leaders: dict[int, tuple[int, int]] = {}
        #: node -> version up to which its list is copied here
        self.copied: dict[int, int] = {}
        #: node -> version that it announced last
        self.announced: dict[int, int] = {}

    def learn(self, node: int, change: Change) -> None:
        """Record the report of ``node`` that it leads a group, or no longer does. Ignore a report
        of a lower term than the known one, and the end of a leadership that is not the known
        one."""
        group, _, term, leads = change
        leader, known_term = self._leaders.get(group, (0, 0))
        if leads and term >= known_term:
            self._leaders[group] = (node, term)
        elif not leads and leader == node and term >= known_term:
            self._leaders[group] = (0, term)

    def leader(self, group: int) -> tuple[int, int]:
        """Return (leader or 0, term); (0, 0) if nothing is known."""
        return self._leaders.get(group, (0, 0))

    def is_behind(self, node: int) -> bool:
        """True if ``node`` announced changes that are not copied yet."""
        return self.copied.get(node, 0) != self.announced.get(node, 0)

    def restarted(self, node: int) -> None:
        """Forget up to which version changes of ``node`` are known: it restarted and counts
        versions anew."""
        self.copied.pop(node, None)
        self.announced.pop(node, None)
