"""`make demo`: three nodes, 336,776 flights, a killed leader, a plan under load, nothing lost.

    demo/flights.py [--spark] [--dir D] [--rate N] [--base-port N]

    1. three nodes as processes, by the functions behind `multiraft dev`
    2. one topic per carrier
    3. the flights of 2013 are streamed into them; after a third the leader of a busy group gets
       SIGKILL, stays down for a moment and is started again; appends continue all the time
    4. leadership of the busy group returns to the node that was killed, so that its records will be
       read from the disk that this node recovered; it leads no other group now
    5. a plan is made from loads that are measured, carried out while the rest streams in, and drawn
       (`make demo-spark`: Spark makes it, from loads that the nodes have appended to a topic)
    6. everything is read back and compared with the acknowledged records

Contract.  Exits 0 only when every comparison holds.  The cluster is left running, also after
Ctrl-C, which ends the demo at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
import warnings
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import planning
from dataset import CARRIERS, FLIGHTS, DatasetMissing, airlines, flights
from ledger import Verdict, digest, judge
from rebalancing import Rebalancing, measured, told
from rich.markup import escape
from rich.table import Table
from screen import Screen
from stream import Stream, TopicStream, longest_pause_s

from admin_cli import connection
from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster, Report, free_base_port, unreported
from admin_cli.development import dev_state
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.servers import find_servers
from multiraft.client import RecordsNotSent, blocking
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import RequestError
from placement import plan as plans
from placement.policy import Policy

NODES = 3
GROUPS = 64
#: Differs from the default of `multiraft dev up`, so that both can run.
BASE_PORT = dev_state.DEFAULT_BASE_PORT + dev_state.PORTS
#: Slow enough to watch an outage of seconds and a plan, fast enough for a demo of minutes.
RECORDS_PER_S = 20_000
#: Time for which the killed node stays down: several elections.
DOWN_S = 3.0
#: Time that records wait for others: 16 topics share the stream, so batches need time to fill.
LINGER_MS = 20
#: Time for the restarted node to catch up; the transfer is requested again until then, and given up
#: afterwards.
HAND_BACK_S = 20.0
HAND_BACK_PAUSE_S = 0.2
#: Interval at which nodes append their loads to `__metrics`.
LOADS_MS = 1_000
#: Rate while Spark starts and plans: there is some load, and most records are left for the time of
#: the plan.
TRICKLE_PER_S = 1_000
#: Records that are sent only after the plan was made, however slow the machine is.
LEFT_FOR_PLAN = 60_000
#: A topic with fewer batches has pauses of seconds without any fault.
BUSY_BATCHES = 200
#: Acknowledgements later than this after the kill do not belong to the failover.
FAILOVER_WINDOW_S = 15.0


@dataclass(slots=True)
class Kill:
    """The planned crash: node, time and outcome."""

    topic: str
    group: int = -1
    node: int = -1
    at: float = 0.0  # monotonic seconds; 0 = not yet
    at_record: int = 0
    back_after_s: float = 0.0
    # of all groups, just before the kill
    leaders: dict[int, int | None] = field(default_factory=dict)
    error: Exception | None = None


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = parse(arguments)
    # Ctrl-C ends the stream wherever it is; the records that it leaves out are not missed.
    warnings.simplefilter("ignore", RecordsNotSent)
    try:
        names = airlines()
        with Screen() as screen:
            ending = run(options, names, screen)
        return ending()
    except DatasetMissing as error:
        sys.stderr.write(f"Error: {error}\n")
        return ExitCode.FAILED
    except CommandFailed as error:
        error.show()
        return error.exit_code
    except (MultiRaftError, OSError) as error:
        sys.stderr.write(f"Error: {type(error).__name__}: {error}\n"
                         f"  The nodes' logs are in {options.dir}/node-*/log.\n")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted. {left_behind(options.dir.absolute())}\n")
        return ExitCode.INTERRUPTED


def left_behind(directory: Path) -> str:
    """Return the sentence about the cluster that an interrupted demo leaves."""
    if not dev_state.exists(directory):
        return "There is no cluster yet."
    return ("The cluster stays as it is; the next demo replaces it. Stop and remove it: "
            f"{command()} dev down --wipe --dir {within_here(directory)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="demo/flights.py", description=__doc__.split("\n")[0])
    parser.add_argument("--spark", action="store_true", help="let Spark make the plan")
    parser.add_argument("--dir", type=Path, default=Path(".demo"), help="default: .demo")
    parser.add_argument("--base-port", type=int, default=BASE_PORT, metavar="N",
                        help=f"first port tried; default {BASE_PORT}")
    parser.add_argument("--rate", type=int, default=RECORDS_PER_S, metavar="N",
                        help=f"records per second, 0 = as fast as it goes; default {RECORDS_PER_S}")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, names: dict[str, str],
        screen: Screen) -> Callable[[], int]:
    """Run the five parts; the returned function prints the result once the live display is gone."""
    cluster = start_cluster(options.dir.absolute(), options.base_port, screen)
    topics = {carrier: f"flights-{carrier}" for carrier in sorted(names)}
    with open_client(cluster.addresses) as client:
        groups = create_topics(client, topics, screen)
        stream = Stream(topics, options.rate)
        kill = Kill("flights-UA")  # the carrier with most flights: its group has the most load
        moving = Rebalancing(cluster.directory)
        lacking = planning.lacking() if options.spark else ""
        if lacking:
            screen.event(f"planning without Spark: {lacking}", "yellow")
        accident = Accident(cluster, stream, kill, moving, options.spark and not lacking, screen)
        stream_flights(client, stream, accident, screen)
        verdicts = read_back(client, stream, screen)
    report_pauses(stream, kill, groups, screen)
    report_plan(stream, moving, screen)
    return lambda: conclude(cluster, names, stream, verdicts, kill, moving, lacking, screen)


# -- 1. the cluster ---------------------------------------------------------------------------

def start_cluster(directory: Path, base_port: int, screen: Screen) -> DevCluster:
    """Start a fresh cluster in ``directory``; an earlier demo's cluster is stopped and removed
    first."""
    def report(what: str, done: int, total: int) -> None:
        screen.stage(what, total)
        screen.advance(done)

    cluster = dev_cluster(directory, report)
    if dev_state.exists(directory):
        screen.stage("stopping and removing the cluster of an earlier demo")
        cluster.down()
        cluster.wipe()
    Rebalancing(cluster.directory).forget()
    screen.stage("creating a cluster")
    cluster.create(NODES, GROUPS, NODES, free_base_port(base_port, NODES), LOADS_MS)
    for node in cluster.record.nodes:
        screen.node_state(node.id, "starting")
    cluster.up()
    for node in cluster.record.nodes:
        screen.node_state(node.id, "up")
    dev_state.write_pointer(cluster.directory, os.environ)
    pids = ", ".join(str(node.pid) for node in cluster.record.nodes)
    screen.event(f"{NODES} nodes are up (processes {pids}), {GROUPS} groups have leaders")
    return dev_cluster(directory)  # from here on the screen reports facts as events


def dev_cluster(directory: Path, report: Report = unreported) -> DevCluster:
    """Return the cluster in ``directory``, as `multiraft dev` sees it."""
    return DevCluster(directory, open_client, os.environ, report=report)


# -- 2. topics --------------------------------------------------------------------------------

def create_topics(client: blocking.Client, topics: dict[str, str],
                  screen: Screen) -> dict[str, int]:
    """Create one topic per carrier; returns topic -> group."""
    screen.stage("creating topics", len(topics), "topics")
    groups = {}
    for done, topic in enumerate(topics.values(), 1):
        client.create_topic(topic)
        groups[topic] = connection.partitions(client, topic)[0].group
        screen.advance(done)
    screen.event(f"{len(topics)} topics created, in {len(set(groups.values()))} groups")
    return groups


# -- 3. the stream, the accident and the plan ---------------------------------------------------

def stream_flights(client: blocking.Client, stream: Stream, accident: Accident,
                   screen: Screen) -> None:
    """Stream every record; crash and plan happen meanwhile, on a thread of their own."""
    screen.stage("streaming", FLIGHTS, "records")

    def watch(now: Stream) -> None:
        screen.advance(now.acknowledged, f"{now.sent - now.acknowledged:,} on their way")
        if now.sent >= FLIGHTS // 3 and accident.ident is None:
            accident.start()

    began = time.monotonic()
    with client.producer(acks="commit", linger_ms=LINGER_MS) as producer:
        stream.run(client, producer, flights(), watch)
    took_s = time.monotonic() - began
    if accident.ident is None:
        raise DatasetMissing(f"the data set has {stream.sent:,} records instead of {FLIGHTS:,}")
    screen.event(f"{stream.acknowledged:,} of {stream.sent:,} records acknowledged in "
                 f"{took_s:.1f} s")
    if accident.is_alive():
        screen.stage("waiting for the plan")
    accident.join()
    if accident.kill.error is not None:
        raise accident.kill.error


class Accident(threading.Thread):
    """Thread that kills the leader of the busy group, starts it again, and lets a plan rebalance
    the leaders.

    A daemon: Ctrl-C ends the demo without waiting for Spark."""

    def __init__(self, cluster: DevCluster, stream: Stream, kill: Kill, moving: Rebalancing,
                 by_spark: bool, screen: Screen):
        super().__init__(name="accident", daemon=True)
        self.cluster, self.stream, self.kill, self.moving = cluster, stream, kill, moving
        self.by_spark, self.screen = by_spark, screen

    def run(self) -> None:
        """Cause the accident; an error is left for the main thread, which owns the exit code."""
        self.stream.hold_at = FLIGHTS - LEFT_FOR_PLAN
        try:
            self.kill_leader()
            with open_client(self.cluster.addresses) as client:
                hand_back(client, self.kill, self.screen)
                self.moving.run(client, self.kill.group, self.screen,
                                lambda policy: self.plan(client, policy))
        except (MultiRaftError, OSError, CommandFailed) as error:
            self.kill.error = error
        finally:
            self.stream.hold_at = None  # or the stream would wait without limit

    def kill_leader(self) -> None:
        """Find the leader of the busy group, kill it, wait, and start it again."""
        kill, screen = self.kill, self.screen
        with open_client(self.cluster.addresses) as client:
            kill.leaders = {row.group: row.leader for row in connection.groups(client)}
            row = connection.partitions(client, kill.topic)[0]
        if row.leader is None:
            raise CommandFailed(f"group {row.group} has no leader just now.", "Run it again.")
        kill.group, kill.node = row.group, row.leader
        kill.at_record, kill.at = self.stream.sent, time.monotonic()
        self.cluster.kill(kill.node)
        screen.node_state(kill.node, "down")
        screen.event(f"SIGKILL to node {kill.node}, which leads group {kill.group} of topic "
                     f"{kill.topic}, at record {kill.at_record:,}", "bold red")
        time.sleep(DOWN_S)  # the outage itself, not a wait for a condition
        screen.node_state(kill.node, "starting")
        self.cluster.start(kill.node)
        kill.back_after_s = time.monotonic() - kill.at
        screen.node_state(kill.node, "up")
        screen.event(f"node {kill.node} serves again, {kill.back_after_s:.1f} s after the kill",
                     "green")

    def plan(self, client: blocking.Client, policy: Policy) -> plans.Plan:
        """Return the plan; some records are left for the time in which it is carried out."""
        stream, rate = self.stream, self.stream.rate
        try:
            if not self.by_spark:
                return measured(client, policy)
            stream.rate = TRICKLE_PER_S
            self.screen.event(f"starting Spark; meanwhile {TRICKLE_PER_S:,} flights per second")
            return planning.with_spark(self.cluster.addresses, policy, self.screen)
        finally:
            stream.rate, stream.hold_at = rate, None


def hand_back(client: blocking.Client, kill: Kill, screen: Screen) -> None:
    """Transfer leadership of the busy group back to the killed node, so that readers get the
    records from its disk."""
    deadline = time.monotonic() + HAND_BACK_S
    while True:
        try:
            connection.group_transfer(client, kill.group, kill.node)
        # definite: the transfer did not happen, the node may still be catching up
        except RequestError:
            if time.monotonic() > deadline:
                raise
            time.sleep(HAND_BACK_PAUSE_S)
        else:
            screen.event(f"group {kill.group} handed back to node {kill.node}")
            return


# -- 5. the proof -------------------------------------------------------------------------------

def read_back(client: blocking.Client, stream: Stream, screen: Screen) -> dict[str, Verdict]:
    """Read every topic from the earliest offset to its end; returns carrier -> verdict."""
    screen.stage("reading back", stream.sent, "records")
    began, total, verdicts = time.monotonic(), 0, {}
    for carrier, topic in stream.by_carrier.items():
        read = array("Q")
        for batch in client.consume(topic.topic, start="earliest", until_end=True):
            for record in batch.records():
                if record.offset != len(read):
                    raise CommandFailed(f"{topic.topic}: offset {record.offset} follows "
                                        f"{len(read) - 1}; offsets are not dense.")
                read.append(digest(record.key, record.value))
            screen.advance(total + len(read), topic.topic)
        total += len(read)
        verdicts[carrier] = judge(topic.ledger, read)
    screen.event(f"{total:,} records read back in {time.monotonic() - began:.1f} s")
    return verdicts


def report_pauses(stream: Stream, kill: Kill, groups: dict[str, int], screen: Screen) -> None:
    """Report the longest pause of appends: in the killed leader's group, and in the busiest group
    that another node led."""
    def pause_s(topic: TopicStream) -> float:
        return longest_pause_s(topic.acknowledged_at, kill.at, kill.at + FAILOVER_WINDOW_S)

    by_size = sorted(stream.by_carrier.values(), key=lambda topic: -topic.ledger.sent_count)
    for topic in by_size:
        if topic.topic == kill.topic:
            screen.event(f"appends to group {kill.group} paused for {pause_s(topic):.2f} s "
                         "(notice, elect, retry)", "bold")
    for topic in by_size:
        group = groups[topic.topic]
        if kill.leaders.get(group) not in (None, kill.node):
            screen.event(f"appends to group {group}, led by node {kill.leaders[group]}, paused "
                         f"for {pause_s(topic):.2f} s at most")
            break


def report_plan(stream: Stream, moving: Rebalancing, screen: Screen) -> None:
    """Report the records appended while the plan was carried out, and the longest pause of a
    topic."""
    during = [at for topic in stream.by_carrier.values() for at in topic.acknowledged_at
              if moving.began <= at <= moving.ended]
    if during:
        pauses_s = [longest_pause_s(topic.acknowledged_at, moving.began, moving.ended)
                    for topic in stream.by_carrier.values()
                    if len(topic.acknowledged_at) > BUSY_BATCHES]
        paused = f"; no busy topic paused for more than {max(pauses_s):.2f} s" if pauses_s else ""
        told = (f"while the plan was carried out {len(during):,} batches were acknowledged"
                f"{paused}")
    else:
        told = "the flights were all in before the plan began: nothing was appended meanwhile"
    screen.event(told, "bold")
    screen.stage("drawing the plan")
    moving.draw()
    screen.event(f"load per node and group before and after: {within_here(moving.picture)}")


def conclude(cluster: DevCluster, names: dict[str, str], stream: Stream,
             verdicts: dict[str, Verdict], kill: Kill, moving: Rebalancing, lacking: str,
             screen: Screen) -> int:
    """Print what was proved and what was not, and the next commands; return the exit code.
    ``lacking``: why Spark, which was asked for, did not plan."""
    held = all(verdict.holds for verdict in verdicts.values())
    complete = stream.sent == FLIGHTS and len(verdicts) == CARRIERS
    screen.console.print(result_table(names, verdicts))
    if held and complete:
        text = proved(stream, verdicts, kill, moving) + next_commands(cluster)
        if lacking:
            text += f"\n\n[yellow]Spark made no plan: {escape(lacking)}[/]"
    else:
        logs = escape(f"{cluster.directory}/node-*/log")
        text = (f"[bold red]The proof FAILED[/] for {stream.sent:,} records in {len(verdicts)} "
                f"topics; see the table.\nThe nodes' logs: {logs}")
    screen.console.print(text, soft_wrap=True)
    return ExitCode.OK if held and complete else ExitCode.FAILED


def proved(stream: Stream, verdicts: dict[str, Verdict], kill: Kill,
           moving: Rebalancing) -> str:
    """Return the sentences about what this run proves, and what it does not."""
    read = sum(verdict.read for verdict in verdicts.values())
    unknown = stream.sent - stream.acknowledged
    rest = f"  - {unknown:,} records got no acknowledgement and were not counted on.\n"
    return f"""
