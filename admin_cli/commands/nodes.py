"""`multiraft node`: the nodes of a cluster; and, from the server's package, one of them.

Contract.  The commands that ask a cluster are here.  Those that work on a node's own files (`init`,
`start`) come from the entry point of the same name and are listed beside them.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any

import click

from admin_cli import connection
from admin_cli.commands.groups import change_members, move_replica
from admin_cli.console.command_group import (
    ENTRY_POINT_GROUP,
    HelpfulGroup,
    load_command,
    load_plugin,
)
from admin_cli.console.options import BytesPerSecond, json_option, servers_option, wide_option
from admin_cli.console.output import note, plural, print_json, print_table, progress_bar
from admin_cli.failures import CommandFailed, Unreachable, told_if_interrupted
from admin_cli.plans.rebalance import ACTIVE_STATES
from admin_cli.session import Session
from admin_cli.status.cluster_facts import (
    NodeQueries,
    desired_state_of,
    disk_facts,
    scrub_facts,
)
from admin_cli.status.health import clock_skew, with_desired_state
from admin_cli.status.node_lookup import await_records, groups_to_move, require_known
from admin_cli.values import quantities
from admin_cli.values.numbers import NODE
from multiraft.wire import errors as wire
from multiraft.wire import plans

#: Interval at which a scrub is polled, in seconds: three counters of one node.
SCRUB_POLL_INTERVAL_S = 0.5

#: Groups that a sentence names.
GROUPS_NAMED_MAX = 8

#: Commands that compute plans -> their place: imported on use, because the planner takes long to
#: import and no other command needs it.
PLANNED = {name: f"admin_cli.plans.drain_and_decommission:{name}"
           for name in ("drain", "undrain", "maintenance", "decommission")}


class NodeGroup(HelpfulGroup):
    """The subcommands of this module and of the server's package."""

    planned = tuple(PLANNED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        server = self._server()
        return sorted({*super().list_commands(ctx), *PLANNED,
                       *(server.list_commands(ctx) if server is not None else ())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        if cmd_name in PLANNED:
            return load_command(PLANNED[cmd_name])
        server = self._server()
        return None if server is None else server.get_command(ctx, cmd_name)

    @staticmethod
    def _server() -> click.Group | None:
        """Return the server's commands; None where it is not installed."""
        points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="node")
        for point in points:
            command = load_plugin(point)
            if isinstance(command, click.Group):
                return command
        return None


@click.group(cls=NodeGroup)
def node() -> None:
    """Show and manage the nodes of a cluster; run one."""


def _shown(row: Any, desired_states: dict[int, str] | None) -> dict[str, Any]:
    """Return one node as in the JSON, whose keys are stable."""
    about = row.node
    since = (datetime.fromtimestamp(about.started_ms / 1000, timezone.utc).isoformat(
        timespec="seconds") if about.started_ms else None)
    return {
        "id": about.id,
        "state": row.state,
        "intent": desired_state_of(desired_states, about.id),
        "client_address": about.client_address,
        "peer_address": about.peer_address,
        "kafka_address": about.kafka_address or None,
        "rack": about.rack,
        "weight": about.weight / 100,
        "incarnation": f"{about.incarnation:016x}" if about.incarnation else None,
        "boot_epoch": about.boot_epoch,
        "version": about.version or None,
        "since": since,
        "replicas": row.replicas,
        # The node that is asked remembers leaders whose nodes are gone.
        "leads": row.leads if row.state == "up" else 0,
    }


#: Columns of the list that a narrow terminal does without, the least important first.
LIST_COLUMNS_DROPPED = ("rack", "version", "since", "kafka address")


@node.command("list")
@wide_option
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, wide: bool, as_json: bool) -> None:
    """List the nodes, as the node that answers sees them."""
    with connection.open_session(session) as client:
        client.catch_up()
        answer = client.node_list()
        desired_states = connection.desired_states_if_known(client)
    rows = [_shown(row, desired_states) for row in answer.nodes]
    if as_json:
        print_json({"nodes": rows, "removed": list(answer.removed)})
        return
    # Most clusters have no port for Kafka's clients.
    kafka = ("kafka address",) if any(row["kafka_address"] for row in rows) else ()
    print_table(("node", "state", "replicas", "leads", "rack", "version", "since",
                 "client address", *kafka),
                [(row["id"], with_desired_state(row["state"], row["intent"]), row["replicas"],
                  row["leads"], row["rack"], row["version"], row["since"],
                  row["client_address"], *(row["kafka_address"] for _ in kafka)) for row in rows],
                LIST_COLUMNS_DROPPED, wide)


@node.command()
@click.argument("node_id", metavar="NODE", type=NODE)
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, node_id: int, as_json: bool) -> None:
    """Show one node and its groups."""
    with connection.open_session(session) as client:
        client.catch_up()
        answer = client.node_describe(node_id)
        desired_states = connection.desired_states_if_known(client)
        told, problem = (NodeQueries()(client.node_status, answer.node.node.client_address)
                         if answer.node.state == "up" else (None, f"it is {answer.node.state}"))
    status = told.status if told is not None else {}
    scrub = scrub_facts(status)
    is_far = bool(status["clock_is_far"]) if "clock_is_far" in status else None
    groups = {"voter_of": list(answer.voter_of), "learner_of": list(answer.learner_of),
              "leader_of": list(answer.leader_of) if answer.node.state == "up" else []}
    shown = _shown(answer.node, desired_states)
    if as_json:
        print_json({**shown, **groups, "scrub": scrub, **disk_facts(status), "problem": problem,
                    "clock_skew_ms": status.get("clock_skew_ms"),
                    "clock_is_far": is_far})
        return
    facts = {name.replace("_", " "): value for name, value in shown.items()
             if value or name != "kafka_address"}
    if shown["intent"] in connection.STATE_WORDS:
        facts["intent"] = (
            f"{connection.STATE_WORDS[shown['intent']]}, until `multiraft node undrain "
            f"{node_id}`"
        )
    facts |= {name.replace("_", " "): ", ".join(map(str, found)) or None
              for name, found in groups.items()}
    facts["scrub"] = _scrub_sentence(scrub) if scrub else problem
    if is_far:
        facts["clock"] = (f"{clock_skew(status['clock_skew_ms'])} those of the other "
                          f"nodes: it deletes nothing by age until its clock is set (NTP)")
    if retention := _retention_sentence(status):
        facts["retention"] = retention
    if space := _space_sentence(status):
        facts["space"] = space
    if cleaner := _cleaner_sentence(status):
        facts["cleaner"] = cleaner
    print_table(("what", "value"), facts.items())


