"""Connections of a client as a state machine: each request ends exactly once."""

from __future__ import annotations

import random

import pytest

from multiraft.client._network import (
    LATE_MS,
    Lost,
    Network,
    NetworkLimits,
    backoff_ms,
    drop_sent,
    parse_address,
)
from multiraft.errors import ConfigError
from multiraft.wire import messages as m
from multiraft.wire.connection import NEED_DATA, PAUSED, Connection, ResponseEvent, Role
from multiraft.wire.messages import Hello, Welcome

A, B, C = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"
CLUSTER = bytes(16)


STATUS = m.ClusterStatus()


class Bench:
    """A network and the scripted other ends of its links."""

    def __init__(self, servers=(A,), in_flight_max=8):
        self.network = Network(list(servers), random.Random(1))
        self.welcome = Welcome(CLUSTER, 1, 0, 0, 0, in_flight_max)
        self.ends: list = []

    def ask(self, address=A, timeout_ms=1000, now=0, request=STATUS):
        outcomes: list = []
        self.network.request(address, request, (), timeout_ms, outcomes.append, now)
        return outcomes

    def connect(self, now=0):
        (link,) = [link for link in self.network.take_changed() if link.welcome is None]
        link.connected()
        server = Connection(Role.SERVER)
        assert isinstance(self.arrive(link, server)[0], Hello)
        self.give(link, server.send(self.welcome), now)
        return link, server

    def arrive(self, link, server) -> list:
        data = b"".join(link.take_outgoing())
        server.receive_data(data) if data else None
        found = []
        while (event := server.next_event()) not in (NEED_DATA, PAUSED):
            found.append(event)
        return found

    def give(self, link, buffers, now=0):
        data = b"".join(buffers)
        while data and not link.closed:
            room = link.buffer_for_receive()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            link.received(count, now)


def test_a_request_waits_for_its_connection_and_gets_its_answer():
    bench = Bench()
    outcomes = bench.ask()
    link, server = bench.connect()
    (event,) = bench.arrive(link, server)
    status = m.ClusterStatusReply(CLUSTER, 1, (), 1, 1, 0, 0, 0)
    bench.give(link, server.send(ResponseEvent(event.id, status, metadata_index=9)))
    assert outcomes == [ResponseEvent(event.id, status, metadata_index=9)]
    assert bench.network.metadata_index == 9


def test_what_was_never_sent_is_lost_unsent_and_the_rest_may_have_arrived():
    bench = Bench(in_flight_max=1)
    first, second = bench.ask(), bench.ask()
    link, server = bench.connect()
    assert len(bench.arrive(link, server)) == 1, "one at a time, says the welcome"
    bench.network.broken(link, "cut", 5)
    assert first == [Lost(True, "cut")] and second == [Lost(False, "cut")]


def test_a_place_in_flight_is_passed_on():
    bench = Bench(in_flight_max=1)
    bench.ask(), bench.ask()
    link, server = bench.connect()
    (event,) = bench.arrive(link, server)
    status = m.ClusterStatusReply(CLUSTER, 1, (), 1, 1, 0, 0, 0)
    bench.give(link, server.send(ResponseEvent(event.id, status)))
    assert len(bench.arrive(link, server)) == 1


def test_an_address_that_failed_has_a_pause_and_says_why():
    bench = Bench()
    first = bench.ask()
    (link,) = bench.network.take_changed()
    bench.network.broken(link, "refused", 0)
    assert first == [Lost(False, "refused")]
    assert bench.ask(now=1) == [Lost(False, "refused")]
    assert bench.network.any_address(1) is None
    assert bench.network.errors() == {A: "refused"}
    assert bench.network.any_address(bench.network.next_retry_ms()) == A