[bold green]Proved in this run[/]
  - {stream.acknowledged:,} records were acknowledged, and every one of them was read back
    ({read:,} read).
  - Count and SHA-256 over all records in order agree for all {len(verdicts)} topics:
    nothing missing, nothing doubled, nothing out of order, offsets dense from 0.
  - All that although node {kill.node}, leader of group {kill.group}, got SIGKILL at record \
{kill.at_record:,}
    and was back only {kill.back_after_s:.1f} s later: retries of what it interrupted doubled \
nothing,
    and the records of that group were read from this node, after its recovery.
  - A plan of {len(moving.made.moves)} moves was carried out meanwhile. Groups led before it:
    {told(moving.leads_before)}; after it: {told(moving.leads_after)}.
    Load per node and group, before and after: {escape(str(within_here(moving.picture)))}
{rest if unknown else ''}
[bold]Not proved here[/]
  - Power loss: SIGKILL ends a process, but the kernel still writes its pages. The
    tests of storage and the simulator lose unsynced writes on purpose: make test
  - The loss of a machine or of a disk: these three nodes share one.
  - Replicas that move: each of three nodes has every group. `multiraft dev add-node` and
    `multiraft rebalance plan` give a fourth node its share (below).
  - More than one accident: the simulator replays many by seed: make sim
