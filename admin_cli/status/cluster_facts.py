"""Facts about a cluster and about a group, gathered from the nodes.

Contract.  As ``connection.py``: takes a client, returns the JSON's own values.  One node names the
nodes; each node that is up reports about itself.  A node that does not answer in time is a row with
a ``problem`` and never an error of the whole; the wait for all nodes together is at most
``BUDGET_S``.  O(groups) at the nodes, on request only.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from fractions import Fraction
from typing import Any

from admin_cli import connection
from admin_cli.failures import NotFound
from admin_cli.status import health
from multiraft.client import blocking
from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire import plans

#: Time for all nodes, in seconds.  Nodes that would be asked later are reported without an answer,
#: so that a few that hang do not delay the others.
BUDGET_S = 10.0

#: Key of a row in the JSON -> key of ``node_status``.
_OF_NODE = {"version": "version", "phase": "phase", "ready": "ready", "not_ready": "not_ready",
            "uptime_ms": "uptime_ms", "quarantined": "groups_quarantined",
            "behind": "groups_lagging", "lag_entries": "lag_entries", "log_bytes": "log_bytes",
            "disk_used_bytes": "disk_used_bytes", "disk_free_bytes": "disk_free_bytes",
            "disk_total_bytes": "disk_total_bytes", "disk_full": "disk_full",
            "clock_skew_ms": "clock_skew_ms", "clock_is_far": "clock_is_far"}


#: Key of ``scrub`` in the JSON -> key of ``node_status``.
_OF_SCRUB = {"active": "scrub_active", "requested": "scrub_requested",
             "pass_bytes": "scrub_pass_bytes", "total_bytes": "scrub_total_bytes",
             "bytes_per_second": "scrub_bytes_per_second", "damaged": "scrub_damaged"}


class NodeQueries:
    """Requests to single nodes, within one budget of time."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + BUDGET_S

    def __call__(self, question: Callable[..., Any], *arguments: Any) -> tuple[Any, str | None]:
        """Ask a node through ``question``. Return (answer, None) or (None, the reason for which
        there is none), also once the budget is used up."""
        if time.monotonic() >= self._deadline:
            return None, "not asked: other nodes took too long to answer"
        try:
            return question(*arguments, timeout_ms=connection.NODE_TIMEOUT_MS), None
        except (MultiRaftError, blocking.NoNodeAnswered, OSError) as error:
            return None, connection.sentence(error)


def cluster_status(client: Any, is_dev: bool = False) -> dict[str, Any]:
    """Return the nodes, the groups in need, what needs attention and notes, as the JSON has them;
    asks each node that is up, one after the other. ``is_dev`` as in ``health.needs``."""
    status = client.cluster_status()
    rows = connection.groups(client, status.nodes)
    placement = connection.placement_facts_if_known(client)
    desired = None if placement is None else dict(placement.desired_states)
    preferred = collections.Counter(node for _, node in placement.preferred) if placement else None
    ask = NodeQueries()
    told: dict[int, dict] = {}
    problems: dict[int, str | None] = {}
    for node in status.nodes:
        if node.state == "up":
            reply, problems[node.id] = ask(client.node_status, node.client_address)
            told[node.id] = reply.status if reply is not None else {}
    led = collections.Counter(row.leader for row in rows)
    facts = {
        "cluster": status.cluster.hex(),
        "metadata_leader": next((row.leader for row in rows if row.group == METADATA_GROUP), None),
        "groups": status.groups, "growing_to": _growing_to(status.groups, rows),
        "replication_factor": status.replication_factor,
        "topics": status.topics, "partitions": status.partitions,
        "nodes": [{"id": node.id, "state": node.state,
                   "intent": desired_state_of(desired, node.id), "rack": node.rack,
                   "client_address": node.client_address, "peer_address": node.peer_address,
                   "kafka_address": node.kafka_address or None,
                   "leads": led[node.id], "leads_share": _leads_share(node.id, rows),
                   "preferred_by": None if preferred is None else preferred[node.id],
                   "groups": sum(node.id in row.voters + row.learners for row in rows),
                   **_of_node(told.get(node.id, {})), "scrub": scrub_facts(told.get(node.id, {})),
                   "problem": problems.get(node.id)}
                  for node in status.nodes],
        "leaderless_groups": [row.group for row in rows if row.leader is None],
        "under_replicated_groups": _under_replicated(status.nodes, rows, told.values()),
        "quarantined_groups": _named(told.values(), "quarantined"),
        "plan": (placement.plan_id or None) if placement else None,
    }
    needs = health.needs(facts, is_dev)
    return {**facts, "healthy": not needs, "needs_attention": [need._asdict() for need in needs],
            "notes": [note._asdict() for note in health.notes(facts)]}


