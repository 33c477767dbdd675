"""Reports of a node about the loads of groups, for any request."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.wire.plans import PartitionLoads
from node.metadata.settings_table import SettingsTable
from node.rebalance.participant import PlanParticipant
from tests.node.harness import in_trio

BEFORE, NOW, PARTITION = 1, 2, 70


class Tail:
    """Of a group through which the partition went, or in which it is."""

    def partitions(self):
        return iter((PARTITION,))

    def applied(self, _partition):
        return SimpleNamespace(next_offset=9)


@pytest.mark.parametrize("here", [{BEFORE}, {BEFORE, NOW}])
@in_trio
async def test_a_partition_is_told_of_once_by_who_leads_its_group(here):
    topic = SimpleNamespace(name="t", incarnation=70)
    place = SimpleNamespace(group=NOW, topic=topic, partition=0, epoch=2,
                            epoch_history=(0, 0))
    state = SimpleNamespace(cluster_id=b"c", locate=lambda _partition: place,
                            placed=SimpleNamespace(epoch_histories={}),
                            plans=SimpleNamespace(switched={}), settings=SettingsTable())
    participant = PlanParticipant(
        SimpleNamespace(status=SimpleNamespace(is_leader=here.__contains__)),
        SimpleNamespace(partition_states={group: Tail() for group in here}),
        SimpleNamespace(state=state),
        None,
        None,
        None,
        {},
        None,
    )
    reply = await participant.partition_loads(PartitionLoads((BEFORE, NOW, BEFORE), 0))
    assert [row.incarnation for row in reply.partitions] == [PARTITION] * (NOW in here)
