"""Recovery throttle: the token buckets, and the streams that they limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from multiraft.raft.config import RaftConfig
from multiraft.raft.recovery_throttle import (
    BURST_MS,
    LEAST_BYTES_MAX,
    LEAST_MS,
    Bucket,
    RecoveryThrottle,
    ThrottleRates,
)
from multiraft.raft.replication import PROBE_BYTES_MAX
from tests.raft.cluster import Cluster

ENTRY_BYTES = 10_000
ENTRIES = 60
CONFIG = RaftConfig(append_bytes_max=64 << 10, catch_up_append_bytes=64 << 10,
                    catch_up_window_bytes=128 << 10).validate()


@given(st.integers(1, 1 << 30), st.lists(st.tuples(st.integers(0, 2_000), st.integers(1, 100_000)),
                                         max_size=50))
def test_a_bucket_never_gives_more_than_its_rate_a_burst_and_one_piece(rate, turns):
    bucket, now_ms, taken, largest = Bucket(rate, 0), 0, 0, 0
    for pause_ms, piece in turns:
        now_ms += pause_ms
        if bucket.available(now_ms) >= 1:
            bucket.consume(piece)
            taken += piece
            largest = max(largest, piece)
    assert taken <= rate * (now_ms + BURST_MS) / 1000 + largest


@given(st.integers(1, 1 << 30), st.integers(1, 1 << 24))
def test_when_a_bucket_is_due_bytes_are_available(rate, debt):
    bucket = Bucket(rate, 0)
    bucket.consume(debt)
    due_ms = bucket.due_ms()
    assert bucket.available(due_ms) >= min(rate * LEAST_MS // 1000, LEAST_BYTES_MAX)


def test_a_bucket_gives_no_crumbs():
    bucket = Bucket(100_000, 0)
    assert bucket.available(100) == 10_000
    bucket.consume(9_000)
    assert bucket.available(100) == 0 and bucket.available(139) == 0
    assert bucket.due_ms() == 140 and bucket.available(140) == 5_000


def test_a_bucket_does_not_save_for_several_pieces():
    """50 ms of 20 MB/s were four pieces at once, for which a disk of 64 MB/s is busy for 16 ms."""
    bucket = Bucket(20_000_000, 0)
    assert bucket.available(13) == 0
    assert bucket.due_ms() == 14 and bucket.available(14) == 280_000


def test_a_bucket_that_is_looked_at_seldom_keeps_its_rate():
    """Every 0.3 s, as where processors are busy: a burst of 0.1 s gave a third of the rate, below
    what was appended, and a throttle above the least that is allowed never came to an end."""
    bucket, given = Bucket(1_000_000, 0), 0
    for now_ms in range(300, 9_001, 300):
        available = bucket.available(now_ms)
        bucket.consume(available)
        given += available
    assert given == 9_000_000


def test_a_rate_of_nothing_is_never_due():
    assert Bucket(0, 0).due_ms() is None and Bucket(0, 0).available(1 << 40) == 0


def test_a_new_rate_keeps_what_is_owed():
    throttle = RecoveryThrottle()
    throttle.set(ThrottleRates(1_000, {(1, 4): 1_000}), 0)
    throttle.consume(1, 4, 5_000)
    throttle.set(ThrottleRates(10_000, {(1, 4): 10_000}), 0)
    assert throttle.available(1, 4, 100) < 1, "5,000 bytes are owed"
    assert throttle.available(1, 4, 600) >= 1
    assert not throttle.is_throttled(2, 4)
    throttle.set(ThrottleRates(0, {}), 600)
    assert not throttle.is_throttled(1, 4) and throttle.groups == ()


def lagging():
    """A cluster whose third member lacks much and can be reached again."""
    cluster = Cluster(config=CONFIG)
    cluster.run(3000)
    leader = cluster.leader()
    member = next(node for node in cluster.nodes if node != leader)
    cluster.cut |= {(leader, member)}
    for _ in range(ENTRIES):
        cluster.propose(bytes(ENTRY_BYTES))
    cluster.run(500)
    return cluster, leader, member



def durable(cluster, node):
    return cluster.nodes[node].core.status.of(1).durable_index


def test_a_paced_stream_keeps_its_rate_and_then_catches_up():
    cluster, leader, member = lagging()
    core, before = cluster.nodes[leader].core, durable(cluster, member)
    rate = 100_000
    core.set_throttle_rates(ThrottleRates(rate, {(1, member): rate}))
    cluster.cut.clear()
    cluster.run(2_000)
    got = (durable(cluster, member) - before) * ENTRY_BYTES
    assert 0.5 * rate < got < 2 * rate + PROBE_BYTES_MAX + CONFIG.catch_up_append_bytes, got
    core.set_throttle_rates(ThrottleRates(rate, {(1, member): 0}))
    cluster.run(200)
    stopped = durable(cluster, member)
    cluster.run(5_000)
    assert durable(cluster, member) - stopped <= 1, "nothing goes at rate 0"
    core.set_throttle_rates(ThrottleRates(0, {}))
    cluster.run(1_000)
    assert durable(cluster, member) == core.status.of(1).last_index
    cluster.check()


def test_a_paced_stream_has_four_windows_on_the_way_where_answers_are_slow():
    """One window of 128 KiB and answers after 0.5 s would be 256 KiB a second, whatever the
    throttle."""
    for paced, windows in ((False, 1), (True, 4)):
        cluster, leader, member = lagging()
        core = cluster.nodes[leader].core
        if paced:
            core.set_throttle_rates(ThrottleRates(1 << 30, {(1, member): 1 << 30}))
            core.set_now(cluster.now_ms + BURST_MS)  # the bucket fills
        group = core._groups[1]
        progress = group.progress[member]
        progress.become_replicate(progress.match + 1)
        for _ in range(10):  # rounds, and no answer yet
            group.touch()
            core.ready()
        inflight = progress.inflight_bytes
        room = windows * CONFIG.catch_up_window_bytes
        assert room - 2 * ENTRY_BYTES < inflight <= room, (paced, inflight)


def test_two_streams_share_what_their_sender_may_send():
    cluster, leader, member = lagging()
    other = next(node for node in cluster.nodes if node not in (leader, member))
    core, before = cluster.nodes[leader].core, durable(cluster, member)
    core.set_throttle_rates(ThrottleRates(50_000, {(1, member): 1 << 40, (1, other): 1 << 40}))
    cluster.cut.clear()
    cluster.run(1_000)
    got = (durable(cluster, member) - before) * ENTRY_BYTES
    assert got < 50_000 + PROBE_BYTES_MAX + CONFIG.catch_up_append_bytes, got


def test_what_is_not_committed_is_not_paced():
    cluster = Cluster(config=CONFIG)
    cluster.run(3000)
    leader = cluster.leader()
    others = [node for node in cluster.nodes if node != leader]
    rates = ThrottleRates(1, {(1, node): 1 for node in others})
    cluster.nodes[leader].core.set_throttle_rates(rates)
    for _ in range(10):
        cluster.propose(bytes(ENTRY_BYTES))
        cluster.run(20)
    cluster.run(100)
    last = cluster.nodes[leader].core.status.of(1).last_index
    assert cluster.nodes[leader].core.status.of(1).commit == last
