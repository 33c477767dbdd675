"""Records that are deleted from a partition which two nodes hold, one epoch each."""

from __future__ import annotations

import pytest

from multiraft.wire.errors import OffsetOutOfRange
from tests.e2e.world import STEADY, World, wait_for

TOPIC = "__metrics"


def deleting(world: World) -> None:
    """Have nodes publish loads each second, and delete them after two."""
    for node in world.ids():
        world.configure(node, STEADY + "retention_check_interval_ms = 500\n"
                              "[metrics]\npublish = true\ninterval_ms = 1000\n"
                              "retention_ms = 2000\n")


#: One replica per group: no node has the partition's other group.  With so many groups each node
#: leads some.
SHAPE = {"nodes": 2, "groups": 16, "factor": 1, "configure": deleting}


def test_a_deletion_reaches_the_group_of_an_earlier_epoch_on_another_node(world):
    partition = 1  # of node 1's loads
    leaders = {summary.group: summary.leader for summary in world.groups(1)}
    with world.client() as client:
        def row():
            names = {topic.name for topic in client.list_topics()}
            return client.explain_placement(TOPIC)[partition] if TOPIC in names else None

        wait_for(row, "the topic is created")
        wait_for(lambda: client.list_offsets(TOPIC)[partition].end_offset > 3, "loads are there")
        last = row().epoch_history[-1]
        home = leaders[last.group]
        other = next(group for group, leader in leaders.items() if group and leader != home)
        client.switch_partition(row().incarnation, last.epoch + 1, other)
        wait_for(lambda: row().epoch_history[-1].epoch == last.epoch + 1, "it is switched")
        begin = row().epoch_history[-1].start_offset
        wait_for(lambda: client.list_offsets(TOPIC)[partition].start_offset > begin, "deleted")
        wait_for(lambda: len(row().epoch_history) == 1, "the first group has deleted its epoch")
        with pytest.raises(OffsetOutOfRange, match=f"offsets 0 to .* of {TOPIC}/1 were deleted"):
            list(client.consume(TOPIC, partition, 0, until_end=True))
        consumer = client.consume(TOPIC, partition, 0, until_end=True, offset_reset="earliest")
        offsets = [record.offset for batch in consumer for record in batch]
        assert offsets == sorted(offsets) and consumer.gaps[0].start_offset == 0
        assert consumer.gaps[-1].end_offset > begin
