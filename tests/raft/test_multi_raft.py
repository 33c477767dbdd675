"""The boundary of ``MultiRaft``: proposals and their refusals, Ready, many groups, node events."""

from __future__ import annotations

import random

import pytest

from multiraft.codec import layout
from multiraft.core import BatchBuilder, batch_header, check_batch, verify_batch
from multiraft.errors import (
    GroupQuarantined,
    NotLeader,
    ProposalError,
    QueueFull,
    UnknownGroup,
    UnknownPartition,
)
from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.state import PartitionStates
from multiraft.raft.config import RaftConfig
from multiraft.raft.group import Group
from multiraft.raft.memory_storage import MemoryStore
from multiraft.raft.messages import Append, AppendReply, Status, TimeoutNow, VoteReply, VoteRequest
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.status import Role
from multiraft.types import Configuration, EntryKind
from tests.raft.cluster import Cluster
from tests.raft.solo import GROUP, Solo


def batch(count: int = 3, sequence: int = 0, producer: int = 7) -> bytearray:
    builder = BatchBuilder(1 << 16)
    builder.extend(1_700_000_000_000, [b"value %d" % number for number in range(count)])
    return builder.build(producer_id=producer, producer_epoch=0, base_sequence=sequence)


def cluster_with_partition() -> Cluster:
    cluster = Cluster()
    for node in cluster.nodes.values():
        node.tails = PartitionStates
        node.core.remove_group(1)
        node.core.add_group(1, 1, node.store.restored(1), PartitionStates(1))
    cluster.run(1000)
    leader = cluster.nodes[cluster.leader()].core
    leader.propose(1, EntryKind.PARTITION_OPEN, open_payload(1, 100, leader_epoch_base=5), 77)
    cluster.run(100)
    return cluster


# ---- proposals ---------------------------------------------------------------------------------


def test_a_batch_is_stamped_in_place_with_offset_and_epoch():
    cluster = cluster_with_partition()
    leader = cluster.nodes[cluster.leader()].core
    term = leader.status.of(1).term
    for offset, sequence in ((100, 0), (103, 3)):
        payload = batch(sequence=sequence)
        proposed = leader.propose_batch(1, 77, payload, check_batch(payload))
        assert (proposed.base_offset, proposed.term, proposed.duplicate) == (offset, term, False)
        header = batch_header(payload)
        assert (header.base_offset, header.leader_epoch) == (offset, 5 + term)
    cluster.run(100)
    for node in cluster.nodes.values():
        assert [entry.base_offset for entry in node.committed[1]
                if entry.kind == EntryKind.DATA] == [100, 103]


def test_a_batch_gets_the_append_time_of_its_leader():
    cluster = cluster_with_partition()
    leader = cluster.nodes[cluster.leader()].core
    payload, again = batch(), batch()
    proposed = leader.propose_batch(1, 77, payload, check_batch(payload), append_time_ms=1234)
    header = verify_batch(payload)
    assert (header.base_offset, header.max_timestamp_ms) == (proposed.base_offset, 1234)
    assert header.attributes == layout.ATTRIBUTE_LOG_APPEND_TIME
    untouched = bytes(again)
    retried = leader.propose_batch(1, 77, again, check_batch(again), append_time_ms=5678)
    assert retried.duplicate and again == untouched
    cluster.run(100)
    for node in cluster.nodes.values():
        entries = [entry for entry in node.committed[1] if entry.kind == EntryKind.DATA]
        assert [entry.batch.max_timestamp_ms for entry in entries] == [1234]
        assert [bytes(entry.payload) for entry in entries] == [bytes(payload)]


def test_a_retried_batch_names_its_original_and_appends_nothing():
    cluster = cluster_with_partition()
    leader = cluster.nodes[cluster.leader()].core
    payload, again = batch(), batch()
    first = leader.propose_batch(1, 77, payload, check_batch(payload))
    second = leader.propose_batch(1, 77, again, check_batch(again))
    assert second == first._replace(duplicate=True)
    assert leader.status.of(1).last_index == first.index


