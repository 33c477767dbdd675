"""One test per sentence of the Raft paper (Ongaro, Ousterhout 2014, extended version) and of
Ongaro's thesis that the core relies on.  The docstring is the sentence, or its gist, and its place.
"""

from __future__ import annotations

import pytest

from multiraft.errors import NotLeader, QueueFull
from multiraft.raft.messages import Append, AppendReply, Status, TimeoutNow, VoteReply, VoteRequest
from multiraft.raft.status import Role
from multiraft.types import EntryKind
from tests.raft.cluster import Cluster
from tests.raft.solo import GROUP, Solo


def of(kind, messages):
    return [message for message in messages if isinstance(message, kind)]


# ---- 5.1 terms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
def test_a_larger_term_makes_any_server_a_follower_of_that_term(role):
    """5.1: If one server's current term is smaller than the other's, then it updates its current
    term to the larger value.  If a candidate or leader discovers that its term is out of date, it
    immediately reverts to follower state."""
    solo = Solo()
    if role == "candidate":
        solo.candidate()
    elif role == "leader":
        solo.lead()
    term = solo.status.term + 5
    solo.append(term=term)
    assert (solo.status.role, solo.status.term, solo.status.leader) == (Role.FOLLOWER, term, 2)


def test_a_request_with_a_stale_term_is_rejected():
    """5.1: If a server receives a request with a stale term number, it rejects the request."""
    solo = Solo(term=5)
    [reply] = solo.append(term=4, terms=[4])
    assert (reply.status, reply.term) == (Status.MISMATCH, 5)
    assert solo.log == []
    [vote] = solo.vote_request(term=4)
    assert (vote.granted, vote.term) == (False, 5)


def test_terms_only_grow():
    """5.1: Each server stores a current term number, which increases monotonically over time."""
    solo = Solo(term=7)
    for term in (3, 9, 8, 9, 1):
        solo.append(term=term)
    assert solo.status.term == 9


# ---- 5.2 leader election -----------------------------------------------------------------------


def test_servers_start_as_followers():
    """5.2: When servers start up, they begin as followers."""
    assert Solo(terms=[1, 2], term=3).status.role is Role.FOLLOWER


def test_a_leader_keeps_its_followers_from_campaigning():
    """5.2: A server remains in follower state as long as it receives valid RPCs from a leader or
    candidate (here: as long as it leans on its leader's lease, see divergence.md)."""
    solo = Solo()
    solo.append(term=1)
    solo.tick(60_000)
    assert solo.status.role is Role.FOLLOWER
    assert solo.core.next_deadline_ms() is None


def test_a_follower_that_hears_of_no_leader_campaigns():
    """5.2: If a follower receives no communication over a period of time called the election
    timeout, then it assumes there is no viable leader and begins an election."""
    solo = Solo()
    solo.append(term=1)
    solo.core.lease_withdrawn(2)
    solo.drain()
    solo.tick(solo.config.election_jitter_ms + solo.config.lease_ms)
    assert solo.status.role is Role.PRE_CANDIDATE


def test_a_candidate_increments_its_term_votes_for_itself_and_asks_all_others():
    """5.2: To begin an election, a follower increments its current term and transitions to
    candidate state.  It then votes for itself and issues RequestVote RPCs in parallel to each of
    the other servers."""
    solo = Solo(terms=[1, 2], term=4)
    solo.candidate()
    assert (solo.status.role, solo.status.term, solo.status.vote) == (Role.CANDIDATE, 5, 1)
    requests = [envelope for envelope in solo.sent if isinstance(envelope.message, VoteRequest)
                and not envelope.message.pre]
    assert [envelope.to for envelope in requests] == [2, 3]
    assert {envelope.message for envelope in requests} == {
        VoteRequest(GROUP, 1, 5, 2, 2, False, False)}


@pytest.mark.parametrize(("voters", "granted", "leads"), [
    (3, 0, False), (3, 1, True), (4, 1, False), (4, 2, True), (5, 1, False), (5, 2, True)])
def test_votes_of_a_majority_elect(voters, granted, leads):
    """5.2: A candidate wins an election if it receives votes from a majority of the servers in the
    full cluster for the same term."""
    solo = Solo(voters=range(1, voters + 1))
    solo.candidate()
    for node in range(2, 2 + granted):
        solo.step(node, VoteReply(GROUP, 1, solo.status.term, True, False))
    assert (solo.status.role is Role.LEADER) == leads


def test_votes_of_another_term_do_not_count():
    """5.2: ... for the same term."""
    solo = Solo(term=3)
    solo.candidate()
    solo.step(2, VoteReply(GROUP, 1, 3, True, False))
    assert solo.status.role is Role.CANDIDATE


