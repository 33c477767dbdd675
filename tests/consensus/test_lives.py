"""Which life of a node is let in (docs/decisions/0008)."""

from __future__ import annotations

import pytest

from multiraft.lives import NO_LIFE, Introduction, Known, Life, Refusal, judge

HERE, PEER = 1, 2


def refusal(said: Introduction, known: Known | None, is_removed: bool = False,
            is_alive: bool = False) -> Refusal | None:
    verdict = judge(said, HERE, known, is_removed, lambda _: is_alive)
    return verdict.refusal if verdict is not None else None


def test_whoever_is_as_known_is_let_in():
    assert refusal(Introduction(PEER, 77, 3, 5), Known(77, 3, Life(3, 5))) is None
    assert refusal(Introduction(PEER, 77, 4, 6), Known(77, 3, Life(3, 5))) is None
    assert refusal(Introduction(PEER, 77, 1, 1), Known(0)) is None  # the first that is heard of it


def test_an_id_belongs_to_one_directory_for_ever():
    wiped = Introduction(PEER, 78, 1, 1)
    assert refusal(wiped, Known(77)) is Refusal.OTHER_DIRECTORY
    assert refusal(Introduction(PEER, 0, 1, 1), Known(0)) is Refusal.OTHER_DIRECTORY
    assert refusal(wiped, None, is_removed=True) is Refusal.REMOVED
    assert refusal(Introduction(PEER, 77, 9, 9), Known(77), is_removed=True) is Refusal.REMOVED


def test_nobody_is_let_in_whom_nobody_knows_or_who_claims_to_be_here():
    assert refusal(Introduction(PEER, 77, 1, 1), None) is Refusal.UNKNOWN
    assert refusal(Introduction(HERE, 77, 1, 1), Known(77)) is Refusal.UNKNOWN


@pytest.mark.parametrize("known, said", [
    (Known(77, 4, NO_LIFE), (3, 1)),  # as it was registered
    (Known(77, 0, Life(4, 1)), (3, 2)),  # as it was heard of
    (Known(77, 0, Life(4, 1)), (4, 2)),  # a copy that started as often
])
def test_of_two_processes_of_one_directory_one_lives(known, said):
    assert refusal(Introduction(PEER, 77, *said), known) is Refusal.STALE_LIFE


def test_the_next_life_waits_until_the_one_before_is_gone():
    known = Known(77, 0, Life(4, 1))
    assert refusal(Introduction(PEER, 77, 5, 2), known, is_alive=True) is Refusal.RUNS
    assert refusal(Introduction(PEER, 77, 5, 2), known, is_alive=False) is None
    assert refusal(Introduction(PEER, 77, 4, 1), known, is_alive=True) is None  # itself