def test_a_refused_batch_leaves_no_trace():
    cluster = cluster_with_partition()
    leader = cluster.nodes[cluster.leader()].core
    before, payload = leader.status.of(1), batch()
    untouched = bytes(payload)
    with pytest.raises(UnknownPartition):
        leader.propose_batch(1, 78, payload, check_batch(payload))
    assert leader.status.of(1) == before
    assert payload == untouched
    with pytest.raises(ProposalError, match="not open"):
        leader.propose(1, EntryKind.PARTITION_SEAL, seal_payload(1), 78)
    assert leader.status.of(1) == before


def test_refusals_say_why():
    solo = Solo()
    with pytest.raises(NotLeader):
        solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    with pytest.raises(UnknownGroup):
        solo.core.propose(99, EntryKind.METADATA, b"a")
    solo.lead()
    solo.core.repair.quarantine(GROUP, "bit rot")
    with pytest.raises(GroupQuarantined, match="bit rot"):
        solo.core.propose(GROUP, EntryKind.METADATA, b"a")


@pytest.mark.parametrize(("name", "limits", "fits"), [
    ("uncommitted_bytes_max", {"uncommitted_bytes_max": 200, "append_bytes_max": 100,
                               "peer_window_bytes": 100, "catch_up_append_bytes": 100,
                               "catch_up_window_bytes": 100}, 2),
    ("uncommitted_entries_max", {"uncommitted_entries_max": 5}, 4)])
def test_uncommitted_proposals_are_bounded_and_the_bound_recovers(name, limits, fits):
    solo = Solo(config=RaftConfig(**limits))
    solo.lead()
    for _ in range(fits):
        solo.core.propose(GROUP, EntryKind.METADATA, b"12345678")
    with pytest.raises(QueueFull, match=name) as refusal:
        solo.core.propose(GROUP, EntryKind.METADATA, b"12345678")
    assert refusal.value.value > refusal.value.limit == limits[name]
    solo.drain()
    solo.acknowledge(2, solo.status.last_index)
    assert solo.status.uncommitted_bytes == 0
    for _ in range(fits):
        solo.core.propose(GROUP, EntryKind.METADATA, b"12345678")


def test_the_bound_does_not_count_what_earlier_leaders_left():
    solo = Solo(terms=[1] * 50, config=RaftConfig(
        uncommitted_bytes_max=200, append_bytes_max=100, peer_window_bytes=100,
        catch_up_append_bytes=100, catch_up_window_bytes=100))
    solo.lead()
    assert solo.status.uncommitted_bytes == 0
    solo.core.propose(GROUP, EntryKind.METADATA, b"12345678")
    solo.drain()
    solo.acknowledge(2, solo.status.last_index)
    assert solo.status.uncommitted_bytes == 0


# ---- ready -------------------------------------------------------------------------------------


def test_what_needs_writing_piles_up_while_a_write_is_in_flight():
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1)
    for word in (b"a", b"b"):
        solo.core.propose(GROUP, EntryKind.METADATA, word)
        assert not solo.core.ready(with_writes=False)
    ready = solo.core.ready()
    assert [entry.payload for entry in ready.writes.groups[0].entries] == [b"a", b"b"]
    assert [(envelope.to, envelope.message.last_index) for envelope in ready.messages] == [
        (2, 3), (3, 3)]


def test_a_vote_waits_for_the_write_even_if_that_is_of_an_earlier_round():
    solo = Solo()
    solo.core.step(2, VoteRequest(GROUP, 1, 1, 0, 0, False, False))
    first = solo.core.ready()
    assert first.writes.groups[0].hard_state == (1, 2) and not first.messages
    solo.core.step(2, VoteRequest(GROUP, 1, 1, 0, 0, False, False))
    assert not solo.core.ready().messages, "the same vote, not durable yet"
    solo.store.stage(first.writes)
    solo.core.written(solo.store.execute())
    assert [envelope.message.granted for envelope in solo.core.ready().messages] == [True, True]
    solo.core.step(2, VoteRequest(GROUP, 1, 1, 0, 0, False, False))
    assert [envelope.message.granted for envelope in solo.core.ready().messages] == [True]


