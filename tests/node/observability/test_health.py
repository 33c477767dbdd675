"""Conclusions of probes: alive is not ready, and a reason always names what is missing."""

import pytest

from node.observability import health
from node.observability.group_health import GroupSample, Survey
from node.observability.phase import RECOVERING, SERVING, STARTING, STOPPING, Life


def life(phase: str) -> Life:
    made = Life()
    made.phase = phase
    return made


@pytest.mark.parametrize("phase", [RECOVERING, STARTING, STOPPING])
def test_before_and_after_it_serves_a_node_is_alive_however_long_that_takes(phase):
    verdict = health.health(life(phase), 10**6, 10**6, 100)
    assert verdict.good and phase in verdict.reason


@pytest.mark.parametrize(("silent_ms", "busy_ms", "says"), [
    (0, 0, ""), (100, 100, ""), (101, 0, "round loop"), (0, 101, "disk")])
def test_a_node_that_serves_is_alive_while_loop_and_disk_are(silent_ms, busy_ms, says):
    verdict = health.health(life(SERVING), silent_ms, busy_ms, 100)
    assert verdict.good == (not says)
    assert says in verdict.reason


def test_during_recovery_the_reason_counts_segments_then_groups():
    recovering = life(RECOVERING)
    recovering.recovery.segments_total, recovering.recovery.segments_done = 12, 3
    assert health.readiness(recovering, None).reason == "recovering: 3 of 12 segments"
    recovering.recovery.groups_total, recovering.recovery.groups_done = 65, 7
    verdict = health.readiness(recovering, None)
    assert (verdict.good, verdict.reason) == (False, "recovering: 7 of 65 groups")
    assert verdict.details["segments"] == [3, 12]


@pytest.mark.parametrize("phase", [STARTING, STOPPING])
def test_who_does_not_serve_is_not_ready_whatever_its_groups_are(phase):
    assert not health.readiness(life(phase), Survey()).good


def test_a_loop_that_does_not_answer_is_not_ready():
    assert "does not answer" in health.readiness(life(SERVING), None).reason


def test_a_node_whose_replicas_have_everything_is_ready():
    verdict = health.readiness(life(SERVING), Survey(groups=65))
    assert (verdict.good, verdict.reason, verdict.details["groups"]) == (True, "", 65)


@pytest.mark.parametrize(("kind", "says"), [
    ("quarantined", "quarantined"), ("leaderless", "no leader"), ("behind", "catching up")])
def test_one_group_in_need_makes_a_node_unready_and_is_named(kind, says):
    survey = Survey(groups=65, **{kind: GroupSample(1, [42])}, lag_entries=9)
    verdict = health.readiness(life(SERVING), survey)
    assert not verdict.good
    assert says in verdict.reason and "1 group (42)" in verdict.reason


def test_many_groups_are_counted_and_the_first_named():
    survey = Survey(behind=GroupSample(100, list(range(100))))
    assert "100 groups (0, 1, 2, 3, 4, ...)" in health.readiness(life(SERVING), survey).reason