def _retention_sentence(status: dict[str, Any]) -> str:
    """Return what retention removed since the node started, or why it is paused, as a sentence; ""
    if the node does not tell."""
    if "retention_log_starts" not in status:
        return ""
    if status["retention_paused_releases"]:
        return ("paused: a node of the cluster has a release that does not know the entries "
                "(`multiraft node list`)")
    if status["retention_paused_clock"]:
        return "nothing leaves by age, because the clock is far from those of the other nodes"
    said = (f"removed {plural(status['retention_records_removed'], 'record')}, "
            f"{status['retention_bytes_removed']} bytes, of partitions led here since the start")
    held = status["retention_partitions_held"]
    return said + (f"; {plural(held, 'partition')} keep all records, because groups of earlier "
                   f"epochs have some" if held else "")


def _space_sentence(status: dict[str, Any]) -> str:
    """Return what the node gave back to its disk since it started, as a sentence; "" if the node
    does not tell."""
    if "segments_removed" not in status:
        return ""
    said = (f"{plural(status['segments_removed'], 'segment')}, "
            f"{quantities.size(status['segments_removed_bytes'])}, given back since the start")
    leaving, held = status["segments_leaving"], status["segments_held"]
    return (said + (f"; after the next checkpoints: {plural(leaving, 'segment')}"
                    if leaving else "")
            + (f"; held, because the journal has too many gaps: {plural(held, 'segment')}"
               if held else ""))


def _cleaner_sentence(status: dict[str, Any]) -> str:
    """Return what the cleaner of the node does, as a sentence; "" if the node does not tell."""
    if "cleaner_copied_bytes" not in status:
        return ""
    size = quantities.size
    if status["cleaner_paused"]:
        said = "paused"
    elif status["cleaner_active"]:
        total = size(status["cleaner_copy_bytes"])
        if "cleaner_copy_bytes_done" in status:
            total = f"{size(status['cleaner_copy_bytes_done'])} of {total}"
        said = f"copies {total} at {size(status['cleaner_bytes_per_second'])}/s"
    else:
        said = "idle"
    waiting = status["cleaner_waiting"]
    return (f"{said}; {size(status['cleaner_copied_bytes'])} copied since the start; "
            f"{plural(status['cold_segments'], 'cold segment')}, "
            f"{size(status['cold_segments_bytes'])}; records are "
            f"{size(status['cleanable_live_bytes'])} of the {size(status['cleanable_bytes'])} that "
            f"may be cleaned" + (f"; after the next checkpoints the sources of "
                                 f"{plural(waiting, 'cold segment')} go" if waiting else ""))


