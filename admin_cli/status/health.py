"""Problems of a cluster that need attention, each with the next command.

Contract.  Pure: from the facts of ``cluster_facts.cluster_status`` to a list, the worst first.
Every text that `multiraft cluster status` can report is in ``PROBLEMS``;
``docs/troubleshooting.md`` explains each, and a test compares the two.  A cluster is healthy when
the list is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from admin_cli import connection
from admin_cli.values import quantities

#: Groups named in a line.
NAMED_MAX = 10


class Problem(NamedTuple):
    """A kind of problem.

    ``text`` and the commands have ``{node}``, ``{groups}`` (their number and the first of them),
    ``{group}`` (the first of them), ``{why}`` and ``{free}`` for what varies. ``command`` "" = no
    command helps; ``dev_command`` replaces it for a development cluster on this machine."""

    text: str
    command: str = ""
    dev_command: str = ""


class Need(NamedTuple):
    """One problem of the cluster now.  ``problem``: its key in ``PROBLEMS``, stable for scripts."""

    problem: str
    text: str
    command: str | None


_DESCRIBE_GROUP = "multiraft group describe {group}"
_DESCRIBE_NODE = "multiraft node describe {node}"
_WAIT = "multiraft cluster status --wait-healthy"

#: Key -> problem.
PROBLEMS = {
    "groups_leaderless": Problem("groups without a leader (no appends): {groups}",
                                 _DESCRIBE_GROUP),
    "metadata_leaderless": Problem("the metadata group has no leader: topics cannot be created "
                                   "or deleted", "multiraft group describe 0"),
    "replicas_quarantined": Problem("quarantined replicas: {groups}", _DESCRIBE_GROUP),
    "node_silent": Problem("node {node} does not answer: {why}", "",
                           "multiraft dev status"),
    "node_down": Problem("node {node} is down", _DESCRIBE_NODE, "multiraft dev start {node}"),
    "node_unknown": Problem("node {node} is unknown", _DESCRIBE_NODE,
                            "multiraft dev start {node}"),
    "node_recovering": Problem("node {node} is recovering", _WAIT),
    "node_starting": Problem("node {node} is starting", _WAIT),
    "node_stopping": Problem("node {node} is stopping"),
    "node_not_ready": Problem("node {node} is not ready: {why}", _WAIT),
    "disk_full": Problem("node {node} has a full disk and refuses records: {free} free"),
    "groups_under_replicated": Problem("under-replicated groups: {groups}", _DESCRIBE_GROUP),
}


def needs(facts: dict[str, Any], is_dev: bool = False) -> list[Need]:
    """Return the problems of the cluster, the worst first. ``is_dev``: it is a development cluster
    on this machine, whose nodes `multiraft dev` starts."""
    def need(problem: str, **values: object) -> Need:
        kind = PROBLEMS[problem]
        command = (is_dev and kind.dev_command) or kind.command
        return Need(problem, kind.text.format(**values), command.format(**values) or None)

    found = []
    if facts["leaderless_groups"]:
        found.append(need("groups_leaderless", **_named(facts["leaderless_groups"])))
    if not facts["metadata_leader"]:
        found.append(need("metadata_leaderless"))
    if facts["quarantined_groups"]:
        found.append(need("replicas_quarantined", **_named(facts["quarantined_groups"])))
    for node in facts["nodes"]:
        problem = _problem_of(node)
        if problem is not None:
            found.append(need(problem, node=node["id"], why=node["problem"] or node["not_ready"]
                              or node_state(node)))
        if node["disk_full"]:
            found.append(need("disk_full", node=node["id"],
                              free=quantities.size(node["disk_free_bytes"] or 0)))
    if facts["under_replicated_groups"]:
        found.append(need("groups_under_replicated", **_named(facts["under_replicated_groups"])))
    return found


def _problem_of(node: dict[str, Any]) -> str | None:
    state = node_state(node)
    if node["problem"]:
        return "node_silent"
    if state in ("ready", "up"):
        return None
    problem = f"node_{state.replace(' ', '_')}"
    return problem if problem in PROBLEMS else "node_not_ready"  # a phase of another release


def node_state(node: dict[str, Any]) -> str:
    """Return the state of a node in one or two words."""
    if node["state"] != "up":
        return node["state"]
    if node["problem"]:
        return "no answer"
    if node["ready"] is None:
        return "up"  # of a release that does not report it
    if node["phase"] != "serving":
        return node["phase"]
    return "ready" if node["ready"] else "not ready"


def with_desired_state(state: str, desired_state: str | None) -> str:
    """Return the state of a node, with the wanted one unless it is alive: ``up, draining``."""
    words = connection.STATE_WORDS.get(desired_state or "")
    return f"{state}, {words}" if words else state


def some(groups: Sequence[int]) -> str:
    """Return the number of groups and the first few of them."""
    if not groups:
        return "none"
    shown = ", ".join(map(str, groups[:NAMED_MAX]))
    return f"{len(groups)} ({shown}{', ...' if len(groups) > NAMED_MAX else ''})"


def _named(groups: Sequence[int]) -> dict[str, object]:
    return {"groups": some(groups), "group": groups[0]}
