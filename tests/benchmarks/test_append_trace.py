"""Traces of appends: the critical path from records, its parts, and the causes of slow ones."""

from __future__ import annotations

import pytest

from benchmarks.append_trace import points as at
from benchmarks.append_trace.path import PARTS, Process, paths
from benchmarks.append_trace.recorder import Recorder, read
from benchmarks.append_trace.report import Report, draw

LEADER, FOLLOWER, OTHER = 3, 1, 2


def process(*events, scale=1000):
    """Return a process of (microseconds, point, value)."""
    return Process((time * scale, point, value) for time, point, value in
                   (event if len(event) == 3 else (*event, 0) for event in events))


def through_follower(begin=0, disk=200, runnable_ns=0):
    """Return client and nodes of one append whose follower's write takes ``disk`` microseconds."""
    late = begin + disk
    client = ((begin, at.APPEND_BEGIN), (begin + 50, at.WAIT_BEGIN),
              (late + 450, at.WAIT_END, runnable_ns), (late + 480, at.APPEND_END))
    leader = ((begin + 10, at.WAIT_BEGIN), (begin + 90, at.WAIT_END),
              (begin + 95, at.CLIENT_RECEIVED), (begin + 140, at.PEERS_FLUSHED),
              (begin + 150, at.WRITE_SUBMITTED), (begin + 160, at.WAIT_BEGIN),
              (begin + 200, at.WAIT_END), (begin + 205, at.WRITE_COLLECTED, 30),
              (begin + 210, at.WAIT_BEGIN), (late + 350, at.WAIT_END),
              (late + 355, at.PEER_RECEIVED, FOLLOWER), (late + 390, at.CLIENTS_FLUSHED))
    follower = ((begin + 20, at.WAIT_BEGIN), (begin + 180, at.WAIT_END),
                (begin + 240, at.WRITE_SUBMITTED), (begin + 250, at.WAIT_BEGIN),
                (late + 280, at.WAIT_END), (late + 285, at.WRITE_COLLECTED, disk),
                (late + 300, at.PEERS_FLUSHED))
    return client, {LEADER: leader, FOLLOWER: follower, OTHER: ()}


def paths_of(client, nodes):
    return paths(process(*client), {node: process(*each) for node, each in nodes.items()}, LEADER)


def test_the_parts_of_a_path_through_a_follower():
    (path,), without = paths_of(*through_follower())
    assert without == 0 and path.through == FOLLOWER
    assert [part / 1000 for part in path.parts] == [
        50, 40, 50, 40, 60, 40, 200, 20, 50, 40, 60, 30]
    assert path.latency == 680_000


def test_the_leaders_own_disk_may_be_last():
    client, nodes = through_follower()
    nodes[LEADER] = tuple(event for event in nodes[LEADER]
                          if event[1] not in (at.PEER_RECEIVED, at.WRITE_COLLECTED)
                          ) + ((555, at.WRITE_COLLECTED, 380),)
    (path,), _ = paths_of(client, {node: sorted(each) for node, each in nodes.items()})
    assert path.through == 0
    parts = {name: part / 1000 for (name, _), part in zip(PARTS, path.parts, strict=True)}
    assert parts["disk: write and sync"] == 380
    assert parts["to the follower: socket, wake-up"] == parts["follower: collect, acknowledge"] == 0
    assert path.latency == 680_000


def test_an_acknowledgement_of_an_earlier_append_is_not_taken_for_this_one():
    """Both followers are heard in one arrival; the first acknowledges what was written before."""
    client, nodes = through_follower(begin=1_000)
    nodes[LEADER] = tuple(sorted((*nodes[LEADER], (1_553, at.PEER_RECEIVED, OTHER))))
    nodes[OTHER] = ((100, at.WAIT_END), (110, at.WRITE_SUBMITTED), (150, at.WAIT_END),
                    (160, at.WRITE_COLLECTED, 20), (1_400, at.PEERS_FLUSHED))
    (path,), without = paths_of(client, nodes)
    assert (path.through, without) == (FOLLOWER, 0)


