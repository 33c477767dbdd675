"""A replica is copied to where there is room: what is on the disk counts until it is off it."""

from __future__ import annotations

import pytest

from multiraft.wire.plans import NO_DISK_SPACE
from node.metadata.move_phases import Phase
from node.rebalance.scheduler import decide, subjects
from tests.node.rebalance.cases import change, plan
from tests.node.rebalance.model import Cluster, Group

#: Bytes of each group: 100 per entry, see ``Group.looked``.
SIZE = 200_000


def cluster(**voters):
    """Groups ``g1`` and so on of these voters, the first of which lead; nothing is appended."""
    groups = {int(name[1:]): Group(int(name[1:]), nodes, nodes[0], last_index=SIZE // 100,
                                   match=dict.fromkeys(nodes, SIZE // 100))
              for name, nodes in voters.items()}
    return Cluster(1, groups, nodes=6)


def begun(made):
    return [seq for seq, record in made.table.plan.records.items()
            if record.phase is not Phase.PENDING]


def waits(made):
    return decide(made.table.active, made.view(*subjects(made.table.active))).waits


def test_a_move_waits_for_room_says_so_and_begins_when_there_is_some():
    made = cluster(g1=(1, 2, 3))
    made.disks[4] = (800_000, 1_000_000)
    made.apply(plan(change(1)))
    made.look(faults=False)
    why = waits(made)[1]
    assert why.startswith(f"{NO_DISK_SPACE}: node 4 ")
    for told in ("800,000", "1,000,000", "200,", "90 %", "`multiraft rebalance cancel`"):
        assert told in why, why
    assert begun(made) == []
    made.disks[4] = (600_000, 1_000_000)
    made.finish()
    assert made.table.plan.records[1].phase is Phase.DONE


def test_a_disk_of_which_nothing_is_known_is_no_obstacle():
    made = cluster(g1=(1, 2, 3))
    made.apply(plan(change(1)))
    made.look(faults=False)
    assert begun(made) == [1]


def test_what_is_on_its_way_counts_before_it_has_come():
    """Two moves from different senders in one look, and a third one later."""
    made = cluster(g1=(1, 2, 3), g2=(2, 1, 3), g3=(3, 1, 2))
    made.disks[4] = (400_000, 1_000_000)  # room for two
    made.apply(plan(change(1, new=(1, 2, 4)), change(2, new=(1, 2, 4)), change(3, new=(1, 2, 4)),
                    limits=plan().limits._replace(in_per_node_max=3)))
    found = decide(made.table.active, made.view(*subjects(made.table.active)))
    assert [action.seq for action in found.actions] == [1, 2]
    assert found.waits[3].startswith(NO_DISK_SPACE) and "400,000 more" in found.waits[3]
    for action in found.actions:
        made.do(made.table.active, action)
    assert begun(made) == [1, 2]
    assert waits(made)[3].startswith(NO_DISK_SPACE), (
        "they are under way and have brought nothing yet"
    )


def test_what_has_come_counts_once():
    made = cluster(g1=(1, 2, 3), g2=(2, 1, 3))
    made.disks[4] = (400_000, 1_000_000)
    made.apply(plan(change(1, new=(1, 2, 4)), change(2, new=(1, 2, 4), depends_on=(1,))))
    while made.table.plan.records[1].phase is not Phase.DONE:
        made.look(faults=False)
    made.disks[4] = (600_000, 1_000_000)
    made.finish()
    assert made.table.plan.records[2].phase is Phase.DONE


@pytest.mark.parametrize("depends_on", [(1,), ()])  # as planned, and as edited by hand
def test_a_replica_that_leaves_has_made_no_room_until_its_disk_says_so(depends_on):
    """Node 4 gives group 1 away and gets group 2: not while its old replica learns, is replaced or
    is kept for the time of grace, and not because it was removed, but when its bytes are gone."""
    made = cluster(g1=(1, 2, 4), g2=(2, 1, 3))
    made.disks[4] = (800_000, 1_000_000)
    made.apply(plan(change(1, old=(1, 2, 4), new=(1, 2, 3)),
                    change(2, new=(1, 2, 4), depends_on=depends_on)))
    phases = set()
    while made.table.plan.records[1].phase is not Phase.DONE:
        made.look(faults=False)
        phases.add(made.table.plan.records[1].phase)
        assert made.table.plan.records[2].phase is Phase.PENDING
        group = made.groups[1]
        is_there = 4 in (*group.voters, *group.learners, *group.outgoing)
        assert is_there or made.table.plan.records[1].phase in (Phase.GRACE, Phase.DONE)
    assert {Phase.LEARNING, Phase.JOINT, Phase.GRACE} < phases
    for _ in range(40):
        made.look(faults=False)
    assert made.table.plan.records[2].phase is Phase.PENDING
    assert waits(made)[2].startswith(f"{NO_DISK_SPACE}: node 4 ")
    made.disks[4] = (600_000, 1_000_000)
    made.finish()
    assert made.table.plan.records[2].phase is Phase.DONE


def test_what_needs_the_room_of_a_move_waits_for_its_grace_to_end():
    made = cluster(g1=(1, 2, 4), g2=(2, 1, 3))
    made.apply(plan(change(1, old=(1, 2, 4), new=(1, 2, 3)),
                    change(2, new=(1, 2, 4), depends_on=(1,))))
    while made.table.plan.records[1].phase is not Phase.DONE:
        assert made.table.plan.records[2].phase is Phase.PENDING
        made.look(faults=False)
    assert 4 not in (*made.groups[1].voters, *made.groups[1].learners)
    made.finish()
    assert made.table.plan.records[2].phase is Phase.DONE


def test_a_move_whose_room_never_came_is_skipped():
    """The one that was to free it was skipped: its replica is still there."""
    made = cluster(g1=(1, 2, 4), g2=(2, 1, 3))
    made.apply(plan(change(1, old=(1, 2, 4), new=(1, 2, 3), expected=7),
                    change(2, new=(1, 2, 4), depends_on=(1,))))
    made.finish()
    records = made.table.plan.records
    assert [records[seq].phase for seq in (1, 2)] == [Phase.SKIPPED, Phase.SKIPPED]
    assert records[2].reason == "needs replicas:g1, which is skipped"
    assert made.groups[2].voters == (2, 1, 3)


def test_a_replica_that_learns_already_needs_room_for_what_it_lacks():
    made = cluster(g1=(1, 2, 3))
    made.disks[4] = (800_000, 1_000_000)
    made.groups[1].learners = (4,)
    made.groups[1].match[4] = 1_500  # of 2,000 entries
    made.apply(plan(change(1)))
    made.look(faults=False)
    assert begun(made) == [1]
