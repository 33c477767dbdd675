"""Partition switches away from groups with more than their share of appends: no byte is copied.

Contract.  ``balance_groups`` changes the state and returns what it did not do and why.  Only
partitions with load that may be moved are moved (cool-down, exclusions, chain limit, free entries
in the table of exceptions), only out of groups above their target, only into groups below it.  Each
step makes the sum of squared excesses smaller, so it ends, and starting again on the result does
nothing.

The order of the levers: switches first, because they change the loads of replicas; then replicas;
then leaders, which depend on both.  No later lever changes the input of an earlier one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from placement.cluster import PartitionRow
from placement.describe import cool_down_text
from placement.plan import (
    CHAIN_FULL,
    COOL_DOWN,
    COPIED,
    EXCEPTIONS_FULL,
    EXCLUDED,
    IN_CHANGE,
    MOVES_LIMIT,
    NO_QUORUM,
    NO_SLACK,
    OVERLOAD,
    SPLIT,
    TOO_LARGE,
    Skipped,
    Why,
)
from placement.policy import GROUP_INGRESS, PERMILLE, Band, Policy
from placement.shares import PPM, group_shares
from placement.shed import (
    Item,
    assign,
    by_load,
    by_urgency,
    fitting_cap,
    shed,
    too_large,
    urgent_first,
)
from placement.state import State

#: Skewed loads take two or three rounds; each exchange is one.
ROUNDS_MAX = 256

#: Groups with headroom, and partitions on either side, among which an exchange is sought.
EXCHANGE_GROUPS = 8
EXCHANGE_ITEMS = 24

#: Non-moves that are reported per overloaded group.
SKIPPED_PER_GROUP = 3


class Switches(NamedTuple):
    """Why partitions were switched (by incarnation), and the most important ones that were not."""

    why: dict[int, Why]
    skipped: list[Skipped]
    complete: bool


class _Pool:
    """The groups as bins and their partitions as items, while the state changes.

    ``level`` is what the worst group has to come down to: the band above the bound of any placement
    (``shares``), and no target is higher.  While one group is above it, relieving those below makes
    the worst no better."""

    def __init__(self, state: State, policy: Policy, band: Band):
        self.state = state
        self.policy = policy
        self.band = band
        self.rows = {row.incarnation: row for row in state.snapshot.partitions}
        self.exceptions = state.snapshot.exceptions
        self.switched = 0
        self.cut = False  # by the number of switches
        self.why: dict[int, Why] = {}
        self.movable = [Item(row.ingress, row.incarnation) for row in state.snapshot.partitions
                        if row.ingress and not self._fixed(row)]
        self.closed = {group: self._closed(group) for group in state.groups}
        self.compute_shares()

    def compute_shares(self) -> None:
        """Compute shares, targets and items of the present state. O(partitions log partitions)."""
        self.groups, self.shares = group_shares(self.state, self.band)
        self.high = dict(zip(self.groups, self.shares.high, strict=True))
        worst = self.shares.total * self.shares.bound_ppm * (PERMILLE + self.band.permille)
        self.level = max(worst // (max(1, self.shares.weight) * PPM * PERMILLE), *self.shares.high)
        self.items: dict[int, list[Item]] = {group: [] for group in self.groups}
        where = self.state.where
        for item in self.movable:
            self.items[where[item.id]].append(item)
        for group, items in self.items.items():
            if self.closed[group]:
                items.clear()
            items.sort(key=itemgetter(0), reverse=True)  # stable: the order of by_load

    def excess(self, group: int) -> int:
        """Return the group's load above its target; 0 below it."""
        return max(0, self.state.ingress[group] - self.high[group])

    def urgency(self, group: int) -> int:
        """Return the group's load above ``level``, the load up to which the best possible plan may
        have to leave groups; 0 below it."""
        return max(0, self.state.ingress[group] - self.level)

    def overloaded(self) -> list[int]:
        """Return the groups above their target, the largest excess first."""
        return sorted((group for group in self.groups if self.excess(group)),
                      key=lambda group: (-self.excess(group), group))

    def refusal(self, row: PartitionRow) -> str:
        """Return the code of the reason for which the partition stays in its group; empty when it
        may leave."""
        full = (not row.links and self.exceptions >= self.policy.exceptions_max
                and self.state.where[row.incarnation] == row.group)
        return (self._fixed(row) or (EXCEPTIONS_FULL if full else "")
                or self.closed[self.state.where[row.incarnation]])

    def _fixed(self, row: PartitionRow) -> str:
        """Return the code of a reason of the partition itself to stay, whatever its group; empty
        when there is none."""
        policy = self.policy
        if row.topic in policy.excluded_topics:
            return EXCLUDED
        if row.moved_ms and self.state.snapshot.taken_ms < row.moved_ms + policy.cool_down_ms:
            return COOL_DOWN
        if row.copied and not policy.switch_copied:
            return COPIED
        return CHAIN_FULL if row.links >= policy.chain_links_max else ""

    def _closed(self, group: int) -> str:
        """Return the code of the reason for which a group neither gives nor takes partitions; empty
        when it may do both."""
        if group in self.policy.excluded_groups:
            return EXCLUDED
        if self.state.groups[group].in_joint:
            return IN_CHANGE
        return "" if self.state.has_quorum(group) else NO_QUORUM

    def headroom(self) -> dict[int, int]:
        """Return the load that each receiving group can take up to its target."""
        return {group: self.high[group] - self.state.ingress[group] for group in self.groups
                if self.state.ingress[group] < self.high[group] and not self.closed[group]}

    def ppm(self, group: int) -> int:
        """Return a group's load in millionths of the mean."""
        return self.shares.ppm(self.state.ingress[group], 1)

    @property
    def is_full(self) -> bool:
        """True if the plan is known to be cut and no switch is left, so that no further switch need
        be sought."""
        return self.cut and self.switched >= self.policy.switches_max

    def may_switch(self, count: int) -> bool:
        """True if the plan and the table of exceptions can take ``count`` more switches. If the
        plan's own limit is reached, it is recorded as cut."""
        fits = (self.switched + count <= self.policy.switches_max
                and self.exceptions + count <= self.policy.exceptions_max)
        self.cut = self.cut or self.switched + count > self.policy.switches_max
        return fits

    def may_leave(self, items: Iterable[Item]) -> bool:
        """True if the items that are still in their first group can all be switched
        (``may_switch``)."""
        return self.may_switch(sum(self.state.where[item.id] == self.rows[item.id].group
                                   for item in items))

    def move(self, item: Item, to_group: int) -> bool:
        """Switch a partition and record the reason. Return False, and do nothing, when the table of
        exceptions or the plan is full."""
        row = self.rows[item.id]
        from_group = self.state.where[item.id]
        if from_group == row.group:
            if self.switched >= self.policy.switches_max:
                self.cut = True
                return False
            if not row.links and self.exceptions >= self.policy.exceptions_max:
                return False
            self.switched += 1
            self.exceptions += not row.links
        before = self.ppm(from_group)
        self.state.switch(item.id, row.ingress, row.read, to_group)
        items = self.items[from_group]
        del items[bisect_left(items, by_load(item), key=by_load)]
        insort(self.items[to_group], item, key=by_load)
        self.why.setdefault(item.id, Why(OVERLOAD, GROUP_INGRESS, from_group, before,
                                         self.ppm(from_group)))
        return True