def _scrub_sentence(scrub: dict[str, Any]) -> str:
    """Return the progress of a scrub, or the time of its last end, as a sentence."""
    if scrub["active"]:
        done, total, pace = (quantities.size(scrub[name]) for name in
                             ("pass_bytes", "total_bytes", "bytes_per_second"))
        asked = ", requested by an operator" if scrub["requested"] else ""
        sentence = f"{done} of {total} at {pace}/s{asked}"
    else:
        sentence = f"last completed: {scrub['completed'] or 'never'}"
    return f"{sentence}; {_damage(scrub['damaged'])} since the node's start"


def _damage(count: int) -> str:
    what = "entry or checkpoint" if count == 1 else "entries or checkpoints"
    return f"{count:,} damaged {what}"


#: End of a command that was not told to change anything.
DRY_RUN = "Dry run: nothing was changed. Use --yes to apply."


@node.command()
@click.argument("node_id", metavar="NODE", type=NODE)
@click.option("--yes", is_flag=True, help="Remove it. Without it: dry run.")
@json_option
@servers_option
@click.pass_obj
def remove(session: Session, node_id: int, yes: bool, as_json: bool) -> None:
    """Remove NODE permanently: its id is never used again.  Without --yes: dry run.

    Refused while a group has a replica there: `node drain` or `node replace` moves them.  A node
    that still runs ends by itself.
    """
    with connection.open_session(session) as client:
        if yes:
            _remove(client, node_id)
        else:
            found = _removable(client, node_id)
    if as_json:
        print_json({"removed": node_id if yes else None, "dry_run": not yes})
    elif yes:
        note(f"Removed node {node_id}.")
    else:
        ends = " It runs, and would end by itself." if found.node.state == "up" else ""
        note(f"Node {node_id} at {found.node.node.client_address} has no replicas. It would be "
             f"removed permanently: its id is never used again.{ends}")
        note(DRY_RUN)


def _remove(client: Any, node_id: int) -> None:
    """Remove a node. The refusal of one with replicas names the plan that moves them, if one is
    under way."""
    try:
        client.remove_node(node_id)
    except wire.InvalidRequest as error:
        running = _running_plan(client)
        if running is None:
            raise
        raise CommandFailed(connection.sentence(error), running) from error


def _removable(client: Any, node_id: int) -> Any:
    """Return the description of a node that has no replicas. Raises ``CommandFailed`` for one that
    could not be removed."""
    client.catch_up()
    found = client.node_describe(node_id)
    groups = groups_to_move(client, node_id)
    if groups:
        raise CommandFailed(
            f"node {node_id} cannot be removed: {plural(len(groups), 'group')} "
            f"({_some(groups)}) {'has a replica' if len(groups) == 1 else 'have replicas'} there.",
            _running_plan(client) or
            f"Move them first: multiraft node drain {node_id}, or to one node: multiraft node "
            f"replace {node_id} NEW")
    return found


def _running_plan(client: Any) -> str | None:
    """Return the advice to wait for the plan that is under way; None if there is none."""
    status = client.plan_request(plans.PlanStatus())
    if status.state not in ACTIVE_STATES:
        return None
    return (f"Plan {status.plan_id[:12]}, scope {status.scope}, is {status.state}. Watch it, and "
            "run this command again when it has ended: multiraft rebalance status --watch")


def _some(groups: Sequence[int]) -> str:
    """Return the first few groups, and the number of the others."""
    more = len(groups) - GROUPS_NAMED_MAX
    return ", ".join(map(str, groups[:GROUPS_NAMED_MAX])) + (f" and {more} more" if more > 0
                                                             else "")


@node.command()
@click.argument("node_id", metavar="NODE", type=NODE)
@click.option("--rate", "bytes_per_second", type=BytesPerSecond(), default=None,
              help="Bytes to read per second, such as 64MiB. Default: scrub_bytes_per_second of "
                   "the node.")
