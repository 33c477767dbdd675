"""Checkers and simulator test each other: histories of seeds pass the checkers, which also find
bugs that clients can see.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from chaos.checkers import Verdict, check
from chaos.history import INVOKE, OK
from chaos.planted.bug import planted
from chaos.planted.catalogue import BUGS
from chaos.planted.proofs import dense
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.clients.topics import Intent, Topics
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.oracle.invariants import ALL
from chaos.simulator.oracle.observer import StateChecker
from chaos.simulator.oracle.operations import ACKS_COMMIT, AppendOperation
from tests.storage.world import data_entry

SAFETY_MS = 8_000
#: Bugs that a client can see -> anomaly of the checkers.
VISIBLE = {
    "reader-sees-uncommitted": {"A1", "A17"},
    "unknown-producer-anywhere": {"A23"},
    "window-lost-on-restart": {"A2", "A23"},
}
SEEDS_MAX = 40


def recorded(parameters: Parameters) -> tuple[simulation.Result, Verdict]:
    recording = Recording()
    result = simulation.run(parameters, history=recording)
    return result, check(recording.finish())


#: Seeds in whose histories the checkers found plain appends twice, because of duplicated frames.
DOUBLED = (134, 146, 147)


@pytest.mark.parametrize("seed", (*range(1, 7), *DOUBLED))
def test_the_history_of_a_seed_passes(seed):
    result, verdict = recorded(Parameters.draw(seed, safety_ms=SAFETY_MS))
    assert result.failure == ""
    assert verdict.anomalies == []
    assert verdict.checked["acknowledged_commit"] >= result.acked > 0
    assert verdict.checked["lost_commit"] == 0
    assert verdict.checked["records_read"] > 0


def test_the_history_changes_nothing():
    parameters = Parameters.draw(3, safety_ms=3_000)
    assert (
        simulation.run(parameters).digest == simulation.run(parameters, history=Recording()).digest
    )


PARTITION = (1 << 20) + 6


def test_a_topic_is_one_key_also_for_those_who_know_it_before_its_creator_is_told():
    """Records of clients that learned of a topic early were recorded under another key, and counted
    as never read when the topic was deleted (seed 790000004606).
    """
    recording = Recording()
    creation = recording.topic_asked("t2", False)
    deletion = recording.topic_asked("t2", True)  # requested early, before its creation
    append = AppendOperation(1, 0, 0, 1, PARTITION, ACKS_COMMIT,
                             data_entry(1, 1, 1, PARTITION, 0, [b"6/1/0/450"]).payload, 0, -1,
                             base_offset=0)
    recording.invoke(append)
    recording.complete(append, OK)
    recording.topic_done(creation, "t2", 7, False, [PARTITION])
    recording.topic_done(deletion, "t2", 7, True, [PARTITION])
    told = {(event.kind, event.name): event.data for event in recording.finish()}
    assert told[INVOKE, "append"]["key"] == "t2@7/0"
    assert told[INVOKE, "create_topic"] == {"topic": "t2", "partitions": 1}
    assert told[OK, "create_topic"] == {"incarnation": 7}
    assert told[INVOKE, "delete_topic"] == {"topic": "t2", "incarnation": 7}
    assert told[OK, "delete_topic"] == {}


@pytest.mark.parametrize("name", sorted(VISIBLE))
def test_a_visible_bug_is_found_from_the_history_alone(name, monkeypatch):
    """The simulator's invariants are off, because they would end the run before a client sees the
    bug.
    """
    for kind in ALL:
        monkeypatch.setattr(kind, "require", lambda *_: None)
    for check_of_ends in ("end_confirmed", "end_served", "range_refused"):
        monkeypatch.setattr(StateChecker, check_of_ends, lambda *_: None)
    for seed in range(1, SEEDS_MAX + 1):
        with planted(BUGS[name]):
            _, verdict = recorded(dense(seed, BUGS[name].seeds or BUGS[name].proof))
        if VISIBLE[name] & {found.id for found in verdict.anomalies}:
            return
    pytest.fail(f"{name} was not found in the histories of {SEEDS_MAX} seeds")


def test_a_topics_end_is_not_asked_for_before_its_creation_is_committed():
    """Both commands were proposed repeatedly, and a creation could be committed behind the
    deletion.

    No command deleted that incarnation.  Its records were "never read" (seed 790000080112), and the
    next topic of its name waited without end (seeds 790000090235 and 790000090244).
    """
    topics = Topics(SimpleNamespace(), random.Random(1), random.Random(2), random.Random(3))
    begin, end, other = (Intent(b"", "t2", b"id", False), Intent(b"", "t2", b"id", True),
                         Intent(b"", "t2", b"other", False))
    topics._intents.extend((begin, end, other))
    assert [begin, end] not in (asked := [topics._next() for _ in range(20)])
    assert [begin] in asked
    topics._intents.popleft()  # a topic that replaces it may be requested at once
    assert [end, other] in (asked := [topics._next() for _ in range(20)]) and [end] in asked
    topics._intents.clear()
    assert topics._next() == []
