"""Rows of `topic describe`: a partition with the replicas of its group.

Contract.  ``places`` asks one node for all groups and nodes, whatever the number of topics; the
rest is computed from its answer.  A state is that node's view.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from admin_cli import connection
from admin_cli.connection import GroupRow, PartitionRow
from admin_cli.status import topic_sizes
from admin_cli.status.topic_sizes import Sizes

COLUMNS = ("partition", "group", "leader", "epoch", "replicas", "start_offset", "end_offset",
           "bytes", "state")
OK, UNDER_REPLICATED, NO_LEADER, NO_MAJORITY = ("ok", "under-replicated", "no leader",
                                                "no majority")


class Places(NamedTuple):
    """Groups by number, and ids of the nodes that are up."""

    groups: dict[int, GroupRow]
    up: frozenset[int]


def places(client: Any) -> Places:
    """Return the groups and the nodes that are up, as one node sees them."""
    nodes = client.cluster_status().nodes
    return Places({row.group: row for row in connection.groups(client, nodes)},
                  connection.nodes_up(nodes))


def replicas(row: PartitionRow, found: Places) -> tuple[int, ...]:
    """Return the nodes with a voting replica of a partition; empty if its group is not known."""
    group = found.groups.get(row.group)
    return group.voters if group is not None else ()


def leader(row: PartitionRow, found: Places) -> int | None:
    """Return the leader of a partition if it can append (``connection.living_leader``); None
    otherwise."""
    return connection.living_leader(row.leader or 0, replicas(row, found), found.up)


def state(row: PartitionRow, found: Places) -> str | None:
    """Return the state of a partition; None if its group is not known."""
    voters = replicas(row, found)
    if not voters:
        return None
    living = sum(node in found.up for node in voters)
    if 2 * living <= len(voters):
        return NO_MAJORITY
    if leader(row, found) is None:
        return NO_LEADER
    return OK if living == len(voters) else UNDER_REPLICATED


def as_json(row: PartitionRow, found: Places, sizes: Sizes) -> dict[str, Any]:
    """Return a partition as the JSON has it."""
    return {**row._asdict(), "leader": leader(row, found),
            "replicas": list(replicas(row, found)),
            **topic_sizes.partition_json(sizes, row.partition), "state": state(row, found)}


def shown(row: PartitionRow, found: Places, sizes: Sizes) -> tuple[object, ...]:
    """Return the cells of a partition, in the order of ``COLUMNS``."""
    return (row.partition, row.group, leader(row, found), row.leader_epoch,
            ", ".join(map(str, replicas(row, found))) or None, row.start_offset, row.end_offset,
            topic_sizes.partition_text(sizes, row.partition), state(row, found))
