"""The number of voters of a group stays, or approaches the replication factor: no plan that
violates this is recorded, and no such move starts.
"""

from __future__ import annotations

import pytest

from multiraft.wire.errors import StalePlan
from node.metadata.move_phases import Phase
from node.rebalance import preconditions
from node.rebalance.scheduler import decide, subjects
from tests.node.rebalance.cases import change, plan
from tests.node.rebalance.model import Cluster, Group
from tests.node.rebalance.test_requests import Leader, Proposed, asked


def cluster(voters, factor=3):
    made = Cluster(1, {1: Group(1, voters, voters[0], last_index=2_000,
                                match=dict.fromkeys(voters, 2_000))}, nodes=6)
    made.replication_factor = factor
    return made


#: (factor, voters, new voters)
REFUSED = [(3, (1, 2, 3), (1, 2)), (3, (1, 2, 3), (4,)), (3, (1, 2, 3), (1, 2, 3, 4)),
           (3, (1, 2), (1,)), (3, (1, 2), (1, 2, 3, 4)), (3, (1, 2, 3, 4, 5), (1, 2)),
           (3, (1, 2, 3, 4), (1, 2, 3, 5, 6)), (1, (1,), (1, 2))]
ALLOWED = [(3, (1, 2, 3), (2, 3, 4)), (3, (1, 2, 3), (4, 5, 6)),
           (3, (1, 2), (2, 4)),  # a drain of a group that lacked one before
           (3, (1,), (1, 2)), (3, (1, 2), (1, 2, 4)), (3, (1,), (2, 3, 4)),  # repairs
           (3, (1, 2, 3, 4, 5), (1, 2, 3, 4, 6)), (3, (1, 2, 3, 4), (1, 2, 3)),
           (1, (1,), (2,))]


@pytest.mark.parametrize("factor, old, new", REFUSED)
def test_a_plan_with_too_few_or_too_many_voters_is_not_written_down(factor, old, new):
    made, move = cluster(old, factor), change(1, old=old, new=new)
    (why,) = preconditions.faults((move,), made.view([1], []))
    assert why == (f"replicas:g1: group 1 has {len(old)} voters and would have {len(new)}, the "
                   f"replication factor is {factor}: a move keeps the number, or brings it nearer "
                   f"to the factor")


@pytest.mark.parametrize("factor, old, new", REFUSED)
def test_such_a_move_does_not_begin_and_says_why_and_what_to_do(factor, old, new):
    made = cluster(old, factor)
    made.apply(plan(change(1, old=old, new=new)))  # accepted by an earlier leader
    made.look(faults=False)
    record = made.table.plan.records[1]
    assert record.phase is Phase.SKIPPED
    assert f"the replication factor is {factor}" in record.reason
    assert "`multiraft rebalance plan`" in record.reason
    group = made.groups[1]
    assert (group.voters, group.learners, group.conf_index) == (old, (), 0)


@pytest.mark.parametrize("factor, old, new", ALLOWED)
def test_drains_and_repairs_are_carried_out(factor, old, new):
    made, move = cluster(old, factor), change(1, old=old, new=new)
    assert preconditions.faults((move,), made.view([1], [])) == []
    made.apply(plan(move))
    made.finish()
    assert made.table.plan.records[1].phase is Phase.DONE
    assert {*made.groups[1].voters} == {*new}


def test_a_copy_of_a_repair_is_no_voter_too_many():
    """On its way from two voters to three a group has a learner, on its way to others two sets."""
    made = cluster((1, 2))
    made.apply(plan(change(1, old=(1, 2), new=(1, 3, 4))))
    seen = set()
    while made.table.active is not None:
        made.look(faults=False)
        group = made.groups[1]
        seen.add((len(group.voters), len(group.learners), len(group.outgoing)))
        found = decide(made.table.plan, made.view(*subjects(made.table.plan)))
        assert not any("factor" in why for why in found.waits.values())
    assert {(2, 2, 0), (3, 0, 0)} < seen
    assert made.table.plan.records[1].phase is Phase.DONE


def test_the_metadata_leader_asks_for_another_plan():
    leader = Leader()
    with pytest.raises(StalePlan, match="would have 2, the replication factor is 3.*Make a new"):
        leader.ask(asked(change(1, new=(2, 3))))
    assert not leader.proposed
    with pytest.raises(Proposed):
        leader.ask(asked(change(1, new=(2, 3, 4))))
