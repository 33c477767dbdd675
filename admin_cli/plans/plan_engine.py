"""`multiraft rebalance plan --engine spark`: a plan from a snapshot in Parquet, and its report.

Contract.  Without ``--snapshot`` the loads are those that nodes have appended to ``__metrics``;
when they do not, or with ``--measure``, the running cluster is exported first, as `multiraft
metrics export` does.  A ``--snapshot`` may be a pipeline's directory: its latest complete period
counts.  Errors of the snapshot, the machine or Spark leave as `CommandFailed`.  Spark
and Arrow are imported on use, so that other commands start without them.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from admin_cli import connection
from admin_cli.console.output import note
from admin_cli.plans import loads, metrics, plan_report
from admin_cli.plans.spark_errors import translated_errors
from admin_cli.session import Session
from placement import plan as plans
from placement.policy import SCOPE_REPAIR, Options, Policy

PYTHON, SPARK = "python", "spark"
ENGINES = (PYTHON, SPARK)


class Asked(NamedTuple):
    """The values of the flags.  ``max_age_s`` None: as long as a plan is valid."""

    engine: str
    master: str | None
    snapshot: str | None
    max_age_s: float | None
    report: Path | None
    measure: bool = False

    def check(self) -> None:
        """Return if all flags belong to the engine. Raises ``UsageError`` otherwise."""
        if self.engine == SPARK:
            if self.measure and self.snapshot is not None:
                raise click.UsageError("--measure and --snapshot are two sources of loads: name "
                                       "one.")
            return
        for flag, value in (("--master", self.master), ("--snapshot", self.snapshot),
                            ("--max-age", self.max_age_s), ("--report", self.report),
                            ("--measure", self.measure or None)):
            if value is not None:
                raise click.UsageError(f"{flag} goes with --engine spark.")


def make(session: Session, asked: Asked, policy: Policy, options: Options,
         window_s: float) -> plans.Plan:
    """Return the plan that Spark computes, and write its report if one was requested. Raises
    ``CommandFailed``."""
    with translated_errors():
        from spark import planning
        from spark import session as spark_session

        spark_session.check_machine()
        age_max_ms = policy.valid_ms if asked.max_age_s is None else int(asked.max_age_s * 1000)
        with contextlib.ExitStack() as held:
            @functools.cache
            def start() -> Any:
                return held.enter_context(spark_session.started(asked.master))

            directory = _input(session, asked, options, window_s, age_max_ms, held, start)
            made = planning.make(start, directory, policy, options, loads.now_ms(), age_max_ms,
                                 _told)
    if asked.report is not None:
        plan_report.write(made, asked.report)
        note(f"Report: {asked.report / plan_report.PAGE}")
    return made.plan


def _input(session: Session, asked: Asked, options: Options, window_s: float, age_max_ms: int,
           held: contextlib.ExitStack, start: Callable[[], Any]) -> str:
    """Return the directory of the snapshot to plan from: the one named, or one written now from
    published or measured loads. ``start()`` starts Spark; temporary files last as long as ``held``.
    """
    from spark import pipeline

    if asked.snapshot is not None:
        directory = pipeline.snapshot_in(asked.snapshot, options.scope != SCOPE_REPAIR)
        if directory != asked.snapshot:
            note(f"Latest period: {directory}")
        return directory
    directory = f"{held.enter_context(tempfile.TemporaryDirectory())}/snapshot"
    with connection.open_session(session) as client:
        if not asked.measure and loads.are_published(client):
            loads.from_topic(session, start(), age_max_ms, directory)
            return directory
        if not asked.measure:
            note(f"The nodes publish no loads to {loads.TOPIC}: they are measured now.")
        metrics.export(client, directory, window_s, session)
    note(f"{metrics.SAID}: {directory}")
    return directory


def _told(stage: Any) -> None:
    note(f"{stage.seconds:6.1f} s  {stage.name}: {stage.text}")
