"""Sentences about a group without a leader: which of its members are up, and which are down.

Contract.  Functions of the answers of one node, which knows the members of every group and which
nodes are up.  They ask nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from admin_cli.servers import Servers
from admin_cli.values.text import shell_word


def sentence(lead: str, whose: str, voters: Sequence[int], nodes: Mapping[int, Any]) -> str:
    """Return the sentence that begins with ``lead`` and names the ``voters`` that are up and those
    that are down, with their addresses. ``whose``: "its" or "their"; ``nodes``: rows of an answer
    to ``cluster_status`` by id."""
    up = [voter for voter in voters if voter in nodes and nodes[voter].state == "up"]
    down = [voter for voter in voters if voter not in up]
    if not down:
        return f"{lead}: an election is under way, all members are up ({_named(up, nodes)})."
    verb = "is" if len(up) == 1 else "are"
    members = f"{len(voters)} member{'' if len(voters) == 1 else 's'}"
    return (f"{lead}: {len(up)} of {whose} {members} {verb} up"
            + (f" ({_named(up, nodes)})" if up else "") + f", down: {_named(down, nodes)}.")


def _named(members: Sequence[int], nodes: Mapping[int, Any]) -> str:
    return ", ".join(f"node {member} at {nodes[member].client_address}" if member in nodes
                     else f"node {member}" for member in members)


def remedy(servers: Servers) -> str:
    """Return the command that starts or shows the nodes that are down."""
    if servers.dev_directory is not None:
        return ("Start the nodes that are down: multiraft dev up --dir "
                f"{shell_word(servers.dev_directory)}")
    return "Start the nodes that are down; `multiraft cluster status` shows all of them."