def balance_groups(state: State, policy: Policy) -> Switches:
    """Switch partitions out of groups above their target, in ``state``. Return the reasons, the
    partitions that stay although their groups are too full, and True if nothing is left to do.

    O(rounds * partitions log partitions); skewed loads take two or three rounds."""
    band = policy.band(GROUP_INGRESS)
    if band is None or not any(group for group in state.groups):
        return Switches({}, [], True)
    pool = _Pool(state, policy, band)
    finished = False
    for _ in range(ROUNDS_MAX):
        placed = False
        while _large_first(pool):  # again: what fits easily is another thing afterwards
            placed = True
        if not (_shed_round(pool) or placed or _make_headroom(pool) or _descent(pool)
                or _exchange(pool)):
            finished = True
            break
        pool.compute_shares()
    return Switches({id_: why for id_, why in pool.why.items()
                     if state.where[id_] != pool.rows[id_].group}, _explain(pool),
                    finished and not pool.cut)


class Relief(NamedTuple):
    """Request for the partitions that would relieve groups above their targets.

    It holds how much each group has to shed, of items of at most ``cap``, and how much of that is
    ``urgent`` when a plan may not have all switches that it takes (``shed.by_urgency``).  It
    also holds how much groups with free capacity would have to pass on to admit large partitions
    that fit nowhere."""

    excess: dict[int, int]
    passed_on: dict[int, int]
    cap: int
    urgent: dict[int, int]


