"""The reason why partitions cannot be read or appended to, as the nodes that answer see it.

Contract.  Asks a client and returns sentences.  An answer of one node is enough: that node knows
the members of every group and which nodes are up.  When no node answers, the sentence says so.
Names at most ``GROUPS_NAMED_MAX`` groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from admin_cli import connection
from admin_cli.output import plural
from admin_cli.servers import Servers
from multiraft.client import blocking
from multiraft.errors import MultiRaftError

#: Groups that are explained one by one; the others are counted.
GROUPS_NAMED_MAX = 3


class Partition(NamedTuple):
    """A partition of a topic, and the group that holds its end."""

    topic: str
    partition: int
    group: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


def partitions(client: Any, topic: str) -> list[Partition]:
    """Return the partitions of a topic with their groups, as one node knows them.  Raises as
    ``Client.topic_metadata``."""
    return [Partition(topic, part.partition, part.group)
            for part in client.topic_metadata(topic).partitions]


def explain(client: Any, suspects: Iterable[Partition]) -> list[str]:
    """Return a sentence for each group of ``suspects`` that has no leader: which of its members are
    up and which are down, with their addresses.  Empty when every group has one.

    Asks the cluster, which takes some seconds when nodes are silent."""
    try:
        nodes = {node.id: node for node in client.cluster_status().nodes}
        rows = {row.group: row for row in connection.groups(client)}
    except (MultiRaftError, blocking.NoNodeAnswered, OSError) as error:
        return [f"No node tells the state of the groups: {connection.sentence(error)}"]
    held: dict[int, Partition] = {}
    for each in suspects:
        held.setdefault(each.group, each)
    found = [_sentence(part, rows[group], nodes) for group, part in sorted(held.items())
             if group in rows and _is_leaderless(rows[group], nodes)]
    more = len(found) - GROUPS_NAMED_MAX
    if more > 0:
        found[GROUPS_NAMED_MAX:] = [f"The same holds for {plural(more, 'other group')}."]
    return found


def remedy(servers: Servers) -> str:
    """Return the command that starts or shows the nodes that are down."""
    if servers.dev_directory is not None:
        return f"Start the nodes that are down: multiraft dev up --dir {servers.dev_directory}"
    return "Start the nodes that are down; `multiraft cluster status` shows all of them."


def _is_leaderless(row: connection.GroupRow, nodes: dict[int, Any]) -> bool:
    """Return True if a group has no leader that is up, or no majority that is."""
    up = [voter for voter in row.voters if _is_up(nodes, voter)]
    return row.leader is None or not _is_up(nodes, row.leader) or 2 * len(up) <= len(row.voters)


def _is_up(nodes: dict[int, Any], node: int) -> bool:
    return node in nodes and nodes[node].state == "up"


def _sentence(part: Partition, row: connection.GroupRow, nodes: dict[int, Any]) -> str:
    up = [voter for voter in row.voters if _is_up(nodes, voter)]
    down = [voter for voter in row.voters if voter not in up]
    lead = f"Group {row.group}, which holds {part}, has no leader"
    if not down:
        return f"{lead}: it is electing one, all of its members are up ({_named(up, nodes)})."
    verb = "is" if len(up) == 1 else "are"
    return (f"{lead}: {len(up)} of its {plural(len(row.voters), 'member')} {verb} up"
            + (f" ({_named(up, nodes)})" if up else "") + f", down: {_named(down, nodes)}.")


def _named(members: list[int], nodes: dict[int, Any]) -> str:
    return ", ".join(f"node {member} at {nodes[member].client_address}" if member in nodes
                     else f"node {member}" for member in members)