def test_a_vote_waits_for_a_write_that_cannot_be_taken_yet():
    solo = Solo()
    solo.append(term=1)
    solo.core.step(3, VoteRequest(GROUP, 1, 2, 0, 0, False, True))
    assert not solo.core.ready(with_writes=False).messages
    ready = solo.core.ready()
    assert ready.writes.groups[0].hard_state == (2, 3)
    assert ready.messages == []
    solo.store.stage(ready.writes)
    solo.core.written(solo.store.execute())
    assert [envelope.message.granted for envelope in solo.core.ready().messages] == [True]


def test_a_write_is_reported_once_and_in_order():
    solo = Solo()
    solo.append(term=1)
    with pytest.raises(AssertionError, match="write 1 reported"):
        solo.core.written(1)
    with pytest.raises(AssertionError, match="write 9 reported"):
        solo.core.written(9)


def test_time_does_not_go_back():
    solo = Solo()
    solo.core.tick(10)
    with pytest.raises(AssertionError, match="back"):
        solo.core.tick(9)


def test_what_is_stepped_counts_from_when_it_was_said():
    """A node whose groups sleep has had no round, and no tick, for a while."""
    solo = Solo()
    solo.append(term=1)
    solo.core.set_now(60_000)
    solo.core.step(2, TimeoutNow(GROUP, 1, 1))
    assert solo.status.role is Role.CANDIDATE
    assert solo.core.next_deadline_ms() >= 60_000 + solo.config.election_retry_ms
    with pytest.raises(AssertionError, match="back"):
        solo.core.set_now(59_999)


def test_members_in_step_are_sent_the_very_same_append():
    cluster = Cluster()
    cluster.run(3000)
    core = cluster.nodes[cluster.leader()].core
    core.propose(1, EntryKind.METADATA, b"x")
    first, second = core.ready().messages
    assert first.to != second.to
    assert first.message is second.message


def test_an_append_is_filled_only_while_its_leader_leads():
    solo = Solo()
    solo.lead()
    assert solo.core.status.leads(GROUP, 1)
    solo.append(term=2)
    assert not solo.core.status.leads(GROUP, 1)
    assert not solo.core.status.leads(99, 1)


def test_appends_whose_parts_do_not_fit_are_dropped():
    solo = Solo(terms=[1])
    good = Append(GROUP, 1, 1, 1, 1, 2, 0, (solo.store.entries(GROUP, 1, 1)))
    assert solo.step(2, good) == [], "the entry is 1, the range is 2"
    assert solo.step(2, good._replace(entries=())) == [], "nobody filled it"
    assert solo.log == [1]


# ---- damaged replicas --------------------------------------------------------------------------


def test_a_quarantined_replica_neither_votes_leads_nor_acknowledges():
    solo = Solo(terms=[1])
    solo.core.repair.quarantine(GROUP, "bit rot")
    assert not solo.vote_request(term=5, last=(9, 4))[0].granted
    assert not solo.vote_request(term=5, last=(9, 4), pre=True)[0].granted
    [reply] = solo.append(term=5, prev=(1, 1), terms=[5])
    assert (reply.status, reply.match) == (Status.QUARANTINED, 0)
    solo.tick(60_000)
    assert solo.status.role is Role.FOLLOWER
    assert solo.log == [1]


def test_a_leader_that_is_quarantined_leads_no_more():
    solo = Solo()
    solo.lead()
    solo.core.repair.quarantine(GROUP, "bit rot")
    assert solo.status.role is Role.FOLLOWER
    assert solo.core.status.leading_digest(2) == 0


def test_a_group_restored_as_quarantined_stays_so():
    solo = Solo(terms=[1])
    for image in (solo.store._memory, solo.store._disk):
        image[GROUP].quarantined = "below the durable mark"
    solo.boot()
    solo.tick(60_000)
    assert solo.status.role is Role.FOLLOWER
    assert solo.status.quarantined == "below the durable mark"


# ---- many groups -------------------------------------------------------------------------------