def relief(state: State, policy: Policy) -> Relief:
    """Return a request for the partitions that can relieve groups: the load that has to leave or
    pass through each group. It names no group if none is above its target. O(partitions log
    partitions).

    A snapshot need not list all partitions (``cluster``). A planner that has more of them than it
    can list calls this, runs ``shed`` on all partitions of each group, and lists the result."""
    band = policy.band(GROUP_INGRESS)
    if band is None or not any(group for group in state.groups):
        return Relief({}, {}, 0, {})
    pool = _Pool(state, policy, band)
    headroom = pool.headroom()
    excess = {group: pool.excess(group) for group in pool.overloaded() if not pool.closed[group]}
    largest_headroom = max(headroom.values(), default=0)
    large = sorted((item.load for group in excess for item in pool.items[group]
                    if largest_headroom < item.load <= pool.high[group]), reverse=True)
    by_headroom = sorted(headroom, key=lambda group: (-headroom[group], group))
    passed_on = {group: load - headroom[group]
                 for load, group in zip(large, by_headroom, strict=False)}
    urgent = {group: above for group in excess if (above := pool.urgency(group))}
    return Relief(excess, passed_on, fitting_cap(headroom.values()), urgent)


def _large_first(pool: _Pool) -> bool:
    """Move large partitions of groups that small ones cannot relieve, while there is most headroom:
    later it would have to be made again. Return True if any moved.

    The largest goes to the group with most headroom, and so on, which passes on least. Partitions
    that are passed on stay away from groups that large ones are still to come to. O(large * groups
    + items)."""
    headroom = pool.headroom()
    by_headroom = sorted(headroom, key=lambda group: (-headroom[group], group))
    cap = fitting_cap(headroom.values())
    leaving = sorted((item for group in pool.overloaded()
                      for item in too_large(pool.items[group], pool.state.ingress[group],
                                            pool.high[group], cap)), key=by_load)
    pairs = list(zip(leaving, by_headroom, strict=False))
    moved = False
    for place, (item, group) in enumerate(pairs):
        awaiting = {target for _, target in pairs[place + 1:]}
        moved = _displace(pool, item, group, awaiting) or moved
    return moved


def _shed_round(pool: _Pool) -> bool:
    """Shed every overloaded group's excess and place it. Return True if any partition moved.

    When that takes more switches than there may be, only the most urgent of them are moved, as many
    as may be switched and fit."""
    headroom = pool.headroom()
    cap = fitting_cap(headroom.values())
    leaving = {group: shed(pool.items[group], pool.excess(group), cap)
               for group in pool.groups if pool.excess(group)}
    placed = assign(chain.from_iterable(leaving.values()), headroom)
    if not pool.may_leave(item for item, _ in placed):
        placed = _most_urgent(pool, leaving, headroom) or placed
    moved = False
    for item, group in placed:
        moved = pool.move(item, group) or moved
    return moved


def _most_urgent(pool: _Pool, leaving: dict[int, list[Item]],
                 headroom: dict[int, int]) -> list[tuple[Item, int]]:
    """Return (item, group) for as many of the most urgent items as may be switched and fit, the
    most urgent first."""
    ranked = sorted((found for group, items in leaving.items()
                     for found in by_urgency(items, pool.urgency(group))), key=urgent_first)
    rank = {item: place for place, (_, item)
            in enumerate(ranked[:pool.policy.switches_max - pool.switched])}
    return sorted(assign(rank, headroom), key=lambda placed: rank[placed[0]])


def _make_headroom(pool: _Pool) -> bool:
    """Move large partitions that fit nowhere, if the group with most headroom can pass small ones
    on to the others.  True if any partition moved.  O(groups + items of two groups) per move."""
    moved = False
    for group in pool.overloaded():
        while pool.excess(group):
            leaving = shed(pool.items[group], pool.excess(group), pool.high[group])
            headroom = pool.headroom()
            if not headroom:
                break
            emptiest = max(headroom, key=lambda group: (headroom[group], -group))
            if not any(_displace(pool, item, emptiest) for item in sorted(leaving, key=by_load)):
                break
            moved = True
    return moved


def _displace(pool: _Pool, item: Item, target: int, awaiting: Collection[int] = ()) -> bool:
    """Move a partition to ``target`` if what is too much there then fits elsewhere, but not into
    groups that are ``awaiting`` others. Return False, and move nothing, otherwise. An oversized
    item stands alone."""
    if pool.is_full:
        return False
    headroom = pool.headroom()
    if target not in headroom:
        return False
    need = min(item.load, pool.high[target]) - headroom.pop(target)
    for group in awaiting:
        headroom.pop(group, None)
    passed_on = shed(pool.items[target], need, fitting_cap(headroom.values()))
    placed = assign(passed_on, headroom)
    if sum(small.load for small, _ in placed) < need \
            or not pool.may_switch(len(placed) + 1):
        return False
    for small, group in placed:
        pool.move(small, group)
    return pool.move(item, target)


