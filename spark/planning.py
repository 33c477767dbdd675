"""Planner on Spark: from a snapshot in Parquet to a plan of ``placement``.

Contract.  ``make`` is a function of the files, the policy and the options: Spark's configuration,
the order of rows and the number of cores do not change the plan, digest included.  The plan is
``placement.planner.make_plan``'s of a snapshot that lists every node and group, and of the
partitions those that matter; ``placement.verify`` finds nothing wrong with it, or ``PlanRejected``
is raised.

``placement.sampling`` asks which partitions matter (decision 0041); this module computes the
answers where the partitions are.  A cluster of at most ``all_max`` partitions is listed whole: its
plan is the one that ``multiraft rebalance plan`` makes without Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from placement import cluster, plan
from placement.errors import PlacementError
from placement.planner import make_plan
from placement.policy import SCOPE_ALL, SCOPE_REPAIR, Options, Policy
from placement.sampling import PartitionSample, sample_partitions
from placement.switches import SKIPPED_PER_GROUP, Relief
from placement.verify import verify
from spark import gates, loads, tables
from spark.errors import BadSnapshot, SparkPlanError
from spark.tables import Tables

#: Partitions of a cluster whose partitions are all listed.
ALL_MAX = 20_000
#: Partitions that are listed at most for each switch that a plan may have.
LISTED_PER_SWITCH = 2


class PlanRejected(SparkPlanError):
    """Raised when ``placement.verify`` refuses the plan: a bug of this program, not of the
    snapshot."""


class Stage(NamedTuple):
    """One step, for progress and for the report."""

    name: str
    text: str
    seconds: float


class Made(NamedTuple):
    """A plan and the steps to it.  ``listed``: partitions that the planner was given;
    ``unrelieved``: groups that stay above their targets although more could be listed."""

    plan: plan.Plan
    snapshot: cluster.Snapshot
    partitions: int
    listed: int
    unrelieved: int
    stages: tuple[Stage, ...]


class _Clock:
    """Reporter of the steps and their times."""

    def __init__(self, tell: Callable[[Stage], None]):
        self._tell = tell
        self._began = time.monotonic()
        self.stages: list[Stage] = []

    def ended(self, name: str, text: str) -> None:
        """Report that the step ``name`` has ended."""
        now = time.monotonic()
        self.stages.append(Stage(name, text, now - self._began))
        self._began = now
        self._tell(self.stages[-1])


def make(start: Callable[[], SparkSession], directory: str, policy: Policy, options: Options,
         now_ms: int, age_max_ms: int, tell: Callable[[Stage], None] = lambda stage: None,
         all_max: int = ALL_MAX) -> Made:
    """Return the plan of the snapshot in ``directory``. ``start`` returns a session, called once
    the gates that need none are passed.

    Raises ``BadSnapshot`` for a snapshot that no plan can be made of, ``PlanRejected`` for a plan
    that breaks a rule, and what ``start`` raises; PySpark's own errors pass. One pass over the
    partitions for the gates, one for large partitions, and two per round."""
    clock = _Clock(tell)
    small = tables.read(directory)
    if options.scope == SCOPE_REPAIR:
        small = gates.without_silent(small)
    gates.small(small, now_ms, age_max_ms)
    clock.ended("gates", f"{len(small.nodes):,} nodes, {len(small.groups):,} groups: complete and "
                f"fresh")
    session = start()
    clock.ended("start", f"Spark {session.version}, {session.sparkContext.master}")
    frame = loads.partitions(session, directory, small.head)
    found, sums = loads.looked_at(frame, small.head, small.ranges)
    gates.large(small, found)
    small = gates.sums(small, sums, small.head.windows > 1)
    clock.ended("loads", f"{found.partitions:,} partitions summed up")
    chosen = _listed(frame, small, policy, options, all_max, clock)
    snapshot = _checked(small, chosen.partitions)
    made = _planned(snapshot, policy, options, chosen.unrelieved)
    clock.ended("plan", f"{len(made.moves):,} moves")
    faults = verify(made, snapshot, snapshot.taken_ms)
    if faults:
        raise PlanRejected(f"the plan breaks a rule: {faults[0].code} {faults[0].move_id}: "
                           f"{faults[0].text}.", "Keep the snapshot, and report this.")
    clock.ended("verify", "no fault")
    return Made(made, snapshot, found.partitions, len(chosen.partitions), chosen.unrelieved,
                tuple(clock.stages))


def _planned(snapshot: cluster.Snapshot, policy: Policy, options: Options,
             unrelieved: int) -> plan.Plan:
    try:
        made = make_plan(snapshot, policy, options)
    except PlacementError as error:
        raise BadSnapshot(f"no plan can be made: {error}.") from error
    if unrelieved and made.converged:  # more partitions could be listed
        return plan.identify(made._replace(converged=False))
    return made


def _checked(small: Tables, rows: Iterable[cluster.PartitionRow]) -> cluster.Snapshot:
    try:
        return cluster.checked(tables.as_snapshot(small, rows))
    except PlacementError as error:
        raise BadSnapshot(f"{small.directory} cannot be: {error}.",
                          "Export a new one: multiraft metrics export --output DIR") from error


# ---- partitions that are listed for the planner -------------------------------------------------

def _listed(frame: DataFrame, small: Tables, policy: Policy, options: Options, all_max: int,
            clock: _Clock) -> PartitionSample:
    """Return the partitions that the planner needs for switches (moves of partitions between
    groups): all if there are at most ``all_max``, else none unless the scope is ``SCOPE_ALL``, or
    those that ``sample_partitions`` finds by queries to Spark."""
    if small.head.partitions <= all_max:
        rows = partition_rows(frame.toArrow())
        clock.ended("list", f"all {len(rows):,} partitions")
        return PartitionSample(tuple(rows), (), 0)
    if options.scope != SCOPE_ALL:
        clock.ended("list", "no partition: none is switched")
        return PartitionSample((), (), 0)
    may_move = loads.movable(policy, small.head.taken_ms)

    def above(least: int) -> list[cluster.PartitionRow]:
        rows = partition_rows(loads.large(frame, least))
        clock.ended("large", f"{len(rows):,} partitions that shares and bounds follow from")
        return rows

    def shed(wanted: Relief, known: frozenset[int]) -> list[cluster.PartitionRow]:
        groups = len(wanted.excess) + len(wanted.passed_on)
        most = LISTED_PER_SWITCH * policy.switches_max + SKIPPED_PER_GROUP * groups
        more = loads.shed_sets(frame, wanted, may_move, known, most)
        rows = partition_rows(loads.rows_of(frame, more))
        clock.ended("shed", f"{len(rows):,} partitions of {groups:,} groups, of which "
                    f"{len(wanted.excess):,} are above their targets")
        return rows

    return sample_partitions(_checked(small, ()), policy, above, shed)


def partition_rows(found: pa.Table) -> list[cluster.PartitionRow]:
    """Return rows of the table of partitions as ``placement`` has them."""
    columns = [found.column(name).to_pylist() for name in cluster.PartitionRow._fields]
    return list(map(cluster.PartitionRow._make, zip(*columns, strict=True)))