def desired_state_of(desired: dict[int, str] | None, node: int) -> str | None:
    """Return the state that the operator wants of a node; None when it could not be asked."""
    return None if desired is None else desired.get(node, plans.ALIVE)


def _leads_share(node: int, rows: Sequence[connection.GroupRow]) -> int:
    """Return the groups that a node would lead if each group's voters led it equally often, rounded
    down."""
    return int(sum(Fraction(1, len(row.voters)) for row in rows if node in row.voters))


def _growing_to(pool_size: int, rows: Sequence[connection.GroupRow]) -> int | None:
    """Return the size that the pool is growing to, None when it does not grow: new groups exist
    before topics use them."""
    last = max((row.group for row in rows), default=0)
    return last if last > pool_size else None


def _of_node(status: dict) -> dict[str, Any]:
    row = {name: status.get(key) for name, key in _OF_NODE.items()}
    for flag in ("ready", "disk_full", "clock_is_far"):
        row[flag] = None if row[flag] is None else bool(row[flag])
    return row


def scrub_facts(status: dict) -> dict[str, Any] | None:
    """Return the progress of a node's scrub; None for a node of a release that does not report it.
    """
    if "scrub_active" not in status:
        return None
    facts = {name: status[key] for name, key in _OF_SCRUB.items()}
    ended_ms = status["scrub_completed_ms"]
    return {**facts, "active": bool(facts["active"]), "requested": bool(facts["requested"]),
            "completed": datetime.fromtimestamp(ended_ms / 1000, timezone.utc).isoformat(
                timespec="seconds") if ended_ms else None}


#: What ``disk_facts`` names, and the keys of the status that it has.
_OF_DISK = {
    "retention": {
        "records_removed": "retention_records_removed",
        "bytes_removed": "retention_bytes_removed",
        "partitions_held": "retention_partitions_held",
        "paused_by_clock": "retention_paused_clock",
        "paused_by_releases": "retention_paused_releases"},
    "space": {
        "segments_removed": "segments_removed",
        "segments_removed_bytes": "segments_removed_bytes",
        "segments_leaving": "segments_leaving",
        "segments_held": "segments_held"},
    "cleaner": {
        "paused": "cleaner_paused",
        "active": "cleaner_active",
        "bytes_per_second": "cleaner_bytes_per_second",
        "copy_bytes": "cleaner_copy_bytes",
        "copy_bytes_done": "cleaner_copy_bytes_done",
        "copied_bytes": "cleaner_copied_bytes",
        "cold_segments": "cold_segments",
        "cold_segments_bytes": "cold_segments_bytes",
        "cleanable_bytes": "cleanable_bytes",
        "cleanable_live_bytes": "cleanable_live_bytes",
        "waiting": "cleaner_waiting"},
}
_FLAGS_OF_DISK = frozenset(("paused", "active", "paused_by_clock", "paused_by_releases"))


def disk_facts(status: dict) -> dict[str, Any]:
    """Return what a node tells of retention, of space that it gave back, and of its cleaner; None
    for each number that a node of an earlier release does not tell."""
    return {what: {name: bool(status[key]) if name in _FLAGS_OF_DISK and key in status
                   else status.get(key) for name, key in names.items()}
            for what, names in _OF_DISK.items()}


