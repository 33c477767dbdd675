"""The figures of moving: a fourth node joins under load and gets its share; partitions switch.

    make bench-moves                                 everything, some minutes
    make bench-moves ARGS="--only grow --repeat 1"   one part, a quick look

Contract.  ``grow``: three nodes, the throughput of the cluster is measured first, then half of it
is appended all the time; a fourth node joins, a plan is made by the planner from what the cluster
says and carried out by the cluster.  Judged: how far the worst node is from its share of bytes and
of appends afterwards, appends that failed, and records that are missing, doubled or out of order
when everything is read again; and the 99th percentile of appends while the plan is carried out
beside that of the same appends before, with four nodes.  ``switches``: for how long a partition
refuses appends when it is switched on an idle cluster.

Nothing is left behind: processes are ended by the pids that were started here, files are below one
temporary directory.  The exit status is 1 when something could not be measured or a target is
missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from admin_cli import plan_input
from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.failures import CommandFailed
from benchmarks import switches
from benchmarks.figures import Figure, Series, bound, compare, show
from benchmarks.numbered import Account, Appending, Damage, percentile_ms, read_back
from benchmarks.processes import BenchmarkError, free_base_port
from multiraft.client import blocking
from multiraft.wire import plans as wire
from placement.cluster import Snapshot
from placement.planner import make_plan
from placement.policy import DISK, GROUP_INGRESS, INGRESS, LEADERS, Band, Options, Policy
from placement.state import R_DISK, R_INGRESS, R_LEADERS, State

GROUPS = 64
PARTITIONS = 256
LOAD, WATCHED = "load", "watched"
#: Single appends beside the load, at each of which one group is looked at.
WATCHED_BYTES_PER_S = 50 * 1024
#: Seconds: the throughput is measured, then the cluster gets used to half of it.
FULL_S = 6.0
SETTLE_S = 2.0
#: Latencies before the plan is carried out.
BEFORE_S = 12.0
#: Rates of groups are measured over this: each partition gets several batches within it.
WINDOW_S = 3.0
UP_S = 120.0
MOVED_S_MAX = 300.0
LOOK_S = 0.1
#: Narrower than what is judged: loads go on while replicas move.
POLICY = Policy(bands=(Band(DISK, 30), Band(INGRESS, 30, 1 << 20), Band(LEADERS, 50, 1),
                       Band(GROUP_INGRESS, 500, 1 << 20)), moves_max=wire.MOVES_MAX)

TARGET_BALANCE = 5.0
TARGET_P99 = 2.0
SWITCHES = 100


class Moved(NamedTuple):
    """One growth from three nodes to four."""

    full_mb_per_s: float
    imbalance: dict[str, float]  # per cent by which the worst node is off its share
    leaders: tuple[int, ...]
    before_ms: float
    during_ms: float
    load_before_ms: float
    load_during_ms: float
    failures: tuple[str, ...]
    damage: Damage
    moves: int
    moved_bytes: int
    seconds: float
    paused: tuple[str, ...]  # reasons for which the plan paused itself


@contextlib.contextmanager
def _cluster(directory: Path) -> Iterator[DevCluster]:
    """Three nodes, with ports for a fourth."""
    dev = DevCluster(directory / "cluster", open_client, os.environ)
    dev.create(nodes=3, groups=GROUPS, replication_factor=3, base_port=free_base_port(4))
    with contextlib.ExitStack() as stack:
        stack.callback(dev.down)
        dev.up(UP_S)
        yield dev


def grow(directory: Path, throttle: int) -> Moved:
    """See the module's docstring."""
    with _cluster(directory) as dev:
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic(LOAD, PARTITIONS)
            client.create_topic(WATCHED, GROUPS)
        with Appending(dev.addresses, LOAD, PARTITIONS) as load, \
                Appending(dev.addresses, WATCHED, GROUPS, WATCHED_BYTES_PER_S,
                          single=True) as watched:
            full = _throughput(load)
            load.set_rate(int(full / 2))
            say(f"throughput {full / 1e6:.0f} MB/s; half of it goes on, and node "
                f"{dev.add(UP_S)} has joined")
            with blocking.Client(list(dev.addresses)) as client:
                return _moved(client, load, watched, full, throttle)


def _throughput(load: Appending) -> float:
    """Bytes per second that are acknowledged when the producer never waits."""
    time.sleep(SETTLE_S)
    before, start_s = load.acknowledged(), time.monotonic()
    time.sleep(FULL_S)
    after, end_s = load.acknowledged(), time.monotonic()
    return (after - before) * 1024 / (end_s - start_s)


def _moved(client: blocking.Client, load: Appending, watched: Appending, full: float,
           throttle: int) -> Moved:
    since_s = time.monotonic() + SETTLE_S
    time.sleep(SETTLE_S + BEFORE_S)
    snapshot = plan_input.collect(client, _now_ms(), False, WINDOW_S).snapshot
    made = make_plan(snapshot, POLICY, Options(copy_rate=throttle))
    if not made.moves:
        raise BenchmarkError("the planner finds nothing to move to an empty node")
    say(f"{len(made.moves)} moves, {sum(move.bytes for move in made.moves) / 1e6:.0f} MB to copy")
    start_s = time.monotonic()
    client.plan_request(plan_input.requested(made, throttle))
    paused, moved_bytes = _carried_out(client, made.plan_id)
    end_s = time.monotonic()
    after = plan_input.collect(client, _now_ms(), False, WINDOW_S).snapshot
    accounts = {LOAD: load.stop(), WATCHED: watched.stop()}
    return Moved(
        full / 1e6, imbalance(after), leaders(after),
        percentile_ms(accounts[WATCHED].taken, 0.99, since_s, start_s),
        percentile_ms(accounts[WATCHED].taken, 0.99, start_s, end_s),
        percentile_ms(accounts[LOAD].taken, 0.99, since_s, start_s),
        percentile_ms(accounts[LOAD].taken, 0.99, start_s, end_s),
        accounts[LOAD].failures + accounts[WATCHED].failures, _damage(client, accounts),
        len(made.moves), moved_bytes, end_s - start_s, paused)


