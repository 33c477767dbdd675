"""`multiraft dev`: a local cluster in the background."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator
from pathlib import Path

import click
from rich.progress import TaskID

from admin_cli.connection import open_client
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import Directory, Seconds, dir_option, json_option
from admin_cli.console.output import note, plural, print_json, print_table, progress_bar
from admin_cli.dev_cluster import (
    BASE_PORT_MAX,
    UP_TIMEOUT_S,
    DevCluster,
    PortTaken,
    Report,
    free_base_port,
    unreported,
)
from admin_cli.development import dev_choice, dev_logs, dev_state
from admin_cli.development.dev_process import node_command
from admin_cli.failures import CommandFailed, ExitCode, NotFound, reason
from admin_cli.servers import VARIABLE
from admin_cli.session import Session
from admin_cli.values.numbers import DAY_S, NODE, Whole
from admin_cli.values.text import shell_word
from placement import POOL_SIZE_MAX

DEFAULT_NODES = 3
DEFAULT_GROUPS = 64
#: As the default of ``[metrics] interval_ms``.
DEFAULT_LOADS_S = 60
#: Property of a cluster: the seconds between two records of loads, 0 = none are published.
LOADS = "publish-loads"
#: Lines of each log that `dev logs` begins with, and the interval at which it looks for new ones.
LOG_LINES = 20
LOG_INTERVAL_S = 0.2
#: More replicas cost every append and add no useful safety.
REPLICAS_MAX = 7


@click.group(cls=HelpfulGroup)
def dev() -> None:
    """Run a local cluster in the background, for development.

    Commands run afterwards find it without --servers.
    """


def _cluster(session: Session, directory: Path, report: Report = unreported) -> DevCluster:
    return DevCluster(directory, session.connect or open_client, session.environ,
                      command=session.node_command or node_command, report=report)


@contextlib.contextmanager
def _progress() -> Iterator[Report]:
    """Yield a reporter of waits: on a terminal it shows a bar for each; elsewhere nothing."""
    with progress_bar() as progress:
        bars: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total)
            progress.update(bars[what], completed=done)

        yield report


@dev.command()
@click.option("--dir", "directory", type=Directory(), default=dev_state.DEFAULT_DIRECTORY,
              metavar="D", show_default=True, help="Directory of the cluster's files.")
@click.option("--nodes", type=Whole(1, dev_state.NODES_MAX),
              help=f"[default: {DEFAULT_NODES}]")
@click.option("--groups", type=Whole(1, POOL_SIZE_MAX),
              help="Raft groups in the pool; it can grow, never shrink. "
                   f"[default: {DEFAULT_GROUPS}]")
@click.option("--replication-factor", type=Whole(1, REPLICAS_MAX),
              help="Replicas of each group. [default: 3, or the number of nodes if smaller]")
@click.option("--base-port", type=Whole(1024, BASE_PORT_MAX),
              help="Node N listens on base-port + N for clients, base-port + 100 + N for peers and "
                   "base-port + 200 + N for metrics and health. "
                   f"[default: {dev_state.DEFAULT_BASE_PORT}]")
@click.option("--publish-loads", "publish_loads", type=Whole(1, 3_600),
              metavar="SECONDS",
              help="Interval at which nodes append their loads to the topic __metrics. "
                   f"[default: {DEFAULT_LOADS_S}]")
@click.option("--no-publish-loads", is_flag=True, help="Nodes append no loads.")
@click.option("--timeout", type=Seconds(1, DAY_S), default=UP_TIMEOUT_S, show_default=True,
              metavar="SECONDS",
              help="Time to wait until every group has a leader and every node is ready.")
@json_option
@click.pass_obj
def up(session: Session, directory: Path, nodes: int | None, groups: int | None,
       replication_factor: int | None, base_port: int | None, publish_loads: int | None,
       no_publish_loads: bool, timeout: float, as_json: bool) -> None:
    """Create the cluster, or start its nodes that do not run.

    Nodes that were removed from the cluster are left out.
    """
    if no_publish_loads and publish_loads is not None:
        raise click.UsageError("--publish-loads and --no-publish-loads exclude each other.")
    asked = {"nodes": nodes, "groups": groups, "replication-factor": replication_factor,
             "base-port": base_port, LOADS: 0 if no_publish_loads else publish_loads}
    with _progress() as report:
        cluster = _cluster(session, directory, report)
        with _other_ports(cluster, asked):
            if not dev_state.exists(directory):
                _mention_other(session, cluster)
                _create(cluster, asked)
            elif changes := _changes(cluster, asked):
                if not cluster.is_unused():
                    raise _refused(cluster, *changes[0])
                _create_again(cluster, asked, changes)
            started = cluster.up(timeout)
    problem = dev_state.write_pointer(cluster.directory, session.environ)
    if problem:
        note(f"Note: commands in other directories will need --servers: {problem}.")
    if as_json:
        _print_status(cluster, as_json)
        return
    record = cluster.record
    what = f"Started {plural(len(started), 'node')}" if started else "Already up"
    note(f"{what}: {plural(record.groups, 'group')}, replication factor "
         f"{record.replication_factor}, in {directory}.")
    found, needed = _how_to_name(session, cluster)
    note(f"Clients: {','.join(cluster.addresses)} ({found})")
    removed = [node.id for node in record.nodes if dev_state.was_removed(directory, node.id)]
    if removed:
        note(f"Left out, because removed from the cluster: "
             f"{'node' if len(removed) == 1 else 'nodes'} {', '.join(map(str, removed))}.")
    shown = [f"http://{node.http_address}/" for node in cluster.nodes if node.http_address]
    if shown:
        note(f"Metrics: {' '.join(shown)} (/metrics, /healthz, /readyz)")
    note(f"Try:     multiraft topic create greetings{needed} && echo hello | multiraft produce "
         f"greetings{needed}")


def _how_to_name(session: Session, cluster: DevCluster) -> tuple[str, str]:
    """Return what commands in this directory need to find the cluster: in words, and as text behind
    a command, which is empty if they need nothing."""
    named = f" --servers {cluster.addresses[0]}"
    variable = session.environ.get(VARIABLE, "")
    if cluster.addresses[0] in variable:
        return f"commands find them by {VARIABLE}", ""
    if variable:
        return f"commands use {VARIABLE} unless you pass{named}", named
    chosen = dev_choice.find(session.environ).directory
    if chosen != cluster.directory:
        return (f"commands here use the cluster in {chosen}: pass{named}; "
                f"`multiraft dev`: pass --dir {shell_word(cluster.directory)}", named)
    return "commands find them by themselves", ""


def _mention_other(session: Session, cluster: DevCluster) -> None:
    """Print a note if another cluster would be found by default: its records may be expected here.
    """
    other = dev_choice.find(session.environ).directory
    if other is not None and other != cluster.directory:
        note(f"Note: this is a new cluster; there is another one in {other} (multiraft dev up "
             f"--dir {shell_word(other)}).")


#: Flags of `dev up` and what was given for each, None = nothing.
Asked = dict[str, int | None]


def _create(cluster: DevCluster, asked: Asked) -> None:
    shape = _shape(asked)
    try:
        cluster.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.BadParameter(f"{str(cluster.directory)!r} cannot be made: {reason(error)}.",
                                 param_hint="--dir") from error
    cluster.create(*shape)


def _create_again(cluster: DevCluster, asked: Asked, changes: list[tuple[str, int, int]]) -> None:
    """Make a cluster that was never started again: as it was, but for what is asked."""
    kept: Asked = dict(_properties(cluster))
    if asked["nodes"] is not None:
        kept["replication-factor"] = None
    cluster.create_again(*_shape({name: asked[name] if asked[name] is not None else kept[name]
                                  for name in asked}))
    flags = " ".join(_flag(name, value) for name, _, value in changes)
    note(f"The cluster in {cluster.directory} was never started: made again with {flags}.")


def _shape(asked: Asked) -> tuple[int, int, int, int, int]:
    """Return the arguments of ``DevCluster.create``, with the defaults."""
    nodes = asked["nodes"] or DEFAULT_NODES
    factor = asked["replication-factor"] or min(3, nodes)
    if factor > nodes:
        raise click.UsageError(f"--replication-factor {factor} needs as many nodes; --nodes is "
                               f"{nodes}.")
    return (nodes, asked["groups"] or DEFAULT_GROUPS, factor,
            asked["base-port"] or dev_state.DEFAULT_BASE_PORT,
            dev_state.LOADS_OFF if asked[LOADS] == 0 else 1_000 * (asked[LOADS] or 0))


def _properties(cluster: DevCluster) -> dict[str, int]:
    """Return the properties of a cluster by the flags of `dev up`; removed nodes do not count."""
    record = cluster.record
    return {"nodes": len(cluster.nodes), "groups": record.groups,
            "replication-factor": record.replication_factor, "base-port": record.base_port,
            LOADS: (0 if record.loads_ms == dev_state.LOADS_OFF
                    else record.loads_ms // 1_000 or DEFAULT_LOADS_S)}


def _flag(name: str, value: int) -> str:
    """Return a flag of `dev up` with its value, as it is typed."""
    return "--no-publish-loads" if name == LOADS and not value else f"--{name} {value}"


def _changes(cluster: DevCluster, asked: Asked) -> list[tuple[str, int, int]]:
    """Return flags that differ from an existing cluster: name, its value there, value asked for."""
    has = _properties(cluster)
    return [(name, has[name], value) for name, value in asked.items()
            if value is not None and value != has[name]]


def _refused(cluster: DevCluster, name: str, has: int, asked: int) -> CommandFailed:
    """Return the error of a flag that differs from a cluster with records, which keeps its shape.
    """
    wanted = str(asked) if has and asked else _flag(name, asked)
    return CommandFailed(
        f"the cluster in {cluster.directory} has {_flag(name, has)}, not {wanted}.",
        f"Omit {_flag(name, asked).split()[0]}, name another --dir, or remove that cluster: "
        f"multiraft dev down --wipe --dir {shell_word(cluster.directory)}", ExitCode.USAGE)


@contextlib.contextmanager
def _other_ports(cluster: DevCluster, asked: Asked | None = None) -> Iterator[None]:
    """Add a command that takes other ports to the remedy of ``PortTaken``. A cluster that was
    started once keeps its ports; another one can be created beside it."""
    try:
        yield
    except PortTaken as error:
        exists = dev_state.exists(cluster.directory)
        keeps = exists and not cluster.is_unused()
        given = {name: value for name, value in (asked or {}).items() if value is not None}
        has = {**(_properties(cluster) if exists else {}), **given}
        base = has.get("base-port", dev_state.DEFAULT_BASE_PORT)
        nodes = has.get("nodes", DEFAULT_NODES)
        with contextlib.suppress(CommandFailed):  # none is free: stopping that program remains
            free = free_base_port(base + dev_state.PORTS, nodes)
            command = f"multiraft dev up {'--dir OTHER ' if keeps else ''}--base-port {free}"
            if not keeps:
                command += "".join(f" {_flag(name, value)}" for name, value in sorted(given.items())
                                   if name != "base-port")
                if cluster.directory != Path.cwd() / dev_state.DEFAULT_DIRECTORY:
                    command += f" --dir {shell_word(cluster.directory)}"
            error.do += (f"\nOr create another cluster: {command}" if keeps else
                         f"\nOr use other ports: {command}")
        raise


def _note_unrecorded(cluster: DevCluster) -> None:
    """Print a note if the end of a node could not be written to the cluster's record."""
    error = cluster.unrecorded
    if error is not None:
        note(f"Note: could not write {error.filename}: {reason(error)}. `multiraft dev status` "
             "will show the nodes that were ended as dead; `multiraft dev up` starts them again.")


