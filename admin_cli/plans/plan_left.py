"""Imbalance that a plan leaves, with reasons; and the statement of a plan without moves.

Contract.  Functions of the plan.  They describe the resources that the plan's scope balances: a
repair or a drain balances nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from admin_cli.console.output import plural
from admin_cli.plans import plan_words
from admin_cli.values import quantities
from placement.cluster import ALIVE
from placement.outcome import BALANCED_BY
from placement.plan import COOL_DOWN, DISK_PEAK, MAINTENANCE, MOVES_LIMIT, Plan, ResourceOutcome
from placement.policy import (
    EGRESS,
    GROUP_INGRESS,
    LEADERS,
    NODE_RESOURCES,
    PERMILLE,
    REPLICAS,
    SCOPE_ALL,
    SCOPE_DRAIN,
    SCOPE_LEADERS,
    SCOPE_NODE,
    SCOPE_REPAIR,
)
from placement.shares import LARGEST, PIGEONHOLE, POSITION, PPM, RACKS

#: End of the time for which something rests, in the sentence of a move that is skipped.
_REST_END = re.compile(r"it rests until (\S+Z)")
#: Part of its share of replicas below which a node is short of them.
SHORT_BELOW = 0.9
#: Nodes named at most.
NAMED_MAX = 20
_BOUNDS = {RACKS: "limited by the racks",
           PIGEONHOLE: "two of the largest must share one"}


class _Bins(NamedTuple):
    """The balanced bins: their name, their content, and the loads afterwards."""

    name: str
    item: str
    loads: list[int]


def percent(ppm: int) -> str:
    """Return millionths in per cent: ``104.2 %``."""
    return f"{ppm / 10_000:.1f} %"


def above_band(made: Plan) -> list[ResourceOutcome]:
    """Return resources that the plan's scope balances, of which a bin is above the band afterwards;
    the band is around the mean by weight. Loads below their floors are not balanced."""
    return [row for row in plan_words.judged(made) if _is_balanced(made, row.resource)
            and row.after_ppm * PERMILLE > PPM * (PERMILLE + row.band_permille)
            and not (row.resource == LEADERS and _within_rounded_share(made))]


def _is_balanced(made: Plan, resource: str) -> bool:
    if made.policy.band(resource) is None:
        return False
    scope = made.options.scope
    if scope == SCOPE_LEADERS and made.moves and all(move.why.reason == MAINTENANCE
                                                     for move in made.moves):
        return False  # the plan exists to take the leaders from a node
    if resource == GROUP_INGRESS:
        return scope == SCOPE_ALL
    return scope in BALANCED_BY[POSITION[resource]]


def _within_rounded_share(made: Plan) -> bool:
    """Return True if every node is within its share of leaders rounded up: leaders are whole."""
    nodes = [row for row in made.nodes if row.state == ALIVE]
    total, weight = sum(row.after[-1] for row in made.nodes), sum(row.weight for row in nodes)
    return all(row.after[-1] <= -(-total * row.weight // max(1, weight)) for row in nodes)


def remaining_imbalance(made: Plan) -> Iterator[str]:
    """Yield a sentence for each resource above its band for which no skipped move is named, with
    the reason. Yield one for nodes that stay empty."""
    for row in above_band(made):
        why = _reason(made, row)
        if why:
            yield f"Not balanced, {row.resource}: {why}."
    empty = [row.node for row in made.nodes if row.state == ALIVE and not row.replicas_after]
    if empty and made.options.scope == SCOPE_ALL:
        yield (f"Without a replica afterwards: {plural(len(empty), 'node')} "
               f"({', '.join(map(str, empty[:NAMED_MAX]))}). To move one: multiraft group move "
               f"GROUP --from NODE --to {empty[0]}")


def short_of_replicas(made: Plan) -> Iterator[str]:
    """Yield a sentence for each node that is given only a part of its share of replicas, because
    the others rest after an earlier plan: what it has afterwards, and when the rest can be planned.
    """
    rests = [row.text for row in made.skipped if row.reason == COOL_DOWN
             and row.resource == REPLICAS]
    until = max((found[1] for text in rests if (found := _REST_END.search(text))), default=None)
    if until is None:
        return
    alive = [row for row in made.nodes if row.state == ALIVE]
    total = sum(row.replicas_after for row in made.nodes)
    weight = max(1, sum(row.weight for row in alive))
    for row in alive:
        share = total * row.weight // weight
        if row.replicas_before <= row.replicas_after < share * SHORT_BELOW:
            yield (f"Node {row.node} gets {row.replicas_after:,} of its "
                   f"{plural(share, 'replica')} now; the rest can be planned after {until}.")


def _bins(made: Plan, resource: str) -> _Bins:
    if resource == GROUP_INGRESS:
        return _Bins("group", "partition", [row.after for row in made.groups])
    position = NODE_RESOURCES.index(resource)
    return _Bins("node", "group", [row.after[position] for row in made.nodes
                                   if row.state == ALIVE])


def _reason(made: Plan, row: ResourceOutcome) -> str:
    """Return the reason why the resource stays unbalanced. Empty when the skipped moves tell it,
    and without a known bound also for a plan that has not converged or is for one node."""
    band, edge, bins = (made.policy.band(row.resource), PERMILLE + row.band_permille,
                        _bins(made, row.resource))
    assert band is not None
    if row.bound == LARGEST and row.after_ppm * PERMILLE <= row.bound_ppm * edge:
        return (f"one {bins.item} alone is {percent(row.bound_ppm)} of the mean of the "
                f"{bins.name}s, on any {bins.name}")
    if row.bound in _BOUNDS and row.after_ppm * PERMILLE <= row.bound_ppm * edge:
        return _BOUNDS[row.bound]
    if any(left.resource == row.resource for left in made.skipped) or not made.converged \
            or made.options.scope == SCOPE_NODE:
        return ""
    if row.resource in (LEADERS, EGRESS):
        bare = [node.node for node in made.nodes if node.state == ALIVE and not node.replicas_after]
        none = f"; {_named(bare)} no replica" if bare else ""
        return (f"only a node that holds a replica of a group can lead it, and all others are at "
                f"their share{none}")
    if row.after_ppm * PERMILLE <= row.level_ppm * edge:
        return (f"each {bins.name} is within the band of its share, which differs from the mean "
                f"because of racks or large {bins.item}s")
    return f"no move of a {bins.item} that racks, disks and policy allow improves it"


def _named(nodes: list[int]) -> str:
    listed = ", ".join(map(str, nodes[:NAMED_MAX]))
    return f"node {listed} holds" if len(nodes) == 1 else f"nodes {listed} hold"


def what_cut(made: Plan) -> str:
    """Return why a plan is not converged, as a clause."""
    reasons = {row.reason for row in made.skipped}
    if MOVES_LIMIT in reasons:
        return f"a plan has at most {plural(made.policy.moves_max, 'move')}"
    if made.options.budget_bytes:
        return f"its budget is {quantities.size(made.options.budget_bytes)}"
    if DISK_PEAK in reasons:
        return "a disk has no room for some moves before the others are done"
    if made.options.scope == SCOPE_NODE:
        return f"what node {made.options.node} gives and what it lacks are two plans"
    return "a limit was reached"


def nothing_to_do(made: Plan) -> str:
    """Return the statement of a plan without moves: what its scope has checked, and which loads
    stay above their bands."""
    scope = made.options.scope
    if scope == SCOPE_REPAIR:
        return ("Nothing to repair: no replica is lost or missing, no rack has more than its "
                "share, no disk is above its cap. The scope repair does not balance")
    if scope == SCOPE_DRAIN:
        return "Nothing to drain: no draining node has a replica"
    above = [row.resource for row in above_band(made)]
    if above and scope != SCOPE_NODE:
        stays = "stays above its band" if len(above) == 1 else "stay above their bands"
        return (f"Nothing to do: {plural(len(above), 'load')} ({', '.join(above)}) {stays}, for "
                f"the reasons above")
    small = plan_words.below_floors(made)
    if made.skipped:
        return ("Nothing to do: loads above their band cannot be moved, for the reasons above")
    if scope == SCOPE_LEADERS:
        return "Nothing to do: no node leads, or sends, more than its band allows"
    if scope == SCOPE_NODE:
        return (f"Nothing to do: no move from or to node {made.options.node} is needed. "
                "Other nodes were not considered")
    told = ["Nothing to do: all loads are within their bands" if plan_words.judged(made) else
            "Nothing to do: the loads are too small to balance, and each node has about its share "
            "of replicas"]
    if small and plan_words.judged(made):
        told.append(small.removesuffix("."))
    if plan_words.leaders_are_free(made):
        told.append("Leaders stay where elections put them; to spread them evenly: multiraft "
                    "rebalance plan --scope leaders")
    return ". ".join(told)

