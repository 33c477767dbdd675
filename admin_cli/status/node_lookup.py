"""Look-ups that the commands about nodes share: known nodes, and the groups of a node."""

from __future__ import annotations

import time
from typing import Any

from admin_cli.failures import CommandFailed, NotFound

#: Interval at which a change is polled.
POLL_INTERVAL_S = 0.2
#: The members of a group are recorded within a moment of the change, unless the metadata group is
#: electing.  Seconds.
RECORDS_S = 20.0


def require_known(client: Any, *nodes: int) -> None:
    """Return if the cluster has all of ``nodes``. Raises ``NotFound`` for the first one that it has
    not."""
    known = [row.node.id for row in client.node_list().nodes]
    for node_id in nodes:
        if node_id not in known:
            raise NotFound(f"there is no node {node_id}.",
                           f"The nodes are {', '.join(map(str, known))}.")


def groups_to_move(client: Any, node_id: int) -> list[int]:
    """Return the groups that have a replica on the node, the metadata group last: the members of
    the other groups are recorded through the metadata group.  A learner of the metadata group is
    not counted, because every node is one."""
    answer = client.node_describe(node_id)
    groups = [group for group in (*answer.voter_of, *answer.learner_of) if group]
    return sorted(groups) + [0] * (0 in answer.voter_of)


def await_records(client: Any, node_id: int, skipped: set[int]) -> None:
    """Wait until the leaders have recorded that no group but ``skipped`` has a replica on the node;
    ``node remove`` goes by these records.  Raises ``CommandFailed`` after ``RECORDS_S``."""
    end_s = time.monotonic() + RECORDS_S
    while (left := {*groups_to_move(client, node_id)} - skipped) and time.monotonic() < end_s:
        time.sleep(POLL_INTERVAL_S)
    if left:
        raise CommandFailed(f"groups {sorted(left)} are not reported as moved yet.",
                            "Run the command again.")