@pytest.mark.parametrize("seed", range(20))
def test_addresses_that_fail_are_tried_in_turn(seed):
    """A random choice alone tried only two dead nodes until the timeout, once in some hundred
    times."""
    bench = Bench((A, B, C))
    bench.network._rng = random.Random(seed)
    tried, now_ms = [], 0
    for _ in range(9):
        assert bench.network.has_untried() == (len(tried) < 3)
        address = bench.network.any_address(now_ms, tried[-1] if tried else "")
        bench.ask(address, now=now_ms)
        (link,) = bench.network.take_changed()
        bench.network.broken(link, "refused", now_ms)
        bench.network.take_changed()
        tried.append(address)
        now_ms += bench.network.limits.retry_ms_max
    assert {*tried[:3]} == {*tried[3:6]} == {*tried[6:]} == {A, B, C}


def test_time_ends_a_request_that_is_not_connected():
    bench = Bench()
    outcomes = bench.ask(timeout_ms=100)
    assert bench.network.next_deadline_ms() == 100
    bench.network.tick(100)
    assert outcomes == [Lost(False, "not connected in time")]


def test_an_unanswered_request_ends_its_link():
    bench = Bench()
    outcomes = bench.ask(timeout_ms=100)
    link, server = bench.connect()
    bench.arrive(link, server)
    bench.network.tick(100)
    assert link.closed and outcomes == [Lost(True, "silent for 100 ms")]


def test_a_node_that_accepts_connections_and_says_nothing_is_told_from_one_that_was_not_asked():
    bench = Bench((A, B))
    outcomes = bench.ask(timeout_ms=3_000)
    assert bench.network.errors() == {A: "no answer so far", B: "not asked"}
    assert bench.network.has_untried(A) and not bench.network.has_untried(B)
    (link,) = bench.network.take_changed()
    link.connected()
    longer = bench.ask(timeout_ms=5_000)
    bench.network.tick(3_000)
    assert outcomes == [Lost(False, "not connected in time")]
    assert not link.closed, "another request waits for it"
    bench.network.tick(5_000)
    assert link.closed and longer == outcomes
    assert bench.network.errors() == {A: "silent for 5 s", B: "not asked"}
    assert bench.network.any_address(5_000) == B
    assert bench.network.has_undecided(), "it may answer later"


def test_a_refusal_names_the_versions_of_both_sides():
    bench = Bench()
    bench.ask()
    (link,) = bench.network.take_changed()
    link.connected()
    server = Connection(Role.SERVER)
    bench.arrive(link, server)
    bench.give(link, server.send(m.Refused(m.Code.UNSUPPORTED, "version 2 is not supported", (3,))))
    assert bench.network.errors() == {A: (
        "it speaks version 3 of the protocol, this client speaks version 2: upgrade the older of "
        "the two")}
    assert not bench.network.has_undecided()


def test_the_deadline_of_an_answered_request_is_looked_at_once_and_ends_nothing():
    bench = Bench()
    bench.ask(timeout_ms=100)
    link, server = bench.connect()
    late = bench.ask(timeout_ms=500)
    event, _ = bench.arrive(link, server)
    status = m.ClusterStatusReply(CLUSTER, 1, (), 1, 1, 0, 0, 0)
    bench.give(link, server.send(ResponseEvent(event.id, status)))
    assert bench.network.next_deadline_ms() == 100
    bench.network.tick(100)
    assert not link.closed and bench.network.next_deadline_ms() == 500
    bench.network.tick(500)
    assert late == [Lost(True, "silent for 500 ms")]
    assert bench.network.next_deadline_ms() is None


@pytest.mark.parametrize("is_connected", [True, False])
def test_answers_that_came_while_the_process_did_not_run_are_read_first(is_connected):
    bench = Bench()
    outcomes = bench.ask(timeout_ms=1_000)
    if is_connected:
        link, server = bench.connect()
    else:
        (link,) = bench.network.take_changed()
        link.connected()
        server = Connection(Role.SERVER)
    arrived = bench.arrive(link, server)
    bench.network.tick(60_000)
    assert not outcomes and not link.closed
    bench.network.tick(bench.network.next_deadline_ms() - 1)
    assert not outcomes and not link.closed
    if is_connected:
        status = m.ClusterStatusReply(CLUSTER, 1, (), 1, 1, 0, 0, 0)
        bench.give(link, server.send(ResponseEvent(arrived[0].id, status)))
        assert type(outcomes[0]) is ResponseEvent
    else:
        bench.give(link, server.send(bench.welcome), now=60_001)
        assert outcomes == [Lost(False, "not connected in time")]
    bench.network.tick(bench.network.next_deadline_ms())
    assert not link.closed and len(outcomes) == 1