def idle_node(groups: int) -> MultiRaft:
    store = MemoryStore()
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    for group in range(1, groups + 1):
        store.create_group(group, 1, Configuration((1, 2, 3)))
        core.add_group(group, 1, store.restored(group), PartitionStates(group))
    for node in (2, 3):
        core.connected(node)
        core.lease_granted(node, 1)
        core.lease_held(node, 1)
    while ready := core.ready():
        assert ready.writes is None
    for group in range(1, groups + 1):
        core.step(2, Append(group, 1, 1, 0, 0, 0, 0))
    while ready := core.ready():
        core.written(ready.writes.sequence) if ready.writes else None
    return core


def test_idle_groups_cost_nothing(monkeypatch):
    core = idle_node(1024)
    assert core.next_deadline_ms() is None
    touched = []
    for name in ("touch", "rearm", "reexamine", "trusts_leader", "has_write", "status"):
        original = getattr(Group, name)
        monkeypatch.setattr(Group, name, lambda self, *args, original=original:
                            touched.append(self.id) or original(self, *args))
    for now_ms in range(0, 60_000, 50):
        core.tick(now_ms)
        assert not core.ready()
        core.status.leading_digest(2), core.status.followed_digest(2)
    assert touched == []
    core.step(2, Append(7, 1, 1, 0, 0, 0, 0))
    core.ready()
    assert {*touched} == {7}


def test_the_loss_of_a_node_is_worked_off_in_slices():
    core = idle_node(1024)
    core.lease_withdrawn(2)
    rounds = 0
    while core._peers.pending:
        assert core.next_deadline_ms() == 0, "the driver comes back at once"
        core.ready()
        rounds += 1
        assert rounds <= 4
    assert rounds == 4
    armed = [core._context.timers.deadline(group) for group in range(1, 1025)]
    assert None not in armed
    assert len({*armed}) > 100, "campaigns are spread over a slice"


def test_trust_ends_for_all_groups_at_once():
    core = idle_node(600)
    core.lease_withdrawn(2)
    core.step(3, VoteRequest(600, 1, 2, 0, 0, False, False))
    core.written(core.ready().writes.sequence)
    [granted] = [envelope.message for envelope in core.ready().messages
                 if isinstance(envelope.message, VoteReply)]
    assert granted.granted, "before its turn in the slices"


def test_a_removed_group_answers_as_unknown_and_its_writes_are_ignored():
    solo = Solo()
    solo.lead()
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    solo.drain(write=False)
    solo.core.remove_group(GROUP)
    solo.write()
    assert not solo.core.ready().committed
    assert solo.core.next_deadline_ms() is None
    assert solo.core.status.leading_digest(2) == 0
    [reply] = [message for message in solo.step(2, Append(GROUP, 1, 9, 0, 0, 0, 0))
               if isinstance(message, AppendReply)]
    assert reply.status == Status.UNKNOWN_GROUP
    with pytest.raises(UnknownGroup):
        solo.core.status.of(GROUP)


def test_two_nodes_agree_on_digests_when_they_agree_on_leaders():
    cluster = Cluster(nodes=4, groups=40, replicas=3)
    cluster.run(2500)
    for one in cluster.nodes.values():
        for other in cluster.nodes.values():
            if one is not other:
                assert (one.core.status.leading_digest(other.id)
                        == other.core.status.followed_digest(one.id))
    assert any(node.core.status.leading_digest(other) for node in cluster.nodes.values()
               for other in cluster.nodes)


def test_equal_seeds_give_equal_worlds():
    def trace() -> list:
        cluster = Cluster(nodes=3, groups=8, seed=3)
        cluster.run(800)
        cluster.crash(1)
        cluster.run(1500)
        return [(node.id, event) for node in cluster.nodes.values() for event in node.events]
    assert trace() == trace()


def test_compaction_is_followed_and_a_member_below_it_needs_a_snapshot():
    solo = Solo(terms=[1] * 10)
    solo.lead()
    solo.acknowledge(2, 11)
    assert solo.status.applied_index == 11
    solo.core.compacted(GROUP, 8)
    solo.store.compact(GROUP, 8)
    assert solo.status.first_index == 8
    solo.step(3, AppendReply(GROUP, 1, 2, Status.MISMATCH, 0, 0, 2, 1))
    assert {member.node: member.state for member in solo.status.members} == {
        2: "replicate", 3: "snapshot"}
    assert [event.fields[0] for event in solo.events if event.kind == "snapshot_needed"] == [3]
    solo.boot()
    assert (solo.status.first_index, solo.status.last_index) == (8, 11)


