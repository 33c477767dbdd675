"""A plan in words: what it does, how far the worst node is above its share, and why things move.

Contract.  Functions of a plan, shared by the terminal, the picture, the report and the demo: so all
of them call a thing by one name.
"""

from __future__ import annotations

from collections import Counter

from admin_cli.console.output import plural
from admin_cli.values import quantities
from placement.cluster import ALIVE
from placement.plan import (
    DISK_HARD,
    DRAIN,
    LEADER_SKEW,
    LEADER_TRANSFER,
    MAINTENANCE,
    NEW_NODE,
    OVERLOAD,
    RACK_VIOLATION,
    REPAIR_DEAD,
    REPLICA_CHANGE,
    TOPIC_SWITCH,
    UNDER_REPLICATED,
    USER,
    Move,
    Plan,
    ReplicaChange,
    ResourceOutcome,
)
from placement.policy import (
    DISK,
    EGRESS,
    GROUP_INGRESS,
    INGRESS,
    LEADERS,
    NODE_RESOURCES,
    REPLICAS,
    SCOPE_LEADERS,
)

RATES = (INGRESS, EGRESS, GROUP_INGRESS)
#: Kind of a move -> its name, for one move and for several.
KINDS = {LEADER_TRANSFER: ("leader transfer", "leader transfers"),
         TOPIC_SWITCH: ("partition switch", "partition switches"),
         REPLICA_CHANGE: ("replica change", "replica changes")}
#: Loads that are numbers: of what.
COUNTED = {LEADERS: "leader", REPLICAS: "replica"}
#: Below this many per cent a distance has a decimal.
DECIMAL_BELOW = 10

_TOO_MUCH = {DISK: "has too many bytes", INGRESS: "takes in too much", EGRESS: "sends too much",
             LEADERS: "leads too many groups", REPLICAS: "has too many replicas",
             GROUP_INGRESS: "takes in too much"}
_TOO_LITTLE = {DISK: "has room for bytes", INGRESS: "has room for appends",
               REPLICAS: "has too few replicas"}
_REASONS = {REPAIR_DEAD: "is lost", DRAIN: "shall be empty", MAINTENANCE: "shall lead nothing",
            RACK_VIOLATION: "shares its rack with another replica",
            DISK_HARD: "has a disk above its limit"}


def amount(resource: str, value: int) -> str:
    """Return a load in its unit."""
    if resource == DISK:
        return str(quantities.size(value))
    if resource in RATES:
        return f"{quantities.size(value)}/s"
    return plural(value, COUNTED[resource]) if resource in COUNTED else f"{value:,}"


def title(made: Plan) -> str:
    """Return what the plan does: ``22 moves, no data copied``."""
    if not made.moves:
        return "No moves"
    copied = f"{quantities.size(made.bytes)} to copy" if made.bytes else "no data copied"
    return f"{plural(len(made.moves), 'move')}, {copied}"


def above(ppm: int) -> str:
    """Return how far a load in millionths of the even share is above it: ``24 %``, ``4.6 %``, 0 at
    or below it."""
    percent = max(0.0, (ppm - 1_000_000) / 10_000)
    text = f"{percent:.0f}" if percent >= DECIMAL_BELOW else f"{percent:.1f}".removesuffix(".0")
    return f"{text} %"


def bin_name(resource: str) -> str:
    """Return what carries the load: ``node`` or ``group``."""
    return "group" if resource == GROUP_INGRESS else "node"


def worst(row: ResourceOutcome) -> str:
    """Return ``worst node 24 % above its share before, 1 % after``, or one figure when both are
    alike."""
    before, after = above(row.before_ppm), above(row.after_ppm)
    told = f"{before} above its share, as before" if before == after else (
        f"{before} above its share before, {after} after")
    return f"worst {bin_name(row.resource)} {told}"


def loads(made: Plan, resource: str) -> list[tuple[int, int]]:
    """Return the load of each node or group before and after the plan."""
    if resource == GROUP_INGRESS:
        return [(row.before, row.after) for row in made.groups]
    if resource == REPLICAS:
        return [(row.replicas_before, row.replicas_after) for row in made.nodes]
    position = NODE_RESOURCES.index(resource)
    return [(row.before[position], row.after[position]) for row in made.nodes]


