"""Balance of leaders by transfers to other voters: no byte is copied, a group pauses for one
election.

Contract.  ``balance_leaders`` changes the state and records the reason per group.  Leaders leave
nodes that may not lead (draining, in maintenance).  Then nodes above their target of egress or of
leaders transfer some, each step making the sum of squared excesses smaller, so that starting again
on the result does nothing.  Where no node sends much, egress and leaders are judged one after the
other, and the number of leaders only when replicas were moved for their number too, when a node
that could lead a group leads none, or in a plan for leaders (decision 0058).  Groups led by a dead
node have elected another leader already, or cannot.

Theory.  Only a group's voters can lead it, so the best single transfer may lead to a node that is
full itself.  A chain of two transfers, over a node between, reaches further; longer chains were not
worth their search (``benchmarks/placement.py``).  Where a node leads few groups, each one is more
than a band.  If two nodes exchange groups, each changes by the difference only.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from placement import counts
from placement.cluster import DEAD, MAINTENANCE
from placement.plan import DRAIN, LEADER_SKEW, Why
from placement.plan import MAINTENANCE as MAINTENANCE_REASON
from placement.policy import EGRESS, LEADERS, SCOPE_LEADERS, SCOPE_NODE, Options, Policy
from placement.shares import PPM, Shares, node_shares
from placement.state import NO_NODE, R_EGRESS, R_LEADERS, State

LEADER_RESOURCES = ((EGRESS, R_EGRESS), (LEADERS, R_LEADERS))
_NAMES = {position: name for name, position in LEADER_RESOURCES}

#: Shares are computed again when oversized items have moved; two rounds are usual.
ROUNDS_MAX = 64

#: Groups per node that a chain of two transfers considers on each side.
CHAIN_GROUPS = 16


class _Leaders:
    """Shares of the leaders' costs, while transfers are chosen."""

    def __init__(self, state: State, policy: Policy, options: Options, far: counts.Far | None):
        self.state = state
        self.policy = policy
        self.scope = options.scope
        self.only = state.index[options.node] if options.scope == SCOPE_NODE else NO_NODE
        self.why: dict[int, Why] = {}
        self.shares: dict[int, Shares] = {}
        self.limits: dict[int, Shares] = {}  # not judged now, and kept by every transfer
        self.judges_counts = False  # the number of leaders is judged alone, below shares too
        self.is_counted = far is not None
        # Nodes that come to their share of leaders: those that got replicas for the number of
        # these, and those that led none.
        self.filled = set(far.below) if far is not None else set()
        self.judge_all()
        self.led: list[dict[int, None]] = [{} for _ in state.nodes]
        for group in sorted(state.leader):
            if state.leader[group] != NO_NODE:
                self.led[state.leader[group]][group] = None

    def judge_all(self) -> None:
        """Judge egress and leaders together, by the shares of the present state, which depend on
        the places of oversized items.  O(groups)."""
        self.limits = {}
        self.judges_counts = False
        self.shares = {position: node_shares(self.state, band)
                       for name, position in LEADER_RESOURCES
                       if (band := self.policy.band(name)) is not None}

    def judge_egress(self) -> bool:
        """Judge egress alone, and return True, where no node sends much: the number of leaders is
        judged after it, if at all. Elsewhere, and in a plan for leaders, judge both together."""
        self.judge_all()
        band = self.policy.band(EGRESS)
        if band is None or self.scope == SCOPE_LEADERS or not counts.say_nothing(
                self.shares[R_EGRESS], band.floor):
            return False
        self.shares = {R_EGRESS: self.shares[R_EGRESS]}
        return True

    def judge_counts(self) -> bool:
        """Judge the number of leaders, while no node may send more than its target; a node that led
        none at the beginning gets its share. Return False if the number is not judged: no node
        that could lead a group leads none and no replica is moved for a number, or it has no band.
        """
        self.judge_all()
        band = self.policy.band(LEADERS)
        if band is None:
            return False
        shares = self.shares[R_LEADERS]
        self.judges_counts = True
        self.limits = {R_EGRESS: self.shares[R_EGRESS]}
        self.shares = {R_LEADERS: shares}
        without = {place for place, load in enumerate(self.state.load)
                   if shares.share[place] > band.floor and not load[R_LEADERS]
                   and self._may_lead_any(place)}
        self.is_counted = self.is_counted or bool(without)
        self.filled |= without
        self.shares = {R_LEADERS: shares._replace(low=tuple(
            low if place in self.filled else 0 for place, low in enumerate(shares.share)))}
        return self.is_counted

    def _may_lead_any(self, place: int) -> bool:
        """True if there is a group that balancing may make this node the leader of. O(groups)."""
        return any((leader := self.state.leader[group]) not in (NO_NODE, place)
                   and self.may_give(leader) and self.movable(group)
                   and self.may_get(group, place, leader) for group in self.state.held[place])

    def begin_anew(self) -> bool:
        """Forget why leaders are counted, as the next plan does. Return False if there is nothing
        to forget."""
        changes = self.is_counted
        self.is_counted = False
        self.filled = set()
        return changes

    def cost(self, node: int, egress: int = 0, leaders: int = 0) -> int:
        """Return the node's squared excesses of egress and leaders, with this much load more; where
        the number is judged alone, its squared deficit too."""
        if not self.state.nodes[node].has_share:
            return 0
        return (self._excess(node, R_EGRESS, egress) ** 2
                + self._excess(node, R_LEADERS, leaders) ** 2)

    def _excess(self, node: int, position: int, more: int = 0) -> int:
        """Return the load above the target, in millionths of the node's share by weight."""
        shares = self.shares.get(position)
        if shares is None:
            return 0
        load = self.state.load[node][position] + more
        beyond = load - shares.high[node]
        if self.judges_counts:
            beyond = max(beyond, shares.low[node] - load)
        return beyond * PPM // shares.unit[node] if beyond > 0 else 0

    def is_above_target(self, node: int) -> bool:
        """True if the node is above its target of any resource that is judged now."""
        return any(self.state.load[node][position] > shares.high[node]
                   for position, shares in self.shares.items())

    def ppm(self, node: int, position: int) -> int:
        """Return a node's load of the resource at ``position``, in millionths of its share; 0 for a
        node without a share."""
        shares = self.shares.get(position)
        if shares is None or not shares.share[node]:
            return 0
        return self.state.load[node][position] * PPM // shares.share[node]

    def worst(self, node: int) -> int:
        """Return the resource in which the node is furthest above its target. A load below its
        floor is no excess."""
        return max(self.shares, default=R_LEADERS,
                   key=lambda position: (self._excess(node, position), -position))

    def movable(self, group: int) -> bool:
        """True if balancing may change the group's leader: it is not excluded, has a majority and
        is not in joint consensus."""
        return (group not in self.policy.excluded_groups and not self.state.groups[group].in_joint
                and self.state.has_quorum(group))

    def may_give(self, source: int) -> bool:
        """True if balancing may take leaders from the node to fill another one."""
        node = self.state.nodes[source]
        return node.has_share and node.id not in self.policy.excluded_nodes

    def may_get(self, group: int, target: int, source: int) -> bool:
        """True if balancing may make ``target`` the group's leader instead of ``source``. A plan
        for one node allows only transfers from it, of groups that it led at first or whose leader
        changes anyhow, or to it up to its target."""
        node = self.state.nodes[target]
        if not node.accepts_replicas or node.id in self.policy.excluded_nodes:
            return False
        egress = self.state.leader_egress(group)
        if egress and any(self.state.load[target][position] + egress > shares.high[target]
                          for position, shares in self.limits.items()):
            return False
        if self.only == target:  # filled up to its target only, or a next plan would go back
            return all(self.state.load[target][position] + more <= shares.high[target]
                       for position, more in ((R_EGRESS, self.state.leader_egress(group)),
                                              (R_LEADERS, 1))
                       if (shares := self.shares.get(position)) is not None)
        return self.only == NO_NODE or self.only == source and (
            self.state.initial_leader(group) == source or self.leader_has_to_change(group))

    def leader_has_to_change(self, group: int) -> bool:
        """True if the node that led the group in the snapshot holds it no longer, or may not
        lead."""
        first = self.state.initial_leader(group)
        return first not in self.state.voters[group] or not self.state.nodes[first].may_lead

    def does_not_overload(self, target: int, source: int, egress: int, leaders: int) -> bool:
        """True if the target with the additional load stays below its target, or less full than the
        source was."""
        for position, more in ((R_EGRESS, egress), (R_LEADERS, leaders)):
            shares = self.shares.get(position)
            if shares is None or more <= 0:
                continue
            load = self.state.load[target][position] + more
            if load > shares.high[target] \
                    and not self.state.is_emptier(target, load, source, position):
                return False
        return True

    def transfer(self, group: int, target: int, reason: str, position: int = R_LEADERS) -> None:
        """Make ``target`` the group's leader in the state, and keep the group's first reason;
        ``position``: the resource of the reason."""
        source = self.state.leader[group]
        before = self.ppm(source, position)
        del self.led[source][group]
        self.led[target][group] = None
        self.state.set_members(group, self.state.voters[group], target)
        self.why.setdefault(group, Why(reason, _NAMES[position], self.state.ids[source], before,
                                       self.ppm(source, position)))

    def gain(self, group: int, source: int, target: int) -> int:
        """Return the decrease of the squared excesses by a transfer; negative if they grow."""
        egress = self.state.leader_egress(group)
        return (self.cost(source) + self.cost(target)
                - self.cost(source, -egress, -1) - self.cost(target, egress, 1))


