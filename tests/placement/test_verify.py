"""Each invariant of a plan: a sound plan passes, and one that breaks it is found out."""

from __future__ import annotations

import pytest

from placement import verify as verifying
from placement.cluster import DEAD, MAINTENANCE, NodeRow, PartitionRow, checked
from placement.outcome import planned
from placement.plan import (
    LEADER_TRANSFER,
    NEW_NODE,
    REPLICA_CHANGE,
    TOPIC_SWITCH,
    ReplicaChange,
    TopicSwitch,
    Why,
    identify,
)
from placement.planner import make_plan
from placement.policy import DISK, EGRESS, GROUP_INGRESS, Band, Options, Policy
from placement.verify import DONE, OUTDATED, PENDING, move_progress, verify
from tests.placement.clusters import (
    MIB,
    NOW_MS,
    STRICT,
    cluster,
    grown,
    nodes,
    only,
    with_state,
)

POLICY = Policy(bands=(Band(DISK, 20), Band(EGRESS, 50), Band(GROUP_INGRESS, 50)), cool_down_ms=0)
RATES = [MIB + 3000 * number for number in range(300)]
SNAPSHOT = grown(cluster(nodes(6, racks=3, disk_capacity=1 << 40), 32, RATES),
                 NodeRow(7, "r1", disk_capacity=1 << 40))
PLAN = make_plan(SNAPSHOT, POLICY)


def codes(made, snapshot=SNAPSHOT, now_ms=NOW_MS, policy=None):
    """Codes of what is wrong."""
    return {fault.code for fault in verify(made, snapshot, now_ms, policy)}


def first(kind):
    """The first move of a kind."""
    return next(move for move in PLAN.moves if move.kind == kind)


def edited(kind, **changes):
    """The plan with its first move of a kind changed."""
    old = first(kind)
    return identify(PLAN._replace(moves=tuple(
        move._replace(**changes) if move is old else move for move in PLAN.moves)))


def test_the_plan_has_moves_of_every_kind_and_is_sound():
    assert {move.kind for move in PLAN.moves} == {LEADER_TRANSFER, TOPIC_SWITCH, REPLICA_CHANGE}
    assert verify(PLAN, SNAPSHOT, NOW_MS) == ()
    assert verify(PLAN, SNAPSHOT, PLAN.expires_ms) == ()


CHANGE = first(REPLICA_CHANGE)
SWITCH = first(TOPIC_SWITCH)
TRANSFER = first(LEADER_TRANSFER)


@pytest.mark.parametrize("code, kind, changes", [
    ("BAD_ORDER", REPLICA_CHANGE, {"seq": 9999}),
    ("BAD_ORDER", REPLICA_CHANGE, {"wave": 0}),
    ("BAD_ORDER", REPLICA_CHANGE, {"depends_on": (CHANGE.seq,)}),
    ("BAD_ORDER", TOPIC_SWITCH, {"to_group": SWITCH.from_group}),
    ("UNKNOWN", REPLICA_CHANGE, {"group": 999}),
    ("UNKNOWN", REPLICA_CHANGE, {"new_voters": (1, 2, 99)}),
    ("UNKNOWN", TOPIC_SWITCH, {"to_group": 999}),
    ("UNKNOWN", TOPIC_SWITCH, {"to_group": 0}),
    ("UNKNOWN", TOPIC_SWITCH, {"incarnation": 1 << 40}),
    ("UNKNOWN", LEADER_TRANSFER, {"to_node": 99}),
    ("CONF_CHANGED", REPLICA_CHANGE, {"expect_conf_index": 9}),
    ("CONF_CHANGED", LEADER_TRANSFER, {"group_incarnation": 2}),
    ("EPOCH_CHANGED", TOPIC_SWITCH, {"expect_epoch": 9}),
    ("EPOCH_CHANGED", TOPIC_SWITCH, {"from_group": SWITCH.to_group}),
    ("BAD_VOTERS", REPLICA_CHANGE, {"old_voters": CHANGE.new_voters}),
    ("BAD_VOTERS", REPLICA_CHANGE, {"new_voters": CHANGE.old_voters[:1] * 3}),
    ("BAD_VOTERS", REPLICA_CHANGE, {"new_voters": ()}),
    ("BAD_VOTERS", REPLICA_CHANGE, {"to_leader": CHANGE.leaving[0]}),
    ("FACTOR", REPLICA_CHANGE, {"new_voters": CHANGE.new_voters[:2]}),
    ("FACTOR", REPLICA_CHANGE, {"new_voters": (1, 2, 3, 4)}),
    ("RACKS", REPLICA_CHANGE, {"new_voters": (1, 4, 7)}),
    ("WRONG_FIGURES", REPLICA_CHANGE, {"bytes": CHANGE.bytes + 1}),
    ("WRONG_FIGURES", TOPIC_SWITCH, {"bytes": 7}),
    ("WRONG_FIGURES", TOPIC_SWITCH, {"to_group": 1 + SWITCH.to_group % 32}),
])
def test_an_edited_move_is_found_out(code, kind, changes):
    assert code in codes(edited(kind, **changes))


