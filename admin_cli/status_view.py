"""Status of a cluster and of a group as text: the summary first, then the tables.

Contract.  Prints the values of ``cluster_facts``, and decides nothing that the JSON does not
contain.
"""

from __future__ import annotations

import sys

from admin_cli import connection, quantities
from admin_cli.output import plural, print_table, say

#: Groups named in a line.
_NAMED_MAX = 10


def print_status(answer: dict) -> None:
    """Print the answer of `multiraft cluster status`."""
    needs = _needs(answer)
    say("Needs attention:" if needs else _healthy(answer))
    for need in needs:
        say(f"  {need}")
    aside = [f"node {node['id']} is {connection.STATE_WORDS[node['intent']]}"
             for node in answer["nodes"] if node["intent"] in connection.STATE_WORDS]
    if aside:
        say(f"Out of service: {', '.join(aside)}. To return one to service: multiraft "
            "node undrain NODE")
    say()
    most = max((node["leads"] for node in answer["nodes"]), default=0)
    cell = _cell()
    print_table(
        ("node", "state", "version", "uptime", "leads", "", "replicas", "behind", "lag", "log",
         "disk used", "disk free", "rack", "client address"),
        [(node["id"], with_desired_state(node_state(node), node["intent"]), node["version"],
          quantities.span(node["uptime_ms"]), node["leads"],
          quantities.bar(node["leads"], most, cell), node["groups"], node["behind"],
          node["lag_entries"], quantities.size(node["log_bytes"]),
          quantities.size(node["disk_used_bytes"]), _free(node), node["rack"],
          node["client_address"]) for node in answer["nodes"]])
    leader = answer["metadata_leader"]
    say(
        f"\n{answer['groups']} groups in the pool{_growth(answer)}, replication factor "
        f"{answer['replication_factor']}, {answer['topics']} topics with "
        f"{answer['partitions']} partitions\n"
        + (f"metadata group led by node {leader}" if leader else
           "the metadata group has no leader: topics cannot be created or deleted")
        + f"\ngroups without a leader: {_some(answer['leaderless_groups'])}"
        f"\nunder-replicated groups: {_some(answer['under_replicated_groups'])}"
        f"\nquarantined replicas: {_some(answer['quarantined_groups'])}")
    for node in answer["nodes"]:
        if node["scrub"] and node["scrub"]["requested"]:
            say(f"requested scrub: node {node['id']} has read "
                f"{quantities.size(node['scrub']['pass_bytes'])} of "
                f"{quantities.size(node['scrub']['total_bytes'])}")


def _growth(answer: dict) -> str:
    return f" (growing to {answer['growing_to']})" if answer["growing_to"] else ""


def node_state(node: dict) -> str:
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


def _needs(answer: dict) -> list[str]:
    """Return the problems of the cluster, the worst first."""
    needs = []
    if answer["leaderless_groups"]:
        needs.append(f"groups without a leader (no appends): {_some(answer['leaderless_groups'])}")
    if not answer["metadata_leader"]:
        needs.append("the metadata group has no leader")
    if answer["quarantined_groups"]:
        needs.append(f"quarantined replicas: {_some(answer['quarantined_groups'])}")
    for node in answer["nodes"]:
        state = node_state(node)
        if node["problem"]:
            needs.append(f"node {node['id']} does not answer: {node['problem']}")
        elif state not in ("ready", "up"):
            why = node["not_ready"]
            needs.append(f"node {node['id']} is {state}" + (f": {why}" if why else ""))
        if node["disk_full"]:
            needs.append(f"node {node['id']} has a full disk and refuses records")
    if answer["under_replicated_groups"]:
        needs.append(f"under-replicated groups: "
                     f"{_some(answer['under_replicated_groups'])}")
    return needs


def _healthy(answer: dict) -> str:
    return (f"Healthy: {plural(len(answer['nodes']), 'node')}, every group has a leader and all "
            "its replicas.")


def _free(node: dict) -> str | None:
    if not node["disk_total_bytes"]:
        return None
    share = 100 * node["disk_free_bytes"] // node["disk_total_bytes"]
    return f"{quantities.size(node['disk_free_bytes'])} ({share} %)"


def _some(groups: list[int]) -> str:
    """Return the number of groups and the first few of them."""
    if not groups:
        return "none"
    shown = ", ".join(map(str, groups[:_NAMED_MAX]))
    return f"{len(groups)} ({shown}{', ...' if len(groups) > _NAMED_MAX else ''})"


def _cell() -> str:
    """Return a block where the terminal can show it."""
    encoding = (getattr(sys.stdout, "encoding", "") or "ascii").lower()
    return "█" if encoding.replace("-", "") == "utf8" else "#"


def print_group(answer: dict) -> None:
    """Print the answer of `multiraft group describe`."""
    leader = answer["leader"]
    who = f"led by node {leader} in term {answer['term']}" if leader else (
        f"has no leader (term {answer['term']})")
    say(f"Group {answer['group']} {who}{_leader_marks(answer)}")
    say(f"voters {_nodes(answer['voters'])}; learners {_nodes(answer['learners'])}")
    if answer["outgoing"]:
        say(f"configuration change in progress (joint): outgoing voters "
            f"{_nodes(answer['outgoing'])}; both majorities are required")
    if answer["partitions"] is not None:
        say(f"{plural(answer['partitions'], 'partition')} with data, "
            f"{quantities.size(answer['log_bytes'])} of log")
    say()
    print_table(
        ("node", "role", "state", "term", "match", "lag", "lag bytes", "log", "durable", "commit",
         "applied", "note"),
        [(row["node"], row["role"], row["state"], row["term"], row["match"], row["lag_entries"],
          quantities.size(row["lag_bytes"]), _log(row), row["durable_index"], row["commit"],
          row["applied_index"], _note(row)) for row in answer["replicas"]])


def _leader_marks(answer: dict) -> str:
    marks = ""
    if answer["leader"] and not answer["committed_in_term"]:
        marks += ", which has not committed in its term yet"
    if answer["transferee"]:
        marks += f", transferring leadership to node {answer['transferee']}"
    return marks


def _nodes(nodes: list[int]) -> str:
    return ", ".join(map(str, nodes)) or "none"


def _log(row: dict) -> str | None:
    if row["last_index"] is None:
        return None
    return f"{row['first_index']}..{row['last_index']}"


def _note(row: dict) -> str:
    if row["problem"]:
        return row["problem"]
    return f"quarantined: {row['quarantined']}" if row["quarantined"] else ""