def balance_leaders(state: State, policy: Policy, options: Options,
                    far: counts.Far | None = None) -> tuple[dict[int, Why], bool]:
    """Transfer leaders in ``state``. ``far``: nodes whose number of replicas was far from their
    share, if any was moved for that. Return the reasons of the transfers by group, and False if
    another plan may find more. O(groups * replicas) per step at worst."""
    leaders = _Leaders(state, policy, options, far)
    vacate_nodes(leaders)
    is_anew = False
    for _ in range(ROUNDS_MAX):
        if _balance_once(leaders):
            is_anew = False
        elif is_anew or not leaders.begin_anew():
            return leaders.why, True
        else:
            is_anew = True
    return leaders.why, False


def _balance_once(leaders: _Leaders) -> bool:
    """Judge and balance egress and leaders, one after the other where no node sends much. Return
    True if any leader was transferred."""
    is_small = leaders.judge_egress()
    moved = _balance_judged(leaders)
    if is_small and leaders.judge_counts():
        moved = _balance_judged(leaders) or moved
    return moved


def _balance_judged(leaders: _Leaders) -> bool:
    """Balance the resources that are judged now. Return True if any leader was transferred."""
    moved = False
    while _transfer_best(leaders) or _fill(leaders) or _transfer_pairs(leaders):
        moved = True
    return moved