@click.option("--wait", is_flag=True, help="Wait until the scrub is complete.")
@json_option
@servers_option
@click.pass_obj
def scrub(session: Session, node_id: int, bytes_per_second: int | None, wait: bool,
          as_json: bool) -> None:
    """Read and verify all stored data of NODE now.

    Each node also scrubs periodically (scrub_interval_days).  A replica with a damaged entry is
    quarantined and fetches the entry from other nodes; a damaged checkpoint is rewritten.  The
    command returns at once; `node describe NODE` shows the progress.  Running it again restarts the
    scrub.  Appends have priority: a busy node takes longer.

    With --wait, exits with 1 if damage was found.
    """
    with connection.open_session(session) as client:
        address = _address_of(client, node_id)
        ask = functools.partial(client.node_status, address)
        before = ask().status
        begun = client.scrub_node(node_id, address, bytes_per_second or 0,
                                  timeout_ms=connection.NODE_TIMEOUT_MS)
        with told_if_interrupted(f"Node {node_id} continues the scrub.\nShow its progress: "
                                 f"multiraft node describe {node_id}"):
            damaged = _await_scrub(session, ask, begun, before, as_json) if wait else None
    if as_json:
        print_json({"node": node_id, "total_bytes": begun.total_bytes,
                    "bytes_per_second": begun.bytes_per_second, "damaged": damaged})
    elif not wait:
        note(f"Node {node_id} reads {quantities.size(begun.total_bytes)} at "
             f"{quantities.size(begun.bytes_per_second)}/s. Show its progress: multiraft node "
             f"describe {node_id}")
    if damaged:
        raise CommandFailed(f"{_damage(damaged)} on node {node_id}.",
                            "The node fetches damaged entries from other nodes and rewrites "
                            "damaged checkpoints. Check whether it has: multiraft cluster status")
    if wait and not as_json:
        note(f"Node {node_id} has read {quantities.size(begun.total_bytes)}: nothing is damaged.")


@node.command()
@click.argument("node_id", metavar="NODE", type=NODE)
@click.argument("action", metavar="pause|resume", type=click.Choice(["pause", "resume"]))
@click.option("--rate", "bytes_per_second", type=BytesPerSecond(), default=None,
              help="With resume: bytes to read and write per second, such as 64MiB. Default: as "
                   "before.")
@json_option
@servers_option
@click.pass_obj
def cleaner(session: Session, node_id: int, action: str, bytes_per_second: int | None,
            as_json: bool) -> None:
    """Pause or resume the cleaner of NODE, until NODE stops.

    The cleaner copies the records of segments with few of them, so that the segments can go.  It
    pauses between two steps of a copy.  `node describe NODE` shows its progress.  A cleaner whose
    rate is 0 needs --rate.
    """
    if action == "pause" and bytes_per_second is not None:
        raise click.UsageError("--rate is for resume.")
    with connection.open_session(session) as client:
        reply = client.control_cleaner(node_id, _address_of(client, node_id), action,
                                       bytes_per_second or 0,
                                       timeout_ms=connection.NODE_TIMEOUT_MS)
    if as_json:
        print_json({"node": node_id, "paused": reply.is_paused,
                    "bytes_per_second": reply.bytes_per_second})
    elif reply.is_paused:
        note(f"The cleaner of node {node_id} is paused. Resume it: multiraft node cleaner "
             f"{node_id} resume")
    else:
        note(f"The cleaner of node {node_id} copies at "
             f"{quantities.size(reply.bytes_per_second)}/s, until the node stops.")


def _address_of(client: Any, node_id: int) -> str:
    """Return the client address of a node. Raises ``NotFound`` for an unknown node, and
    ``Unreachable`` for one that is down."""
    require_known(client, node_id)
    row = next(row for row in client.node_list().nodes if row.node.id == node_id)
    if row.state == "down":
        raise Unreachable(f"node {node_id} is down.", "Check a stopped node on its machine: "
                                                      "`multiraft log inspect DIRECTORY --verify`")
    return row.node.client_address


def _await_scrub(session: Session, ask: Callable[[], Any], begun: Any, before: dict,
                 quiet: bool) -> int:
    """Wait until the pass that has ``begun`` ends. Return the number of entries and checkpoints
    that it found damaged. Raises ``CommandFailed`` when the node restarted meanwhile."""
    with progress_bar(hidden=quiet) as bar:
        task = bar.add_task("bytes", total=begun.total_bytes)
        while True:
            status = ask().status
            if status["boot_epoch"] != before["boot_epoch"]:
                raise CommandFailed("the node restarted during the scrub.", "Run the command "
                                    "again.")
            if status["scrub_passes"] > begun.passes:
                return status["scrub_damaged"] - before["scrub_damaged"]
            bar.update(task, completed=status["scrub_pass_bytes"],
                       total=status["scrub_total_bytes"])
            session.pause(SCRUB_POLL_INTERVAL_S)


