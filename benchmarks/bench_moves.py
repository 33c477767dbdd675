"""Figures of moves: a fourth node joins under load and gets its share; partitions switch.

    make bench-moves                                 everything, twenty minutes
    make bench-moves ARGS=--quick                    a look, two to four
    make bench-moves ARGS="--only grow --repeat 1"   one part

Contract.  ``grow``: the throughput of three nodes is measured first, on a cluster of its own and
long enough for background work to have its effect; half of it is then appended to another one all
the time; a fourth node joins, ``multiraft rebalance plan`` makes a plan and ``multiraft rebalance
apply`` hands it over.  Judged: how far the worst node is from its share of bytes, of appends and of
what leaders send afterwards; appends that failed, and records that are missing, doubled or out of
order when everything is read again; and the 99th percentile of appends while the plan is carried
out beside that of the same appends before, with four nodes; the percentile afterwards is printed:
where nodes share processors, four balanced nodes use more of them than three.  ``switches``: the
time for which a partition refuses appends when it is switched on an idle cluster.

Every repetition is independent, and no further one begins that would exceed the total time; their
number is printed.  Nothing is left behind: processes are ended by the pids that were started here,
files, some 20 GB at a time, are below one temporary directory.  The exit status is 1 when something
could not be measured or a record was harmed; not when a time is missed, as a machine under load is
no error.

Theory.  The bottleneck of the throughput decides the result.  Each node has a disk and memory of
its own here, of a size such that disks are what limits (``benchmarks.node_bounds``), and a producer
uses its default batches.  Without that (``--disk-bytes-per-s 0 --memory-bytes 0``, or small
batches: ``--batch-bytes 4096``) the shared processors are the bottleneck: half of the load uses
nearly all of them, and a fourth node adds none.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.development.dev_state import NodeRecord
from admin_cli.failures import CommandFailed
from admin_cli.plans import plan_input
from benchmarks import switches
from benchmarks.figures import Figure, Series, add_picture_option, bound, compare, say, show
from benchmarks.node_bounds import NodeBounds
from benchmarks.numbered import (
    RECORD_BYTES,
    SINGLE,
    Account,
    Appending,
    Damage,
    percentile_ms,
    read_back,
)
from benchmarks.processes import BenchmarkError, free_base_port
from multiraft.client import blocking
from multiraft.wire import plans as wire
from placement import canonical
from placement import plan as plans
from placement.cluster import Snapshot
from placement.policy import DISK, EGRESS, GROUP_INGRESS, INGRESS, LEADERS, Band, Policy
from placement.state import R_DISK, R_EGRESS, R_INGRESS, R_LEADERS, State

PARTITIONS = 256
LOAD, WATCHED = "load", "watched"
#: Single appends beside the load; for each of them one group is checked.
WATCHED_PER_S = 100
UP_S = 120.0
#: Limit of a command of the product; a command that takes longer is given up.
COMMAND_S = 60.0
LOOK_S = 0.25
SAY_S = 10.0
#: Narrower than the judged limits, because loads continue while replicas move.  Leaders are only
#: moved away from nodes with too much, so that three may leave a fourth three times as far below
#: its share.
POLICY = Policy(bands=(Band(DISK, 30), Band(INGRESS, 30, 1 << 20), Band(EGRESS, 15, 1 << 20),
                       Band(LEADERS, 50, 1), Band(GROUP_INGRESS, 500, 1 << 20)),
                moves_max=wire.MOVES_MAX)

#: The plan's throttle, as a part of the load.  It bounds the bytes that are copied, and groups grow
#: while they wait for their turn: at half of the load the copies would take five times as long.
#: Beside three quarters of the load, which the new node takes in the end, it leaves an eighth of
#: its disk.
THROTTLE_PART = 1.0
#: Default of producers.
BATCH_BYTES = 256 << 10
#: Bounds of each node: a disk so slow that two processors feed four of them also when a shared
#: machine is slow, and memory that is full before the measurement.
DISK_BYTES_PER_S = 40_000_000
MEMORY_BYTES = 1 << 30

#: Resources that are judged.
BALANCED = ((DISK, R_DISK), (INGRESS, R_INGRESS), (EGRESS, R_EGRESS))
TARGET_BALANCE = 5.0
TARGET_P99 = 2.0


class Scale(NamedTuple):
    """Durations of the measurements, in seconds, and their repetitions."""

    groups: int
    warm_up_s: float
    full_s: float  # measurement of the throughput
    settle_s: float  # time for the cluster to adapt to a load
    before_s: float  # measurement of latencies before the plan
    window_s: float  # rates of groups: each partition gets several batches within it
    moved_s_max: float  # a plan that takes longer is given up
    repeat: int
    switches: int
    whole_s: float  # no repetition begins that would end later
    part: float = 0.5  # part of the throughput that is the load
    batch_bytes: int = BATCH_BYTES  # of the load
    disk_bytes_per_s: int = DISK_BYTES_PER_S  # of each node, 0 = no bound
    memory_bytes: int = MEMORY_BYTES  # likewise
    throttle: int = 0  # of the plan; 0 = as the constants above say


FULL = Scale(24, 10.0, 20.0, 30.0, 20.0, 24.0, 240.0, 3, 100, 1200.0)
QUICK = Scale(12, 5.0, 10.0, 15.0, 6.0, 6.0, 180.0, 1, 12, 20.0)


class Moved(NamedTuple):
    """One growth from three nodes to four."""

    full_mb_per_s: float
    part: float  # part of the throughput that is the load
    load_mb_per_s: tuple[float, float]  # accepted load before and during the move
    imbalance: dict[str, float]  # per cent by which the worst node is off its share
    leaders: tuple[int, ...]
    before_ms: float
    during_ms: float
    after_ms: float  # four nodes with their shares, no moves are left
    load_before_ms: float
    load_during_ms: float
    load_after_ms: float
    failures: tuple[str, ...]
    damage: Damage
    moves: int
    moved_bytes: int
    seconds: float
    paused: tuple[str, ...]  # reasons for which the plan paused itself
    unbounded: str = ""  # why nodes were not bounded


class _Cluster:
    """Three nodes, with ports for a fourth, each within its bounds."""

    def __init__(self, dev: DevCluster, bounds: NodeBounds):
        self._dev = dev
        self._bounds = bounds
        self.addresses = dev.addresses
        for node in dev.record.nodes:
            self._bound(node)

    def join(self) -> int:
        """Start one more node and return its number."""
        joined = self._dev.add(UP_S)
        self.addresses = self._dev.addresses
        self._bound(self._dev.record.nodes[-1])
        return joined

    def _bound(self, node: NodeRecord) -> None:
        assert node.pid is not None, "it has just been started"
        self._bounds.add(node.pid)

    @property
    def unbounded(self) -> str:
        """Return why nodes have no bounds; empty when they have."""
        return self._bounds.why


@contextlib.contextmanager
def _cluster(directory: Path, scale: Scale) -> Iterator[_Cluster]:
    dev = DevCluster(directory / "cluster", open_client, os.environ)
    dev.create(nodes=3, groups=scale.groups, replication_factor=3, base_port=free_base_port(4))
    with NodeBounds(directory, scale.disk_bytes_per_s, scale.memory_bytes,
                    f"multiraft-bench-moves-{os.getpid()}") as bounds, \
            contextlib.ExitStack() as stack:
        stack.callback(dev.down)
        dev.up(UP_S)
        yield _Cluster(dev, bounds)


def grow(directory: Path, scale: Scale) -> Moved:
    """Measure a growth from three nodes to four under load."""
    full = _throughput(directory, scale)
    say(f"throughput {full / 1e6:.1f} MB/s for {scale.full_s:.0f} s; "
        f"{scale.part:.0%} of it is the load of another cluster")
    throttle = scale.throttle or int(full * scale.part * THROTTLE_PART)
    with _cluster(directory, scale) as cluster, \
            _appending(cluster, scale, int(full * scale.part)) as (load, watched):
        say(f"node {cluster.join()} has joined")
        with blocking.Client(list(cluster.addresses)) as client:
            moved = _moved(_Plans(directory, cluster.addresses, throttle, scale), client, load,
                           watched, full)
            return moved._replace(unbounded=cluster.unbounded)


@contextlib.contextmanager
def _appending(cluster: _Cluster, scale: Scale,
               bytes_per_s: int) -> Iterator[tuple[Appending, Appending]]:
    """Yield the load, 0 = unpaced, and the single appends beside it."""
    with blocking.Client(list(cluster.addresses)) as client:
        client.create_topic(LOAD, PARTITIONS)
        client.create_topic(WATCHED, scale.groups)
    with Appending(cluster.addresses, LOAD, PARTITIONS, scale.batch_bytes, bytes_per_s) as load, \
            Appending(cluster.addresses, WATCHED, scale.groups, SINGLE,
                      WATCHED_PER_S * RECORD_BYTES) as watched:
        yield load, watched


def _throughput(directory: Path, scale: Scale) -> float:
    """Return the bytes per second that three nodes of their own acknowledge when the producer never
    waits, once segments are filled, indexed and prepared all the time; their files are removed."""
    with tempfile.TemporaryDirectory(dir=directory) as place, \
            _cluster(Path(place), scale) as cluster, \
            _appending(cluster, scale, 0) as (load, _):
        time.sleep(scale.warm_up_s)
        before, start_s = load.acknowledged(), time.monotonic()
        time.sleep(scale.full_s)
        after, end_s = load.acknowledged(), time.monotonic()
        return (after - before) * RECORD_BYTES / (end_s - start_s)


def _moved(asked: _Plans, client: blocking.Client, load: Appending, watched: Appending,
           full: float) -> Moved:
    scale = asked.scale
    time.sleep(scale.settle_s)
    since_s, since_count = time.monotonic(), load.acknowledged()
    time.sleep(scale.before_s)
    before_s, before_count = time.monotonic(), load.acknowledged()
    # making a plan takes processor time, and belongs to neither measurement
    made = asked.make()
    say(f"{len(made.moves)} moves, {made.bytes / 1e6:.0f} MB to copy")
    start_s, start_count = time.monotonic(), load.acknowledged()
    asked.apply()
    paused, moved_bytes = _carried_out(client, made.plan_id, scale.moved_s_max)
    end_s, end_count = time.monotonic(), load.acknowledged()
    after = plan_input.collect(client, _now_ms(), False, scale.window_s).snapshot
    after_s = time.monotonic()
    time.sleep(scale.before_s)
    over_s = time.monotonic()
    accounts = {LOAD: load.stop(), WATCHED: watched.stop()}
    spans = ((since_s, before_s), (start_s, end_s), (after_s, over_s))
    taken = (_mb_per_s(before_count - since_count, before_s - since_s),
             _mb_per_s(end_count - start_count, end_s - start_s))
    return Moved(
        full / 1e6, scale.part, taken, imbalance(after), leaders(after),
        *(percentile_ms(accounts[WATCHED].taken, 0.99, *span) for span in spans),
        *(percentile_ms(accounts[LOAD].taken, 0.99, *span) for span in spans),
        accounts[LOAD].failures + accounts[WATCHED].failures, _damage(client, accounts),
        len(made.moves), moved_bytes, end_s - start_s, paused)


def _mb_per_s(records: int, seconds: float) -> float:
    return records * RECORD_BYTES / seconds / 1e6


class _Plans:
    """Commands of the product, run as an operator runs them."""

    def __init__(self, directory: Path, addresses: tuple[str, ...], throttle: int, scale: Scale):
        self.scale = scale
        self._servers = ("--servers", ",".join(addresses))
        self._throttle = ("--throttle", str(throttle))
        self._policy = directory / "policy.json"
        self._plan = directory / "plan.json"
        self._policy.write_bytes(canonical.to_json(canonical.to_plain(POLICY)))

    def make(self) -> plans.Plan:
        """Run ``rebalance plan``.  Raises ``BenchmarkError`` when it finds no moves."""
        self._run("plan", "--policy", str(self._policy), "--window", str(self.scale.window_s),
                  "--output", str(self._plan), *self._throttle)
        return plans.load(self._plan.read_bytes())

    def apply(self) -> None:
        """Run ``rebalance apply``."""
        self._run("apply", str(self._plan), "--yes", *self._throttle)

    def _run(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "admin_cli", "rebalance", *arguments, *self._servers]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S,
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"`rebalance {arguments[0]}` is not over after "
                                 f"{COMMAND_S:.0f} s") from error
        if done.returncode:
            raise BenchmarkError(f"`rebalance {arguments[0]}` ended with {done.returncode}: "
                                 f"{done.stderr[-1000:]}")


def _carried_out(client: blocking.Client, plan_id: str,
                 limit_s: float) -> tuple[tuple[str, ...], int]:
    """Wait until the plan is complete; return the reasons of its pauses and the bytes that it
    copied.  Raises ``BenchmarkError`` when moves failed or the plan takes too long."""
    deadline_s = time.monotonic() + limit_s
    say_s = time.monotonic() + SAY_S
    paused: dict[str, None] = {}
    while True:
        status = client.plan_request(wire.PlanStatus())
        if status.plan_id != plan_id:
            raise BenchmarkError(f"plan {status.plan_id[:12]} is carried out, not ours")
        if status.state == "paused":
            paused[status.reason] = None
        if status.state not in ("running", "paused"):
            break
        if time.monotonic() > deadline_s:
            raise BenchmarkError(f"the plan is not over after {limit_s:.0f} s: {_told(status)}")
        if time.monotonic() > say_s:
            say(_told(status))
            say_s += SAY_S
        time.sleep(LOOK_S)
    phases = dict(status.phases)
    if status.state != "done" or {*phases} != {"done"}:
        raise BenchmarkError(f"the plan ended {status.state}: {phases}, {status.reason}")
    return tuple(paused), status.bytes_done


def _told(status: wire.PlanStatusReply) -> str:
    """Return the progress of a plan and the reason of its wait."""
    waits = "; ".join(f"{row.move_id}: {row.wait}" for row in status.moves[:3])
    return (f"{status.state} {status.reason} {dict(status.phases)}, {status.bytes_done:,} of "
            f"{status.bytes_total:,} bytes; {waits}")


def imbalance(snapshot: Snapshot) -> dict[str, float]:
    """Return resource -> per cent by which the worst node is off its share; nodes are equal."""
    loads = State(snapshot, POLICY, ()).load
    found = {}
    for name, position in BALANCED:
        mean = sum(load[position] for load in loads) / len(loads)
        found[name] = 100 * max(abs(load[position] / mean - 1) for load in loads)
    return found


def leaders(snapshot: Snapshot) -> tuple[int, ...]:
    """Return the number of leaders of each node."""
    return tuple(load[R_LEADERS] for load in State(snapshot, POLICY, ()).load)


def _damage(client: blocking.Client, accounts: dict[str, Account]) -> Damage:
    found = [read_back(client, topic, account.given) for topic, account in accounts.items()]
    return Damage(*(sum(column) for column in zip(*found, strict=True)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """Runner of the parts; it collects the measurements."""

    def __init__(self, home: Path, scale: Scale):
        self.home = home
        self.scale = scale
        self.figures: list[Figure] = []
        self.remarks: list[str] = []
        self.harmed = False

    def measured(self, part: str) -> bool:
        """Measure a part; report when it cannot be measured."""
        say(part)
        try:
            PARTS[part](self)
        except (BenchmarkError, CommandFailed) as error:
            self.remarks.append(f"{part}: not measured: {error}")
            return False
        return True

    def grow(self) -> None:
        """Measure the growth from three nodes to four under half of their throughput."""
        seen: list[Moved] = []
        try:
            self._repeat(seen)
        finally:  # earlier repetitions are printed also when a later one fails
            if seen:
                self.figures += judged(seen)
            self.harmed = any(each.failures or any(each.damage) for each in seen)
            self.remarks += [f"grow: {_said(each)}" for each in seen]

    def _repeat(self, seen: list[Moved]) -> None:
        start_s, longest_s = time.monotonic(), 0.0
        while len(seen) < self.scale.repeat:
            began_s = time.monotonic()
            if seen and began_s - start_s + longest_s > self.scale.whole_s:
                say(f"{len(seen)} repetitions took {began_s - start_s:.0f} s, that is enough")
                break
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                seen.append(grow(Path(directory), self.scale))
            longest_s = max(longest_s, time.monotonic() - began_s)
            say(_said(seen[-1]))

    def switches(self) -> None:
        """Measure a partition that is switched again and again."""
        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            found = switches.measure(Path(directory), self.scale.switches)
        refused = found["refused"]
        if not refused:
            raise BenchmarkError("no append was refused by any switch: nothing was measured")
        p99 = switches.percentile(refused, 0.99)
        self.figures.append(bound(
            f"a switched partition refuses appends, p99 of {len(refused)} times in "
            f"{self.scale.switches} switches",
            Series("refused", "ms", (p99,)), switches.TARGET_MS, at_least=False))
        self.remarks.append("switches: " + "; ".join(
            f"{name} p50 {switches.percentile(values, 0.5):.1f} p99 "
            f"{switches.percentile(values, 0.99):.1f} max "
            f"{switches.percentile(values, 1.0):.1f} ms" for name, values in found.items()))


def judged(seen: list[Moved]) -> list[Figure]:
    """Return the targets of the growth."""
    figures = [bound(f"three nodes become four: the worst node's {name} is off its share",
                     Series(name, "%", tuple(each.imbalance[name] for each in seen)),
                     TARGET_BALANCE, at_least=False, worst=True) for name, _ in BALANCED]
    wrong = tuple(float(len(each.failures) + sum(each.damage)) for each in seen)
    figures.append(bound("appends that failed, are missing, doubled or out of order",
                         Series("wrong", "records", wrong), 0.0, at_least=False, worst=True))
    for name, before, during in (
            ("single appends", [each.before_ms for each in seen],
             [each.during_ms for each in seen]),
            ("the load's batches", [each.load_before_ms for each in seen],
             [each.load_during_ms for each in seen])):
        figures.append(compare(f"p99 of {name} during the move against before",
                               Series("during", "ms", tuple(during)),
                               Series("before", "ms", tuple(before)), TARGET_P99,
                               at_least=False))
    return figures


def _said(moved: Moved) -> str:
    """Return one repetition as a line."""
    text = (f"throughput {moved.full_mb_per_s:.1f} MB/s, {moved.part:.0%} of it as load "
            f"({moved.load_mb_per_s[0]:.1f} and {moved.load_mb_per_s[1]:.1f} MB/s taken); "
            f"{moved.moves} moves, {moved.moved_bytes / 1e6:.0f} MB in {moved.seconds:.1f} s; p99 "
            f"{moved.before_ms:.1f} -> {moved.during_ms:.1f}, {moved.after_ms:.1f} ms after it, "
            f"batches {moved.load_before_ms:.1f} -> {moved.load_during_ms:.1f}, "
            f"{moved.load_after_ms:.1f} ms; leaders {moved.leaders}; {moved.damage}, "
            f"{len(moved.failures)} failed")
    if moved.unbounded:
        text += f"; NODES WERE NOT BOUNDED: {moved.unbounded}"
    return text + "".join(f"; {reason}" for reason in (*moved.failures[:3], *moved.paused))


PARTS: dict[str, Callable[[Bench], None]] = {"grow": Bench.grow, "switches": Bench.switches}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="short and once, for a look")
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    add("--repeat", type=int, help="repetitions of grow (default 3, with --quick 1)")
    add("--throttle", type=int, default=0,
        help="the plan's throttle in bytes per second and node (default: "
             f"{THROTTLE_PART:g} times the load)")
    add("--part", type=float, default=FULL.part,
        help="of the throughput that is the load; the target is for 0.5 (default)")
    add("--batch-bytes", type=int, default=BATCH_BYTES,
        help=f"batches of the load (default {BATCH_BYTES:,})")
    add("--disk-bytes-per-s", type=int, default=DISK_BYTES_PER_S,
        help=f"what each node can write (default {DISK_BYTES_PER_S:,}; 0 = no bound)")
    add("--memory-bytes", type=int, default=MEMORY_BYTES,
        help="what each node has, page cache included "
             f"(default {MEMORY_BYTES:,}; 0 = no bound)")
    add("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    scale = QUICK if arguments.quick else FULL
    # SIGTERM ends all started processes, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="bench-moves-", dir=arguments.dir) as home:
        bench = Bench(Path(home), scale._replace(
            repeat=arguments.repeat or scale.repeat, part=arguments.part,
            batch_bytes=arguments.batch_bytes, disk_bytes_per_s=arguments.disk_bytes_per_s,
            memory_bytes=arguments.memory_bytes, throttle=arguments.throttle))
        missing = [part for part in arguments.only if not bench.measured(part)]
    show("Moving", bench.figures, bench.remarks, arguments.picture)
    return int(bench.harmed or bool(missing))


if __name__ == "__main__":
    sys.exit(main())
