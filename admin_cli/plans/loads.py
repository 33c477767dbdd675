"""Loads that nodes append to ``__metrics``, for planning: as a snapshot, or as a pipeline's.

Contract.  ``from_topic`` writes a snapshot of the newest windows; ``pipeline`` keeps all of them.
Facts that only the cluster knows, such as the members of groups, are requested on use.  Spark is
imported on use; its errors pass, for ``spark_errors.translated_errors``.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from admin_cli import connection
from admin_cli.console.output import note
from admin_cli.failures import CommandFailed
from admin_cli.plans import plan_input
from admin_cli.session import Session
from multiraft.wire.errors import UnknownTopic
from placement.errors import PlacementError

TOPIC = "__metrics"


def are_published(client: Any) -> bool:
    """Return True if the cluster has the topic ``__metrics``."""
    try:
        connection.partitions(client, TOPIC)
    except UnknownTopic:
        return False
    return True


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def source(session: Session) -> Any:
    """Return the options of the data source with which Spark reaches the cluster."""
    from spark.topic import Source

    options = {"servers": ",".join(session.servers().addresses)}
    tls = session.tls()
    if tls is not None:
        options |= {"tls": "true", "tlsCa": tls.ca, "tlsCertificate": tls.certificate,
                    "tlsKey": tls.key, "tlsServerName": tls.server_name}
    return Source({name: value for name, value in options.items() if value})


def facts(session: Session) -> Any:
    """Return facts of the cluster that windows do not contain: its nodes, groups and members.
    Raises ``CommandFailed`` if the cluster does not answer, or not as it should."""
    from spark.windows import Facts

    with connection.open_session(session) as client:
        return _facts_of(client, session, Facts)


def _facts_of(client: Any, session: Session, made: Callable) -> Any:
    try:
        gathered = plan_input.placements_only(client, now_ms(), session.pause)
    except PlacementError as error:
        raise CommandFailed(f"the nodes' reports are invalid: {error}.") from error
    return made(gathered.snapshot, gathered.down)


def from_topic(session: Session, spark_session: Any, age_max_ms: int, directory: str,
               windows: int | None = None, tell: Callable[[str], None] = note) -> None:
    """Write a snapshot of the newest windows of ``__metrics``, at most ``windows``, to
    ``directory``, and report it by ``tell``. None = as many windows as a plan is made of. Raises
    ``BadSnapshot`` if no window of the last ``age_max_ms`` is complete, or the directory cannot be
    written."""
    from spark import topic
    from spark.windows import WINDOWS

    began = time.monotonic()
    made = topic.snapshot(spark_session, source(session), facts(session), now_ms(), age_max_ms,
                          directory, windows or WINDOWS)
    if made.complaint:
        tell(made.complaint)
    tell(f"{time.monotonic() - began:6.1f} s  windows: {len(made.span.begins_ms)} of "
         f"{made.span.interval_ms / 1000:g} s from {TOPIC}, {made.partitions:,} partitions")


def pipeline(session: Session, spark_session: Any, directory: str, period_ms: int, keep_ms: int,
             every_s: float | None) -> None:
    """Keep the windows of ``__metrics`` in ``directory``, every ``every_s`` seconds until Ctrl-C;
    None = the present ones, once. Raises ``CommandFailed`` if loads are not published."""
    from spark import pipeline as spark_pipeline

    with connection.open_session(session) as client:
        if not are_published(client):
            raise CommandFailed(f"there is no topic {TOPIC}: the nodes publish no loads.",
                                "[metrics] publish = true in node.toml of every node; "
                                "docs/metrics.md.")
    cluster_id = facts(session).snapshot.cluster_id
    with spark_pipeline.held(directory, cluster_id, period_ms):
        running = spark_pipeline.Pipeline(spark_session, source(session), spark_pipeline.Plan(
            directory, period_ms, keep_ms, lambda: facts(session), now_ms, note))
        if every_s is None:
            running.run_once()
        else:
            note(f"Keeping the windows of {TOPIC} in {directory}. Ctrl-C stops it; the files stay.")
            # The default action kills the process at once, which is safe at any moment; waiting for
            # Spark's batch under way may take minutes.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            running.run(every_s)