@dev.command()
@dir_option
@click.option("--wipe", is_flag=True, help="Remove the cluster's files too, records included.")
@click.pass_context
def down(ctx: click.Context, directory: Path, wipe: bool) -> None:
    """Stop the cluster; `dev up` starts it again with all its records."""
    named = ctx.get_parameter_source("directory") is not click.core.ParameterSource.DEFAULT
    if wipe and not named and directory != Path.cwd() / dev_state.DEFAULT_DIRECTORY:
        raise CommandFailed(f"--wipe would remove {directory}, which you have not named.",
                            f"Name it: multiraft dev down --wipe --dir {shell_word(directory)}",
                            ExitCode.USAGE)
    with _progress() as report:
        cluster = _cluster(ctx.obj, directory, report)
        stopped = cluster.down()
        if wipe:
            cluster.wipe()
        else:
            _note_unrecorded(cluster)
    note(f"Stopped {plural(len(stopped), 'node')} in {directory}"
         + (" and removed its files." if wipe else "."))


@dev.command()
@dir_option
@json_option
@click.pass_obj
def status(session: Session, directory: Path, as_json: bool) -> None:
    """Show each node's process.

    States: running; unresponsive (the process lives but does not answer); stopping; stopped and
    killed (as requested); dead (it ended by itself); removed (from the cluster, permanently).
    """
    _print_status(_cluster(session, directory), as_json)


