"""Replica changes while a plan is made: hard rules, costs and reasons.

Contract.  Repair and balance share a ``ReplicaChanges``.  It judges bytes, or where these say
nothing the number of replicas (``judge_bytes``, ``judge_counts``).  Replicas move only by
``replace`` and ``add``, which keep the hard rules: a group has a node once, no rack more than its
part, no disk above its cap, and only nodes that take replicas get one.  A group keeps its first
reason.
"""

from __future__ import annotations

from placement import counts
from placement.hashing import mix64, partition_key
from placement.plan import Infeasible, Skipped, Why
from placement.policy import DISK, INGRESS, Options, Policy
from placement.shares import PPM, Shares, node_shares
from placement.state import NO_NODE, R_DISK, R_EGRESS, R_INGRESS, R_REPLICAS, State

#: Resources by which replicas are balanced; leaders are balanced by transfers.
REPLICA_RESOURCES = ((DISK, R_DISK), (INGRESS, R_INGRESS))


class ReplicaChanges:
    """Replica changes of a plan on top of its ``State``.

    ``shares`` are those of the resources that are judged now, by position in a node's loads.
    ``limits`` are those of the others, which no move for the sake of a number may break."""

    def __init__(self, state: State, policy: Policy, options: Options):
        self.state = state
        self.policy = policy
        self.options = options
        self.why: dict[int, Why] = {}
        self.skipped: list[Skipped] = []
        self.infeasible: list[Infeasible] = []
        self.spent_bytes = 0  # copied by balancing
        self.cut_by_budget = False
        # Of SCOPE_NODE: True if its node gives replicas, False if it takes them.
        self.node_is_source: bool | None = None
        self.direction_changed = (
            False  # a giving node would now take replicas, or the reverse: another plan
        )
        self.shares: dict[int, Shares] = {}
        self.limits: dict[int, Shares] = {}
        # Nodes whose number of replicas was far from their share at any time of the plan.
        self.far = counts.Far()
        self.moves_for_counts = False  # a replica was moved for the sake of the number
        self.judge_bytes()

    def judge_bytes(self) -> None:
        """Judge bytes on disk and appended bytes, by the shares of the present state.
        O(replicas)."""
        self.limits = {}
        self.shares = {position: node_shares(self.state, band)
                       for name, position in REPLICA_RESOURCES
                       if (band := self.policy.band(name)) is not None}

    def judge_counts(self) -> bool:
        """Judge the number of replicas. Return False, and judge bytes, where the number is not what
        balances: a resource has a load, none has a band, or no node is far from its share.
        O(replicas)."""
        self.judge_bytes()
        even = self.count_shares()
        if even is None:
            return False
        self.limits, self.shares = self.shares, {R_REPLICAS: even}
        return True

    def count_shares(self) -> Shares | None:
        """Return each node's share and limits of the number of replicas, None where that number is
        not what balances. Bytes have to be judged now. O(replicas)."""
        if not self.shares or not all(
                counts.say_nothing(self.shares[position], band.floor)
                for name, position in REPLICA_RESOURCES
                if (band := self.policy.band(name)) is not None):
            return None
        numbers = counts.numbers_of(self.state, self.policy.excluded_nodes)
        far = numbers.far()
        self.far = self.far.joined(far)
        return numbers.targets(far) if far != counts.Far() else None

    # ---- questions ------------------------------------------------------------------------------

    def may_take(self, group: int, target: int, leaving: int = NO_NODE) -> bool:
        """True if the hard rules allow a replica on ``target`` in place of the one on
        ``leaving``."""
        state, node = self.state, self.state.nodes[target]
        if not node.accepts_replicas or group in state.held[target]:
            return False
        if state.load[target][R_DISK] + state.groups[group].bytes > node.cap[R_DISK] \
                or state.load[target][R_INGRESS] + state.ingress[group] > node.cap[R_INGRESS] \
                or not self.fits_limits(group, target):
            return False
        after = len(state.voters[group]) + (leaving == NO_NODE)
        return state.rack_fits(group, target, leaving, after)

    def fits_limits(self, group: int, target: int) -> bool:
        """True if ``target`` stays below its targets of the loads that are not judged now."""
        return all(not (load := self.state.replica_load(group, position))
                   or self.state.load[target][position] + load <= shares.high[target]
                   for position, shares in self.limits.items())

    def ppm(self, node: int, position: int, more: int = 0) -> int:
        """Return a node's load, with ``more`` added, in millionths of its share; 0 without a
        share."""
        shares = self.shares.get(position)
        if shares is None or not shares.share[node]:
            return 0
        return (self.state.load[node][position] + more) * PPM // shares.share[node]

    def fullness(self, group: int, target: int) -> int:
        """Return the load of ``target`` with a replica of ``group``, in millionths of its share, in
        the resource where that is most."""
        return max((self.ppm(target, position, self.state.replica_load(group, position))
                    for position in self.shares), default=0)

    def preference(self, group: int, target: int) -> tuple[int, int]:
        """Return the sort key of targets that are equally full: a hash of group and node, then the
        id."""
        node = self.state.ids[target]
        return mix64(partition_key(group, self.state.snapshot.hash_seed, node)), node

    def best_target(self, group: int, leaving: int = NO_NODE) -> int:
        """Return the permitted node that is least full with the replica, in place of the one on
        ``leaving``; ``NO_NODE`` if none may have it.

        Nodes that the policy excludes come last. O(nodes)."""
        excluded = self.policy.excluded_nodes
        return min((target for target in range(len(self.state.nodes))
                    if self.may_take(group, target, leaving)), default=NO_NODE,
                   key=lambda target: (self.state.ids[target] in excluded,
                                       self.fullness(group, target),
                                       self.preference(group, target)))

    def next_leader(self, group: int, voters: list[int]) -> int:
        """Return the leader for these voters: the initial or present one if it stays and may lead,
        or else the voter whose node sends least for its weight. ``NO_NODE`` if none may lead, or
        the group had no leader in the snapshot."""
        state = self.state
        first, present = state.initial_leader(group), state.leader[group]
        if first == NO_NODE or sorted(voters) == list(state.initial(group)):
            return first  # no leader to ask for a transfer, or the leader is back where it was
        for leader in (first, present):
            if leader in voters and state.nodes[leader].may_lead:
                return leader
        return min((node for node in voters if state.nodes[node].may_lead), default=NO_NODE,
                   key=lambda node: ((state.load[node][R_EGRESS] + state.leader_egress(group)) * PPM
                                     // max(1, state.nodes[node].weight), state.ids[node]))

    # ---- changes --------------------------------------------------------------------------------

    def replace(self, group: int, leaving: int, target: int, why: Why) -> None:
        """Move a replica from ``leaving`` to ``target``, and choose the leader anew; the caller has
        checked ``may_take``."""
        voters = [target if node == leaving else node for node in self.state.voters[group]]
        self._set(group, voters, why)

    def add(self, group: int, target: int, why: Why) -> None:
        """Add a voter on ``target``, and choose the leader anew; the caller has checked
        ``may_take``."""
        self._set(group, [*self.state.voters[group], target], why)

    def _set(self, group: int, voters: list[int], why: Why) -> None:
        self.state.set_members(group, voters, self.next_leader(group, voters))
        self.why.setdefault(group, why)