def test_the_leader_may_wake_up_before_the_clients_call_returns():
    client, nodes = through_follower()
    (path,), _ = paths_of(((0, at.APPEND_BEGIN), (120, at.WAIT_BEGIN), *client[2:]), nodes)
    assert path.parts[:2] == (90_000, 0)


def test_an_append_with_a_gap_is_counted():
    client, nodes = through_follower()
    nodes[FOLLOWER] = nodes[FOLLOWER][:4]
    assert paths_of(client, nodes) == ([], 1)


def many(slow_disk_us=0, waits_us=0, zeros=()):
    """Return the report of 99 usual appends and a slow one. ``zeros``: events of the third node,
    in microseconds after the begin of the slow one."""
    client, nodes = [], {LEADER: [], FOLLOWER: [], OTHER: []}
    for number in range(100):
        slow = number == 50
        one, each = through_follower(number * 20_000, 200 + (slow_disk_us if slow else 0))
        if slow and waits_us:
            one = (*one[:2], (one[2][0] + waits_us, at.WAIT_END, waits_us * 1000),
                   (one[3][0] + waits_us, at.APPEND_END))
        if slow:
            nodes[OTHER] += [(number * 20_000 + time, point, value)
                             for time, point, value in zeros]
        client += one
        for node, events in each.items():
            nodes[node] += events
    found, without = paths_of(client, nodes)
    return Report(found, without)


def test_the_cause_of_a_slow_append_is_the_part_that_exceeds_its_usual_length():
    report = many(slow_disk_us=4_000)
    assert [(cause.text, cause.appends, cause.excess_ms) for cause in report.causes()] == [
        ("disk: write and sync", 1, pytest.approx(4.0))]
    row = next(row for row in report.rows() if row.part == "disk: write and sync")
    assert (row.usual, row.slow) == (pytest.approx(200), pytest.approx(4_200))
    assert report.percentile_ms(0.5) == pytest.approx(0.68)


def test_a_thread_that_waited_for_a_processor_is_named():
    (cause,) = many(waits_us=3_000).causes()
    assert cause.text == "to the client: socket, wake-up: waits for a processor"


@pytest.mark.parametrize("zeros, named", [
    (((100, at.WRITE_SUBMITTED, 512 << 10), (900, at.WRITE_COLLECTED, 800)), True),
    (((100, at.WRITE_SUBMITTED, 512 << 10), (200, at.WRITE_COLLECTED, 100)), False),
    (((100, at.WRITE_SUBMITTED, 2 << 10), (900, at.WRITE_COLLECTED, 800)), False),
    (((9_000, at.WRITE_SUBMITTED, 512 << 10), (9_900, at.WRITE_COLLECTED, 800)), False),
], ids=["meanwhile", "before", "none", "later"])
def test_zeros_ahead_that_any_node_writes_meanwhile_are_named(zeros, named):
    (cause,) = many(slow_disk_us=4_000, zeros=zeros).causes()
    assert cause.text.endswith(": zeros ahead are written, too") == named


def test_the_lines_fit_a_terminal_and_add_up():
    lines = many(slow_disk_us=4_000).lines()
    assert max(map(len, lines)) <= 79
    assert "100 appends" in lines[0] and "p50 0.68 ms" in lines[0]
    assert any(line.startswith("sum") and line.split()[1:] == ["680", "4,680"] for line in lines)


def test_the_picture_is_the_same_for_the_same_record(tmp_path):
    draw(many(slow_disk_us=4_000), tmp_path / "a.svg")
    draw(many(slow_disk_us=4_000), tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert "<metadata>" not in (tmp_path / "a.svg").read_text()


def test_a_record_is_read_as_it_was_written(tmp_path):
    recorder = Recorder()
    recorder.mark(at.ROUND_BEGIN, 7)
    recorder.wait_begins()
    recorder.wait_ends()
    recorder.write(tmp_path / "1.trace")
    events = read(tmp_path / "1.trace")
    assert [point for _, point, _ in events] == [at.ROUND_BEGIN, at.WAIT_BEGIN, at.WAIT_END]
    assert events[0][2] == 7 and events == sorted(events)