def _under_replicated(nodes: Iterable[Any], rows: Sequence[connection.GroupRow],
                      told: Iterable[dict[str, Any]]) -> list[int]:
    """Return groups with a voter that is not up, as one node sees it, or lagging, as their leaders
    see it."""
    up = {node.id for node in nodes if node.state == "up"}
    found = {row.group for row in rows if not up.issuperset(row.voters)}
    return sorted(found.union(_named(told, "under_replicated")))


def _named(told: Iterable[dict[str, Any]], key: str) -> list[int]:
    """Return groups that any node names under ``key``."""
    return sorted({group for status in told for group in status.get(key, ())})


def group_description(client: Any, group: int) -> dict[str, Any]:
    """Return one group as its members report it, as the JSON has it.  Raises ``NotFound``."""
    nodes = {node.id: node for node in client.cluster_status().nodes}
    rows = {row.group: row for row in connection.groups(client, [*nodes.values()])}
    if group not in rows:
        raise NotFound(f"there is no group {group}; groups are numbered 0 to {max(rows)}.",
                       "`multiraft group list` shows them.")
    replicas: dict[int, Any] = {}
    problems: dict[int, str | None] = {}
    asked: set[int] = set()
    ask = NodeQueries()
    wanted = [*rows[group].voters, *rows[group].learners]
    while wanted:
        member = wanted.pop(0)
        asked.add(member)
        node = nodes.get(member)
        if node is None or node.state != "up":
            problems[member] = f"the node is {node.state if node else 'not known'}"
            continue
        replicas[member], problems[member] = ask(client.group_describe, group,
                                                 node.client_address)
        if replicas[member] is None:
            del replicas[member]
        else:  # a changing configuration may name members that the first list did not have
            wanted += [each for each in _members(replicas[member])
                       if each not in asked and each not in wanted]
    return _described(rows[group], replicas, problems)


def _members(replica: Any) -> tuple[int, ...]:
    return (*replica.voters, *replica.outgoing, *replica.learners)


def _described(row: connection.GroupRow, replicas: dict, problems: dict) -> dict[str, Any]:
    leaders = [each for each in replicas.values() if each.role == "leader"]
    leader = max(leaders, key=lambda each: each.term, default=None)
    newest = leader or max(replicas.values(), key=lambda each: each.term, default=None)
    return {
        "group": row.group,
        "incarnation": newest.incarnation if newest else None,
        "leader": leader.node if leader else row.leader,
        "term": newest.term if newest else row.term,
        "committed_in_term": leader.committed_in_term if leader else False,
        "transferee": (leader.transferee or None) if leader else None,
        "voters": list(newest.voters if newest else row.voters),
        "learners": list(newest.learners if newest else row.learners),
        "outgoing": list(newest.outgoing) if newest else [],
        "partitions": newest.partitions if newest else None,
        "log_bytes": newest.log_bytes if newest else None,
        "records": newest.records if newest else None,
        "record_bytes": newest.record_bytes if newest else None,
        "uncommitted_bytes": leader.uncommitted_bytes if leader else None,
        "replicas": [_replica(member, replicas.get(member), leader, problems.get(member))
                     for member in sorted(problems)],
    }


def _replica(node: int, replica: Any, leader: Any, problem: str | None) -> dict[str, Any]:
    seen = {each.node: each for each in leader.members} if leader else {}
    member = seen.get(node)
    leads = leader is not None and leader.node == node
    return {
        "node": node,
        "role": replica.role if replica else None,
        "state": "leader" if leads else member.state if member else None,
        "match": leader.durable_index if leads else member.match if member else None,
        "lag_entries": 0 if leads else leader.last_index - member.match if member else None,
        "lag_bytes": 0 if leads else member.lag_bytes if member else None,
        "term": replica.term if replica else None,
        "first_index": replica.first_index if replica else None,
        "last_index": replica.last_index if replica else None,
        "durable_index": replica.durable_index if replica else None,
        "commit": replica.commit if replica else None,
        "applied_index": replica.applied_index if replica else None,
        "log_bytes": replica.log_bytes if replica else None,
        "records": replica.records if replica else None,
        "record_bytes": replica.record_bytes if replica else None,
        "quarantined": (replica.quarantined or None) if replica else None,
        "problem": problem,
    }