def test_a_voter_votes_once_per_term_first_come_first_served():
    """5.2: Each server will vote for at most one candidate in a given term, on a first-come-first-
    served basis."""
    solo = Solo()
    assert solo.vote_request(sender=2, term=1)[0].granted
    assert not solo.vote_request(sender=3, term=1)[0].granted
    assert solo.vote_request(sender=2, term=1)[0].granted


def test_a_vote_survives_a_crash():
    """Figure 2, 5.2: votedFor is persistent state, updated on stable storage before responding to
    RPCs."""
    solo = Solo()
    solo.vote_request(sender=2, term=1)
    solo.store.crash()
    solo.boot()
    assert not solo.vote_request(sender=3, term=1)[0].granted


def test_nothing_is_answered_before_term_and_vote_are_durable():
    """Figure 2: Persistent state on all servers (Updated on stable storage before responding to
    RPCs)."""
    solo = Solo()
    assert solo.vote_request(term=1, write=False) == []
    assert [reply.message.granted for reply in solo.write()] == [True]
    assert solo.append(sender=3, term=2, write=False) == []
    [envelope] = solo.write() + solo.drain()
    assert envelope.message.status == Status.OK


def test_a_candidate_counts_its_own_vote_only_when_it_is_durable():
    """Figure 2 again: a candidate's vote is votedFor like any other."""
    solo = Solo(voters=[1])
    solo.core.tick(5000)
    ready = solo.core.ready()
    assert ready.writes is not None
    assert solo.status.role is Role.CANDIDATE
    solo.store.stage(ready.writes)
    solo.core.written(solo.store.execute())
    assert solo.status.role is Role.LEADER


def test_a_candidate_follows_a_leader_of_its_term():
    """5.2: If the leader's term is at least as large as the candidate's current term, then the
    candidate recognizes the leader as legitimate and returns to follower state."""
    solo = Solo()
    solo.candidate()
    solo.append(sender=3, term=solo.status.term)
    assert (solo.status.role, solo.status.leader) == (Role.FOLLOWER, 3)


def test_a_candidate_rejects_a_leader_of_an_older_term_and_continues():
    """5.2: If the term in the RPC is smaller than the candidate's current term, then the candidate
    rejects the RPC and continues in candidate state."""
    solo = Solo(term=3)
    solo.candidate()
    [reply] = solo.append(sender=3, term=3)
    assert (reply.status, reply.term) == (Status.MISMATCH, 4)
    assert solo.status.role is Role.CANDIDATE


def test_a_split_vote_is_repeated_in_a_new_term():
    """5.2: When this happens, each candidate will time out and start a new election by
    incrementing its term."""
    solo = Solo()
    solo.candidate()
    term = solo.status.term
    for node in (2, 3):
        solo.step(node, VoteReply(GROUP, 1, term, False, False))
    assert solo.status.role is Role.FOLLOWER
    solo.tick(solo.config.election_retry_ms)
    solo.candidate()
    assert solo.status.term == term + 1


def test_election_timeouts_are_random_and_spread():
    """5.2: Election timeouts are chosen randomly from a fixed interval, to spread out the
    servers."""
    deadlines = {Solo(seed=seed).core.next_deadline_ms() for seed in range(40)}
    assert len(deadlines) > 20
    assert all(0 <= deadline < 300 for deadline in deadlines)


# ---- 5.3 log replication -----------------------------------------------------------------------


def test_a_leader_appends_first_and_sends_to_all():
    """5.3: The leader appends the command to its log as a new entry, then issues AppendEntries RPCs
    in parallel to each of the other servers."""
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1)
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    messages = [(envelope.to, envelope.message) for envelope in solo.drain(write=False)]
    assert [to for to, _ in messages] == [2, 3]
    assert all(message == Append(GROUP, 1, 1, 1, 1, 2, 1) for _, message in messages)
    assert solo.log == [1, 1]


def test_an_entry_is_committed_once_a_majority_has_it():
    """5.3: A log entry is committed once the leader that created the entry has replicated it on a
    majority of the servers."""
    solo = Solo(voters=[1, 2, 3, 4, 5])
    solo.lead()
    solo.acknowledge(2, 1)
    assert solo.status.commit == 0
    solo.acknowledge(3, 1)
    assert solo.status.commit == 1
    assert [entry.index for entry in solo.applied] == [1]


