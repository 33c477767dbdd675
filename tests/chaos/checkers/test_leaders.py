"""Leaders by the nodes' own logs: A19, and the number of leader changes."""

from __future__ import annotations

import json

import pytest

from chaos.checkers.leaders import (
    FRESH,
    NOBODY_KNOWS,
    OBSERVER,
    RESTARTED,
    LeaderTrace,
    RoleChange,
    read_trace,
)
from tests.chaos.checkers.timeline import Timeline


def role(node: int, term: int, what: str = "leader", leader: int | None = None, group: int = 1,
         time_us: int = 0) -> RoleChange:
    known = (node if what == "leader" else 0) if leader is None else leader
    return RoleChange(time_us, node, group, term, what, known)


def found(*roles: RoleChange) -> set[str]:
    return Timeline().ids(trace=LeaderTrace(roles))


def test_one_leader_per_term_is_fine():
    assert found(role(1, 1), role(2, 1, "follower", 1), role(2, 2), role(1, 2, "follower", 2),
                 role(1, 1, group=2), role(3, 2, group=2)) == set()


def test_two_leaders_of_one_term_are_found():
    assert found(role(1, 4), role(2, 4)) == {"A19"}


def test_a_follower_that_believes_in_another_leader_is_found():
    assert found(role(1, 4), role(2, 4, "follower", 3)) == {"A19"}


def test_a_follower_that_knows_no_leader_yet_is_fine():
    assert found(role(1, 4), role(2, 4, "follower", 0), role(2, 5, "candidate", 0)) == set()


def test_a_term_that_goes_back_is_found():
    assert found(role(1, 4, "follower", 0), role(1, 3, "follower", 0)) == {"A19"}


@pytest.mark.parametrize("group", [1, -1])
def test_a_replica_s_new_life_may_begin_lower(group):
    assert found(role(1, 4, "follower", 0), RoleChange(0, 1, group, 0, FRESH, 0),
                 role(1, 3, "follower", 0)) == set()


def test_a_term_that_was_only_heard_of_may_be_lost_with_the_disk_that_fails_then():
    restarted = RoleChange(0, 1, -1, 0, RESTARTED, 0)
    assert found(role(1, 4, "follower", 0), restarted, role(1, 3, "follower", 0)) == set()
    assert found(role(1, 4), role(1, 5, "follower", 0), restarted,
                 role(1, 4, "follower", 0)) == set()
    assert found(role(1, 4), restarted, role(1, 3, "follower", 0)) == {"A19"}, "it had led"
    assert found(role(1, 4, "follower", 0), RoleChange(0, 2, -1, 0, RESTARTED, 0),
                 role(1, 3, "follower", 0)) == {"A19"}, "another node"
    assert found(role(1, 4, "follower", 0), restarted, role(1, 4, "follower", 0),
                 role(1, 3, "follower", 0)) == {"A19"}, "in one life"


def test_the_new_life_of_another_replica_excuses_nothing():
    assert found(role(1, 4, "follower", 0), RoleChange(0, 2, -1, 0, FRESH, 0),
                 role(1, 3, "follower", 0)) == {"A19"}


def test_changes_are_elections_in_groups_that_had_a_leader():
    trace = LeaderTrace([role(1, 1, time_us=5), role(2, 2, time_us=50), role(2, 3, time_us=60),
                   role(3, 1, group=2, time_us=70), role(3, 3, "follower", 2, group=2, time_us=80)])
    assert [trace.leader_changes(at) for at in (-1, 0, 55, 65)] == [3, 3, 2, 1]
    assert trace.nodes_that_led() == {1: {1, 2}, 2: {2, 3, NOBODY_KNOWS}}


def test_a_term_of_which_nobody_heard_may_have_had_another_leader():
    assert LeaderTrace([role(1, 1), role(1, 3)]).nodes_that_led() == {1: {1, NOBODY_KNOWS}}
    assert LeaderTrace([role(1, 1), role(1, 2)]).nodes_that_led() == {1: {1}}


def line(node: int, event: str, **fields) -> str:
    return json.dumps({"at": "2026-01-01T00:00:02.500+00:00", "level": "debug", "node": node,
                       "event": event, **fields}) + "\n"


def test_the_trace_is_read_from_the_nodes_logs(tmp_path):
    for node in (1, 2):
        folder = tmp_path / "nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "log").write_text(
            line(node, "node_started", boot_epoch=1)
            + line(node, "replica_role_changed", group=3, term=4,
                   role="leader" if node == 1 else "follower", leader=1, reason="won")
            + line(node, "replica_removed", group=3)
            + "Traceback: not JSON, though it says replica_role_changed\n"
            + line(node, "replica_role_changed", group=3, term=5, role="candidate", leader=0,
                   reason="")[:-20])
    trace = read_trace(tmp_path, "2026-01-01T00:00:00+00:00")
    assert RoleChange(2_500_000, 1, 3, 4, "leader", 1) in trace.roles
    assert RoleChange(2_500_000, 2, 3, 4, "follower", 1) in trace.roles
    assert RoleChange(2_500_000, 1, 3, 0, FRESH, 0) in trace.roles
    assert RoleChange(2_500_000, 1, -1, 0, FRESH, 0) in trace.roles
    assert len(trace.roles) == 6


def test_nodes_that_tell_nothing_of_roles_leave_no_trace(tmp_path):
    folder = tmp_path / "nodes" / "1"
    folder.mkdir(parents=True)
    (folder / "log").write_text(line(1, "node_started", boot_epoch=1))
    assert read_trace(tmp_path) is None


def test_what_the_run_heard_is_one_more_follower(tmp_path):
    (tmp_path / "leadership.jsonl").write_text("[5,3,1,2]\n[9,3,1,0]\n[20,3,2,1]\n[30,3,")
    trace = read_trace(tmp_path)
    assert trace.roles[-1] == RoleChange(20, OBSERVER, 3, 2, "follower", 1)
    assert trace.leader_changes(6) == 1
    assert Timeline().ids(trace=trace) == set()
    trace.roles.append(role(3, 2, group=3))
    assert Timeline().ids(trace=trace) == {"A19"}