def vacate_nodes(leaders: _Leaders) -> None:
    """Transfer leaders off the nodes that may not lead, except dead ones; groups without another
    voter that may lead keep theirs."""
    state = leaders.state
    for place, node in enumerate(state.nodes):
        if node.may_lead or node.state == DEAD or leaders.only not in (NO_NODE, place):
            continue
        for group in sorted(leaders.led[place], key=lambda each: (-state.leader_egress(each),
                                                                  each)):
            if state.groups[group].in_joint or not state.has_quorum(group):
                continue
            targets = [voter for voter in state.voters[group] if state.nodes[voter].may_lead]
            if targets:
                target = min(targets, key=lambda voter: (
                    leaders.cost(voter, state.leader_egress(group), 1),
                    leaders.ppm(voter, R_EGRESS), leaders.ppm(voter, R_LEADERS), voter))
                reason = MAINTENANCE_REASON if node.state == MAINTENANCE else DRAIN
                leaders.transfer(group, target, reason)


def _overloaded(leaders: _Leaders) -> list[int]:
    """Return the nodes with an excess, worst first."""
    found = [(leaders.cost(node), node) for node in range(len(leaders.led))]
    excluded = leaders.policy.excluded_nodes
    return [node for cost, node in sorted(found, key=lambda each: (-each[0], each[1]))
            if cost and leaders.state.ids[node] not in excluded]