def test_committing_an_entry_commits_everything_before_it():
    """5.3: This also commits all preceding entries in the leader's log, including entries created
    by previous leaders."""
    solo = Solo(terms=[1, 1, 2])
    solo.lead()
    solo.acknowledge(2, 4)
    assert solo.status.commit == 4
    assert [entry.term for entry in solo.applied] == [1, 1, 2, 3]


def test_the_commit_index_travels_with_later_appends():
    """5.3: The leader keeps track of the highest index it knows to be committed, and it includes
    that index in future AppendEntries RPCs (including heartbeats)."""
    solo = Solo()
    solo.lead()
    solo.acknowledge(2, 1)
    [notice] = [message for message in of(Append, solo.tick(solo.config.commit_notice_ms))
                if message.commit == 1][:1]
    assert notice.last_index == notice.prev_index


def test_a_follower_applies_what_it_learns_is_committed():
    """5.3: Once a follower learns that a log entry is committed, it applies the entry to its local
    state machine (in log order)."""
    solo = Solo()
    solo.append(term=1, terms=[1, 1, 1], commit=0)
    assert solo.applied == []
    solo.append(term=1, prev=(3, 1), commit=2)
    assert [entry.index for entry in solo.applied] == [1, 2]
    solo.append(term=1, prev=(3, 1), terms=[1], commit=4)
    assert [entry.index for entry in solo.applied] == [1, 2, 3, 4]


def test_an_unanswered_append_is_repeated():
    """5.3: If followers crash or run slowly, or if network packets are lost, the leader retries
    AppendEntries RPCs indefinitely (here: while the follower's node holds a lease)."""
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1)
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    solo.drain()
    solo.acknowledge(2, 2, commit=1)
    repeats = [message for message in of(Append, solo.tick(5000)) if message.last_index == 2
               and message.prev_index == 1]
    assert len(repeats) >= 5


def test_appends_that_do_not_match_are_refused():
    """5.3: If the follower does not find an entry in its log with the same index and term, then it
    refuses the new entries."""
    solo = Solo(terms=[1, 2])
    assert [reply.status for reply in solo.append(term=3, prev=(3, 2), terms=[3])] == [
        Status.MISMATCH]
    assert [reply.status for reply in solo.append(term=3, prev=(2, 1), terms=[3])] == [
        Status.MISMATCH]
    assert solo.log == [1, 2]


@pytest.mark.parametrize(("prev", "new", "expected"), [
    ((2, 2), [3], [1, 2, 3]),
    ((1, 1), [3, 4], [1, 3, 4]),
    ((0, 0), [1], [1, 2]),  # entries that match stay (an old append, reordered)
    ((0, 0), [3], [3]),
])
def test_conflicting_entries_are_deleted_and_only_they(prev, new, expected):
    """5.3, figure 2: If an existing entry conflicts with a new one (same index but different
    terms), delete the existing entry and all that follow it.  Append any new entries not already in
    the log."""
    solo = Solo(terms=[1, 2])
    solo.append(term=5, prev=prev, terms=new)
    assert solo.log == expected


def test_a_leader_never_touches_its_own_log():
    """5.3: A leader never overwrites or deletes entries in its log (Leader Append-Only)."""
    solo = Solo(terms=[1, 2, 2])
    solo.lead()
    for hint in range(4):
        solo.step(2, AppendReply(GROUP, 1, solo.status.term, Status.MISMATCH, 0, 0, hint, 1))
    assert solo.log == [1, 2, 2, 3]


@pytest.mark.parametrize("follower", [
    [], [1, 1, 1, 4, 4, 5, 5, 6], [1, 1, 1, 4], [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7], [1, 1, 1, 4, 4, 4, 4],
    [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3]])
def test_the_leader_brings_any_follower_into_consistency(follower):
    """5.3, figure 7: The leader brings a follower's log into consistency with its own."""
    leader = Solo(terms=[1, 1, 1, 4, 4, 5, 5, 6, 6, 6], term=7, voters=[1, 2, 3])
    other = Solo(terms=follower, term=7)
    leader.lead()
    leader.core.propose(GROUP, EntryKind.METADATA, b"8")
    leader.drain()
    sent = [envelope.message for envelope in leader.sent
            if envelope.to == 2 and isinstance(envelope.message, Append)]
    for round_trips in range(12):  # noqa: B007  (used below)
        if not sent:
            break
        answers = []
        for append in sent:
            entries = leader.store.entries(GROUP, append.prev_index + 1, append.last_index)
            answers += of(AppendReply, other.step(9, append._replace(entries=entries)))
        sent = []
        for answer in answers:
            leader.core.step(2, answer)
            sent += [envelope.message for envelope in leader.drain() if envelope.to == 2]
    assert other.log == leader.log
    # Thesis 3.5: the leader skips the conflicting entries of a whole term with one round trip.
    assert round_trips <= 5


