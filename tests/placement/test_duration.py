"""The time that moves take within the limits of their plan."""

from __future__ import annotations

from placement.duration import GRACE_MS, MOVE_MS, Pace, Work

PACE = Pace(1_000_000, 2, 2, 50)


def copies(count: int, size: int, joining=(4,), source=1) -> Work:
    work = Work()
    for _ in range(count):
        work.add_copy(joining, source, size)
    return work


def test_no_moves_take_no_time():
    assert Work().ms(PACE) == 0


def test_one_move_takes_its_time():
    work = Work()
    work.add_transfer()
    assert work.ms(PACE) == MOVE_MS


def test_small_copies_take_their_turns_into_one_node():
    assert copies(48, 100).ms(PACE) == 24 * MOVE_MS


def test_large_copies_take_the_time_of_their_bytes():
    assert copies(10, 6_000_000).ms(PACE) == 60_000


def test_nodes_receive_in_parallel_and_the_sender_may_be_the_slowest():
    work = Work()
    for node in (4, 5, 6):
        work.add_copy((node,), 0, 6_000_000)
    assert work.ms(PACE) == 6_000
    for node in (4, 5, 6):
        work.add_copy((node,), 1, 6_000_000)
    assert work.ms(PACE) == 18_000


def test_the_limit_of_all_copies_counts():
    work = Work()
    for node in range(1, 41):
        work.add_copy((node,), 0, 0)
    assert work.ms(PACE._replace(at_once_max=4)) == 10 * MOVE_MS


def test_replaced_replicas_are_waited_for_once():
    work = copies(2, 0)
    for part in (0.25, 1.0, 0.5):
        work.add_grace(part)
    assert work.ms(PACE) == MOVE_MS + GRACE_MS
