"""Invariants: each fails on a history that breaks it, and holds on a sound one."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle.invariants import ALL, HOOKS, PromisedLoss
from chaos.simulator.oracle.model import NO_HARD_STATE, GroupModel
from chaos.simulator.oracle.observer import DamagedEntry, StateChecker
from chaos.simulator.oracle.operations import ACKS_COMMIT, AppendOperation, ReadOperation
from multiraft import core
from multiraft.partitions.records import open_payload
from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.messages import Append, AppendReply, Status, VoteReply, VoteRequest
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.types import Configuration, Entry, EntryKind, HardState

PARTITION = 101


class History:
    """State checker of a group of three nodes, and helpers that report effects to it."""

    def __init__(self):
        self.state_checker = StateChecker([GroupModel(1, (1, 2, 3))])
        self.sequence = 0
        self.writes = {}

    def noop(self, index, term):
        return Entry(EntryKind.NOOP, 1, 1, term, index)

    def opening(self, index, term):
        return Entry(EntryKind.PARTITION_OPEN, 1, 1, term, index, PARTITION,
                     payload=open_payload(1))

    def data(self, index, term, base_offset, sequence=0, value=b"v", epoch=0):
        builder = core.BatchBuilder(1 << 16)
        builder.append(0, None, b"%d/" % PARTITION + value)
        payload = builder.build(7, epoch, sequence)
        core.stamp_batch(payload, base_offset, term)
        return Entry(EntryKind.DATA, 1, 1, term, index, PARTITION, base_offset, bytes(payload),
                     core.batch_info(payload))

    def stage(self, node, *entries, drop_from=0, hard_state=None):
        self.sequence += 1
        writes = Writes(self.sequence, (GroupWrite(1, 1, drop_from, entries, hard_state),))
        self.writes[node] = writes
        self.state_checker.staged(node, writes)
        return self

    def write(self, node, *entries, drop_from=0, hard_state=None):
        self.stage(node, *entries, drop_from=drop_from, hard_state=hard_state)
        self.state_checker.durable(node, self.writes[node])
        return self

    def term(self, term, *nodes, vote=1):
        for node in nodes or (1, 2, 3):
            self.write(node, hard_state=HardState(term, vote))
        return self

    def append(self, node, to, term, commit=0, last=0):
        self.state_checker.sent(node, to, Append(1, 1, term, last, 0, last, commit))
        return self

    def acknowledge(self, node, to, term, match):
        self.state_checker.sent(node, to, AppendReply(1, 1, term, Status.OK, match, 0))

    def recover(self, node, *entries, hard_state=NO_HARD_STATE, commit=0, applied=0):
        runs = tuple((entry.index, entry.term) for entry in entries)
        restored = GroupRestored(LogBounds(1, 0, len(entries)), runs, hard_state, commit, applied,
                                 Configuration((1, 2, 3)))
        self.state_checker.recovered(node, 1, restored, entries)


def broken(name):
    return pytest.raises(Violation, match=f"^{name}: ")


def committed_history():
    """Return a history in which n1 leads term 1 and the first batch of an open partition is
    committed.
    """
    history = History().term(1)
    opening, data = history.opening(1, 1), history.data(2, 1, 0)
    history.write(1, opening, data).append(1, 2, 1).write(2, opening, data)
    history.append(1, 2, 1, commit=2)
    return history, opening, data


def test_a_sound_history_holds():
    history, opening, data = committed_history()
    history.acknowledge(2, 1, 1, match=2)
    history.state_checker.committed(1, 1, 1, 2)
    history.write(3, opening, data)
    history.recover(2, opening, data, hard_state=HardState(1, 1))


def test_two_leaders_in_one_term():
    history = History().term(1).append(1, 2, 1)
    with broken("OneLeaderPerTerm"):
        history.append(2, 3, 1)


def test_two_votes_in_one_term():
    history = History().term(1)
    grant = VoteReply(1, 1, 1, granted=True, pre=False)
    history.state_checker.sent(3, 1, grant)
    with broken("VoteOncePerTerm"):
        history.state_checker.sent(3, 2, grant)


def test_a_vote_before_it_is_durable():
    history = History().stage(1, hard_state=HardState(1, 1))
    with broken("VoteOncePerTerm"):
        history.state_checker.sent(1, 2, VoteRequest(1, 1, 1, 0, 0, pre=False, transfer=False))


def test_a_term_that_goes_down():
    history = History().term(2, 1)
    with broken("TermMonotonic"):
        history.write(1, hard_state=HardState(1, 0))


def test_a_vote_that_changes():
    history = History().term(2, 1, vote=1)
    with broken("TermMonotonic"):
        history.write(1, hard_state=HardState(2, 3))


def test_a_hard_state_forgotten_by_a_restart():
    history = History().term(2, 1)
    with broken("TermMonotonic"):
        history.recover(1)


def test_a_torn_round_may_leave_the_entry_of_a_term_without_its_vote():
    history = History().term(1)
    entry = history.noop(1, 2)
    history.stage(1, entry, hard_state=HardState(2, 2))
    history.recover(1, entry, hard_state=HardState(2, 0))


@pytest.mark.parametrize("staged", [HardState(2, 2), HardState(3, 2)])
def test_a_vote_that_stood_alone_in_its_round_is_there_or_nothing_of_its_term_is(staged):
    history = History().term(1)
    entry = history.noop(1, 1)
    history.write(1, entry).stage(1, hard_state=staged)
    with broken("TermMonotonic"):
        history.recover(1, entry, hard_state=HardState(staged.term, 0))


def committed_by_one_of_two(*adopted):
    """Let the leader n1 stage an entry, n2 make it durable, and n1 report it as committed."""
    history = History().term(2)
    entry = history.noop(1, 2)
    history.append(1, 2, 2)
    history.stage(1, entry).write(2, entry)
    if adopted:
        history.state_checker.replica(1, 1).adopt(*reversed(adopted))
    history.append(1, 2, 2, commit=1, last=1)


@pytest.mark.parametrize("adopted", [(), (0, Configuration((2,))), (2, Configuration((1, 2)))])
def test_what_no_configuration_of_the_leader_has_decided(adopted):
    with broken("CommitIsDurable"):
        committed_by_one_of_two(*adopted)


@pytest.mark.parametrize("index", [1, 2])
def test_a_leader_goes_by_the_configuration_of_an_entry_that_is_not_staged_yet(index):
    committed_by_one_of_two(index, Configuration((2,)))


def test_members_by_which_a_leader_went_were_seen_though_they_are_in_no_log():
    """The controller of a plan saw them: they were not staged yet, or a crash took them."""
    history, seen = History().term(1), Configuration((1, 2, 3), (4,))
    replica = history.state_checker.replica(1, 1)
    replica.adopt(seen, 1)
    assert replica.group.configurations_at(1) == [seen]
    history.recover(1, hard_state=HardState(1, 1))
    assert replica.group.configurations_at(1) == [seen]
    assert replica.group.configurations_at(2) == []


def test_who_was_created_and_has_heard_nothing_goes_by_nobody():
    """Such a replica counted with the first members of its group, who may have been replaced.

    A lost node was kept for it, and dispensable minorities were taken for needed ones.
    """
    history, now = History().term(1), Configuration((2, 3), (4,))
    changes = [Entry(EntryKind.MEMBERSHIP, 1, 1, 1, index, payload=joint_quorum.encode(each))
               for index, each in enumerate((now._replace(outgoing=(1, 2, 3)), now), 1)]
    for node in (1, 2, 3):
        history.write(node, *changes)
    history.append(1, 2, 1, commit=2).state_checker.wiped(1)
    group = history.state_checker.groups[1]
    assert {*group.configurations()} == {now}
    history.state_checker.created(4, 1, GroupRestored(LogBounds(1, 0, 0), (), NO_HARD_STATE, 0, 0,
                                                Configuration(())))
    assert {*group.configurations()} == {now}
    history.write(4, *changes)
    assert group.replica(4).configuration() == now


def test_logs_that_differ_at_one_index_and_term():
    history = History().term(1).write(1, history_entry := History().data(1, 1, 0))
    assert history_entry.index == 1
    with broken("LogMatching"):
        history.write(2, history.data(1, 1, 0, value=b"other"))


def test_logs_that_differ_below_an_equal_entry():
    history = History().term(2)
    history.write(1, history.noop(1, 1), history.noop(2, 2))
    with broken("LogMatching"):
        history.write(2, history.noop(1, 2), history.noop(2, 2))


def test_a_leader_that_drops_its_own_log():
    history = History().term(1).write(1, History().noop(1, 1)).append(1, 2, 1)
    with broken("LeaderAppendOnly"):
        history.write(1, drop_from=1)


def test_a_leader_without_a_committed_entry():
    history, _, _ = committed_history()
    history.term(2, 3, vote=3)
    with broken("LeaderCompleteness"):
        history.append(3, 1, 2)


def test_a_committed_entry_replaced():
    history, opening, _ = committed_history()
    history.term(2, 3, vote=3).write(3, opening, history.noop(2, 2))
    with broken("CommittedNeverChanges"):
        history.state_checker.committed(3, 1, 1, 2)


def test_a_commit_that_is_on_one_disk_only():
    history = History().term(1).write(1, History().noop(1, 1)).stage(2, History().noop(1, 1))
    with broken("CommitIsDurable"):
        history.append(1, 2, 1, commit=1)


def test_a_damaged_entry_that_changed_the_members_still_counts():
    """A restart knows index and term of a damaged entry; the state checker knows the rest."""
    history = History().term(1)
    more = Configuration((1, 2, 3), (4,))
    change = Entry(EntryKind.MEMBERSHIP, 1, 1, 1, 1, payload=joint_quorum.encode(more))
    history.write(1, change, history.noop(2, 1))
    restored = GroupRestored(LogBounds(1, 0, 2), ((1, 1),), HardState(1, 1), 0, 0, more)
    history.state_checker.recovered(1, 1, restored, [DamagedEntry(1, 1, False), history.noop(2, 1)],
                              damaged=True)
    assert history.state_checker.replica(1, 1).configuration() == more


def test_a_damaged_entry_is_known_to_a_witness_that_judges_nothing():
    """An invariant recorded the staged chains, and a state checker that judges nothing did not have
    it.

    Bit rot ended such a run with ``KeyError``.
    """
    history = History()
    history.state_checker = StateChecker([GroupModel(1, (1, 2, 3))], check_invariants=False)
    history.term(1).write(1, history.noop(1, 1), history.noop(2, 1))
    restored = GroupRestored(LogBounds(1, 0, 2), ((1, 1),), HardState(1, 1), 0, 0,
                             Configuration((1, 2, 3)))
    replica = history.state_checker.replica(1, 1)
    held = replica.durable.chains[:]
    history.state_checker.recovered(1, 1, restored, [DamagedEntry(1, 1, False), history.noop(2, 1)],
                              damaged=True)
    assert replica.durable.chains == held


@pytest.mark.parametrize(("value", "term"), [(b"v", 1), (b"other", 1), (b"v", 2)])
def test_what_can_be_read_behind_damage_is_what_was_written(value, term):
    """The log of a replica in quarantine was not compared at all."""
    history = History().term(2)
    opening = history.opening(1, 1)
    history.write(1, opening, history.data(2, 1, 0))
    restored = GroupRestored(LogBounds(1, 0, 2), ((1, 1),), HardState(2, 1), 0, 0,
                             Configuration((1, 2, 3)))
    found = [DamagedEntry(1, 1, True), history.data(2, term, 0, value=value)]
    is_true = (value, term) == (b"v", 1)
    with nullcontext() if is_true else broken("DamagedReadsTrue"):
        history.state_checker.recovered(1, 1, restored, found, damaged=True)


def test_what_a_damaged_disk_had_not_synced_when_it_lost_its_power_is_forgotten():
    """Seed 790000001300: an entry was damaged as well, and a leader was blamed for lacking the
    records that the power loss had taken.
    """
    history = History().term(1)
    entries = [history.opening(1, 1), *[history.data(index, 1, index - 2, value=b"%d" % index)
                                        for index in (2, 3, 4)]]
    history.write(1, *entries[:2])
    history.state_checker.synced(1)
    history.write(1, *entries[2:])
    replica = history.state_checker.replica(1, 1)
    lost = replica.durable.chains[3]
    history.state_checker.power_lost(1)
    restored = GroupRestored(LogBounds(1, 0, 3), ((1, 1),), HardState(1, 1), 0, 0,
                             Configuration((1, 2, 3)))
    found = [entries[0], DamagedEntry(2, 1, False), entries[2]]
    history.state_checker.recovered(1, 1, restored, found, damaged=True)
    assert {*replica.forgotten} == {lost}, "nothing that is there, or was synced"


def led_by_who_lacks_what_was_forgotten(*, had_again_in: int = 0):
    """Let n3 lead term 3 without a committed batch that a power loss had taken from n2.

    n2 had the batch again in the given term.
    """
    history, opening, data = committed_history()
    history.state_checker.replica(2, 1).synced = 1
    history.state_checker.power_lost(2)
    history.recover(2, opening, hard_state=HardState(1, 1))
    if had_again_in:
        history.term(had_again_in, 2).write(2, data)
    history.term(3, 3, vote=3).write(3, opening).append(3, 1, 3)


def test_what_a_loss_of_power_took_a_leader_may_lack():
    with pytest.raises(PromisedLoss):
        led_by_who_lacks_what_was_forgotten()


def test_what_was_there_again_a_later_leader_may_not_lack():
    with broken("LeaderCompleteness"):
        led_by_who_lacks_what_was_forgotten(had_again_in=2)


def test_a_vote_from_before_it_was_there_again_may_still_elect():
    """The vote was under way while a leader of a later term gave the voter the batch again."""
    with pytest.raises(PromisedLoss):
        led_by_who_lacks_what_was_forgotten(had_again_in=4)


def test_what_a_loss_of_power_took_where_damage_took_the_rest_is_forgotten_too():
    history = committed_history()[0]
    replica = history.state_checker.replica(2, 1)
    replica.synced, lost = 1, replica.durable.chains[1]
    history.state_checker.power_lost(2)
    history.state_checker.absent(2, {}, {}, damaged=True)
    assert {*replica.forgotten} == {lost}


@pytest.mark.parametrize("knows_its_damage", [False, True])
def test_damage_that_is_known_excuses_nothing_else(knows_its_damage):
    """One batch cannot be read, and the entry behind it is gone."""
    history = committed_history()[0].write(2, History().noop(3, 1))
    restored = GroupRestored(LogBounds(1, 0, 2), ((1, 1),), HardState(1, 1), 0, 0,
                             Configuration((1, 2, 3)))
    found = [history.opening(1, 1), DamagedEntry(2, 1, False)]
    with broken("DurableSurvives") if knows_its_damage else nullcontext():
        history.state_checker.recovered(2, 1, restored, found, True, None, knows_its_damage)


def test_nobody_goes_by_the_first_members_where_damage_took_all_of_a_replica():
    """A lost node among the first members was never replaced, although this replica had been
    removed from the group as well.
    """
    history = History().term(1)
    members = Configuration((2, 3))
    joint = Entry(EntryKind.MEMBERSHIP, 1, 1, 1, 1,
                  payload=joint_quorum.encode(Configuration((2, 3), (), (1, 2, 3))))
    final = Entry(EntryKind.MEMBERSHIP, 1, 1, 1, 2, payload=joint_quorum.encode(members))
    for node in (1, 2, 3):
        history.write(node, joint, final)
    history.write(4, joint)  # the node is a learner meanwhile
    history.term(2, 2, 3, vote=2).write(2, last := history.noop(3, 2)).write(3, last)
    history.append(2, 3, 2, commit=3, last=3)
    history.state_checker.absent(4, {}, {}, damaged=True)
    assert {*history.state_checker.groups[1].configurations()} == {members}


def restarted_with_a_lost_drop(committed):
    """Restart n3 after damage: its 1@1 was truncated for 1@2, and both the truncation and 1@2 are
    lost.

    ``committed`` of the entries are committed.
    """
    history = History().term(1)
    history.write(3, history.noop(1, 1)).term(2)
    entry = history.noop(1, 2)
    history.write(1, entry).append(1, 2, 2).write(2, entry).append(1, 2, 2, commit=committed)
    history.write(3, entry, drop_from=1)
    restored = GroupRestored(LogBounds(1, 0, 1), ((1, 1),), HardState(2, 1), 0, 0,
                             Configuration((1, 2, 3)))
    history.state_checker.recovered(3, 1, restored, [DamagedEntry(1, 1, True)], damaged=True)
    return history.state_checker.replica(3, 1).durable


def test_what_is_committed_where_a_damaged_entry_is_in_question_stands_there():
    """Seed 790000001597: the node fetched the committed entry of that index, and was reported to
    hold another log than the others.
    """
    assert restarted_with_a_lost_drop(committed=1).terms[0] == 2


def test_a_damaged_entry_in_question_where_nothing_is_committed_stands_there():
    assert restarted_with_a_lost_drop(committed=0).terms[0] == 1


def acknowledged_before_damage():
    """Let n2 acknowledge two entries of the leader n1, and lose the second to damage."""
    history = History().term(1)
    entries = history.noop(1, 1), history.noop(2, 1)
    history.append(1, 2, 1).write(1, *entries).write(2, *entries)
    history.acknowledge(2, 1, 1, match=2)
    restored = GroupRestored(LogBounds(1, 0, 1), ((1, 1),), HardState(1, 1), 0, 0,
                             Configuration((1, 2, 3)))
    history.state_checker.recovered(2, 1, restored, entries[:1], damaged=True)
    return history


def test_an_acknowledgement_from_before_the_damage_may_come_late():
    """The acknowledgement was true, and its consequences stay (docs/decisions/0009).  The leader
    may have been paused meanwhile.
    """
    acknowledged_before_damage().append(1, 2, 1, commit=2, last=2)


def test_what_damage_took_counts_no_more_once_it_is_repaired():
    history = acknowledged_before_damage()
    history.state_checker.replica(2, 1).repaired()
    with broken("CommitIsDurable"):
        history.append(1, 2, 1, commit=2, last=2)


def test_a_commit_of_an_old_term_by_counting():
    history = History().term(1)
    noop = history.noop(1, 1)
    history.write(1, noop).write(2, noop).term(2)
    with broken("CommitOwnTermOnly"):
        history.append(1, 2, 2, commit=1)


def test_an_acknowledgement_before_the_disk():
    history = History().term(1).write(1, History().noop(1, 1)).stage(2, History().noop(1, 1))
    with broken("AcknowledgedIsDurable"):
        history.acknowledge(2, 1, 1, match=1)


def test_an_acknowledgement_of_a_replica_that_was_removed_meanwhile():
    history = History().term(1).write(1, History().noop(1, 1)).write(2, History().noop(1, 1))
    mark = replica_records.tombstone(1, 1, replica_records.Tombstone(HardState(1, 1), 1, 1))
    removal = Writes(99, (GroupWrite(1, 1, 0, (), None, mark),))
    history.state_checker.staged(2, removal)
    history.state_checker.durable(2, removal)
    history.acknowledge(2, 1, 1, match=1)  # the reply waited for the same sync
    with broken("AcknowledgedIsDurable"):
        history.acknowledge(2, 1, 1, match=2)


@pytest.mark.parametrize("at_once", (True, False))
def test_an_acknowledgement_of_a_removed_replica_behind_its_successors_first_entries(at_once):
    """Found by seed 742524693858: a disk hung, and the rounds of both replicas ended at once."""
    history = History().term(1)
    for index in (1, 2, 3):
        history.write(1, history.noop(index, 1)).write(2, history.noop(index, 1))
    removal = removed(2, 1, history)
    if not at_once:
        history.state_checker.durable(2, removal)
    history.stage(2, history.noop(1, 1))
    if at_once:
        history.state_checker.durable(2, removal)
    history.state_checker.durable(2, history.writes[2])
    if at_once:
        history.acknowledge(2, 1, 1, match=3)
        history.write(2, history.noop(2, 1))
    with broken("AcknowledgedIsDurable"):
        history.acknowledge(2, 1, 1, match=3)


def test_an_acknowledgement_of_another_log():
    history = History().term(1, 2).write(2, History().noop(1, 1)).term(2, 1)
    history.write(1, History().noop(1, 2)).append(1, 2, 2)
    with broken("AcknowledgedIsDurable"):
        history.acknowledge(2, 1, 2, match=1)


def removed(node, term, history):
    """Remove the replica in that term; the tombstone is not durable yet."""
    mark = replica_records.tombstone(1, 1, replica_records.Tombstone(HardState(term, 1), 1, 1))
    history.sequence += 1
    removal = Writes(history.sequence, (GroupWrite(1, 1, 0, (), None, mark),))
    history.state_checker.staged(node, removal)
    return removal


EMPTY = GroupRestored(LogBounds(1, 0, 0), (), HardState(1, 1), 0, 0, Configuration(()))


def test_a_damaged_replica_that_was_removed_is_none_when_it_is_created_again():
    """A quarantine excuses nothing after the replica was removed and created again."""
    history = committed_history()[0]
    history.state_checker.replica(2, 1).damaged = True
    history.state_checker.durable(2, removed(2, 1, history))
    history.state_checker.created(2, 1, EMPTY)
    history.write(2, *[history.state_checker.groups[1].entries[chain]
                       for chain in history.state_checker.groups[1].committed])
    history.state_checker.committed(2, 1, 1, 2)
    with broken("LeaderAppendOnly"):
        history.stage(2, drop_from=2)


@pytest.mark.parametrize("term", [1, 3])
def test_a_removal_that_a_crash_took_leaves_the_term_of_the_one_before(term):
    """A replica came back in term 3 and was removed again; all of that reached the disk, or none.
    """
    history = History().term(1)
    history.state_checker.durable(2, removed(2, 1, history))
    history.state_checker.created(2, 1, EMPTY)
    history.stage(2, hard_state=HardState(3, 1))
    removed(2, 3, history)
    history.state_checker.absent(2, {}, {1: HardState(term, 1)}, damaged=False)
    history.state_checker.created(2, 1, EMPTY._replace(hard_state=HardState(term, 1)))


def test_a_removal_that_forgot_its_term():
    history = History().term(3)
    history.state_checker.durable(2, removed(2, 3, history))
    with broken("TermMonotonic"):
        history.state_checker.absent(2, {}, {1: HardState(1, 1)}, damaged=False)


def test_entries_applied_out_of_order():
    history, _, _ = committed_history()
    with broken("AppliedInOrder"):
        history.state_checker.committed(1, 1, 2, 2)


def test_a_durable_entry_lost_by_a_restart():
    history, opening, _ = committed_history()
    with broken("DurableSurvives"):
        history.recover(1, opening, hard_state=HardState(1, 1))


def test_a_write_in_flight_survives_as_a_prefix():
    history = History().term(1)
    noop, data, last = history.noop(1, 1), history.data(2, 1, 0), history.noop(3, 1)
    history.write(1, noop).stage(1, data, last)
    history.recover(1, noop, data, hard_state=HardState(1, 1))
    assert history.state_checker.replica(1, 1).durable.last_index == 2


def test_a_hole_in_the_offsets():
    history = History().term(1)
    opening, data = history.opening(1, 1), history.data(2, 1, base_offset=5)
    with broken("OffsetsDense"):
        history.write(1, opening, data).write(2, opening, data).append(1, 2, 1, commit=2)


def test_a_batch_of_a_partition_that_is_not_open():
    history = History().term(1)
    data = history.data(1, 1, base_offset=0)
    with broken("OffsetsDense"):
        history.write(1, data).write(2, data).append(1, 2, 1, commit=1)


@pytest.mark.parametrize("sequence", [0, 5])
def test_a_retry_that_doubles_or_a_sequence_that_is_skipped(sequence):
    history, _, _ = committed_history()
    data = history.data(3, 1, 1, sequence)
    with broken("RetriesExactlyOnce"):
        history.write(1, data).write(2, data).append(1, 2, 1, commit=3)


def acknowledged(payload, base_offset, floor=-1):
    operation = AppendOperation(7, 0, 0, 1, PARTITION, ACKS_COMMIT, bytes(payload), 0, floor)
    operation.base_offset = base_offset
    return operation


def test_an_acknowledgement_of_what_is_not_committed():
    history, _, data = committed_history()
    history.state_checker.acked(1, acknowledged(data.payload, 0))
    with broken("AckedIsCommitted"):
        history.state_checker.acked(1, acknowledged(data.payload, 1))


def test_an_offset_below_one_acknowledged_before():
    history, _, data = committed_history()
    with broken("AckedIsCommitted"):
        history.state_checker.acked(1, acknowledged(data.payload, 0, floor=3))


def test_an_acknowledgement_with_the_offset_of_another_batch():
    history, _, _ = committed_history()
    other = history.data(2, 1, 0, value=b"mine")
    with broken("AckedIsCommitted"):
        history.state_checker.acked(1, acknowledged(other.payload, 0))


def test_a_read_above_the_committed_index():
    history, _, data = committed_history()
    history.state_checker.read(1, ReadOperation(1, 2, PARTITION, 0, 1, (data.payload,)))
    with broken("ReadsAreCommitted"):
        history.state_checker.read(1, ReadOperation(1, 2, PARTITION, 0, 2, (data.payload,)))


def test_a_read_with_other_contents():
    history, _, _ = committed_history()
    other = history.data(2, 1, 0, value=b"other")
    with broken("ReadsAreCommitted"):
        history.state_checker.read(1, ReadOperation(1, 2, PARTITION, 0, 1, (other.payload,)))


def test_replicas_that_differ_in_the_end():
    history, _, _ = committed_history()
    with broken("ReplicasAgree"):
        history.state_checker.converged([1, 2, 3])


def test_every_invariant_sees_something():
    for invariant in ALL:
        assert any(hasattr(invariant, hook) for hook in HOOKS), invariant


# ---- log starts ----------------------------------------------------------------------------------


def trimmed_history():
    """Return the history of ``committed_history`` with three batches and a committed log start of
    2.
    """
    history, _, _ = committed_history()
    more = [history.data(3, 1, 1, 1), history.data(4, 1, 2, 2),
            Entry(EntryKind.LOG_START, 1, 1, 1, 5, PARTITION, 2)]
    history.write(1, *more).append(1, 2, 1).write(2, *more)
    history.append(1, 2, 1, commit=5)
    return history


def test_an_offset_is_refused_only_below_a_committed_log_start():
    trimmed_history().state_checker.range_refused(1, PARTITION, 1, 2)
    for offset, log_start in ((2, 2), (1, 3), (1, 1), (2, 3)):
        with broken("ReadNeverUnread"):
            trimmed_history().state_checker.range_refused(1, PARTITION, offset, log_start)
    with broken("ReadNeverUnread"):
        committed_history()[0].state_checker.range_refused(1, PARTITION, 0, 1)


def test_a_log_start_in_an_answer_that_is_not_committed():
    read = ReadOperation(1, 1, PARTITION, 3, 3, ())
    for log_start in (0, 1, 2):  # a replica may lag behind
        read.log_start = log_start
        trimmed_history().state_checker.read(1, read)
    read.log_start = 3
    with broken("LogStartsAreCommitted"):
        trimmed_history().state_checker.read(1, read)


def test_records_below_the_log_start_of_the_same_answer():
    read = ReadOperation(1, 1, PARTITION, 1, 3, (), log_start=2)
    with broken("LogStartsAreCommitted"):
        trimmed_history().state_checker.read(1, read)


def test_a_deletion_of_records_that_is_not_committed():
    trimmed_history().state_checker.deletion_answered(1, PARTITION, 1, 2)
    for before, log_start in ((3, 2), (3, 3), (-1, 3)):
        with broken("DeletedIsCommitted"):
            trimmed_history().state_checker.deletion_answered(1, PARTITION, before, log_start)