# ---- 5.4 safety --------------------------------------------------------------------------------


@pytest.mark.parametrize(("mine", "candidate", "granted"), [
    ([1], (1, 1), True), ([1], (2, 1), True), ([1, 1], (1, 1), False), ([1], (1, 2), True),
    ([1, 1], (1, 2), True), ([2], (3, 1), False), ([2], (0, 0), False), ([], (0, 0), True)])
def test_a_vote_is_denied_to_a_log_that_is_behind(mine, candidate, granted):
    """5.4.1: The voter denies its vote if its own log is more up-to-date than that of the
    candidate: the log with the later last term, and with the same last term the longer log."""
    for pre in (True, False):
        solo = Solo(terms=mine)
        assert solo.vote_request(term=9, last=candidate, pre=pre)[0].granted == granted


def test_only_entries_of_the_own_term_are_committed_by_counting():
    """5.4.2: Only log entries from the leader's current term are committed by counting replicas."""
    solo = Solo(terms=[1, 2])
    solo.lead()
    solo.acknowledge(2, 2)
    solo.acknowledge(3, 2)
    assert solo.status.commit == 0
    solo.acknowledge(2, 3)
    assert solo.status.commit == 3


def test_a_follower_commits_no_further_than_its_last_new_entry():
    """Figure 2, AppendEntries, 5: set commitIndex = min(leaderCommit, index of last new entry)."""
    solo = Solo(terms=[1, 1, 1])
    solo.append(term=2, prev=(1, 1), commit=3)
    assert solo.status.commit == 1
    solo.append(term=2, prev=(1, 1), terms=[1], commit=3)
    assert solo.status.commit == 2


def test_requests_are_idempotent():
    """5.5: Raft RPCs are idempotent: if a follower receives an AppendEntries request that includes
    log entries already present in its log, it ignores those entries."""
    solo = Solo()
    first = solo.append(term=1, terms=[1, 1])
    again = solo.append(term=1, terms=[1, 1])
    assert [(reply.status, reply.match) for reply in first + again] == [(Status.OK, 2)] * 2
    assert solo.log == [1, 1]


# ---- 8 clients ---------------------------------------------------------------------------------


def test_a_leader_begins_its_term_with_an_entry_of_its_own():
    """8: Each leader commits a blank no-op entry into the log at the start of its term."""
    solo = Solo(terms=[1])
    solo.lead()
    assert solo.log == [1, 2]
    assert solo.store._memory[GROUP].entries[-1].kind == EntryKind.NOOP
    assert not solo.status.committed_in_term
    solo.acknowledge(2, 2)
    assert solo.status.committed_in_term


def test_who_does_not_lead_names_the_leader():
    """8: If the client's first choice is not the leader, that server will reject the client's
    request and supply information about the most recent leader it has heard from."""
    solo = Solo()
    solo.append(sender=3, term=1)
    with pytest.raises(NotLeader) as refusal:
        solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    assert refusal.value.leader == 3


# ---- thesis ------------------------------------------------------------------------------------


def test_a_transfer_stops_proposals_and_completes_the_targets_log_first():
    """Thesis 3.10: The prior leader stops accepting new client requests, fully updates the target
    server's log, and sends a TimeoutNow request."""
    solo = Solo()
    solo.lead()
    solo.acknowledge(3, 1)
    solo.core.transfer(GROUP, 2)
    assert of(TimeoutNow, [envelope.message for envelope in solo.drain()]) == []
    with pytest.raises(QueueFull):
        solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    assert of(TimeoutNow, solo.acknowledge(2, 1)) == [TimeoutNow(GROUP, 1, 1)]


def test_a_transfer_is_given_up_after_about_an_election_timeout():
    """Thesis 3.10: If leadership transfer does not complete after about an election timeout, the
    prior leader aborts the transfer and resumes accepting client requests."""
    solo = Solo()
    solo.lead()
    solo.acknowledge(2, 1)
    solo.core.transfer(GROUP, 2)
    solo.drain()
    solo.tick(solo.config.transfer_timeout_ms)
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")


def test_timeout_now_starts_an_election_at_once_without_pre_vote():
    """Thesis 3.10, 9.6: The target starts a new election immediately; pre-vote and the check for a
    current leader do not apply."""
    solo = Solo(terms=[1])
    solo.append(sender=2, term=1, prev=(1, 1))
    requests = of(VoteRequest, solo.step(2, TimeoutNow(GROUP, 1, 1)))
    assert [(request.pre, request.transfer, request.term) for request in requests] == [
        (False, True, 2)] * 2


