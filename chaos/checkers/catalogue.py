"""The catalogue of anomalies: id, name, definition, checker classes and inputs of each.

Contract.  One row per id; ``docs/checkers.md`` shows the same rows.  A test compares the rows with
that page, and both with the checkers that ``check`` runs.  The class's docstring is the exact
definition.
"""

from __future__ import annotations

from typing import NamedTuple

from chaos.checkers import consumers as polls
from chaos.checkers import (
    contents,
    durability,
    leaders,
    liveness,
    logs,
    reads,
    sends,
    staged,
    times,
    topics,
)
from chaos.checkers.checker import Checker

HISTORY, LOGS, TRACE = "history", "logs", "trace"


class Row(NamedTuple):
    """One anomaly of the catalogue."""

    id: str
    name: str
    says: str  # the definition in one line
    checkers: tuple[type[Checker], ...]  # empty = not checked yet, or reduced to other anomalies
    fed_by: tuple[str, ...]


ROWS = (
    Row("A1", "inconsistent-offsets", "two values at one offset",
        (contents.InconsistentOffsets,), (HISTORY, LOGS)),
    Row("A2", "duplicate", "one value at two offsets; two transactions of one batch of a sink, or "
        "two attempts of one task, are given", (contents.Duplicate, staged.GivenTwice),
        (HISTORY, LOGS)),
    Row("A3", "lost-write", "acknowledged with `commit`, shown to no reader, and provably gone",
        (durability.LostWrite, logs.LostFromLogs, logs.ForgottenPartition), (HISTORY, LOGS)),
    Row("A4", "aborted-read", "an append that failed for certain is there; a record of a void "
        "transaction, or of an attempt that does not count, is given",
        (contents.Aborted, staged.AbortedTransaction), (HISTORY, LOGS)),
    Row("A5", "precommitted-read", "a record of a transaction is given before a client asked to "
        "commit it", (staged.PrecommittedRead,), (HISTORY,)),
    Row("A6", "unseen", "acknowledged with `commit`, and the final reads never showed it; of a "
        "committed transaction, and the final reads of committed records leave it out",
        (durability.Unseen, staged.NotGivenInTheEnd), (HISTORY,)),
    Row("A7", "int-poll-skip", "a result leaves out a record that is known to be there",
        (reads.PollSkipInside,), (HISTORY,)),
    Row("A8", "int-nonmonotonic-poll", "a result goes back, or begins below what was asked for",
        (reads.NonmonotonicInside,), (HISTORY,)),
    Row("A9", "poll-skip", "a poll begins above its consumer's position",
        (polls.PollSkip,), (HISTORY,)),
    Row("A10", "nonmonotonic-poll", "a poll begins below its consumer's position",
        (polls.NonmonotonicPoll,), (HISTORY,)),
    Row("A11", "int-nonmonotonic-send", "the records of one append are in another order",
        (contents.SendOutOfOrder,), (HISTORY, LOGS)),
    Row("A12", "nonmonotonic-send", "an idempotent producer's appends are in another order",
        (sends.ProducerOrder,), (HISTORY, LOGS)),
    Row("A13", "int-send-skip", "the records of one append are apart, or only some are there",
        (contents.TornBatch,), (HISTORY, LOGS)),
    Row("A14", "real-time-order", "below what was acknowledged or shown before it was invoked",
        (sends.RealTimeOrder,), (HISTORY, LOGS)),
    Row("A14b", "reassigned-offset", "two appends are acknowledged at one offset",
        (contents.ReassignedOffset,), (HISTORY,)),
    Row("A15", "stale-read", "a linearizable answer misses what was acknowledged or shown before",
        (reads.StaleRead,), (HISTORY,)),
    Row("A15b", "end-goes-back", "one node that nothing touched shows a lower end than before",
        (reads.EndGoesBack,), (HISTORY,)),
    Row("A17", "read-then-lost", "what was shown to a reader is gone or changed, at any ack level",
        (reads.TakenBack, contents.ChangedAfterRead, logs.TakenFromLogs), (HISTORY, LOGS)),
    Row("A18", "divergent-logs", "two logs, or the log starts of two checkpoints, differ where "
        "they must be equal", (logs.DivergentLogs, logs.DivergentLogStarts), (LOGS,)),
    Row("A19", "raft-invariants", "two leaders of a term; a term or a vote goes back (in a node's "
        "trace, over a restart: only a term in which it led, because a term is logged before it "
        "is on disk)",
        (leaders.RoleTrace, logs.HardStates), (TRACE, LOGS)),
    Row("A20", "leader-completeness", "a leader of a higher term wrote over a committed entry",
        (logs.LeaderCompleteness,), (LOGS,)),
    Row("A21", "consumer-offsets", "committed positions: waits for consumer groups", (), ()),
    Row("A22", "delivery-vs-commit", "delivered before committed: waits for consumer groups", (),
        ()),
    Row("A23", "idempotence", "a sequence twice, left out, or of a fenced epoch; a transaction "
        "that is committed and void, two committed transactions of one batch",
        (sends.Idempotence, staged.DecidedTwice), (HISTORY, LOGS)),
    Row("A24", "acks-contract", "losses per ack level, beside the faults that came before",
        (durability.AcksContract,), (HISTORY, TRACE)),
    Row("A25", "early-commit", "shown above the high watermark; committed, and held by no majority",
        (reads.EarlyExposure, logs.CommittedIsHeld), (HISTORY, LOGS)),
    Row("A26", "cycles", "a reader goes past a record of a committed transaction (G-single); "
        "G0, G1c: with one topic per append they are A14 and A15",
        (staged.FracturedRead,), (HISTORY,)),
    Row("A27", "topic-incarnation", "a topic is gone, is back, is two, or is in two places",
        (topics.TopicIncarnation, contents.OldLife), (HISTORY,)),
    Row("A28", "no-recovery", "after the heal a key takes no append, or answers no final read",
        (liveness.Recovery,), (HISTORY,)),
    Row("A29", "cross-group-leak", "a record of another key, topic or run",
        (contents.CrossGroupLeak, logs.LogContents), (HISTORY, LOGS)),
    Row("A30", "corruption", "a reader gets bytes that are no record",
        (contents.Corruption,), (HISTORY,)),
    Row("A31", "unknown-value", "a value that was not appended before",
        (contents.UnknownValue,), (HISTORY, LOGS)),
    Row("A32", "gap", "an offset is left out, or cannot be",
        (reads.Gap,), (HISTORY, LOGS)),
    Row("A33", "unavailable", "no append is acknowledged though a quorum is left alone",
        (liveness.Availability,), (HISTORY,)),
    Row("A34", "offset-for-time", "the first record at or after a time is asked for, and another "
        "offset is answered", (times.TimeLookup,), (HISTORY,)),
)