"""


def result_table(names: dict[str, str], verdicts: dict[str, Verdict]) -> Table:
    """Return a table with one row per topic; it fits into 80 columns."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    for column, justify in (("carrier", "left"), ("airline", "left"), ("acknowledged", "right"),
                            ("read", "right"), ("checksum", "left"), ("", "left")):
        table.add_column(column, justify=justify, no_wrap=True)
    for carrier, verdict in verdicts.items():
        flaws = ", ".join(f"{count} {what}" for count, what in (
            (verdict.missing, "missing"), (verdict.doubled, "doubled"),
            (verdict.foreign, "foreign"), (verdict.out_of_order, "out of order")) if count)
        table.add_row(carrier, names[carrier], f"{verdict.acknowledged:,}", f"{verdict.read:,}",
                      verdict.checksum_read[:12],
                      "[green]equal[/]" if verdict.holds else f"[bold red]{flaws or 'DIFFERS'}[/]")
    return table


def command() -> str:
    """Return the command that calls `multiraft` from the working directory."""
    beside = Path(sys.executable).with_name("multiraft")
    return str(within_here(beside)) if beside.exists() else "multiraft"


def within_here(path: Path) -> Path:
    """Return a path relative to the working directory."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def next_commands(cluster: DevCluster) -> str:
    """Return commands to try on the cluster that was left running."""
    name = command()
    found = find_servers(None, os.environ).dev_directory == cluster.directory
    first = "" if found else f"  export MULTIRAFT_SERVERS={','.join(cluster.addresses)}\n"
    lines = "".join(f"  # {purpose}\n" + "".join(f"  {name} {words}\n" for words in steps)
                    for purpose, steps in next_steps(within_here(cluster.directory)))
    return f"\n[bold]The cluster is still running; try[/]\n{escape(first + lines.rstrip())}"


def next_steps(directory: Path) -> list[tuple[str, list[str]]]:
    """Return arguments of `multiraft` to try, in this order, each after its purpose."""
    dev = f"--dir {directory}"
    return [
        ("look around", ["cluster status", "topic describe flights-UA",
                         "consume flights-HA --count 3",
                         f"rebalance show {dev_state.demo_directory(directory) / dev_state.PLAN}"]),
        ("SIGKILL; the others lead its groups until it is back", [
            f"dev kill 2 {dev}", "cluster status", f"dev start 2 {dev}"]),
        ("a fourth node gets its share", [
            f"dev add-node {dev}", "rebalance plan --yes --wait", "cluster status"]),
        ("the end", [f"dev down --wipe {dev}"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
