"""Status of a cluster and of a group as text: the summary first, then the tables.

Contract.  Prints the values of ``cluster_facts``, and decides nothing that the JSON does not
contain.
"""

from __future__ import annotations

import sys
import textwrap

from admin_cli import connection
from admin_cli.console.output import plural, print_table, say, terminal_columns
from admin_cli.status import health
from admin_cli.values import quantities

#: Columns that a narrow terminal does without, the least important first.
NODE_COLUMNS_DROPPED = ("rack", "client address", "version", "log", "disk used", "", "uptime",
                        "lag")
REPLICA_COLUMNS_DROPPED = ("lag bytes", "durable", "applied", "log", "term", "commit")


def print_status(answer: dict, wide: bool = False) -> None:
    """Print the answer of `multiraft cluster status`; ``wide``: with all columns."""
    needs = [health.Need(**need) for need in answer["needs_attention"]]
    say("Needs attention:" if needs else _healthy(answer))
    for need in needs:
        say(_with_command(f"  {need.text}", need.command))
    for note in answer["notes"]:
        say(_with_command(f"Note: {note['text']}", note["command"]))
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
        [(node["id"], health.with_desired_state(health.node_state(node), node["intent"]),
          node["version"], quantities.span(node["uptime_ms"]), node["leads"],
          quantities.bar(node["leads"], most, cell), node["groups"], node["behind"],
          node["lag_entries"], quantities.size(node["log_bytes"]),
          quantities.size(node["disk_used_bytes"]), _free(node), node["rack"],
          node["client_address"]) for node in answer["nodes"]],
        NODE_COLUMNS_DROPPED, wide)
    say(f"\n{plural(answer['groups'], 'group')} in the pool{_growth(answer)}, replication factor "
        f"{answer['replication_factor']}, {plural(answer['topics'], 'topic')} with "
        f"{plural(answer['partitions'], 'partition')}")
    if sys.stdout.isatty() and not wide:
        say(_addresses(answer["nodes"]))  # their column is left out first
    if answer["metadata_leader"]:
        say(f"metadata group led by node {answer['metadata_leader']}")
    for title, groups in (("groups without a leader", answer["leaderless_groups"]),
                          ("under-replicated groups", answer["under_replicated_groups"]),
                          ("quarantined replicas", answer["quarantined_groups"])):
        if not groups:  # others need attention, and are named above
            say(f"{title}: none")
    for node in answer["nodes"]:
        if node["scrub"] and node["scrub"]["requested"]:
            say(f"requested scrub: node {node['id']} has read "
                f"{quantities.size(node['scrub']['pass_bytes'])} of "
                f"{quantities.size(node['scrub']['total_bytes'])}")


def _with_command(text: str, command: str | None) -> str:
    """Return a problem or a note and the next command: one line, or on a terminal too narrow for it
    several, of which the last has the whole command."""
    together = f"{text.rstrip('.')}; next: {command}" if command else text
    room = terminal_columns()
    if not sys.stdout.isatty() or len(together) <= room:
        return together
    lines = textwrap.wrap(text, max(room, 20), subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)
    return "\n".join(lines + ([f"    next: {command}"] if command else []))


def _addresses(nodes: list[dict]) -> str:
    """Return a sentence with the client addresses of the first nodes, in lines that cut none."""
    named = [node["client_address"] for node in nodes[:health.NAMED_MAX]]
    more = ["..."] if len(nodes) > len(named) else []
    text = f"clients connect to {', '.join(named + more)}"
    return textwrap.fill(text, max(terminal_columns(), 20), subsequent_indent="  ",
                         break_long_words=False, break_on_hyphens=False)


def _growth(answer: dict) -> str:
    return f" (growing to {answer['growing_to']})" if answer["growing_to"] else ""


def _healthy(answer: dict) -> str:
    return (f"Healthy: {plural(len(answer['nodes']), 'node')}, every group has a leader and all "
            "its replicas.")


def _free(node: dict) -> str | None:
    if not node["disk_total_bytes"]:
        return None
    share = 100 * node["disk_free_bytes"] // node["disk_total_bytes"]
    return f"{quantities.size(node['disk_free_bytes'])} ({share} %)"


def _cell() -> str:
    """Return a block where the terminal can show it."""
    encoding = (getattr(sys.stdout, "encoding", "") or "ascii").lower()
    return "█" if encoding.replace("-", "") == "utf8" else "#"


def print_group(answer: dict, wide: bool = False) -> None:
    """Print the answer of `multiraft group describe`; ``wide``: with all columns."""
    leader = answer["leader"]
    who = f"led by node {leader} in term {answer['term']}" if leader else (
        f"has no leader (term {answer['term']})")
    say(f"Group {answer['group']} {who}{_leader_marks(answer)}")
    say(f"voters {_nodes(answer['voters'])}; learners {_nodes(answer['learners'])}")
    if answer["outgoing"]:
        say(f"configuration change in progress (joint): outgoing voters "
            f"{_nodes(answer['outgoing'])}; both majorities are required")
    if answer["partitions"] is not None:
        below = (f", of them {quantities.size(answer['record_bytes'])} below the Raft start"
                 if answer["records"] else "")
        say(f"{plural(answer['partitions'], 'partition')} with data, "
            f"{quantities.size(answer['log_bytes'])} of log{below}")
    say()
    print_table(
        ("node", "role", "state", "term", "match", "lag", "lag bytes", "log", "durable", "commit",
         "applied", "note"),
        [(row["node"], row["role"], row["state"], row["term"], row["match"], row["lag_entries"],
          quantities.size(row["lag_bytes"]), _log(row), row["durable_index"], row["commit"],
          row["applied_index"], _note(row)) for row in answer["replicas"]],
        REPLICA_COLUMNS_DROPPED, wide)


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
