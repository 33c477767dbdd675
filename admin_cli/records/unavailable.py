"""The reason why partitions cannot be read or appended to, as the nodes that answer see it.

Contract.  Asks a client and returns sentences.  An answer of one node is enough: that node knows
the members of every group and which nodes are up.  When no node answers, the sentence says so.
Returns at most ``SENTENCES_MAX`` of them and one more, which name ``GROUPS_NAMED_MAX`` groups each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from admin_cli import connection, leaderless
from admin_cli.console.output import plural
from multiraft.client import blocking, texts
from multiraft.errors import MultiRaftError

#: Sentences, for groups with different members.
SENTENCES_MAX = 3
#: Groups that a sentence names; the others are counted.
GROUPS_NAMED_MAX = 8


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
    """Return sentences about the groups of ``suspects`` that have no leader: which of their members
    are up and which are down, with their addresses; one for groups with the same members.  Empty
    when every group has a leader.

    Asks the cluster, which takes some seconds when nodes are silent."""
    try:
        nodes = {node.id: node for node in client.cluster_status().nodes}
        rows = {row.group: row for row in connection.groups(client, [*nodes.values()])}
    except (MultiRaftError, blocking.NoNodeAnswered, OSError) as error:
        return [no_answer(error)]
    held: dict[int, Partition] = {}
    for each in suspects:
        held.setdefault(each.group, each)
    alike: dict[tuple[int, ...], list[Partition]] = {}
    for group, part in sorted(held.items()):
        if group in rows and rows[group].leader is None:
            alike.setdefault(rows[group].voters, []).append(part)
    found = [_sentence(parts, voters, nodes) for voters, parts in alike.items()]
    more = len(found) - SENTENCES_MAX
    if more > 0:
        count = sum(len(parts) for parts in [*alike.values()][SENTENCES_MAX:])
        found[SENTENCES_MAX:] = [f"{plural(count, 'other group')} have no leader either."
                                 if count > 1 else "1 other group has no leader either."]
    return found


def no_answer(error: Exception) -> str:
    """Return the sentence for an error that leaves the state of the groups unknown."""
    if isinstance(error, blocking.NoNodeAnswered):
        return connection.sentence(f"no node answers now; {texts.by_reason(error.errors)}")
    return f"the state of the groups is not known: {connection.sentence(error)}"


def _sentence(parts: list[Partition], voters: tuple[int, ...], nodes: dict[int, Any]) -> str:
    """Return the sentence about the groups of ``parts``, whose members are all the same."""
    if len(parts) == 1:
        lead = f"group {parts[0].group}, which holds {parts[0]}, has no leader"
        whose = "its"
    else:
        named = ", ".join(f"{part.group} ({part})" for part in parts[:GROUPS_NAMED_MAX])
        more = len(parts) - GROUPS_NAMED_MAX
        lead = (f"groups {named}" + (f" and {plural(more, 'other')}" if more > 0 else "")
                + " have no leader")
        whose = "their"
    return leaderless.sentence(lead, whose, voters, nodes)
