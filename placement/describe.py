"""Placements as text: the words of logs, golden files and the command line."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from placement.bounded_hash import group_cap
from placement.plan import LeaderTransfer, Move, Plan, TopicSwitch
from placement.topology import Topology

#: The last moment that has a name, in seconds since 1970.
YEAR_9999_S = 253_402_300_799


def iso(ms: int) -> str:
    """Return a time in milliseconds since 1970 as text: ``2026-11-20T10:00:00Z``."""
    moment = datetime.datetime.fromtimestamp(min(ms // 1000, YEAR_9999_S), datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def cool_down_text(moved_ms: int, cool_down_ms: int) -> str:
    """Return the sentence for something that a plan moved at ``moved_ms`` and that stays for
    ``cool_down_ms`` more."""
    return (f"a plan moved it lately, and it rests until {iso(moved_ms + cool_down_ms)}; to move "
            f"it before, a smaller cool_down_ms in --policy")


def describe_replicas(replicas_by_group: Sequence[Sequence[int]]) -> str:
    """Return one line per group, from group 0 on, the preferred leader first: ``g4 -> n2 n5 n1``.
    """
    return "\n".join(f"g{group} -> " + " ".join(f"n{node}" for node in nodes)
                     for group, nodes in enumerate(replicas_by_group))


def describe_topology(topology: Topology) -> str:
    """Return one line per rack, with its weight and its nodes' weights: ``rack-a (300): n1*100
    n4*200``."""
    return "\n".join(f"{rack.name or '(no rack)'} ({rack.weight}): "
                     + " ".join(f"n{node.id}*{node.weight}" for node in rack.nodes)
                     for rack in topology.racks)


def describe_counts(counts: Sequence[int]) -> str:
    """Return the fill of a pool in one line; ``counts`` are partitions by group, ``counts[0]`` (the
    metadata group) is ignored."""
    pool = counts[1:]
    total = sum(pool)
    return (f"{total} partitions in {len(pool)} groups: least {min(pool)}, mean "
            f"{total / len(pool):.1f}, most {max(pool)}, cap {group_cap(total, len(pool))}")


def describe_move(move: Move) -> str:
    """Return a move in one line: ``3 wave 1: replicas:g8 n3 -> n4 (9 bytes) OVERLOAD disk of n3
    130% -> 102%``."""
    if isinstance(move, LeaderTransfer):
        way = f"n{move.from_node} -> n{move.to_node}"
    elif isinstance(move, TopicSwitch):
        way = f"{move.topic}/{move.partition} g{move.from_group} -> g{move.to_group}"
    else:
        way = f"{_nodes(move.leaving) or 'nobody'} -> {_nodes(move.joining) or 'nobody'}"
    copied = f" ({move.bytes} bytes)" if move.bytes else ""
    after = f" after {' '.join(map(str, move.depends_on))}" if move.depends_on else ""
    why, letter = move.why, "g" if isinstance(move, TopicSwitch) else "n"
    share = (f" {why.resource} of {letter}{why.subject} {why.before_ppm // 10_000}% -> "
             f"{why.after_ppm // 10_000}%") if why.resource else ""
    return f"{move.seq} wave {move.wave}{after}: {move.move_id} {way}{copied} {why.reason}{share}"


def _nodes(nodes: Sequence[int]) -> str:
    return " ".join(f"n{node}" for node in nodes)


def describe_plan(plan: Plan) -> str:
    """Return the text of a plan, resource by resource and move by move, without digests and
    times."""
    lines = [f"{each.resource}: worst {_percent(each.before_ppm)} -> {_percent(each.after_ppm)}, "
             f"bound {_percent(each.bound_ppm)} ({each.bound}), moves {each.moved}, has to move "
             f"{each.moved_bound}" for each in plan.resources]
    lines += [f"{total.kind}: {total.moves} moves, {total.bytes} bytes" for total in plan.totals]
    lines += [f"cannot: {each.cause} {each.subject}: {each.text}; {each.way_out}"
              for each in plan.infeasible]
    lines += [describe_move(move) for move in plan.moves]
    lines += [f"not: {each.reason} {each.subject}: {each.text}" for each in plan.skipped]
    return "\n".join(lines)


def _percent(ppm: int) -> str:
    """Return a share in millionths as a percentage with one decimal, rounded down."""
    return f"{ppm // 10_000}.{ppm // 1000 % 10}%"