def _print_status(cluster: DevCluster, as_json: bool) -> None:
    states = cluster.status()
    if as_json:
        print_json({"nodes": [{"id": node.id, "pid": node.pid, "state": node.state,
                               "client_address": node.client_address,
                               "http_address": node.http_address or None} for node in states]})
        return
    print_table(("node", "pid", "state", "client address", "peer address", "metrics and health",
                 "log"),
                [(node.id, node.pid, node.state, node.client_address, node.peer_address,
                  node.http_address or None, dev_state.log_path(cluster.directory, node.id))
                 for node in states])


node_argument = click.argument("node", metavar="NODE", type=NODE)


@dev.command()
@node_argument
@dir_option
@click.pass_obj
def kill(session: Session, node: int, directory: Path) -> None:
    """End NODE with SIGKILL, as a crash would."""
    cluster = _cluster(session, directory)
    cluster.kill(node)
    _note_unrecorded(cluster)
    note(f"Killed node {node}.")


@dev.command()
@node_argument
@dir_option
@click.pass_obj
def stop(session: Session, node: int, directory: Path) -> None:
    """End NODE with SIGTERM: it transfers its leaderships first."""
    cluster = _cluster(session, directory)
    cluster.stop(node)
    _note_unrecorded(cluster)
    note(f"Stopped node {node}.")


