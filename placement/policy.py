"""Policy and options of plans: bands, limits, exclusions, and the request of one plan.

Contract.  ``Policy`` belongs to the cluster and changes rarely; ``Options`` are the request of one
plan.  Both are plain values, part of the plan they led to, and checked once by ``check_policy`` and
``check_options``, which raise ``InvalidPolicy``.

Theory.  A band gives a plan hysteresis: nothing moves inside it, and moves stop at its edge.  A
node with less load than the floor is never called loaded, so that an idle cluster is not rearranged
because of noise.  Load above it is judged relative to the cluster's own mean, so that an empty new
node is seen at any size of loads.
"""

from __future__ import annotations

from typing import NamedTuple

from placement.errors import InvalidPolicy

#: Bytes on disk of a node's replicas.
DISK = "disk"
#: Appended bytes per second that a node's replicas take in.
INGRESS = "ingress"
#: Bytes per second that a node's leaders send: to readers, and to their followers.
EGRESS = "egress"
#: Leaders on a node.
LEADERS = "leaders"
#: Replicas on a node: counted where bytes say nothing, so that it has no band (``counts``).
REPLICAS = "replicas"
#: Appended bytes per second of one group: the only resource whose bins are groups, not nodes.
GROUP_INGRESS = "group_ingress"

#: Resources of a node, in the order in which they are judged.
NODE_RESOURCES = (DISK, INGRESS, EGRESS, LEADERS)
RESOURCES = (*NODE_RESOURCES, GROUP_INGRESS)

SCOPE_ALL = "all"  # repair, drain, capacity and balance, with all three levers
SCOPE_REPAIR = "repair"  # dead nodes, racks, missing replicas, full disks
SCOPE_LEADERS = "leaders"  # only transfers
SCOPE_NODE = "node"  # only what leaves, or only what reaches, one node
SCOPE_DRAIN = "drain"  # only what leaves draining nodes
SCOPES = (SCOPE_ALL, SCOPE_REPAIR, SCOPE_LEADERS, SCOPE_NODE, SCOPE_DRAIN)

PERMILLE = 1000
#: A band wider than this is no balance: a node may have nine times its share.
BAND_MAX_PERMILLE = 8000
#: A plan with more moves than this is too long to review, and would fill the metadata group.
MOVES_MAX = 1 << 14
#: As the metadata's table of exceptions.
EXCEPTIONS_MAX = 1 << 16


class Band(NamedTuple):
    """``resource`` is balanced until no bin is more than ``permille`` above its share, bins below
    ``floor`` (in the resource's unit) being left alone."""

    resource: str
    permille: int
    floor: int = 0


#: Policy of a cluster without a configured one.  Bands: 5 % for nodes.  Half as much again for
#: groups: a node holds a hundred of them, so one is never much of a node, and each switched
#: partition costs a link of its chain, which stays, because no link is dropped yet.
BANDS = (Band(DISK, 50, 1 << 30), Band(INGRESS, 50, 1 << 20), Band(EGRESS, 50, 1 << 20),
         Band(LEADERS, 100, 4), Band(GROUP_INGRESS, 500, 1 << 20))


class Policy(NamedTuple):
    """Rules for every plan of a cluster.  A resource without a band is not balanced."""

    bands: tuple[Band, ...] = BANDS
    disk_cap_permille: int = 900  # of a node's disk: never planned above it
    moves_max: int = 10_000
    switches_max: int = 5_000  # of these; the worst groups shed first
    in_per_node_max: int = 2  # replicas a node receives at once
    out_per_node_max: int = 2  # replicas a leader's node sends at once
    at_once_max: int = 50  # replica changes of the cluster at once
    transfers_per_wave_max: int = 64  # leader transfers and switches cost no copying
    cool_down_ms: int = 15 * 60_000  # what was moved is left alone so long, but for repairs
    valid_ms: int = 60 * 60_000  # a plan is older than its measurements
    chain_links_max: int = 16  # extents a reader may have to cross
    exceptions_max: int = EXCEPTIONS_MAX
    switch_copied: bool = False  # switch compacted and unlimited partitions, which copies them
    excluded_topics: tuple[str, ...] = ()
    excluded_groups: tuple[int, ...] = ()
    excluded_nodes: tuple[int, ...] = ()  # neither give nor take by balancing

    def band(self, resource: str) -> Band | None:
        """Return the band of a resource; None = it is not balanced."""
        for band in self.bands:
            if band.resource == resource:
                return band
        return None


class Options(NamedTuple):
    """Request for one plan."""

    scope: str = SCOPE_ALL
    node: int = 0  # of SCOPE_NODE
    drain: tuple[int, ...] = ()  # nodes to be planned as if they were draining
    budget_bytes: int = 0  # copied by balancing at most; 0 = no limit.  Repairs are never cut
    copy_rate: int = 50_000_000  # bytes per second and node, for estimates of time
    fewer_racks: bool = False  # a drain may leave fewer racks than replicas were spread over


def check_policy(policy: Policy) -> None:
    """Return if every field is in its range. Raises ``InvalidPolicy`` with the field, its value and
    the permitted values."""
    seen: dict[str, None] = {}
    for band in policy.bands:
        if band.resource not in RESOURCES:
            raise InvalidPolicy(f"no resource is called {band.resource!r:.60}; there are "
                                f"{', '.join(RESOURCES)}")
        if band.resource in seen:
            raise InvalidPolicy(f"{band.resource} has two bands")
        seen[band.resource] = None
        _within(f"the band of {band.resource}", band.permille, 0, BAND_MAX_PERMILLE)
        _within(f"the floor of {band.resource}", band.floor, 0, 1 << 62)
    _within("disk_cap_permille", policy.disk_cap_permille, 1, PERMILLE)
    _within("moves_max", policy.moves_max, 1, MOVES_MAX)
    _within("switches_max", policy.switches_max, 0, MOVES_MAX)
    _within("chain_links_max", policy.chain_links_max, 1, 1 << 10)
    _within("exceptions_max", policy.exceptions_max, 0, EXCEPTIONS_MAX)
    for name in ("in_per_node_max", "out_per_node_max", "at_once_max", "transfers_per_wave_max"):
        _within(name, getattr(policy, name), 1, 1 << 16)
    for name in ("cool_down_ms", "valid_ms"):
        _within(name, getattr(policy, name), 0, 1 << 42)


def check_options(options: Options) -> None:
    """Return if the options fit together; the planner checks whether the nodes exist. Raises
    ``InvalidPolicy`` for a contradiction, or a value out of its range."""
    if options.scope not in SCOPES:
        raise InvalidPolicy(f"no scope is called {options.scope!r:.60}; there are "
                            f"{', '.join(SCOPES)}")
    if (options.scope == SCOPE_NODE) != (options.node != 0):
        raise InvalidPolicy("a node is named with the scope 'node', and only with it")
    if options.drain and options.scope not in (SCOPE_ALL, SCOPE_DRAIN):
        raise InvalidPolicy(f"nodes are drained with the scopes 'all' and 'drain', not with "
                            f"{options.scope!r}")
    if len(set(options.drain)) != len(options.drain):
        raise InvalidPolicy(f"drain names a node twice: {options.drain!r:.80}")
    _within("budget_bytes", options.budget_bytes, 0, 1 << 62)
    _within("copy_rate", options.copy_rate, 1, 1 << 50)


def _within(name: str, value: int, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise InvalidPolicy(f"{name} is {value!r:.60}; it is a whole number from {least} to {most}")