def test_a_leader_that_is_no_voter_is_found_out():
    row = next(row for row in SNAPSHOT.groups if row.id == TRANSFER.group)
    stranger = next(node.id for node in SNAPSHOT.nodes if node.id not in row.voters)
    assert "BAD_VOTERS" in codes(edited(LEADER_TRANSFER, to_node=stranger))


def test_a_subject_moves_once():
    twice = identify(PLAN._replace(moves=(*PLAN.moves, CHANGE._replace(
        seq=len(PLAN.moves) + 1, wave=PLAN.waves + 1))))
    assert "SUBJECT_TWICE" in codes(twice)


@pytest.mark.parametrize("code, snapshot, now_ms", [
    ("FOREIGN", SNAPSHOT._replace(cluster_id="00" * 16), NOW_MS),
    ("EXPIRED", SNAPSHOT, PLAN.expires_ms + 1),
    ("NODE_STATE", with_state(SNAPSHOT, 7, MAINTENANCE), NOW_MS),
    ("NODE_STATE", with_state(SNAPSHOT, 7, DEAD), NOW_MS),
    ("CONF_CHANGED", checked(planned(SNAPSHOT, PLAN)), NOW_MS),
    ("UNKNOWN", SNAPSHOT._replace(partitions=()), NOW_MS),
    ("NO_MAJORITY", SNAPSHOT._replace(groups=tuple(
        row._replace(in_joint=True) for row in SNAPSHOT.groups)), NOW_MS),
])
def test_a_cluster_that_has_changed_makes_a_plan_stale(code, snapshot, now_ms):
    faults = verify(PLAN, snapshot, now_ms)
    assert code in {fault.code for fault in faults}
    assert any(fault.stale for fault in faults)
    assert all(fault.text for fault in faults)


@pytest.mark.parametrize("conf_index", [0, 5])
def test_a_leader_that_is_already_where_it_shall_be_is_no_fault(conf_index):
    drifted = SNAPSHOT._replace(groups=tuple(
        row._replace(leader=TRANSFER.to_node, conf_index=row.conf_index + conf_index)
        if row.id == TRANSFER.group else row for row in SNAPSHOT.groups))
    assert drifted != SNAPSHOT and verify(PLAN, drifted, NOW_MS) == ()


def test_a_group_without_a_leader_is_said_to_have_none():
    silent = SNAPSHOT._replace(groups=tuple(
        row._replace(leader=0, conf_index=0) if row.id == CHANGE.group else row
        for row in SNAPSHOT.groups))
    (fault,) = verify(PLAN, silent, NOW_MS)
    assert fault.stale and "has no leader now" in fault.text


def test_a_drained_node_that_is_gone_is_unknown():
    made = identify(PLAN._replace(options=Options(drain=(99,))))
    assert codes(made) == {"UNKNOWN"}


@pytest.mark.parametrize("code, policy", [
    ("LIMITS", POLICY._replace(moves_max=1)),
    ("LIMITS", POLICY._replace(in_per_node_max=1)),
    ("LIMITS", POLICY._replace(out_per_node_max=1)),
    ("LIMITS", POLICY._replace(at_once_max=1)),
    ("CHAINS", POLICY._replace(exceptions_max=0)),
    ("EXCLUDED", POLICY._replace(excluded_nodes=(7,))),
    ("EXCLUDED", POLICY._replace(excluded_groups=tuple(range(1, 33)))),
    ("EXCLUDED", POLICY._replace(excluded_topics=tuple(f"t{each}" for each in range(1, 301)))),
    ("BAD_POLICY", POLICY._replace(moves_max=0)),
    ("DISK", POLICY._replace(disk_cap_permille=1)),
])
def test_another_policy_may_forbid_it(code, policy):
    assert code in codes(PLAN, policy=policy)


def test_what_was_moved_lately_is_left_alone():
    warm = SNAPSHOT._replace(
        groups=tuple(row._replace(moved_ms=NOW_MS - 1) for row in SNAPSHOT.groups),
        partitions=tuple(row._replace(moved_ms=NOW_MS - 1) for row in SNAPSHOT.partitions))
    assert "COOL_DOWN" in codes(PLAN, warm, policy=POLICY._replace(cool_down_ms=1000))


