"""Gates of a snapshot: completeness, freshness and consistency, checked before a plan is computed.

Contract.  Each gate raises ``BadSnapshot`` that names at most ``NAMED_MAX`` missing items, and the
remedy.  A plan from half of the loads would use the capacity of the other half; a plan from old
loads follows a state that has passed.  ``small`` checks nodes and groups and needs no Spark;
``large`` checks the results of one pass over the partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from placement import cluster
from placement.errors import PlacementError
from spark.errors import BadSnapshot
from spark.tables import Tables, as_snapshot, foreign

#: Parts in a thousand of groups, and of partitions, whose loads have to be known.
COVERAGE_PERMILLE = 980
#: A clock that is ahead by more than this is wrong.
AHEAD_MS_MAX = 5 * 60_000
#: Missing items that an error names.
NAMED_MAX = 12

_ANEW = "Export a new one: multiraft metrics export --output DIR"


class Found(NamedTuple):
    """Result of one pass over a table of partitions.  ``foreign``: rows of another snapshot.
    ``worst``: up to a few impossible rows, as (incarnation, column, value)."""

    rows: int
    partitions: int
    foreign: int
    worst: Sequence[tuple[int, str, int | None]]


def without_silent(tables: Tables) -> Tables:
    """Return the tables with nodes that did not answer as dead ones: the input of a repair."""
    return tables._replace(nodes=[row if row["measured_ms"] else {**row, "state": cluster.DEAD}
                                  for row in tables.nodes])


def small(tables: Tables, now_ms: int, age_max_ms: int) -> None:
    """Check age, coverage of nodes and groups, and contradictions; return if all is right. Raises
    ``BadSnapshot`` with the first that is not."""
    _check_age(tables, now_ms, age_max_ms)
    try:
        cluster.checked(as_snapshot(tables, ()))
    except PlacementError as error:
        raise BadSnapshot(f"{tables.directory} cannot be: {error}.", _ANEW) from error
    _check_nodes(tables, age_max_ms)
    _check_groups(tables)


def _check_age(tables: Tables, now_ms: int, age_max_ms: int) -> None:
    age_ms = now_ms - tables.head.taken_ms
    if age_ms > age_max_ms:
        raise BadSnapshot(f"{tables.directory} is {_span(age_ms)} old, {_span(age_max_ms)} is what "
                          f"a plan may be made from.", f"{_ANEW}; or say --max-age")
    if -age_ms > AHEAD_MS_MAX:
        raise BadSnapshot(f"{tables.directory} was taken {_span(-age_ms)} from now: the clock of "
                          f"this machine, or of the one that took it, is wrong.",
                          "Compare both with `date -u`.")


def _check_nodes(tables: Tables, age_max_ms: int) -> None:
    """Return if every node that is not dead has been measured in time. Raises ``BadSnapshot`` that
    names the others."""
    living = [row for row in tables.nodes if row["state"] != cluster.DEAD]
    silent = [row["node"] for row in living if not row["measured_ms"]]
    if silent:
        raise BadSnapshot(f"the loads of {named('node', silent)} are not known.",
                          "Start them and export again. What is lost for good: multiraft "
                          "rebalance plan --scope repair")
    old = [row["node"] for row in living
           if tables.head.taken_ms - row["measured_ms"] > age_max_ms]
    if old:
        raise BadSnapshot(f"{named('node', old)} sent no loads for more than {_span(age_max_ms)} "
                          f"before the snapshot was taken.", _ANEW)


def _check_groups(tables: Tables) -> None:
    """Return if nearly all groups of the pool have a row and a leader that reported them. Raises
    ``BadSnapshot`` that names the missing ones."""
    told = {row["group"] for row in tables.groups if row["leader"] or row["conf_index"]}
    missing = [group for group in range(1, tables.head.pool_size + 1) if group not in told]
    if len(missing) * 1000 > tables.head.pool_size * (1000 - COVERAGE_PERMILLE):
        raise BadSnapshot(f"the loads of {named('group', missing)} are not known: "
                          f"{len(missing):,} of {tables.head.pool_size:,}.",
                          f"`multiraft cluster status` says which have no leader. {_ANEW}")


def large(tables: Tables, found: Found) -> None:
    """Check the results of a pass over the partitions: origin, values, coverage; return if all is
    right. Raises ``BadSnapshot`` with the first that is not."""
    if found.foreign:
        raise BadSnapshot(foreign(tables.directory, "partitions", found.foreign, found.rows), _ANEW)
    for incarnation, column, value in found.worst:
        said = ("missing" if value is None else f"{value}; nothing is below 0" if value < 0 else
                f"{value}: measured in another unit?")
        raise BadSnapshot(f"{tables.directory}: {column} of partition {incarnation} is {said}.",
                          _ANEW)
    known = tables.head.partitions
    if found.partitions * 1000 < known * COVERAGE_PERMILLE:
        raise BadSnapshot(f"{tables.directory} has loads of {found.partitions:,} partitions, the "
                          f"cluster has {known:,}: {100 * found.partitions / known:.1f} %, "
                          f"{COVERAGE_PERMILLE / 10:.0f} % are needed.",
                          f"A file of {tables.directory}/partitions.parquet may be missing. "
                          f"{_ANEW}")
    if found.partitions > known:
        raise BadSnapshot(f"{tables.directory} has loads of {found.partitions:,} partitions, the "
                          f"cluster has {known:,}: rows are doubled, or are of another cluster.",
                          _ANEW)


def sums(tables: Tables, sums: Mapping[int, tuple[int, int]], lifted: bool) -> Tables:
    """Return the tables with each group's rates at least those of its partitions together
    (``sums``: group -> ingress, read). Raises ``BadSnapshot`` for a group without a row.

    In a snapshot of one window the sums must already agree: a greater sum is a contradiction. In
    one of several windows (``lifted``) the greatest rates of partitions need not be of the same
    window."""
    known = {row["group"] for row in tables.groups if row["group"]}
    strange = sorted(set(sums) - known)
    if strange:
        raise BadSnapshot(f"{tables.directory} has partitions in {named('group', strange)}, which "
                          f"hold none or have no row.", _ANEW)
    rows = []
    for row in tables.groups:
        ingress, read = sums.get(row["group"], (0, 0))
        if not lifted and (ingress > row["ingress"] or read > row["read"]):
            raise BadSnapshot(f"the partitions of group {row['group']} have more load than the "
                              f"group itself: {ingress:,} and {read:,} bytes per second, "
                              f"{row['ingress']:,} and {row['read']:,} are the group's. Rows stand "
                              f"twice, or are of another snapshot.", _ANEW)
        rows.append({**row, "ingress": max(ingress, row["ingress"]),
                     "read": max(read, row["read"])})
    return tables._replace(groups=rows)


def named(noun: str, ids: Iterable[int]) -> str:
    """Return ids as text: ``nodes 3, 4 and 7 more``."""
    ids = list(ids)
    more = f" and {len(ids) - NAMED_MAX:,} more" if len(ids) > NAMED_MAX else ""
    plural = "" if len(ids) == 1 else "s"
    return f"{noun}{plural} {', '.join(map(str, ids[:NAMED_MAX]))}{more}"


def _span(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    for length, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds // length} {name}"
    return f"{seconds} seconds"
