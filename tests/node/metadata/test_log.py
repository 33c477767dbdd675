"""The metadata group at one node: what is proposed, applied, waited for."""

import errno
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.errors import NotLeader, QueueFull
from multiraft.storage.errors import CorruptRange
from multiraft.types import METADATA_GROUP, Entry, EntryKind
from multiraft.wire.errors import AmbiguousOutcome, Code, LeaderUnknown
from node.bootstrap import initial_facts, plan_of
from node.config import parse
from node.errors import DiskFailed
from node.metadata import log as metadata_log_module
from node.metadata.log import MetadataLog
from node.metadata.settings_table import CLUSTER
from node.metadata.state_machine import AllocateProducerIds, MetadataState, encode_command
from tests.node.harness import in_trio, one_node_table, until


class ClusterView:
    """A log of the metadata group without consensus: what is proposed stands at the next index."""

    def __init__(self, tmp_path, extra=None, defaults=None):
        self.status = self  # as core.status
        self.entries_: list[Entry] = []
        self.leads = self.settled = True
        self.announced = 0
        self.refuse: Exception | None = None
        self.problem: Exception | None = None  # raised by reads from disk; None = all is in memory
        self.extra = extra
        self.plan = plan_of(initial_facts(parse(
            {**one_node_table(), "topic_defaults": defaults or {}}, tmp_path)))
        self.log = MetadataLog(self, self, self.plan, lambda: None)

    # core
    def is_leader(self, group):
        return self.leads

    def has_applied_in_term(self, group):
        return self.leads and self.settled

    def leader_hint(self, group):
        return (1, 1) if self.leads else (0, 1)

    def announce_commit(self, group):
        self.announced += 1

    def propose(self, group, kind, payload):
        if self.refuse is not None:
            raise self.refuse
        self.entries_.append(Entry(kind, group, 1, 1, len(self.entries_) + 1, payload=payload))
        return SimpleNamespace(index=len(self.entries_))

    # store
    def entries(self, group, first, last):
        return None if self.problem else tuple(self.entries_[first - 1:last])

    def read_job(self, group, first, last):
        return self

    def execute(self):
        raise self.problem

    def commit(self, first: int, last: int) -> None:
        """Apply a committed range as the round loop does."""
        self.log.apply(first, last)
        self.log.lead()

    def set_up(self) -> None:
        """The term's first entry, then the bootstrap it leads to."""
        self.entries_.append(Entry(EntryKind.NOOP, METADATA_GROUP, 1, 1, 1))
        self.commit(1, 1)
        self.commit(2, 2)


def test_the_first_leader_writes_down_what_the_cluster_is(tmp_path):
    world = ClusterView(tmp_path)
    world.set_up()
    assert world.log.state.cluster_id == world.plan.cluster_id
    assert [entry.kind for entry in world.entries_] == [EntryKind.NOOP, EntryKind.METADATA]
    world.commit(3, 2)
    assert len(world.entries_) == 2, "once"


def test_the_defaults_of_topics_hold_from_the_bootstrap_on(tmp_path):
    world = ClusterView(tmp_path, defaults={"retention.ms": 7, "max.message.bytes": 1000})
    world.set_up()
    state = MetadataState.restore(world.log.state.snapshot())
    assert state.settings.of(CLUSTER).pairs == (("max.message.bytes", "1000"),
                                                ("retention.ms", "7"))
    assert state.settings.batch_bytes_max(1, "t") == 1000


def test_a_bootstrap_that_is_refused_is_tried_again(tmp_path):
    world = ClusterView(tmp_path)
    world.refuse = QueueFull("proposals while the group is handed over", 0, 1)
    world.entries_.append(Entry(EntryKind.NOOP, METADATA_GROUP, 1, 1, 1))
    world.commit(1, 1)
    assert len(world.entries_) == 1
    world.refuse = None
    with pytest.raises(LeaderUnknown, match="set up"):
        world.log.check_leading()
    assert len(world.entries_) == 2


def test_every_commit_is_announced_at_once_by_its_leader_alone(tmp_path):
    world = ClusterView(tmp_path)
    world.set_up()
    assert world.announced == 1
    world.leads = False
    world.entries_.append(Entry(EntryKind.METADATA, METADATA_GROUP, 1, 1, 3,
                                payload=encode_command(AllocateProducerIds(5))))
    world.commit(3, 3)
    assert world.announced == 1


def test_a_node_that_does_not_lead_or_is_new_at_it_refuses(tmp_path):
    world = ClusterView(tmp_path)
    world.set_up()
    world.settled = False
    with pytest.raises(LeaderUnknown):
        world.log.check_leading()
    world.leads = False
    with pytest.raises(NotLeader):
        world.log.check_leading()


@in_trio
async def test_a_proposal_returns_what_the_state_machine_said(tmp_path):
    world = ClusterView(tmp_path)
    world.set_up()
    results = []

    async def propose():
        results.append(await world.log.propose(AllocateProducerIds(5)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(propose)
        await until(lambda: world.log.oldest_waiting == 3)
        world.commit(3, 3)
    assert (results[0].code, results[0].value) == (Code.OK, (1, 5))
    assert world.log.oldest_waiting == 0


@in_trio
async def test_lost_leadership_and_lost_patience_are_ambiguous(tmp_path, monkeypatch):
    world = ClusterView(tmp_path)
    world.set_up()
    monkeypatch.setattr(metadata_log_module, "COMMAND_TIMEOUT_S", 0.02)
    with pytest.raises(AmbiguousOutcome):
        await world.log.propose(AllocateProducerIds(5))
    assert world.log.oldest_waiting == 0
    monkeypatch.setattr(metadata_log_module, "COMMAND_TIMEOUT_S", 60)
    async with trio.open_nursery() as nursery:
        async def lost():
            with pytest.raises(AmbiguousOutcome):
                await world.log.propose(AllocateProducerIds(5))

        nursery.start_soon(lost)
        await until(lambda: world.log.oldest_waiting)
        world.log.role_changed(False)


@in_trio
async def test_whoever_waits_for_an_index_is_woken_by_it(tmp_path):
    world = ClusterView(tmp_path)
    assert not await world.log.applied(2, 0.01)
    async with trio.open_nursery() as nursery:
        async def wait():
            assert await world.log.applied(2, 60)

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        world.set_up()


@pytest.mark.parametrize("problem", [OSError(errno.EIO, "broken"),
                                     CorruptRange(METADATA_GROUP, 1, "crc")])
def test_committed_commands_that_cannot_be_read_stop_the_node_as_a_failed_disk(tmp_path, problem):
    world = ClusterView(tmp_path)
    world.problem = problem
    with pytest.raises(DiskFailed, match="cannot be read"):
        world.log.apply(1, 1)


def test_what_a_checkpoint_covers_is_not_applied_twice(tmp_path):
    world = ClusterView(tmp_path)
    world.set_up()
    again = ClusterView(tmp_path, extra=world.log.state.snapshot())
    again.entries_ = world.entries_
    again.log.apply(1, 2)
    assert again.log.state.version == 2
    assert isinstance(again.log.state, MetadataState)
