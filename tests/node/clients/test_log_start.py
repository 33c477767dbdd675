"""Readers below the log start: at leaders, at followers, and in each epoch of a partition."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.core import batch_header, split_batches
from multiraft.partitions.records import continue_payload, open_payload
from multiraft.partitions.retention_records import delete_payload
from multiraft.partitions.state import PartitionStates
from multiraft.types import EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    ANY,
    EARLIEST,
    LATEST,
    LEADER,
    TIMESTAMP,
    ListOffsets,
    OffsetQuery,
)
from node.clients.log_starts import LogStarts
from node.clients.read_view import END, ReadView, Refused, not_known_yet, out_of_range
from node.metadata.placement_table import EpochEntry
from tests.node.clients.test_fetch import fetch, result
from tests.node.clients.test_switched_partition import asked, group_of, put, switch
from tests.node.harness import Client, in_trio, serving, until
from tests.partitions.test_state import P, control, info, seal
from tests.partitions.test_state import put as append

HOME, NEXT = 1, 2


class Partition:
    """A partition with some epochs, as two nodes know it: the leader of all groups, and this one,
    which has applied less."""

    def __init__(self) -> None:
        self.groups = {HOME: PartitionStates(HOME)}
        self.history = [EpochEntry(1, HOME, 0)]
        control(self.groups[HOME], EntryKind.PARTITION_OPEN, payload=open_payload(1))

    @property
    def last(self) -> PartitionStates:
        return self.groups[self.history[-1].group]

    def append(self, records: int) -> None:
        append(self.last, info(records))

    def delete_below(self, offset: int, group: int = 0) -> None:
        control(self.groups[group] if group else self.last, EntryKind.LOG_START,
                base_offset=offset)

    def apply(self) -> None:
        for states in self.groups.values():
            states.apply(states.last_index)

    def switch(self) -> None:
        """Seal the partition, and continue it in the other group."""
        old, group = self.last, NEXT if self.history[-1].group == HOME else HOME
        seal(old)
        self.apply()
        sealed = old.sealed(P)
        new = self.groups.setdefault(group, PartitionStates(group))
        control(new, EntryKind.PARTITION_OPEN, payload=continue_payload(sealed, 1))
        self.history.append(EpochEntry(sealed.epoch + 1, group, sealed.end_offset))

    def view(self, leads: bool, *groups: int, told: int = 0, metadata: int = 0) -> ReadView:
        """Return the read view of a node with replicas of these groups, all without any."""
        here = {group: self.groups[group] for group in groups or self.groups}
        status = SimpleNamespace(is_leader=lambda group: leads, has_group=here.__contains__,
                                 quarantine_reason=lambda group: "",
                                 has_applied_in_term=lambda group: leads)
        place = SimpleNamespace(group=self.history[-1].group, epoch=self.history[-1].epoch,
                                epoch_history=tuple(self.history), switch=None)
        starts = LogStarts(here)
        starts.tell(P, told)
        return ReadView(SimpleNamespace(status=status), here,
                        SimpleNamespace(locate=lambda _partition: place,
                                        metadata_index=metadata), starts)


def judged(view: ReadView, offset: int) -> tuple:
    """Return what a fetch at ``offset`` from any replica is answered: OK, or code and range."""
    span = view.readable_range(P, 0, ANY, offset)
    if offset < span.log_start:
        detail = out_of_range(offset, span).detail
        return Code.OFFSET_OUT_OF_RANGE, detail.start_offset, detail.end_offset
    if offset <= span.high_watermark:
        return (Code.OK,)
    return (not_known_yet(offset, span).code,)


@pytest.mark.parametrize("leads", [True, False])
def test_leader_and_follower_refuse_what_they_know_to_be_deleted(leads):
    partition = Partition()
    partition.append(10)
    partition.delete_below(4)
    partition.apply()
    view = partition.view(leads)
    assert judged(view, 3) == (Code.OFFSET_OUT_OF_RANGE, 4, 10)
    assert judged(view, 4) == judged(view, 10) == (Code.OK,)
    assert judged(view, 11) == (Code.OFFSET_NOT_AVAILABLE,)


@pytest.mark.parametrize("leads", [True, False])
def test_a_log_start_counts_once_it_is_applied(leads):
    partition = Partition()
    partition.append(10)
    partition.apply()
    partition.delete_below(4)
    assert judged(partition.view(leads), 3) == (Code.OK,)
    partition.apply()
    assert judged(partition.view(leads), 3) == (Code.OFFSET_OUT_OF_RANGE, 4, 10)


def test_a_replica_of_an_earlier_epoch_knows_what_its_node_applied_in_a_later_one():
    partition = Partition()
    partition.append(10)
    partition.switch()
    partition.append(5)
    partition.delete_below(12)
    partition.apply()
    assert judged(partition.view(False), 3) == (Code.OFFSET_OUT_OF_RANGE, 12, 15)
    assert judged(partition.view(False, HOME), 3) == (Code.OK,), "it does not know yet"


def test_a_replica_of_an_earlier_epoch_answers_with_the_larger_of_its_own_and_the_told_start():
    partition = Partition()
    partition.append(10)
    partition.switch()
    partition.delete_below(6, HOME)
    partition.apply()
    for told, start in ((0, 6), (4, 6), (8, 8), (12, 12)):
        view = partition.view(False, HOME, told=told)
        assert judged(view, 5) == (Code.OFFSET_OUT_OF_RANGE, start, max(10, start))
        assert view.readable_range(P, 0, ANY, 9).known_end >= start


def test_a_partition_that_came_back_has_one_log_start_for_both_of_its_epochs_there():
    partition = Partition()
    partition.append(10)
    for _ in range(2):
        partition.switch()
        partition.append(10)
    partition.delete_below(15)
    partition.apply()
    view = partition.view(True)
    for offset in (0, 9, 10, 14):
        assert judged(view, offset) == (Code.OFFSET_OUT_OF_RANGE, 15, 30)
    assert judged(view, 15) == (Code.OK,)


def test_a_replica_whose_opening_is_not_applied_does_not_fall_back_to_the_first_offset():
    partition = Partition()
    partition.append(10)
    partition.delete_below(7)
    partition.switch()
    view = partition.view(False)  # the opening is in the log of the next group
    span = view.readable_range(P, 0, ANY, END)
    assert (span.log_start, span.high_watermark) == (7, 10)


def test_a_follower_behind_a_trimmed_history_does_not_serve_below_its_first_entry():
    partition = Partition()
    partition.append(10)
    partition.switch()
    partition.append(2)
    partition.apply()
    partition.delete_below(10)
    del partition.history[0]  # by the leader, which has applied the log start
    assert judged(partition.view(False, NEXT), 9) == (Code.OFFSET_OUT_OF_RANGE, 10, 12)


def test_what_was_told_never_falls_and_is_forgotten_with_the_history():
    starts = LogStarts({})
    place = SimpleNamespace(epoch_history=(EpochEntry(1, HOME, 0),))
    for told in (5, 9, 7):
        starts.tell(P, told)
    assert starts.highest(place, P) == 9
    starts.keep({P})
    assert starts.highest(place, P) == 9
    starts.keep(())
    assert starts.highest(place, P) == 0


async def delete_below(node, partition: int, offset: int) -> None:
    """Commit a log start, and wait until it is applied."""
    group = group_of(node, partition)
    node.core.propose(group, EntryKind.LOG_START, b"", partition, offset)
    node.request_round()
    await until(lambda: node.store.partition_states[group].applied(partition).log_start == offset,
                "the log start is applied")


@in_trio
async def test_every_question_about_a_shortened_partition_is_answered_from_its_log_start(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for sequence in range(0, 12, 3):
            await put(client, topic, sequence, b"x", b"y", b"z", timestamp_ms=1000 + sequence)
        await delete_below(node, topic, 4)
        for linearizable in (True, False):
            request = ListOffsets((
                OffsetQuery(topic, EARLIEST), OffsetQuery(topic, LATEST),
                *[OffsetQuery(topic, TIMESTAMP, stamp) for stamp in (0, 1003, 1006, 2000)]),
                linearizable)
            rows = (await client.ask(request)).reply.results
            assert [row.offset for row in rows] == [4, 12, 4, 4, 6, -1]
        for offset in (0, 3):
            refused = result(await client.ask(fetch(topic, offset)))
            assert refused.code == Code.OFFSET_OUT_OF_RANGE
            assert (refused.error.start_offset, refused.error.end_offset) == (4, 12)
        answer = await client.ask(fetch(topic, 4))
        assert (result(answer).log_start, result(answer).high_watermark) == (4, 12)
        first = batch_header(next(iter(split_batches(answer.reply.payload))))
        assert first.base_offset == 3, "the batch that straddles the log start is served whole"


@in_trio
async def test_an_empty_partition_begins_at_its_end(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"x", b"y")
        await delete_below(node, topic, 2)
        rows = await asked(client, *(OffsetQuery(topic, *query) for query in
                                     ((EARLIEST,), (LATEST,), (TIMESTAMP, 0))))
        assert [row.offset for row in rows] == [2, 2, -1]
        assert result(await client.ask(fetch(topic, 2))).code == Code.OK
        for offset in (1, 3):
            refused = result(await client.ask(fetch(topic, offset)))
            assert (refused.code, refused.error.start_offset, refused.error.end_offset) == (
                Code.OFFSET_OUT_OF_RANGE, 2, 2)


@in_trio
async def test_a_log_start_hides_all_epochs_below_it_and_is_carried_by_a_switch(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for round_ in range(3):
            await put(client, topic, 2 * round_, b"x", b"y", timestamp_ms=1000 * round_)
            await switch(node, client, topic)
        await delete_below(node, topic, 3)
        assert len(node.metadata.directory.locate(topic).epoch_history) == 4, "not trimmed yet"
        for offset in range(3):
            refused = result(await client.ask(fetch(topic, offset)))
            assert (refused.code, refused.error.start_offset, refused.error.end_offset) == (
                Code.OFFSET_OUT_OF_RANGE, 3, 6)
        queries = [OffsetQuery(topic, EARLIEST),
                   *(OffsetQuery(topic, TIMESTAMP, stamp) for stamp in (0, 1000, 2000)),
                   OffsetQuery(topic, TIMESTAMP, 0, 1)]
        assert [row.offset for row in await asked(client, *queries)] == [3, 3, 3, 4, 3]
        await switch(node, client, topic)
        assert [row.offset for row in await asked(client, *queries)] == [3, 3, 3, 4, 3]
        answer = await client.ask(fetch(topic, 3))
        assert (result(answer).code, result(answer).log_start) == (Code.OK, 3)


def test_the_leader_is_asked_for_ends_and_names_the_whole_range():
    partition = Partition()
    partition.append(10)
    partition.delete_below(4)
    partition.apply()
    span = partition.view(True).readable_range(P, 0, LEADER, END)
    assert (span.log_start, span.high_watermark, span.is_end_certain) == (4, 10, True)


def test_a_leader_that_has_forgotten_the_partition_does_not_say_where_it_ends():
    """The metadata here are older than the deletion, and place the partition in its first group."""
    partition = Partition()
    partition.append(10)
    partition.switch()
    partition.delete_below(10, HOME)
    control(partition.groups[HOME], EntryKind.PARTITION_DELETE, payload=delete_payload(7, [P]))
    partition.apply()
    partition.history.pop()
    for leads in (True, False):
        with pytest.raises(Refused) as raised:
            partition.view(leads, metadata=6).readable_range(P, 0, ANY, 10)
        assert raised.value.code == Code.STALE_METADATA and raised.value.retriable
        span = partition.view(leads, metadata=7).readable_range(P, 0, ANY, 10)
        assert (span.high_watermark, span.is_end_certain) == (0, leads)