@pytest.mark.parametrize("pre", [True, False])
def test_a_server_that_hears_its_leader_grants_no_vote_and_keeps_its_term(pre):
    """Thesis 4.2.3: If a server receives a RequestVote request within the minimum election timeout
    of hearing from a current leader, it does not update its term or grant its vote."""
    solo = Solo(terms=[1])
    solo.append(sender=2, term=1, prev=(1, 1))
    [reply] = solo.vote_request(sender=3, term=9, last=(9, 8), pre=pre)
    assert (reply.granted, solo.status.term) == (False, 1)
    [reply] = solo.vote_request(sender=3, term=9, last=(9, 8), pre=pre, transfer=True)
    assert reply.granted


def test_a_leader_without_a_quorum_steps_down():
    """Thesis 6.2: A leader steps down if an election timeout elapses without a successful round of
    heartbeats to a majority of its cluster (here: without a majority of leases)."""
    solo = Solo(voters=[1, 2, 3, 4, 5])
    solo.lead()
    for node in (2, 3):
        solo.core.lease_lost(node)
        solo.drain()
    assert solo.status.role is Role.LEADER
    solo.core.lease_lost(4)
    solo.drain()
    assert solo.status.role is Role.FOLLOWER


def test_a_pre_vote_changes_nothing():
    """Thesis 9.6: A candidate only increments its term if it first learns from a majority of the
    cluster that they would be willing to grant it their votes; nothing is recorded."""
    solo = Solo(terms=[1], vote=0)
    hard_state = solo.store._disk[GROUP].hard_state
    assert solo.vote_request(term=5, last=(1, 1), pre=True)[0].granted
    assert solo.vote_request(sender=3, term=5, last=(1, 1), pre=True)[0].granted
    assert solo.store._disk[GROUP].hard_state == hard_state
    solo.campaign()
    assert (solo.status.role, solo.status.term) == (Role.PRE_CANDIDATE, 1)
    for node in (2, 3):
        solo.step(node, VoteReply(GROUP, 1, 1, False, True))
    assert (solo.status.role, solo.status.term) == (Role.FOLLOWER, 1)


def test_the_leader_sends_before_its_own_disk_has_the_entry():
    """Thesis 10.2.1: The leader can write to its disk in parallel with replicating to the
    followers."""
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1)
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    assert len(of(Append, [envelope.message for envelope in solo.drain(write=False)])) == 2
    assert solo.status.durable_index == 1


def test_a_leader_may_commit_what_its_own_disk_does_not_have_yet():
    """Thesis 10.2.1: The leader may even commit an entry before it has been written to its own
    disk, if a majority of followers have written it; it applies it later."""
    solo = Solo()
    solo.lead()
    for node in (2, 3):
        solo.acknowledge(node, 1)
    solo.core.propose(GROUP, EntryKind.METADATA, b"a")
    solo.drain(write=False)
    for node in (2, 3):
        solo.core.step(node, AppendReply(GROUP, 1, 1, Status.OK, 2, 1, 2))
    solo.drain(write=False)
    assert (solo.status.commit, len(solo.applied)) == (2, 1)
    solo.write()
    solo.drain()
    assert len(solo.applied) == 2


def test_a_learner_receives_entries_and_counts_for_nothing():
    """Thesis 4.2.1: A non-voting server receives entries but is not yet counted towards majorities
    for voting or commitment."""
    solo = Solo(voters=[1, 2, 3], learners=[4])
    solo.lead()
    assert 4 in [member.node for member in solo.status.members]
    assert not [envelope for envelope in solo.sent if envelope.to == 4
                and isinstance(envelope.message, VoteRequest)]
    solo.acknowledge(4, 1)
    assert solo.status.commit == 0


def test_a_learner_never_campaigns():
    """Thesis 4.2.1, again."""
    solo = Solo(voters=[2, 3, 4], learners=[1])
    solo.tick(60_000)
    assert solo.status.role is Role.FOLLOWER


def test_single_copies_of_the_log_agree_after_any_single_failure():
    """5.4.3, figure 3: State Machine Safety, on a small history with a failover in it."""
    cluster = Cluster(nodes=3)
    cluster.run(1000)
    for count in range(3):
        cluster.propose(b"%d" % count)
        cluster.settle()
        victim = cluster.leader()
        cluster.crash(victim)
        cluster.run(1500)
        cluster.nodes[victim].committed.clear()
        cluster.start(victim)
        cluster.run(1500)
    assert [cluster.payloads(node) for node in cluster.nodes] == [[b"0", b"1", b"2"]] * 3
