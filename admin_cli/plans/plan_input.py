"""The snapshot that a plan is made from, gathered from the cluster's nodes; and the plan's request.

Contract.  ``collect`` asks every node twice, ``window_s`` apart, about the groups that it leads and
their sizes, so that nothing is measured between plans.  It raises ``CommandFailed`` with what is
missing before anything is computed.  ``requested`` turns a plan into the request that applies it.

Loads: a group's bytes are those of its log, its ingress the bytes appended to it within the window,
and its reads the bytes fetched from its leader.  A partition's share of both is its share of the
appended records.  Of a disk, replicas may use the space that nothing else has: files of replicas
that left, of learners that were undone and of deleted topics stay until their segments go
(``disk_for_replicas``).  A node that is down is dead only when the caller says so (``--scope
repair``): a node that restarts is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from admin_cli.failures import CommandFailed
from multiraft.wire import plans as wire
from placement import cluster
from placement import throttle as throttles
from placement.hashing import HASH_VERSION
from placement.plan import LeaderTransfer, Move, Plan, ReplicaChange, TopicSwitch
from placement.policy import PERMILLE, Policy

#: A node that is up answers about its groups within this.
LOADS_TIMEOUT_MS = 5_000
#: A node that is silent for less is late, not down, in seconds; also the interval of the check.
LATE_S = 3.0
POLL_INTERVAL_S = 0.5
#: All groups, for ``keep``.
EVERY_GROUP = range(1, 1 << 31)
#: Plans fill a disk up to this, in thousandths; the controller pauses a plan above it.
DISK_CAP_PERMILLE = Policy().disk_cap_permille
#: Default window of rates, in seconds: some batches of most producers.
WINDOW_S = 2.0


class Gathered(NamedTuple):
    """A snapshot, with further reports: the plan under way, nodes that are down, used and possible
    bytes of the other nodes' data directories, and records per second of each partition."""

    snapshot: cluster.Snapshot
    active_plan: str
    down: tuple[int, ...] = ()
    disk_used: Mapping[int, int] = MappingProxyType({})
    disk_total: Mapping[int, int] = MappingProxyType({})
    records: Mapping[int, int] = MappingProxyType({})

    def _with(self, partitions: list[cluster.PartitionRow],
              records: Mapping[int, int]) -> Gathered:
        """Return a copy with these partitions."""
        snapshot = self.snapshot._replace(partitions=tuple(partitions))
        return self._replace(snapshot=cluster.checked(snapshot), records=records)


class NodeReport(NamedTuple):
    """The report of one node at one moment."""

    taken_ms: int
    disk_used: int
    disk_total: int
    groups: dict[int, wire.GroupLoad]


def collect(client: Any, now_ms: int, dead: bool, window_s: float = WINDOW_S,
            keep: Container[int] = (), pause: Callable[[float], None] = time.sleep) -> Gathered:
    """Ask every node twice, ``window_s`` apart, and return the cluster's present state. ``dead``:
    nodes that are down count as lost, instead of an error. ``keep``: groups whose partitions are
    included whatever their load. Raises ``CommandFailed``, ``PlacementError``."""
    client.catch_up()
    facts = client.plan_request(wire.PlacementFacts())
    nodes = _nodes(client, pause)
    down = [row.node.id for row in nodes if row.state != "up"]
    if down and not dead:
        named = ", ".join(map(str, down))
        raise CommandFailed(
            f"node {named} is down: its load is not known." if len(down) == 1 else
            f"nodes {named} are down: their loads are not known.",
            "Start what is down and plan again. After a permanent loss: multiraft rebalance plan "
            "--scope repair")
    addresses = {row.node.id: row.node.client_address for row in nodes if row.state == "up"}
    before = _ask_all(client, addresses)
    pause(window_s)
    after = _ask_all(client, addresses)
    groups = _groups(client, facts, before, after)
    partitions, records = _partitions(client, addresses, after, groups, keep, window_s, pause)
    return _gathered(facts, nodes, down, after, groups, now_ms)._with(partitions, records)