def _transfer_best(leaders: _Leaders) -> bool:
    """Make the best transfer of the node that is worst, again and again, until none helps. Return
    True if any was made.

    One node after the other would give too much away, and get it back from those that follow."""
    moved = False
    worst = [(-leaders.cost(node), node) for node in _overloaded(leaders)]
    heapq.heapify(worst)
    offers: dict[int, _Offers] = {}
    while worst:
        cost, node = heapq.heappop(worst)
        if cost != -leaders.cost(node) or not leaders.is_above_target(node):
            continue  # another entry has its present cost
        gain, group, target = offers[node].best() if node in offers else (0, NO_NODE, NO_NODE)
        if gain <= 0:
            # Anew: nodes that were full when these offers were made may have given leaders away.
            offers[node] = _Offers(leaders, node)
            gain, group, target = offers[node].best()
        if gain <= 0:
            continue
        leaders.transfer(group, target, LEADER_SKEW, leaders.worst(node))
        moved = True
        offers.pop(target, None)  # it leads one more
        for changed in (node, target):
            heapq.heappush(worst, (-leaders.cost(changed), changed))
    return moved


class _Offers:
    """Groups that a node leads, by what they send and by the nodes that could lead them instead,
    while it transfers some of them.

    Groups that send the same are alike for a target, so that only the first of them is judged. One
    that a target may not get is not offered to it again by the same offers, because meanwhile the
    target mostly gets more."""

    def __init__(self, leaders: _Leaders, node: int):
        self.leaders = leaders
        self.node = node
        self.waiting: dict[tuple[int, int], list[int]] = {}  # the first one last
        for group in sorted(filter(leaders.movable, leaders.led[node]), reverse=True):
            egress = leaders.state.leader_egress(group)
            for target in leaders.state.voters[group]:
                if target != node:
                    self.waiting.setdefault((egress, target), []).append(group)

    def best(self) -> tuple[int, int, int]:
        """Return (gain, group, target) of the best transfer away from the node, gain 0 = none; ties
        by group and target. O(kinds of groups * targets)."""
        leaders = self.leaders
        best = (0, NO_NODE, NO_NODE)
        for (egress, target), groups in self.waiting.items():
            while groups and not (groups[-1] in leaders.led[self.node]
                                  and leaders.may_get(groups[-1], target, self.node)):
                groups.pop()
            if not groups:
                continue
            gain = leaders.gain(groups[-1], self.node, target)
            if gain > 0 and (-gain, groups[-1], target) < (-best[0], *best[1:]) \
                    and leaders.does_not_overload(target, self.node, egress, 1):
                best = (gain, groups[-1], target)
        return best


def _fill(leaders: _Leaders) -> bool:
    """Transfer leaders to nodes below their share, each from the node that leads most for its
    weight among those that can give one. Return True if any was transferred. Nothing happens where
    egress is judged, of which no node has too little."""
    shares = leaders.shares.get(R_LEADERS)
    if not leaders.judges_counts or shares is None:
        return False
    moved = False
    for target in range(len(leaders.state.nodes)):
        offers: dict[int, list[int]] | None = None
        while leaders.state.load[target][R_LEADERS] < shares.low[target]:
            offers = offers if offers is not None else _offers_to(leaders, target)
            group = _group_for(leaders, target, offers)
            if group == NO_NODE:
                break
            leaders.transfer(group, target, LEADER_SKEW, R_LEADERS)
            moved = True
    return moved


