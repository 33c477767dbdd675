"""Answers to readers about a partition of which the log and the metadata differ."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.partitions.retention_records import delete_payload
from multiraft.types import EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import ANY
from node.clients.read_view import ReadView, Refused
from tests.node.retention.world import World


@pytest.mark.parametrize("leads", (True, False))
def test_a_partition_whose_deletion_is_in_the_log_and_not_applied_is_refused(leads):
    """Found by a run against real nodes: the leader knew of the topic's deletion, a follower with
    the entry did not, and a fetch ended that node."""
    world = World()
    topic = world.topic()
    world.append(topic, 3)
    group = world.state.locate(topic).group
    status = SimpleNamespace(is_leader=lambda _group: leads, has_group=lambda _group: True,
                             has_applied_in_term=lambda _group: True,
                             quarantine_reason=lambda _group: "")
    view = ReadView(SimpleNamespace(status=status), world.partition_states, world.state)
    assert view.readable_range(topic, 0, ANY).high_watermark == 3
    world.applies = False
    world.propose(group, EntryKind.PARTITION_DELETE, delete_payload(world.commands, [topic]))
    with pytest.raises(Refused) as refused:
        view.readable_range(topic, 0, ANY)
    assert refused.value.code == Code.STALE_METADATA and refused.value.retriable