def placements_only(
    client: Any, now_ms: int, pause: Callable[[float], None] = time.sleep
) -> Gathered:
    """Return the cluster's present state without loads: for loads that were measured elsewhere.
    Nodes that are down keep their wanted state."""
    client.catch_up()
    facts = client.plan_request(wire.PlacementFacts())
    nodes = _nodes(client, pause)
    down = [row.node.id for row in nodes if row.state != "up"]
    told = _ask_all(client, {row.node.id: row.node.client_address for row in nodes
                             if row.state == "up"})
    gathered = _gathered(facts, nodes, down, told, _groups(client, facts, told, told), now_ms)
    return gathered._replace(snapshot=with_desired_states(gathered.snapshot,
                                               dict.fromkeys(down, cluster.ALIVE)))


def _gathered(facts: wire.PlacementFactsReply, nodes: tuple, down: list[int],
              after: dict[int, NodeReport], groups: dict[int, cluster.GroupRow],
              now_ms: int) -> Gathered:
    """Return the snapshot without partitions, and the reports of the nodes. Nodes in ``down`` are
    dead in it."""
    desired_states = dict(facts.desired_states)
    live = _live_bytes(groups.values())
    rows = tuple(cluster.NodeRow(
        row.node.id, row.node.rack, row.node.weight,
        cluster.DEAD if row.node.id in down else desired_states.get(row.node.id, cluster.ALIVE),
        disk_for_replicas(after[row.node.id].disk_total, after[row.node.id].disk_used,
                          live.get(row.node.id, 0)) if row.node.id in after else 0)
        for row in nodes)
    return Gathered(cluster.checked(cluster.Snapshot(
        cluster.SNAPSHOT_FORMAT, facts.cluster_id, facts.metadata_version, now_ms, HASH_VERSION,
        facts.hash_seed, facts.pool_size, facts.replication_factor, facts.exceptions, rows,
        tuple(groups.values()), ())), facts.plan_id, tuple(down),
        {node: told.disk_used for node, told in after.items()},
        {node: told.disk_total for node, told in after.items()})


def _live_bytes(groups: Iterable[cluster.GroupRow]) -> dict[int, int]:
    """Return node -> bytes of the groups that it votes in, which a plan counts as its load; the
    bytes of learners do not count yet."""
    live: dict[int, int] = {}
    for row in groups:
        for node in row.voters:
            live[node] = live.get(node, 0) + row.bytes
    return live


def disk_for_replicas(total: int, used: int, live: int) -> int:
    """Return the bytes that replicas may use of a disk of ``total`` bytes, of which the data
    directory has ``used`` and the replicas there account for ``live``; 0 = not known.

    Other files in the directory are subtracted in full, also from the part that plans may fill: so
    the disk is never planned fuller than the controller accepts.  They are no reason to move
    replicas away, which would free nothing: existing replicas may stay.
    """
    if not total:
        return 0
    room = total - _up_to_cap(max(0, used - live))
    # Never 0, which means "not known", also of the part that a policy lets plans fill.
    return max(PERMILLE, min(total, max(room, _up_to_cap(live))))


