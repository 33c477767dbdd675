"""Problems of a cluster that need attention, and notes, each with the next command.

Contract.  Pure: from the facts of ``cluster_facts.cluster_status`` to lists, the worst first.
Every text that `multiraft cluster status` can report is in ``PROBLEMS`` or ``NOTES``;
``docs/troubleshooting.md`` explains each, and a test compares the two.  A cluster is healthy when
nothing needs attention; notes do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from admin_cli import connection
from admin_cli.values import quantities

#: Groups named in a line.
NAMED_MAX = 10


#: A plan gives no node a leadership while the share of each node is at most this.
SHARE_FLOOR = 4
#: Time from a node's return within which it gets the leaderships that a plan chose for it.
RETURN_MS = 120_000


class Problem(NamedTuple):
    """A kind of problem, or of note.

    ``text`` and the commands have ``{node}``, ``{groups}`` (their number and the first of them),
    ``{group}`` (the first of them), ``{share}``, ``{skew}``, ``{why}`` and ``{free}`` for what
    varies.
    ``command`` "" = no command helps; ``dev_command`` replaces it for a development cluster on this
    machine."""

    text: str
    command: str = ""
    dev_command: str = ""


class Need(NamedTuple):
    """One problem of the cluster now.  ``problem``: its key in ``PROBLEMS``, stable for scripts."""

    problem: str
    text: str
    command: str | None


class Note(NamedTuple):
    """One note about the cluster now.  ``note``: its key in ``NOTES``, stable for scripts."""

    note: str
    text: str
    command: str | None


#: Reason of a node that does not know leaders, which others may know.
_LEADERS_UNKNOWN = "no leader is known"
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

#: Key -> note.
NOTES = {
    "clock_far": Problem("the clock of node {node} is {skew} those of the other nodes: it "
                         "deletes nothing by age until its clock is set (NTP)"),
    "leads_nothing": Problem("node {node} leads no group; its share is {share}, and none returns "
                             "by itself", "multiraft rebalance plan --scope leaders --yes"),
    "leads_nothing_yet": Problem("node {node} leads no group yet; those that a plan gave it return "
                                 "by themselves within two minutes of its start"),
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
            why = node["problem"] or node["not_ready"] or node_state(node)
            if why.startswith(_LEADERS_UNKNOWN) and not facts["leaderless_groups"]:
                why += f", as node {node['id']} sees it; the node that was asked knows them all"
            found.append(need(problem, node=node["id"], why=why))
        if node["disk_full"]:
            found.append(need("disk_full", node=node["id"],
                              free=quantities.size(node["disk_free_bytes"] or 0)))
    if facts["under_replicated_groups"]:
        found.append(need("groups_under_replicated", **_named(facts["under_replicated_groups"])))
    return found


def notes(facts: dict[str, Any]) -> list[Note]:
    """Return what an operator may want to change although the cluster is healthy. O(nodes)."""
    return _clock_notes(facts) + _leader_notes(facts)


def clock_skew(skew_ms: int) -> str:
    """Return a distance from other clocks in words: ``1 min 15 s ahead of``, or ``behind``."""
    return f"{quantities.span(abs(skew_ms))} {'ahead of' if skew_ms > 0 else 'behind'}"


def _clock_notes(facts: dict[str, Any]) -> list[Note]:
    """Return a note about each node whose clock is far from those of the others."""
    return [Note("clock_far", NOTES["clock_far"].text.format(
                node=node["id"], skew=clock_skew(node["clock_skew_ms"])), None)
            for node in facts["nodes"] if node["clock_is_far"]]


def _leader_notes(facts: dict[str, Any]) -> list[Note]:
    """Return a note about each node that leads nothing. None while a plan is in progress, which
    moves leaders itself, and none about nodes out of service."""
    if facts["plan"] is not None:
        return []
    found = []
    for node in facts["nodes"]:
        if (node["leads"] or node["leads_share"] <= SHARE_FLOOR or node_state(node) != "ready"
                or node["disk_full"] or node["intent"] in connection.STATE_WORDS):
            continue
        returns = (node["preferred_by"] and node["uptime_ms"] is not None
                   and node["uptime_ms"] < RETURN_MS)
        kind = "leads_nothing_yet" if returns else "leads_nothing"
        note = NOTES[kind]
        found.append(Note(kind, note.text.format(node=node["id"], share=node["leads_share"]),
                          note.command or None))
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