def _descent(pool: _Pool) -> bool:
    """Make moves that fit nowhere and still improve the balance: out of the fullest group that has
    one, into the emptiest.  True if any partition moved.  O(groups + items of a group) per move."""
    moved = False
    while _descend(pool):
        moved = True
    return moved


def _descend(pool: _Pool) -> bool:
    """Make one move that fits nowhere and still improves the balance. Return False if there is
    none."""
    headroom = pool.headroom()
    if not headroom:
        return False
    emptiest = max(headroom, key=lambda group: (headroom[group], -group))
    free = headroom[emptiest]

    def remains(item: Item) -> int:
        return max(0, before - item.load) ** 2 + max(0, item.load - free) ** 2

    for group in pool.overloaded():
        before = pool.excess(group)
        best = min(pool.items[group], default=None, key=lambda item: (remains(item), item))
        if best is not None and remains(best) < before ** 2 and pool.move(best, emptiest):
            return True
    return False


def _exchange(pool: _Pool) -> bool:
    """Exchange a partition of an overloaded group for a smaller one of a group with headroom, if
    that improves the balance: few large partitions leave no other way.  True if any partition
    moved."""
    if pool.is_full:
        return False
    headroom = pool.headroom()
    by_headroom = sorted(headroom, key=lambda group: (-headroom[group], group))[:EXCHANGE_GROUPS]
    for group in pool.overloaded():
        before = pool.excess(group)
        pairs = ((max(0, before - item.load + other.load) ** 2
                  + max(0, item.load - other.load - headroom[target]) ** 2, item, other, target)
                 for target in by_headroom
                 for item in pool.items[group][:EXCHANGE_ITEMS]
                 for other in pool.items[target][-EXCHANGE_ITEMS:] if other.load < item.load)
        best = min(pairs, default=None)
        if best is not None and best[0] < before ** 2 and pool.may_switch(2):
            _, item, other, target = best
            pool.move(other, group)
            pool.move(item, target)
            return True
    return False


def _explain(pool: _Pool) -> list[Skipped]:
    """Return up to ``SKIPPED_PER_GROUP`` partitions of each group that is still above its target,
    with the reason for which they stay."""
    skipped = []
    headroom = pool.headroom()
    largest_headroom = max(headroom.values(), default=0)
    overloaded = pool.overloaded()
    inside: dict[int, list[PartitionRow]] = {group: [] for group in overloaded}
    for row in pool.state.snapshot.partitions:
        group = pool.state.where[row.incarnation]
        if group in inside and row.ingress:
            inside[group].append(row)
    for group in overloaded:
        rows = sorted(inside[group], key=lambda row: (-row.ingress, row.incarnation))
        skipped += [
            _non_move(pool, group, row, largest_headroom) for row in rows[:SKIPPED_PER_GROUP]
        ]
    return skipped


def _non_move(pool: _Pool, group: int, row: PartitionRow, largest_headroom: int) -> Skipped:
    name = f"{row.topic}/{row.partition}"
    share = pool.shares.ppm(row.ingress, 1)
    if row.ingress > pool.high[group]:
        reason = SPLIT
        text = (f"{name} alone takes {share / 10_000:.0f} % of the mean of the groups: give the "
                f"topic more partitions, moving it helps nobody")
    else:
        reason = pool.refusal(row) or (MOVES_LIMIT if pool.cut else TOO_LARGE
                                       if row.ingress > largest_headroom else NO_SLACK)
        why = (cool_down_text(row.moved_ms, pool.policy.cool_down_ms) if reason == COOL_DOWN
               else _WORDS[reason])
        text = f"{name} stays in group {group}: {why}"
    return Skipped(reason, f"p{row.incarnation}", group, GROUP_INGRESS, row.ingress, text)


_WORDS = {
    EXCLUDED: "the policy excludes it",
    COPIED: "it is compacted or kept without limit, and switching would copy it",
    CHAIN_FULL: "its chain has as many links as are allowed; it becomes shorter when retention "
                "removes the oldest records",
    EXCEPTIONS_FULL: "the table of exceptions is full",
    IN_CHANGE: "the group's members are changing",
    NO_QUORUM: "the group has no majority",
    MOVES_LIMIT: "the plan has as many switches as it may; plan again after this one",
    TOO_LARGE: "it is larger than the room under any other group's share",
    NO_SLACK: "what room there is, is taken by others",
}
