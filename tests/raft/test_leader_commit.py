"""Distance of a replica from its leader, by the highest commit index that a leader sent."""

from tests.raft.solo import Solo


def test_nothing_was_said_to_a_replica_that_has_just_started():
    solo = Solo(terms=(1, 1, 1))
    assert solo.status.leader_commit_seen == -1
    solo.append(term=1, prev=(3, 1), commit=3)
    assert solo.status.leader_commit_seen == 3
    solo.boot()
    assert solo.status.leader_commit_seen == -1, "a new life has heard nobody yet"


def test_what_is_said_counts_even_where_the_logs_do_not_meet_yet():
    solo = Solo(terms=(1,))
    solo.append(term=2, prev=(90, 2), commit=80)
    assert (solo.status.leader_commit_seen, solo.status.commit) == (80, 0)


def test_a_leader_that_knows_less_takes_nothing_back():
    solo = Solo(terms=(1, 1))
    solo.append(term=1, prev=(2, 1), commit=2)
    solo.append(sender=3, term=2, prev=(2, 1), commit=0)
    assert solo.status.leader_commit_seen == 2


def test_what_a_deposed_leader_says_is_not_heard():
    solo = Solo(terms=(1,), term=5)
    solo.append(term=4, prev=(1, 1), commit=1)
    assert solo.status.leader_commit_seen == -1


def test_it_decides_nothing():
    solo = Solo(terms=(1,))
    solo.append(term=1, prev=(1, 1), terms=(1,), commit=50)
    assert solo.status.commit == 2, "only what is verified is committed"
    assert solo.status.leader_commit_seen == 50