def _carried_out(client: blocking.Client, plan_id: str) -> tuple[tuple[str, ...], int]:
    """Until the plan is over: why it paused itself, and the bytes it copied.  Raises
    ``BenchmarkError`` when moves failed or it takes too long."""
    deadline_s = time.monotonic() + MOVED_S_MAX
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
            raise BenchmarkError(
                f"the plan is not over after {MOVED_S_MAX:.0f} s: {dict(status.phases)}, "
                f"{status.bytes_done:,} of {status.bytes_total:,} bytes, {status.reason}; "
                f"{[(row.move_id, row.wait) for row in status.moves[:3]]}")
        time.sleep(LOOK_S)
    phases = dict(status.phases)
    if status.state != "done" or {*phases} != {"done"}:
        raise BenchmarkError(f"the plan ended {status.state}: {phases}, {status.reason}")
    return tuple(paused), status.bytes_done


def imbalance(snapshot: Snapshot) -> dict[str, float]:
    """Resource -> per cent by which the worst node is off its share; nodes are equal."""
    loads = State(snapshot, POLICY, ()).load
    found = {}
    for name, position in ((DISK, R_DISK), (INGRESS, R_INGRESS)):
        mean = sum(load[position] for load in loads) / len(loads)
        found[name] = 100 * max(abs(load[position] / mean - 1) for load in loads)
    return found


def leaders(snapshot: Snapshot) -> tuple[int, ...]:
    """Leaders of each node."""
    return tuple(load[R_LEADERS] for load in State(snapshot, POLICY, ()).load)


def _damage(client: blocking.Client, accounts: dict[str, Account]) -> Damage:
    found = [read_back(client, topic, account.given) for topic, account in accounts.items()]
    return Damage(*(sum(column) for column in zip(*found, strict=True)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Bench:
    """Runs the parts and collects what they measured."""

    def __init__(self, home: Path, repeat: int, throttle: int):
        self.home = home
        self.repeat = repeat
        self.throttle = throttle
        self.figures: list[Figure] = []
        self.remarks: list[str] = []

    def grow(self) -> None:
        """Three nodes become four under half of what they can take."""
        seen = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                seen.append(grow(Path(directory), self.throttle))
            say(_said(seen[-1]))
        self.figures += judged(seen)
        self.remarks += [f"grow: {_said(each)}" for each in seen]

    def switches(self) -> None:
        """A partition is switched again and again."""
        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            found = switches.measure(Path(directory), SWITCHES)
        p99 = switches.percentile(found["refused"], 0.99)
        self.figures.append(bound(
            f"a switched partition refuses appends, p99 of {len(found['refused'])} switches",
            Series("refused", "ms", (p99,)), switches.TARGET_MS, at_least=False))
        self.remarks.append("switches: " + "; ".join(
            f"{name} p50 {switches.percentile(values, 0.5):.1f} p99 "
            f"{switches.percentile(values, 0.99):.1f} ms" for name, values in found.items()))


def judged(seen: list[Moved]) -> list[Figure]:
    """The targets of growing."""
    figures = [bound(f"three nodes become four: the worst node's {name} is off its share",
                     Series(name, "%", tuple(each.imbalance[name] for each in seen)),
                     TARGET_BALANCE, at_least=False, worst=True) for name in (DISK, INGRESS)]
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
    """One repetition in a line."""
    text = (f"throughput {moved.full_mb_per_s:.0f} MB/s, half of it as load; {moved.moves} moves, "
            f"{moved.moved_bytes / 1e6:.0f} MB in {moved.seconds:.1f} s; p99 "
            f"{moved.before_ms:.1f} -> {moved.during_ms:.1f} ms, batches "
            f"{moved.load_before_ms:.1f} -> {moved.load_during_ms:.1f} ms; leaders "
            f"{moved.leaders}; {moved.damage}, {len(moved.failures)} failed")
    return text + "".join(f"; {reason}" for reason in (*moved.failures[:3], *moved.paused))


PARTS: dict[str, Callable[[Bench], None]] = {"grow": Bench.grow, "switches": Bench.switches}


def say(text: str) -> None:
    """Progress: a run takes minutes."""
    print(f"  {text}", file=sys.stderr, flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    add("--repeat", type=int, default=3, help="repetitions of grow (default 3)")
    add("--throttle", type=int, default=Options().copy_rate,
        help="the plan's throttle in bytes per second and node (default: what plans have)")
    add("--dir", help="where the files go (default: a new temporary directory)")
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="bench-moves-", dir=arguments.dir) as home:
        bench = Bench(Path(home), arguments.repeat, arguments.throttle)
        try:
            for part in arguments.only:
                say(part)
                PARTS[part](bench)
        except (BenchmarkError, CommandFailed) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    show("Moving", bench.figures, bench.remarks)
    return 0 if all(figure.holds for figure in bench.figures) else 1


if __name__ == "__main__":
    sys.exit(main())
