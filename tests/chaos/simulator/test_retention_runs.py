"""Runs in which records leave their partitions: by limits, by requests, and with their topics."""

from __future__ import annotations

import dataclasses
from collections import Counter

from chaos.checkers import check
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import RETENTION_KINDS, Parameters

FAULTS = ("retention", "retention", "delete-records", "clock-shift", "switch", "switch",
          "topic-create", "topic-delete", "kill", "transfer", "isolate-leader", "pause")


def with_faults(seed: int, faults: tuple[str, ...]) -> Parameters:
    return dataclasses.replace(Parameters.draw(seed, groups=4, safety_ms=20_000), faults=faults,
                               fault_interval_ms=300)


def test_records_leave_by_limits_and_by_requests_under_faults():
    counts: Counter[str] = Counter()
    refused = 0
    for seed in (3, 4, 14, 34):
        recording = Recording()
        result = simulation.run(with_faults(seed, FAULTS), history=recording)
        assert not result.failure, result.failure
        events = recording.finish()
        assert check(events).anomalies == []
        refused += sum(event.data.get("error") == "OffsetOutOfRange" for event in events)
        counts += result.event_counts
    for kind, least in (("log starts by retention", 100), ("deletion OK", 20),
                        ("deletion OFFSET_OUT_OF_RANGE", 2), ("histories trimmed", 3),
                        ("partitions deleted", 10)):
        assert counts[kind] >= least, (kind, counts)
    assert refused >= 20


def test_committed_log_starts_are_what_explains_missing_records_to_the_checkers():
    recording = Recording()
    result = simulation.run(with_faults(4, FAULTS), history=recording)
    assert not result.failure, result.failure
    events = [event for event in recording.finish() if event.kind != "log"]
    found = {anomaly.name for anomaly in check(events).anomalies}
    assert {"unseen", "read-then-lost"} <= found


def test_clocks_and_passes_among_faults_change_nothing_that_clients_see():
    """Shifted wall clocks are among the faults, and no limit is set."""
    for seed in (20, 21, 24):
        drawn = Parameters.draw(seed, groups=6, safety_ms=20_000)
        faults = tuple(kind for kind in drawn.faults
                       if kind not in RETENTION_KINDS and kind != "topic-settings")
        result = simulation.run(dataclasses.replace(drawn, faults=(*faults, "clock-shift")))
        assert not result.failure, result.failure
        assert result.event_counts["passes of retention"] > 100
        assert result.event_counts["clocks of idle groups"] > 10
        assert result.event_counts["log starts by retention"] == 0


def test_seeds_without_retention_have_none():
    for seed in range(1, 40):
        drawn = Parameters.draw(seed)
        assert drawn.has_retention is ("retention" in drawn.faults)
    assert {Parameters.draw(seed).has_retention for seed in range(1, 40)} == {True, False}
