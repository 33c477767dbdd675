"""`multiraft rebalance plan --engine spark`: a plan from a snapshot in Parquet, and its report.

Contract.  Without ``--snapshot`` the running cluster is exported first, as `multiraft metrics
export` does.  What is wrong with the snapshot, the machine or Spark is told as `CommandFailed`, in
sentences.  Spark and Arrow are imported when they are used: other commands start without them.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from admin_cli import connection, metrics, plan_report
from admin_cli.failures import CommandFailed
from admin_cli.output import note
from admin_cli.session import Session
from placement import plan as plans
from placement.policy import Options, Policy

PYTHON, SPARK = "python", "spark"
ENGINES = (PYTHON, SPARK)


class Asked(NamedTuple):
    """What the flags say.  ``max_age_s`` None: as long as a plan is valid."""

    engine: str
    master: str | None
    snapshot: str | None
    max_age_s: float | None
    report: Path | None

    def check(self) -> None:
        """Raises ``UsageError`` for flags of the other engine."""
        if self.engine == SPARK:
            return
        for flag, value in (("--master", self.master), ("--snapshot", self.snapshot),
                            ("--max-age", self.max_age_s), ("--report", self.report)):
            if value is not None:
                raise click.UsageError(f"{flag} goes with --engine spark.")


def make(session: Session, asked: Asked, policy: Policy, options: Options,
         window_s: float) -> plans.Plan:
    """The plan; the report is written.  Raises ``CommandFailed``."""
    with _sentences():
        from spark import planning
        from spark import session as spark_session

        spark_session.check_machine()
        with contextlib.ExitStack() as held:
            directory = asked.snapshot
            if directory is None:
                temporary = held.enter_context(tempfile.TemporaryDirectory())
                directory = f"{temporary}/snapshot"
                with connection.open_session(session) as client:
                    metrics.export(client, directory, window_s, session)
                note(f"{metrics.SAID}: {directory}")
            age_max_ms = policy.valid_ms if asked.max_age_s is None else int(
                asked.max_age_s * 1000)
            made = planning.make(
                lambda: held.enter_context(spark_session.started(asked.master)),
                directory, policy, options, time.time_ns() // 1_000_000, age_max_ms, _told)
    if asked.report is not None:
        plan_report.write(made, asked.report)
        note(f"Report: {asked.report / plan_report.PAGE}")
    return made.plan


def _told(stage: Any) -> None:
    note(f"{stage.seconds:6.1f} s  {stage.name}: {stage.text}")


@contextlib.contextmanager
def _sentences() -> Iterator[None]:
    """Errors of Spark's side as this command's."""
    try:
        from spark.errors import SparkPlanError
    except ImportError as error:
        raise missing(error) from error
    try:
        yield
    except SparkPlanError as error:
        raise CommandFailed(str(error), error.do) from error
    except ImportError as error:
        raise missing(error) from error


def missing(error: ImportError) -> CommandFailed:
    """What to say of a package that is not installed."""
    return CommandFailed(f"snapshots and Spark need the package {error.name}, which is not "
                         f"installed.", "pip install 'multiraft[spark]'")
