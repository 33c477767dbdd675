"""Preferred leaders get their groups back when their node returns, and only then."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from multiraft.types import Configuration
from node.metadata.plan_table import PlanTable
from node.rebalance.preferred_leaders import (
    CALM_MS,
    TRANSFERS_PER_CHECK,
    WINDOW_MS,
    PreferredLeaders,
)


class Core:
    """Leads every group; node 2 may be up."""

    node = 1

    def __init__(self):
        self.status = self  # as core.status
        self.up = {1, 2}
        self.epoch = 1  # of node 2
        self.full = set()
        self.handed = []
        self.member = SimpleNamespace(node=2, state="replicate", match=100)
        self.status_fields = {"configuration": Configuration((1, 2, 3)), "transferee": 0,
                              "last_index": 100}

    def is_up(self, node):
        return node in self.up

    def heard_epoch(self, node):
        return self.epoch if node == 2 else 1

    def is_known_full(self, node):
        return node in self.full

    def is_leader(self, group):
        return group not in self.handed

    def leader_hint(self, group):
        return (2 if group in self.handed else 1), 1

    def of(self, group):
        return SimpleNamespace(members=(self.member,), **self.status_fields)

    def transfer(self, group, to):
        assert to == 2
        self.handed.append(group)


@pytest.fixture
def core():
    return Core()


@pytest.fixture
def made(core):
    state = SimpleNamespace(plans=PlanTable(), table=SimpleNamespace(
        states={}, nodes=dict.fromkeys((1, 2, 3))))
    state.plans.preferred = {group: 2 for group in range(1, 11)}
    return PreferredLeaders(
        core, SimpleNamespace(state=state), lambda: None, logging.getLogger("test")
    )


def test_groups_go_back_a_few_at_a_time_once_the_node_is_up_for_a_while(core, made):
    made.check(0)
    assert core.handed == []
    made.check(CALM_MS)
    assert len(core.handed) == TRANSFERS_PER_CHECK
    made.check(CALM_MS + 1_000)
    assert sorted(core.handed) == list(range(1, 11))


def test_a_group_that_is_handed_on_after_it_came_back_is_not_taken_back(core, made):
    made.check(0)
    for second in range(3):
        made.check(CALM_MS + 1_000 * second)
    assert 3 in core.handed
    core.handed.remove(3)  # an operator hands it to node 1
    made.check(CALM_MS + 5_000)
    assert 3 not in core.handed


def test_what_is_handed_over_by_hand_stays_until_the_node_returns(core, made):
    made.check(0)
    made.check(WINDOW_MS)
    made.check(WINDOW_MS + CALM_MS)
    assert core.handed == []
    core.up.discard(2)
    made.check(WINDOW_MS + 10_000)
    core.up.add(2)
    made.check(WINDOW_MS + 11_000)
    made.check(WINDOW_MS + 11_000 + CALM_MS)
    assert core.handed


def test_a_restart_between_two_looks_is_a_return(core, made):
    """It takes less than a second where little is in the log (seen in a test run)."""
    made.check(0)
    core.handed[:] = range(1, 11)
    made.check(1_000)
    core.epoch = 2
    core.handed.clear()
    made.check(2_000)
    made.check(2_000 + CALM_MS)
    assert len(core.handed) == TRANSFERS_PER_CHECK


def test_a_node_that_was_up_when_a_plan_preferred_it_has_not_come_back(core, made):
    """The plan has moved the group itself; what is handed on after it stays (seen in the demo)."""
    plans = made._metadata_log.state.plans
    wanted, plans.preferred = plans.preferred, {}
    made.check(0)
    made.check(WINDOW_MS)
    plans.preferred = wanted
    for second in range(20):
        made.check(WINDOW_MS + 1_000 * second)
    assert core.handed == []


def test_what_it_led_since_it_is_up_is_remembered_before_anything_goes_back(core, made):
    """A plan moves a group to a node that has just come up, and another transfer follows at once.
    """
    made.check(0)
    core.handed[:] = range(1, 11)
    made.check(1_000)
    core.handed.clear()
    made.check(CALM_MS)
    assert core.handed == []


@pytest.mark.parametrize("spoil", [
    lambda core, made: made._metadata_log.state.table.states.update({2: "maintenance"}),
    lambda core, made: core.full.add(2),
    lambda core, made: core.status_fields.update(transferee=3),
    lambda core, made: core.status_fields.update(last_index=5_000),
    lambda core, made: core.status_fields.update(configuration=Configuration((1, 3), (2,))),
    lambda core, made: setattr(core.member, "state", "probe")])
def test_nothing_is_handed_to_a_node_that_cannot_or_must_not_lead(core, made, spoil):
    spoil(core, made)
    made.check(0)
    made.check(CALM_MS)
    assert core.handed == []