def test_a_node_that_does_not_answer_is_given_up_soon_after_the_process_runs_again():
    bench = Bench()
    outcomes = bench.ask(timeout_ms=1_000)
    link, _ = bench.connect()
    bench.network.tick(60_000)
    due_ms = bench.network.next_deadline_ms()
    assert 60_000 < due_ms <= 60_000 + LATE_MS
    bench.network.tick(due_ms + 9_000)  # late again: it is postponed once
    assert link.closed and outcomes == [Lost(True, "silent for 1 min 9 s")]
    assert bench.network.next_deadline_ms() is None


def test_a_node_that_owes_answers_and_is_silent_is_not_asked_first():
    bench = Bench((A, B))
    bench.ask(A, timeout_ms=60_000)
    bench.connect()
    bench.ask(B, timeout_ms=60_000)
    link, server = bench.connect()
    (event,) = bench.arrive(link, server)
    status = m.ClusterStatusReply(CLUSTER, 2, (), 1, 1, 0, 0, 0)
    bench.give(link, server.send(ResponseEvent(event.id, status)), now=10)
    assert {bench.network.any_address(now) for now in range(5_000, 5_050)} == {B}


def test_a_node_of_another_cluster_is_refused():
    bench = Bench((A, B))
    bench.ask(A)
    bench.connect()
    bench.welcome = Welcome(b"another cluster!", 2)
    outcomes = bench.ask(B)
    link, _ = bench.connect()
    assert link.closed
    assert "another cluster"[:7].encode().hex() in outcomes[0].why


def test_protocol_errors_end_the_link():
    bench = Bench()
    outcomes = bench.ask()
    link, server = bench.connect()
    bench.arrive(link, server)
    bench.give(link, [b"HTTP/1.1 400 Bad Request\r\n\r\n"])
    assert link.closed and "protocol error" in outcomes[0].why


def test_closing_ends_every_request():
    bench = Bench()
    outcomes = bench.ask()
    bench.network.close()
    assert outcomes == [Lost(False, "the client was closed")]


@pytest.mark.parametrize("text, parsed", [
    ("h:1", ("h", 1)), (" h:65535 ", ("h", 65535)), ("[::1]:9", ("::1", 9))])
def test_addresses_are_read(text, parsed):
    assert parse_address(text) == parsed


@pytest.mark.parametrize("text", ["a:1,[::1]:2", "a:1, [::1]:2,", "a:1,[::1]:2,a:1"])
def test_addresses_in_one_text_are_read_as_a_list(text):
    assert Network(text, random.Random(1)).addresses() == ["a:1", "[::1]:2"]


@pytest.mark.parametrize("text", ["", " , "])
def test_a_text_without_an_address_is_a_config_error(text):
    with pytest.raises(ConfigError, match="no server address"):
        Network(text, random.Random(1))


def test_no_address_at_all_is_a_config_error():
    with pytest.raises(ConfigError):
        Network([], random.Random(1))


def test_pauses_double_and_are_half_random():
    limits = NetworkLimits(retry_ms_min=20, retry_ms_max=100)
    for failures, low, high in ((1, 10, 20), (2, 20, 40), (3, 40, 80), (4, 50, 100),
                                (50, 50, 100)):
        seen = [backoff_ms(limits, failures, random.Random(seed)) for seed in range(200)]
        assert low <= min(seen) and max(seen) <= high and len(set(seen)) > 5


def test_what_was_sent_is_dropped_wherever_it_ends():
    whole = b"abcdefghij"
    for count in range(11):
        left = drop_sent([b"abc", bytearray(b"defg"), memoryview(b"hij")], count)
        assert b"".join(left) == whole[count:]
