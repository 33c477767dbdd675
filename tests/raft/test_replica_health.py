"""Health of a replica: the table of ``replica_health`` is what its methods do."""

from __future__ import annotations

import re

import pytest

from multiraft.raft import replica_health
from multiraft.raft.replica_health import NO_BARRIER, Barrier, HealthState, ReplicaHealth

NONCE, BARRIER = 7, Barrier(3, 20)

TRANSITIONS = {
    "quarantine": lambda health: health.quarantine("damage"),
    "begin_recovery": lambda health: health.begin_recovery(NONCE + 1),
    "grant": lambda health: health.grant(NONCE, BARRIER),
    "reach_barrier": lambda health: health.reach_barrier(3, 20),
    "repair": lambda health: health.repair(),
    "remove": lambda health: health.remove(),
}


def in_state(state: HealthState) -> ReplicaHealth:
    """Return a health that came to ``state`` by transitions."""
    health = ReplicaHealth("" if state is HealthState.HEALTHY else "its end is lost")
    if state in (HealthState.RECOVERING, HealthState.GRANTED, HealthState.RECOVERED):
        assert health.begin_recovery(NONCE)
    if state in (HealthState.GRANTED, HealthState.RECOVERED):
        assert health.grant(NONCE, BARRIER)
    if state is HealthState.RECOVERED:
        assert health.reach_barrier(3, 25)
    if state is HealthState.REMOVED:
        health.remove()
    assert health.state is state
    return health


def table() -> dict[tuple[str, HealthState], HealthState]:
    """Return (transition, state) -> next state, as the docstring has it."""
    text = replica_health.__doc__.split("transition           from")[1].split("\n\n")[0]
    found, name, to = {}, "", ""
    for line in text.splitlines()[1:]:
        if line[4:25].strip():
            name, to = line[4:25].strip(), line[58:70].strip()
        for state in HealthState if "every state" in line else \
                [HealthState[word] for word in re.findall(r"[A-Z]+", line[25:58])]:
            found[name, state] = HealthState[to]
    return found


@pytest.mark.parametrize("state", HealthState)
@pytest.mark.parametrize("name", TRANSITIONS)
def test_the_table_is_what_the_methods_do(name, state):
    expected = table().get((name, state))
    health = in_state(state)
    done = TRANSITIONS[name](health)
    assert health.state is (state if expected is None else expected)
    assert done is None or done == (expected is not None)


def test_the_table_names_every_transition():
    assert {name for name, _ in table()} == set(TRANSITIONS)


@pytest.mark.parametrize("state", HealthState)
def test_a_reason_is_known_in_every_state_but_one(state):
    health = in_state(state)
    assert bool(health.why) == (state is not HealthState.HEALTHY)
    assert health.is_frozen == (state in (HealthState.FROZEN, HealthState.REMOVED))
    assert health.is_recovered == (state is HealthState.RECOVERED)
    follows = state in (HealthState.RECOVERING, HealthState.GRANTED, HealthState.RECOVERED)
    assert bool(health.nonce) == follows
    assert (health.barrier != NO_BARRIER) == (state in (HealthState.GRANTED, HealthState.RECOVERED))


@pytest.mark.parametrize("term, index", [(4, 99), (2, 99), (3, 19)])
def test_a_barrier_is_reached_in_its_term_and_with_its_entry_alone(term, index):
    health = in_state(HealthState.GRANTED)
    assert not health.reach_barrier(term, index)
    assert health.state is HealthState.GRANTED


def test_a_grant_for_another_recovery_changes_nothing():
    health = in_state(HealthState.RECOVERING)
    assert not health.grant(NONCE + 1, BARRIER)
    assert health.state is HealthState.RECOVERING


def test_a_later_grant_replaces_an_earlier_one():
    health = in_state(HealthState.GRANTED)
    assert health.grant(NONCE, Barrier(5, 9))
    assert health.barrier == (5, 9)
