"""Judgement of nodes that ended by themselves: because of a fault, or because of a bug.

Contract.  ``check_exits`` turns the exits that a backend saw into anomalies and notes.  A node ends
by itself, with status 4, when its disk fails, and is excused only by a fault of that disk which
that process had met; every other end that the backend did not request is an anomaly: a broken
invariant, memory that ran out, a configuration that the node no longer understands, an error that
no fault caused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from chaos.backends.backend import FAILED_DISK, HUNG_DISK, POWER_LOSS, NodeExit
from chaos.checkers.verdict import Anomaly

#: Exit status of `python -m node` when a write or a sync fails.
DISK_FAILED = 4
#: Faults that make a write or a sync fail.
EXCUSES = frozenset((FAILED_DISK, POWER_LOSS, HUNG_DISK))
#: The end of a node's log that an anomaly quotes.
QUOTED_LINES, QUOTED_BYTES = 12, 16 << 10


def check_exits(exits: Sequence[NodeExit], log_of) -> tuple[list[Anomaly], list[str]]:
    """Return anomalies and notes on the ends that the backend did not request. An end by a failed
    disk is a note if a fault of that disk explains it, any other is an anomaly.

    ``log_of(node)`` returns the path of the node's log, whose end an anomaly quotes.
    """
    anomalies, notes = [], []
    for node_exit in exits:
        if node_exit.requested:
            continue
        if node_exit.status == DISK_FAILED and not node_exit.disk_faults.isdisjoint(EXCUSES):
            notes.append(f"node {node_exit.node} ended because its disk failed, as it must")
            continue
        why = ", and nothing had been done to its disk" if node_exit.status == DISK_FAILED else ""
        anomalies.append(
            Anomaly(
                "A0",
                "node-ended",
                f"node {node_exit.node} ended by itself with status {node_exit.status}"
                f"{why}; its log then:\n{tail(log_of(node_exit.node))}",
            )
        )
    return anomalies, notes


def tail(log: Path) -> str:
    """Return the last ``QUOTED_LINES`` lines of a log; "(no log)" when there is no file."""
    if not log.is_file():
        return "(no log)"
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - QUOTED_BYTES))
        text = file.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-QUOTED_LINES:])