def _up_to_cap(size: int) -> int:
    """Return the capacity of which ``size`` bytes are all that plans may fill, rounded up."""
    return -(-size * PERMILLE // DISK_CAP_PERMILLE)


def _nodes(client: Any, pause: Callable[[float], None]) -> tuple:
    """Return all nodes, after waiting up to ``LATE_S`` for those that are not up."""
    nodes = client.node_list().nodes
    for _ in range(int(LATE_S / POLL_INTERVAL_S)):
        if all(row.state == "up" for row in nodes):
            break
        pause(POLL_INTERVAL_S)
        nodes = client.node_list().nodes
    return nodes


def with_desired_states(
    snapshot: cluster.Snapshot, desired_states: Mapping[int, str]
) -> cluster.Snapshot:
    """Return the snapshot with the wanted states of ``desired_states``; other nodes keep theirs."""
    return snapshot._replace(nodes=tuple(
        row._replace(state=desired_states.get(row.id, row.state)) for row in snapshot.nodes))


def _ask_all(client: Any, addresses: dict[int, str]) -> dict[int, NodeReport]:
    told = {}
    for node, address in addresses.items():
        pages = client.group_loads(address, LOADS_TIMEOUT_MS)
        told[node] = NodeReport(pages[0].taken_ms, pages[0].disk_used, pages[0].disk_total,
                           {row.group: row for page in pages for row in page.groups})
    return told


def _groups(client: Any, facts: wire.PlacementFactsReply, before: dict[int, NodeReport],
            after: dict[int, NodeReport]) -> dict[int, cluster.GroupRow]:
    """Return one row per group; a group without a leader gets its row from the metadata."""
    incarnations = dict(facts.incarnations)
    rows: dict[int, cluster.GroupRow] = {}
    for node, told in after.items():
        for group, load in told.groups.items():
            if group > facts.pool_size:
                continue  # the pool is growing: the group is empty
            old = before[node].groups.get(group)
            ms = max(1, told.taken_ms - before[node].taken_ms)
            # No rate is known of a group that another node led at the start of the window.
            ingress, read = (0, 0) if old is None else (
                max(0, load.bytes - old.bytes) * 1000 // ms,
                max(0, load.read_bytes - old.read_bytes) * 1000 // ms)
            rows[group] = cluster.GroupRow(
                group, load.incarnation, load.conf_index, load.voters, node,
                _own_learners(group, load.learners), load.in_joint, load.bytes, ingress,
                read, load.moved_ms)
    for row in client.group_list():
        if row.group not in rows and row.group <= facts.pool_size:
            rows[row.group] = cluster.GroupRow(
                row.group, incarnations.get(row.group, row.incarnation), 0, tuple(row.voters), 0,
                _own_learners(row.group, row.learners))
    return dict(sorted(rows.items()))


def _own_learners(group: int, learners: tuple[int, ...]) -> tuple[int, ...]:
    """Return the learners without those that every node is for the metadata group."""
    return tuple(learners) if group else ()


def _partitions(client: Any, addresses: dict[int, str], told: dict[int, NodeReport],
                groups: dict[int, cluster.GroupRow], keep: Container[int], window_s: float,
                pause: Callable[[float], None],
                ) -> tuple[list[cluster.PartitionRow], dict[int, int]]:
    """Ask for records twice, ``window_s`` apart. Return partitions of groups with appends, each
    with its share of the group's rates by records, and records per second by incarnation."""
    wanted = {node: tuple(group for group in loads.groups
                          if group in groups and group and (groups[group].ingress or group in keep))
              for node, loads in told.items()}
    wanted = {node: found for node, found in wanted.items() if found}
    if not wanted:
        return [], {}

    def ask() -> dict[int, wire.PartitionLoad]:
        return {row.incarnation: row for node, found in wanted.items()
                for row in client.partition_loads(found, addresses[node], LOADS_TIMEOUT_MS)}

    before = ask()
    pause(window_s)
    grown = {incarnation: (row, max(0, row.next_offset - before[incarnation].next_offset))
             for incarnation, row in ask().items() if incarnation in before}
    ingress = apportioned(grown, {group: row.ingress for group, row in groups.items()})
    read = apportioned(grown, {group: row.read for group, row in groups.items()})
    found = [cluster.PartitionRow(row.incarnation, row.topic, row.partition, row.group, row.epoch,
                                  row.epoch_entries, ingress[incarnation], read[incarnation],
                                  copied=row.is_compacted, moved_ms=row.moved_ms)
             for incarnation, (row, records) in grown.items() if records or row.group in keep]
    return found, {incarnation: int(records / window_s)
                   for incarnation, (_, records) in grown.items()}


def apportioned(grown: Mapping[int, tuple[wire.PartitionLoad, int]],
               rates: Mapping[int, int]) -> dict[int, int]:
    """Return each partition's part of its group's rate, by its records, to the last byte: a
    remainder of rounding would be load without a partition.  O(partitions)."""
    totals: dict[int, int] = {}
    for row, records in grown.values():
        totals[row.group] = totals.get(row.group, 0) + records
    counted = dict.fromkeys(totals, 0)
    shared = {}
    for incarnation, (row, records) in grown.items():
        whole, total, before = rates[row.group], max(1, totals[row.group]), counted[row.group]
        counted[row.group] = before + records
        shared[incarnation] = whole * (before + records) // total - whole * before // total
    return shared


# ---- a plan as it is carried out ----------------------------------------------------------------

def requested(made: Plan, throttle: int | None = None) -> wire.ApplyPlan:
    """Return the request that applies a plan; ``throttle`` None = the plan's copy rate. Raises
    ``CommandFailed`` for a plan that is too large."""
    if len(made.moves) > wire.MOVES_MAX:
        raise CommandFailed(
            f"the plan has {len(made.moves):,} moves, {wire.MOVES_MAX:,} can be carried out at a "
            f"time.", "Make a smaller one, with --budget or for one node, and plan again after it.")
    policy = made.policy
    limits = wire.PlanLimits(throttle or made.options.copy_rate, policy.in_per_node_max,
                             policy.out_per_node_max, policy.at_once_max)
    return wire.ApplyPlan(made.plan_id, made.cluster_id, made.options.scope, made.expires_ms,
                          limits, tuple(map(_requested_move, made.moves)))


def check_throttle(made: Plan, throttle: int | None, snapshot: cluster.Snapshot | None) -> None:
    """Return if the cluster would accept the plan with this throttle, by the loads of ``snapshot``
    or, without one, by the plan alone. Raises ``CommandFailed``."""
    limits = requested(made, throttle).limits
    changes = [move for move in made.moves if isinstance(move, ReplicaChange)]
    rows = {} if snapshot is None else {row.id: row for row in snapshot.groups}
    found = throttles.too_low(limits.throttle, [
        (rows[move.group].ingress, rows[move.group].leader, move.joining)
        for move in changes if move.group in rows],
        limits.in_per_node_max, limits.out_per_node_max) if changes else None
    if found is not None:
        raise low_throttle(found.text, found.least)


def check_rate(rate: int | None, policy: Policy) -> None:
    """Return if a plan could be accepted at ``rate``, None = the default. Raises ``CommandFailed``.
    """
    found = None if rate is None else throttles.too_low(rate, (), policy.in_per_node_max,
                                                        policy.out_per_node_max)
    if found is not None:
        raise low_throttle(found.text, found.least)


def low_throttle(text: str, least: int, way: str = "--throttle {}, or make a plan with fewer moves "
                 "per node") -> CommandFailed:
    """Return the refusal of a throttle with the sentence ``text``; ``way`` is the flag or command
    that ``least`` is put into."""
    return CommandFailed(f"{text}.", f"Allow that with {way.format(least)}.")


def _requested_move(move: Move) -> wire.PlannedMove:
    if isinstance(move, LeaderTransfer):
        return wire.PlannedMove(move.seq, move.kind, move.group, move.group_incarnation,
                                move.expect_conf_index, (move.from_node,), (move.to_node,), 0, 0,
                                move.why.reason, move.depends_on)
    if isinstance(move, TopicSwitch):
        return wire.PlannedMove(move.seq, move.kind, move.incarnation, 0, move.expect_epoch,
                                (move.from_group,), (move.to_group,), 0, move.bytes,
                                move.why.reason, move.depends_on)
    assert isinstance(move, ReplicaChange)
    return wire.PlannedMove(move.seq, move.kind, move.group, move.group_incarnation,
                            move.expect_conf_index, move.old_voters, move.new_voters,
                            move.to_leader, move.bytes, move.why.reason, move.depends_on)
