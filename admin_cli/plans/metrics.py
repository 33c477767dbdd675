"""`multiraft metrics`: loads of the cluster as a snapshot in Parquet.

Contract.  `pipeline` keeps what nodes append to ``__metrics``; it is `loads.pipeline` with flags.
`export` asks every node, over one window, as `rebalance plan` does, and writes the reports about
nodes, groups and all partitions with records; it changes nothing.  The tables are those of
``spark.schema``.  Arrow is imported on use.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from admin_cli import connection, extras
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import TEXT, servers_option
from admin_cli.console.output import note, plural
from admin_cli.failures import CommandFailed
from admin_cli.plans import loads, plan_input
from admin_cli.plans.spark_errors import translated_errors
from admin_cli.session import Session
from admin_cli.values.numbers import DAY_S, WINDOW, Real, Whole
from placement import cluster
from placement.errors import PlacementError

#: Interval at which a pipeline takes new records, in seconds.
EVERY_S = 60.0
#: A century, longer than any period is kept.
KEEP_DAYS_MAX = 36_500
SAID = "Exported the cluster's loads"


@click.group(cls=HelpfulGroup)
def metrics() -> None:
    """Export loads of nodes, groups and partitions, for planning and for analysis."""


@metrics.command("export")
@click.option("--output", "output", required=True, metavar="DIR",
              help="New directory, or a URI that Arrow can write to.")
@click.option("--window", type=WINDOW, default=plan_input.WINDOW_S,
              metavar="SECONDS", help="Time over which loads are measured.")
@servers_option
@click.pass_obj
def export_(session: Session, output: str, window: float) -> None:
    """Write the present loads of the cluster as a snapshot in Parquet.

    `multiraft rebalance plan --engine spark --snapshot DIR` plans from it.
    """
    with connection.open_session(session) as client:
        partitions = export(client, output, window, session)
    note(f"{SAID}, {plural(partitions, 'partition')}: {output}")


@metrics.command("pipeline")
@click.option("--output", "output", required=True, metavar="DIR",
              help="Directory of the periods, or a URI that Arrow and Spark know.")
@click.option("--once", is_flag=True,
              help="Take the present windows, close periods that have ended, and exit: for cron.")
@click.option("--every", type=Real(1, DAY_S), default=None, metavar="SECONDS",
              help="Interval at which new records are taken. [default: 60]")
@click.option("--period", type=Whole(1, DAY_S), default=600, show_default=True,
              metavar="SECONDS", help="Length of a period, which is one snapshot; a multiple of "
                                      "the nodes' interval.")
@click.option("--keep", type=Real(0.01, KEEP_DAYS_MAX), default=7.0, show_default=True,
              metavar="DAYS", help="Remove periods that ended earlier.")
@click.option("--master", type=TEXT, metavar="URL",
              help="Spark's master. Default: all cores of this machine.")
@servers_option
@click.pass_obj
def pipeline_(session: Session, output: str, once: bool, every: float | None, period: int,
              keep: float, master: str | None) -> None:
    """Keep the windows of __metrics as snapshots in Parquet.

    `multiraft rebalance plan --engine spark --snapshot DIR` plans from the latest complete one.
    """
    if once and every is not None:
        raise click.UsageError("--once exits after one pass, --every repeats: use one of them.")
    with translated_errors():
        from spark import session as spark_session

        with spark_session.started(master) as started:
            loads.pipeline(session, started, output, 1_000 * period, int(keep * 86_400_000),
                           None if once else every or EVERY_S)


def export(client: Any, directory: str, window_s: float, session: Session) -> int:
    """Measure loads for ``window_s`` seconds, and write them as a snapshot into ``directory``.
    Return the number of partitions. Raises ``CommandFailed`` if a package is missing, the nodes'
    reports are invalid, or the directory cannot be written."""
    try:
        from spark import tables
        from spark.errors import SparkPlanError
    except ImportError as error:
        raise extras.missing("spark", str(error.name)) from error
    if "://" not in directory and Path(directory).exists() and not Path(directory).is_dir():
        raise CommandFailed(f"{directory} is a file.", "Name a new directory.")
    try:
        gathered = plan_input.collect(client, _now_ms(), True, window_s, plan_input.EVERY_GROUP,
                                      session.pause)
        snapshot = plan_input.with_desired_states(gathered.snapshot, dict.fromkeys(
            gathered.down, cluster.ALIVE))  # who plans decides what is lost
        tables.write(snapshot, directory, int(window_s * 1000),
                     {node: tables.Measured(snapshot.taken_ms, used)
                      for node, used in gathered.disk_used.items()}, gathered.records)
    except PlacementError as error:
        raise CommandFailed(f"the nodes' reports are invalid: {error}.") from error
    except SparkPlanError as error:
        raise CommandFailed(str(error), error.do) from error
    return len(snapshot.partitions)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