def test_a_member_that_knows_less_than_before_is_told_again():
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1, commit=1)
    solo.tick(1000)
    assert solo.status.quiesced
    solo.acknowledge(3, 1, commit=0)  # it restarted, and its new boot epoch is not announced yet
    assert {member.node: member.commit_known for member in solo.status.members} == {2: 1, 3: 0}
    solo.core.lease_held(3, 2)
    assert [(envelope.to, envelope.message.commit) for envelope in solo.drain()] == [(3, 1)]


@pytest.mark.parametrize(("voters", "matches", "heir"), [
    ((1, 3, 2), {2: 1, 3: 1}, 3),
    ((2, 3, 1), {2: 1, 3: 1}, 2),
    ((1, 3, 2), {2: 1, 3: 0}, 2),
])
def test_the_furthest_voter_takes_over_and_of_equals_the_preferred_one(voters, matches, heir):
    solo = Solo(voters=voters)
    solo.lead()
    for node, match in matches.items():
        if match:
            solo.acknowledge(node, match)
    solo.core.transfer(GROUP, 0)
    assert solo.status.transferee == heir


def test_a_snapshot_has_the_configuration_that_was_in_force_where_it_ends():
    """Also where the disk is behind what the others have committed: joint, and left again."""
    cluster = Cluster(nodes=5)
    cluster.run(1500)
    leader = cluster.leader()
    node = cluster.nodes[leader]
    before = node.core.status.of(1)
    node.manual_disk = True
    stays = tuple(id_ for id_ in cluster.nodes if id_ != leader % 5 + 1)
    node.core.change_members(1, stays, ())
    cluster.settle()
    status = node.core.status.of(1)
    assert status.commit > before.last_index and not status.configuration.outgoing
    bounds, index, configuration = node.core.snapshot_point(1)
    assert bounds.last_index == before.last_index
    assert (index, configuration) == (before.configuration_index, before.configuration)


# ---- leaders that are gone ---------------------------------------------------------------------


def test_a_leader_without_its_node_or_a_majority_is_no_living_leader():
    cluster = Cluster(nodes=5)
    cluster.run(1_000)
    leader = cluster.leader()
    others = [node for node in cluster.nodes if node != leader]
    here = cluster.nodes[others[0]].core.status
    nobody = Configuration(())

    def living(status) -> int:
        return status.living_leader(1, nobody)

    assert [living(node.core.status) for node in cluster.nodes.values()] == [leader] * 5
    assert all(here.is_up(node) for node in cluster.nodes)
    # One node alone with the leader: a minority.
    alone = {leader, others[0]}
    cluster.cut = {(one, other) for one in cluster.nodes for other in cluster.nodes
                   if (one in alone) != (other in alone)}
    status = cluster.nodes[leader].core.status
    for _ in range(400):
        if status.is_up(others[1]):
            cluster.run(5)
    assert here.is_up(leader) and living(here) == 0
    assert living(status) == 0
    # The others elect another leader; the minority learns of it when the network is whole.
    cluster.run(2_000)
    cluster.cut = set()
    cluster.run(2_000)
    leader = cluster.leader()
    assert living(here) == leader
    cluster.crash(leader)
    for _ in range(400):
        if not here.is_up(leader) or living(here) != leader:
            break
        cluster.run(5)
    assert living(here) != leader and not here.is_up(leader)


def test_the_leader_of_a_group_of_other_nodes_is_judged_by_the_recorded_members():
    cluster = Cluster(nodes=3)
    cluster.run(1_000)
    leader = cluster.leader()
    other = next(node for node in cluster.nodes if node != leader)
    status = cluster.nodes[other].core.status
    cluster.nodes[other].core.remove_group(1)
    assert status.configuration(1) is None
    assert status.leader_hint(1)[0] == status.living_leader(1, Configuration((leader, other)))
    assert status.living_leader(1, Configuration((leader, 8, 9))) == 0