def _offers_to(leaders: _Leaders, target: int) -> dict[int, list[int]]:
    """Return the groups that ``target`` could lead, the first one last, by the node that leads
    them now and may give them. O(groups log groups)."""
    state = leaders.state
    return {source: [group for group in sorted(leaders.led[source], reverse=True)
                     if group in state.held[target] and leaders.movable(group)]
            for source in range(len(state.nodes)) if source != target and leaders.may_give(source)}


def _group_for(leaders: _Leaders, target: int, offers: dict[int, list[int]]) -> int:
    """Return a group that ``target`` may lead instead of the node that leads most for its weight,
    of those that have one; ties by node and group. ``NO_NODE`` if there is none. Take it out of
    ``offers``, with those that ``target`` may not get, or gains nothing by: that stays so, because
    meanwhile ``target`` only gets more, and the others only give."""
    state = leaders.state
    sources = sorted(offers, key=lambda node: (-(state.load[node][R_LEADERS] * PPM
                                                 // state.nodes[node].weight), node))
    for source in sources:
        groups = offers[source]
        while groups:
            group = groups.pop()
            if leaders.may_get(group, target, source) and leaders.gain(group, source, target) > 0:
                return group
    return NO_NODE


def _transfer_pairs(leaders: _Leaders) -> bool:
    """Make one chain of two transfers over a node between, or one exchange. Return False if none
    helps; a plan for one node makes none."""
    if leaders.only != NO_NODE:
        return False
    overloaded = _overloaded(leaders)
    largest = [_largest(leaders, node) for node in range(len(leaders.led))] if overloaded else []
    for node in overloaded:
        for group in largest[node]:
            for between in leaders.state.voters[group]:
                if between == node or not leaders.may_get(group, between, node):
                    continue
                if _transfer_chain(leaders, node, group, between, largest[between]):
                    return True
    return False


def _largest(leaders: _Leaders, node: int) -> list[int]:
    movable = (group for group in leaders.led[node] if leaders.movable(group))
    return heapq.nsmallest(CHAIN_GROUPS, movable, key=lambda group: (
        -leaders.state.leader_egress(group), group))


def _transfer_chain(leaders: _Leaders, node: int, group: int, between: int,
                    passed_on: Sequence[int]) -> bool:
    """Transfer ``group`` to ``between``, which in turn transfers the one of ``passed_on`` with the
    largest total gain, to a third node or in exchange. Return False, and transfer nothing, without
    a gain."""
    state = leaders.state
    egress = state.leader_egress(group)
    node_gains = leaders.cost(node) - leaders.cost(node, -egress, -1)
    best = (0, NO_NODE, NO_NODE)
    for other in passed_on:
        passed = state.leader_egress(other)
        between_gains = leaders.cost(between) - leaders.cost(between, egress - passed)
        if not leaders.does_not_overload(between, node, egress - passed, 0):
            continue
        for target in state.voters[other]:
            if target == between or not leaders.may_get(other, target, between):
                continue
            if target == node:
                gain = between_gains + leaders.cost(node) - leaders.cost(node, passed - egress)
            elif leaders.does_not_overload(target, node, passed, 1):
                gain = (node_gains + between_gains
                        + leaders.cost(target) - leaders.cost(target, passed, 1))
            else:
                continue
            if gain > best[0]:
                best = (gain, other, target)
    if best[0] > 0:
        position = leaders.worst(node)
        leaders.transfer(best[1], best[2], LEADER_SKEW, position)
        leaders.transfer(group, between, LEADER_SKEW, position)
    return best[0] > 0