@node.command()
@click.argument("old", type=NODE)
@click.argument("new", type=NODE)
@click.option("--yes", is_flag=True, help="Move them. Without it: dry run.")
@json_option
@servers_option
@click.pass_obj
def replace(session: Session, old: int, new: int, yes: bool, as_json: bool) -> None:
    """Move every replica of node OLD to node NEW; OLD may be dead.  Without --yes: dry run.

    One group after the other: NEW becomes a learner, catches up, and takes OLD's vote in one
    change.  The groups keep serving.  If interrupted, run the command again to continue.  Then
    `node remove OLD` removes the old node.
    """
    if old == new:
        raise click.UsageError(f"OLD and NEW are both {old}.")
    with connection.open_session(session) as client:
        require_known(client, old, new)
        if yes:
            with told_if_interrupted(
                f"Groups that were moved stay on node {new}; no further group is moved. The group "
                f"in progress may be left with node {new} as a learner.\n"
                f"Continue: multiraft node replace {old} {new} --yes"
            ):
                moved, skipped = _replace(client, old, new, as_json)
        else:
            moved, skipped = _replacement(client, old, new)
    if as_json:
        print_json({"from": old, "to": new, "moved": moved if yes else [], "skipped": skipped,
                    "dry_run": not yes, "would_move": [] if yes else moved})
    if not yes:
        _note_replacement(old, new, moved, skipped)
        return
    for one in skipped:
        note(f"Group {one['group']} was skipped: {one['why']}.")
    if skipped:
        raise CommandFailed(
            f"{plural(len(moved), 'group')} moved, {plural(len(skipped), 'group')} skipped.",
            f"Move those to another node: multiraft group move GROUP --from {old} --to OTHER")
    if not as_json:
        note(f"Moved {plural(len(moved), 'group')} from node {old} to node {new}. Remove the old "
             f"node: multiraft node remove {old} --yes")


def _note_replacement(old: int, new: int, would_move: list[int],
                      skipped: list[dict[str, Any]]) -> None:
    """Print what a replacement would do."""
    note(f"{plural(len(would_move), 'group')} would be moved from node {old} to node {new}"
         + (f", one after the other: {_some(would_move)}." if would_move else "."))
    for why in dict.fromkeys(one["why"] for one in skipped):
        groups = [one["group"] for one in skipped if one["why"] == why]
        note(f"{plural(len(groups), 'group')} ({_some(groups)}) would be skipped: {why}.")
    note(DRY_RUN)


def _replacement(client: Any, old: int, new: int) -> tuple[list[int], list[dict[str, Any]]]:
    """Return the groups that ``_replace`` would move, and those that it would skip with the reason.
    """
    would_move, skipped = [], []
    for group in groups_to_move(client, old):
        why = _obstacle(client.group_members(group), old, new)
        if why:
            skipped.append({"group": group, "why": why})
        else:
            would_move.append(group)
    return would_move, skipped


def _replace(client: Any, old: int, new: int,
             quiet: bool) -> tuple[list[int], list[dict[str, Any]]]:
    """Move replicas from ``old`` to ``new``, group by group, and wait until the moves are recorded.
    Return the groups moved, and those skipped with the reason."""
    moved: list[int] = []
    skipped: list[dict[str, Any]] = []
    wanted = groups_to_move(client, old)
    if wanted and not quiet:
        note(f"Moving {plural(len(wanted), 'group')} from node {old} to node {new}, one after the "
             "other.")
    with progress_bar(hidden=quiet) as bar:
        groups_done = bar.add_task("groups", total=len(wanted))
        entries = bar.add_task("", total=None)
        for group in wanted:
            found = client.group_members(group)
            why = _obstacle(found, old, new)
            if why:
                skipped.append({"group": group, "why": why})
            elif old in found.voters + found.outgoing:
                def say(text: str, have: int, total: int, group: int = group) -> None:
                    bar.update(entries, description=f"group {group}, {text}", completed=have,
                               total=total)

                move_replica(client, found, old, new, say)
                moved.append(group)
            elif old in found.learners:
                learners = {*found.learners, new} - {old}
                change_members(client, found, found.voters, tuple(sorted(learners)))
                moved.append(group)
            bar.advance(groups_done)
    await_records(client, old, {one["group"] for one in skipped})
    return moved, skipped


def _obstacle(found: Any, old: int, new: int) -> str:
    """Return the reason why ``new`` cannot take the place of ``old`` in a group; empty when it can.
    """
    if not found.is_open and new in found.voters and old in found.voters + found.learners:
        return f"node {new} is a voter of it already"
    return ""