@pytest.mark.parametrize("row, policy", [
    ({"links": 16}, POLICY), ({"copied": True}, POLICY)])
def test_chains_and_copies_have_their_limits(row, policy):
    long = SNAPSHOT._replace(partitions=tuple(each._replace(**row)
                                              for each in SNAPSHOT.partitions))
    assert "CHAINS" in codes(PLAN, long, policy=policy)


@pytest.mark.parametrize("options", [
    Options("leaders"), Options("node", 3), Options("drain", drain=(3,)), Options("repair")])
def test_a_plan_stays_in_its_scope(options):
    assert "OUT_OF_SCOPE" in codes(identify(PLAN._replace(options=options)))


def test_tables_that_do_not_follow_from_the_moves_are_found_out():
    row = PLAN.nodes[0]
    told = identify(PLAN._replace(nodes=(row._replace(after=(0, 0, 0, 0)), *PLAN.nodes[1:])))
    assert codes(told) == {"WRONG_FIGURES"}
    total = PLAN.totals[2]
    told = identify(PLAN._replace(totals=(*PLAN.totals[:2], total._replace(moves=0))))
    assert codes(told) == {"WRONG_FIGURES"}


def test_a_plan_that_fills_a_node_before_it_empties_it_is_found_out():
    """The same moves in the worst order: everything in first, then everything out."""
    before = cluster(nodes(4), 16, [MIB] * 16, factor=1)
    hot = {row.id: row.voters[0] for row in before.groups if row.bytes}
    moves = []
    for group, node in sorted(hot.items()):
        target = 1 if node != 1 else 2
        moves.append(ReplicaChange(0, 0, (), Why(NEW_NODE), group, 1, 10, (node,), (target,), node,
                                   target, before.groups[group].bytes))
    moves.sort(key=lambda move: (move.new_voters != (1,), move.group))
    made = make_plan(before, only(DISK))
    moves = tuple(move._replace(seq=seq, wave=seq) for seq, move in enumerate(moves, start=1))
    faults = verify(identify(made._replace(moves=moves)), before, NOW_MS)
    assert any(fault.code == "OVERSHOOT" for fault in faults) == _piles_up(before, moves)
    assert _piles_up(before, moves)


def _piles_up(before, moves):
    """Does node 1 hold more in between than any node at the ends, and one group?"""
    loads = {row.id: 0 for row in before.nodes}
    for row in before.groups:
        loads[row.voters[0]] += row.bytes
    ends, peak = [max(loads.values())], 0
    for move in moves:
        loads[move.old_voters[0]] -= move.bytes
        loads[move.new_voters[0]] += move.bytes
        peak = max(peak, loads[1])
    ends.append(max(loads.values()))
    return peak > max(ends) + max(move.bytes for move in moves)


def test_standings_follow_what_is_observed():
    group = next(row for row in SNAPSHOT.groups if row.id == CHANGE.group)
    later = {"conf_index": group.conf_index + 3}
    assert move_progress(CHANGE, group) == PENDING
    assert move_progress(CHANGE, group._replace(voters=CHANGE.new_voters, **later)) == DONE
    assert move_progress(CHANGE, group._replace(voters=CHANGE.new_voters, in_joint=True,
                                           **later)) == OUTDATED
    assert move_progress(CHANGE, group._replace(**later)) == OUTDATED
    assert move_progress(CHANGE, group._replace(incarnation=2)) == OUTDATED
    assert move_progress(CHANGE, None) == OUTDATED
    row = PartitionRow(SWITCH.incarnation, SWITCH.topic, 0, SWITCH.from_group)
    assert isinstance(SWITCH, TopicSwitch) and move_progress(SWITCH, row) == PENDING
    assert move_progress(SWITCH, row._replace(group=SWITCH.to_group, epoch=2)) == DONE
    assert move_progress(SWITCH, row._replace(epoch=2)) == OUTDATED
    led = next(row for row in SNAPSHOT.groups if row.id == TRANSFER.group)
    assert move_progress(TRANSFER, led) == PENDING
    assert move_progress(TRANSFER, led._replace(leader=TRANSFER.to_node, **later)) == DONE


def test_every_code_is_either_stale_or_the_plan_s_own_fault():
    named = {value for name, value in vars(verifying).items()
             if name.isupper() and isinstance(value, str) and name == value}
    assert set(verifying.STALE) <= named
    assert STRICT.moves_max >= 1