@dev.command("add-node")
@dir_option
@click.pass_obj
def add_node(session: Session, directory: Path) -> None:
    """Add a node that joins the running cluster.

    It has no replicas yet. `multiraft rebalance plan --yes` gives it its share.
    """
    with _progress() as report:
        node = _cluster(session, directory, report).add()
    note(f"Added node {node}.")


@dev.command()
@node_argument
@dir_option
@click.pass_obj
def start(session: Session, node: int, directory: Path) -> None:
    """Start NODE again and wait until it serves."""
    with _progress() as report:
        cluster = _cluster(session, directory, report)
        with _other_ports(cluster):
            started = cluster.start(node)
    note(f"Started node {node}." if started else f"Node {node} runs already.")


@dev.command()
@click.argument("node", metavar="[NODE]", type=NODE, required=False)
@click.option("--all", "every", is_flag=True, help="Restart all nodes, one after the other.")
@click.option("--timeout", type=Seconds(1, DAY_S), default=UP_TIMEOUT_S, show_default=True,
              metavar="SECONDS", help="Time to wait for each node, and for all to be ready.")
@dir_option
@click.pass_obj
def restart(session: Session, node: int | None, every: bool, timeout: float,
            directory: Path) -> None:
    """Restart NODE, or --all one after the other, while the cluster serves.

    A node is restarted only when every node runs and has caught up; it transfers its
    leaderships first. Appends continue.
    """
    if (node is None) != every:
        raise click.UsageError("Name a node, or use --all.")
    with _progress() as report:
        cluster = _cluster(session, directory, report)
        nodes = [each.id for each in cluster.members()] if node is None else [node]
        cluster.restart(nodes, timeout)
    note(f"Restarted {plural(len(nodes), 'node')}; all are ready.")


#: Level -> the colour of its name on a terminal.
_COLOURS = {"warning": "yellow", "error": "red", "critical": "red"}


@dev.command()
@click.argument("nodes", metavar="[NODE]...", type=NODE, nargs=-1)
@click.option("--follow", "-f", is_flag=True, help="Show new lines as they come, until Ctrl-C.")
@click.option("--lines", "-n", "count", type=Whole(0, dev_logs.LINES_MAX), default=LOG_LINES,
              show_default=True, help="Last lines of each node to begin with.")
@click.option("--level", type=click.Choice(dev_logs.LEVELS), default=dev_logs.LEVELS[0],
              show_default=True, help="Minimum level that is shown.")
@click.option("--json", "as_json", is_flag=True,
              help='Print events as the nodes wrote them, other lines as {"node": N, "text": T}.')
@dir_option
@click.pass_obj
def logs(session: Session, nodes: tuple[int, ...], follow: bool, count: int, level: str,
         as_json: bool, directory: Path) -> None:
    """Show the logs of NODE, or of all nodes, in the order of time.

    Lines that are no events, such as a message of the interpreter, are shown at every level.
    """
    record = dev_state.load(directory)
    files: dict[int, dev_logs.LogFile] = {}
    for node in nodes or [each.id for each in record.nodes]:
        path = dev_state.log_path(directory, record.node(node).id)
        files[node] = dev_logs.LogFile(path, node, dev_logs.tail(path, node, count, level))
    for line in heapq.merge(*(file.read_all() for file in files.values()), key=dev_logs.by_time):
        _print_line(line, level, as_json)
    while follow:
        session.pause(LOG_INTERVAL_S)
        if not nodes and not _add_new_logs(directory, files):
            note(f"The cluster in {directory} was removed.")
            return
        lines = [line for file in files.values() for line in file.read()]
        for line in sorted(lines, key=dev_logs.by_time):
            _print_line(line, level, as_json)


def _add_new_logs(directory: Path, files: dict[int, dev_logs.LogFile]) -> bool:
    """Add the logs of nodes that joined since.  Return False if the cluster was removed."""
    try:
        record = dev_state.load(directory)
    except NotFound:
        return False
    for node in record.nodes:
        if node.id not in files:
            path = dev_state.log_path(directory, node.id)
            files[node.id] = dev_logs.LogFile(path, node.id, 0)
    return True


def _print_line(line: dev_logs.Line, level: str, as_json: bool) -> None:
    if not dev_logs.is_of(line, level):
        return
    if as_json:
        click.echo(dev_logs.as_json(line))
        return
    said = line.event.get("level") if line.event is not None else None
    colour = _COLOURS.get(str(said))
    text = dev_logs.shown(line)
    click.echo(click.style(text, fg=colour) if colour else text)