def is_quiet(made: Plan, resource: str) -> bool:
    """Return True if no node or group has more of this load than the band's floor: it says nothing,
    and nothing is moved because of it."""
    band = made.policy.band(resource)
    most = max((max(pair) for pair in loads(made, resource)), default=0)
    return not most if band is None else most <= band.floor


def leaders_are_free(made: Plan) -> bool:
    """Return True if leaders stay where elections put them: the nodes send too little to judge, and
    the plan balances no number (``placement.leaders``)."""
    return (made.options.scope != SCOPE_LEADERS and made.policy.band(EGRESS) is not None
            and is_quiet(made, EGRESS)
            and not any(move.why.resource == LEADERS for move in made.moves)
            and not any(row.resource == REPLICAS for row in made.resources)
            and all(row.after[NODE_RESOURCES.index(LEADERS)] for row in made.nodes
                    if row.state == ALIVE and row.replicas_after))


def judged(made: Plan) -> list[ResourceOutcome]:
    """Return the rows of the resources that say something: those above their floors, and numbers of
    replicas and leaders that the plan balances; the number of replicas first."""
    rows = [row for row in made.resources if row.resource == REPLICAS or row.total
            and not is_quiet(made, row.resource)
            and not (row.resource == LEADERS and leaders_are_free(made))]
    return sorted(rows, key=lambda row: row.resource != REPLICAS)


def below_floors(made: Plan) -> str:
    """Return a sentence about the loads that are too small to balance, with their floors; empty if
    there is none."""
    small = [(row.resource, band.floor) for row in made.resources
             if (band := made.policy.band(row.resource)) is not None and row.resource != LEADERS
             and is_quiet(made, row.resource)]
    if not small:
        return ""
    told = ", ".join(f"{resource} (below {amount(resource, floor)} per {bin_name(resource)})"
                     if floor else f"{resource} (none)" for resource, floor in small)
    return f"Too small to balance: {told}."


def why(move: Move) -> str:
    """Return the reason of a move in words: ``node 2 leads too many groups``."""
    told = move.why
    subject = f"{'group' if move.kind == TOPIC_SWITCH else 'node'} {told.subject}"
    if told.reason == UNDER_REPLICATED:
        return "a replica is missing"
    if told.reason == USER:
        return "asked for"
    if not told.subject:
        return told.reason
    if told.reason in (OVERLOAD, LEADER_SKEW):
        return f"{subject} {_TOO_MUCH.get(told.resource, 'has too much')}"
    if told.reason == NEW_NODE:
        return f"{subject} {_TOO_LITTLE.get(told.resource, 'has room')}"
    return f"{subject} {_REASONS.get(told.reason, told.reason)}"


def reasons(made: Plan) -> list[str]:
    """Return one line per kind and reason of moves, with their number and code: ``48 replica
    changes, 16 with another leader: a node has too few replicas (NEW_NODE)``."""
    counted = Counter((move.kind, move.why.reason, move.why.resource) for move in made.moves)
    led = Counter((move.kind, move.why.reason, move.why.resource) for move in made.moves
                  if isinstance(move, ReplicaChange) and changes_leader(move))
    lines = []
    for each, count in counted.items():
        kind, reason, resource = each
        noun = KINDS[kind][count != 1]
        bin_ = "group" if kind == TOPIC_SWITCH else "node"
        told = (_TOO_MUCH.get(resource, "has too much") if reason in (OVERLOAD, LEADER_SKEW)
                else _TOO_LITTLE.get(resource, "has room") if reason == NEW_NODE
                else _REASONS.get(reason))
        what = f"a {bin_} {told} ({reason})" if told else reason
        leaders = f", {led[each]:,} with another leader" if led[each] else ""
        lines.append(f"{count:,} {noun}{leaders}: {what}")
    return lines


def changes_leader(move: ReplicaChange) -> bool:
    """Return True if another node leads the group after the change."""
    return 0 not in (move.from_leader, move.to_leader) and move.from_leader != move.to_leader
