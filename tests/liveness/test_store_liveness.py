"""Node leases: who may count on whom, over links that lose, repeat, reorder and work one way."""

from __future__ import annotations

from multiraft.liveness.store_liveness import (
    OUTSTANDING_MAX,
    Heartbeat,
    HeartbeatResponse,
    LeaseEvent,
    LeaseEventKind,
    StoreLiveness,
)

GRANTED, WITHDRAWN, HELD, LOST, MISMATCH, LED, FULL = LeaseEventKind
LEASE, INTERVAL = 600, 150


def node(id_: int, epoch: int = 1, peers=(1, 2)) -> StoreLiveness:
    liveness = StoreLiveness(id_, epoch, LEASE, INTERVAL)
    for peer in peers:
        if peer != id_:
            liveness.add_peer(peer)
    return liveness


def exchange(sender: StoreLiveness, responder: StoreLiveness, now_ms: int, back: bool = True,
             delay_ms: int = 0):
    """One heartbeat and its response, each ``delay_ms`` on the way."""
    for to, heartbeat in sender.heartbeats(now_ms):
        assert to == responder.node
        response = responder.on_heartbeat(now_ms + delay_ms, sender.node, heartbeat)
        if response is not None and back:
            sender.on_response(now_ms + 2 * delay_ms, responder.node, response)


def kinds(liveness: StoreLiveness) -> list[LeaseEventKind]:
    return [event.kind for event in liveness.events() if event.kind is not LED]


def test_a_response_is_support_for_and_from():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 1000)
    assert n2.events() == [LeaseEvent(GRANTED, 1, 1), LeaseEvent(LED, 1, 0)]
    assert n1.events() == [LeaseEvent(HELD, 2, 1)]


def test_a_lease_counts_from_when_the_heartbeat_left():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 1000, delay_ms=100)
    n1.events(), n2.events()
    n1.expire(1599)
    assert n1.events() == []
    n1.expire(1600)
    assert kinds(n1) == [LOST]
    n2.expire(1699)
    assert n2.events() == []
    n2.expire(1700)
    assert kinds(n2) == [WITHDRAWN]


def test_support_granted_outlives_the_support_that_is_counted():
    n1, n2 = node(1), node(2)
    for now_ms in range(0, 3000, INTERVAL):
        exchange(n1, n2, now_ms, delay_ms=40)
    received, given = n1._peers[2].support_from_until_ms, n2._peers[1].support_for_until_ms
    assert received < given


def test_a_response_that_comes_too_late_counts_for_nothing():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 1000, delay_ms=300)
    assert kinds(n1) == []


def test_a_one_way_link_supports_no_node_that_sends_over_it():
    n1, n2 = node(1), node(2)
    for now_ms in range(0, 3000, INTERVAL):
        exchange(n1, n2, now_ms, back=False)
        n1.expire(now_ms)
        n2.expire(now_ms)
    assert kinds(n1) == []
    assert kinds(n2) == [GRANTED]


def test_a_process_that_ended_loses_its_leases_at_once_and_may_earn_new_ones():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 1000), exchange(n2, n1, 1000)
    n1.events()
    n1.ended(2)
    assert kinds(n1) == [WITHDRAWN, LOST]
    n1.ended(2)
    n1.ended(9)
    n1.expire(5000)
    assert kinds(n1) == []
    exchange(n1, n2, 5000), exchange(n2, n1, 5000)
    assert kinds(n1) == [HELD, GRANTED]


def test_heartbeats_keep_the_interval():
    n1 = node(1)
    assert [len(n1.heartbeats(now_ms)) for now_ms in (0, 1, 149, 150, 299, 300)] == [
        1, 0, 0, 1, 0, 1]


def test_a_repeated_or_overtaken_heartbeat_extends_nothing():
    n1, n2 = node(1), node(2)
    [(_, first)] = n1.heartbeats(0)
    [(_, second)] = n1.heartbeats(INTERVAL)
    assert n2.on_heartbeat(200, 1, second) is not None
    assert n2.on_heartbeat(700, 1, second) is None
    assert n2.on_heartbeat(700, 1, first) is None
    n2.expire(800)
    assert kinds(n2) == [GRANTED, WITHDRAWN]


def test_a_repeated_response_extends_nothing():
    n1, n2 = node(1), node(2)
    [(_, heartbeat)] = n1.heartbeats(0)
    response = n2.on_heartbeat(0, 1, heartbeat)
    n1.on_response(10, 2, response)
    n1.expire(600)
    n1.on_response(601, 2, response)
    assert kinds(n1) == [HELD, LOST]


def test_a_new_life_ends_the_support_of_the_old_one_both_ways():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 0)
    exchange(n2, n1, 0)
    n1.events(), n2.events()
    reborn = node(1, epoch=2)
    exchange(reborn, n2, 100)
    assert [event for event in n2.events() if event.kind is not LED] == [
        LeaseEvent(WITHDRAWN, 1), LeaseEvent(LOST, 1), LeaseEvent(GRANTED, 1, 2)]


def test_the_new_life_is_announced_before_what_it_leads():
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 0)
    n2.events()
    exchange(node(1, epoch=2), n2, 10)
    assert [event.kind for event in n2.events()] == [WITHDRAWN, GRANTED, LED]


def test_messages_of_an_earlier_life_are_dropped():
    """S7: recorded, and delivered after the restart."""
    n1, n2 = node(1), node(2)
    [(_, old_heartbeat)] = n1.heartbeats(0)
    old_response = n2.on_heartbeat(0, 1, old_heartbeat)
    reborn = node(1, epoch=2)
    [(_, heartbeat)] = reborn.heartbeats(150)
    assert heartbeat.sequence == old_response.sequence
    reborn.on_response(160, 2, old_response)
    assert reborn.events() == []
    exchange(reborn, n2, 300)
    n2.events(), reborn.events()
    assert n2.on_heartbeat(400, 1, old_heartbeat._replace(sequence=99)) is None
    reborn.on_response(400, 2, old_response)
    assert n2.events() == [] and reborn.events() == []
    # A response of the responder's earlier boot epoch does not count either.
    [(_, heartbeat)] = reborn.heartbeats(450)
    reborn.on_response(460, 2, HeartbeatResponse(5, 2, 99, 0))
    reborn.events()
    reborn.on_response(470, 2, HeartbeatResponse(4, 2, heartbeat.sequence, 0))
    assert reborn.events() == []


def test_an_unhealthy_node_neither_sends_nor_responds():
    """S1: a hung disk or loop ends the node's leases at both ends."""
    n1, n2 = node(1), node(2)
    exchange(n1, n2, 0)
    exchange(n2, n1, 0)
    n1.events(), n2.events()
    n1.publish({}, {}, 0, healthy=False)
    for now_ms in range(INTERVAL, 1000, INTERVAL):
        exchange(n1, n2, now_ms)
        exchange(n2, n1, now_ms)
        n1.expire(now_ms)
        n2.expire(now_ms)
    assert kinds(n1) == [LOST, WITHDRAWN]
    assert kinds(n2) == [LOST, WITHDRAWN]
    n1.publish({}, {}, 0, healthy=True)
    exchange(n1, n2, 1050)
    assert kinds(n1) == [HELD]


def test_two_digests_in_a_row_must_differ():
    n1, n2 = node(1), node(2)
    n1.publish({2: 7}, {}, 0, healthy=True)
    exchange(n1, n2, 0)
    assert MISMATCH not in kinds(n2)
    n2.publish({}, {1: 7}, 0, healthy=True)
    exchange(n1, n2, 150)
    n2.publish({}, {1: 8}, 0, healthy=True)
    exchange(n1, n2, 300)
    assert MISMATCH not in kinds(n2)
    exchange(n1, n2, 450)
    assert kinds(n2) == [MISMATCH]
    exchange(n1, n2, 600)
    exchange(n1, n2, 750)
    assert kinds(n2) == [MISMATCH], "reported again while it lasts"


def test_a_new_version_of_the_led_list_is_reported_once():
    n1, n2 = node(1), node(2)
    for now_ms, version in ((0, 0), (150, 0), (300, 4), (450, 4)):
        n1.publish({}, {}, version, healthy=True)
        exchange(n1, n2, now_ms)
    assert [event for event in n2.events() if event.kind is LED] == [
        LeaseEvent(LED, 1, 0), LeaseEvent(LED, 1, 4)]


def test_a_full_disk_is_told_with_each_response_and_reported_when_it_changes():
    n1, n2 = node(1), node(2)
    for now_ms, full in ((0, False), (150, True), (300, True), (450, False)):
        n2.publish({}, {}, 0, healthy=True, full=full)
        exchange(n1, n2, now_ms)
    assert [event for event in n1.events() if event.kind is FULL] == [
        LeaseEvent(FULL, 2, 1), LeaseEvent(FULL, 2, 0)]


def test_a_full_disk_is_told_again_to_whoever_lost_the_lease():
    n1, n2 = node(1), node(2)
    n2.publish({}, {}, 0, healthy=True, full=True)
    exchange(n1, n2, 0)
    n1.expire(LEASE)
    exchange(n1, n2, 2 * LEASE)
    assert kinds(n1) == [HELD, FULL, LOST, HELD, FULL]


def test_heartbeats_without_a_response_are_bounded():
    n1 = node(1)
    for count in range(100):
        n1.heartbeats(count * INTERVAL)
    assert len(n1._peers[2].outstanding) == OUTSTANDING_MAX


def test_strangers_and_removed_nodes_get_no_response():
    n2 = node(2)
    assert n2.on_heartbeat(0, 9, Heartbeat(1, 1, 0, 0)) is None
    n1 = node(1)
    exchange(n1, n2, 0)
    n2.events()
    n2.remove_peer(1)
    assert kinds(n2) == [WITHDRAWN]
    assert n2.on_heartbeat(200, 1, Heartbeat(1, 2, 0, 0)) is None


def test_the_next_deadline_is_the_next_heartbeat_or_the_end_of_a_lease():
    n1, n2 = node(1), node(2)
    assert n1.next_deadline_ms(5) == 5
    exchange(n1, n2, 5)
    assert n1.next_deadline_ms(5) == 155
    n1.publish({}, {}, 0, healthy=False)
    assert n1.next_deadline_ms(500) == 605
