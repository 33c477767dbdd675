"""Admission of peers by boot id (docs/decisions/0008, 0052)."""

from __future__ import annotations

import pytest

from multiraft.liveness.peer_identity import (
    DURABLE,
    LIVES_KEPT,
    NO_LIFE,
    History,
    Introduction,
    Known,
    Life,
    Recall,
    Refusal,
    judge,
)

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


# ---- lives that are linked -----------------------------------------------------------------------


class Directory:
    """A data directory that is started, copied and started again."""

    numbers = iter(range(1, 1 << 20))

    def __init__(self, epoch: int = 0, lives: tuple[Life, ...] = ()):
        self.epoch, self.lives = epoch, lives

    def start(self) -> Directory:
        self.epoch += 1
        self.lives = (*self.lives, Life(self.epoch, DURABLE | next(self.numbers)))[-LIVES_KEPT:]
        return self

    def copy(self) -> Directory:
        return Directory(self.epoch, self.lives)

    def introduction(self, after: Life | None = None) -> Introduction:
        return Introduction(PEER, 77, *self.lives[-1], after)


class Judge:
    """A node that remembers the boot ids that it admitted."""

    def __init__(self, registered: int = 0):
        self.registered, self.life = registered, NO_LIFE

    def meets(self, directory: Directory, is_alive: bool = False) -> Recall | Refusal | None:
        """Carry out both sides until the peer is admitted; None = it is."""
        after = None
        for _ in range(2):
            verdict = judge(directory.introduction(after), HERE,
                            Known(77, self.registered, self.life), False, lambda _: is_alive)
            if verdict is None:
                self.life = directory.lives[-1]
                return None
            if verdict.remembered is None:
                return verdict.refusal
            recall = History(directory.lives).recall(verdict.remembered)
            if recall is not Recall.OWN:
                return recall
            if verdict.refusal is not Refusal.UNLINKED:
                return verdict.refusal
            after = verdict.remembered
        return verdict.refusal


def test_a_life_is_let_in_however_many_the_peer_has_missed():
    node, peer = Directory(), Judge()
    for missed in (0, 1, 7, 0, 300, LIVES_KEPT - 2):
        for _ in range(missed):
            node.start()
        assert peer.meets(node.start()) is None
        assert peer.meets(node) is None, "it merely connects again"


@pytest.mark.parametrize("older", [1, 2, 5])
def test_an_older_copy_is_never_let_in_whatever_the_number_of_its_starts(older):
    node, peer = Directory().start(), Judge()
    assert peer.meets(node) is None
    copy = node.copy()
    for _ in range(older):
        assert peer.meets(node.start()) is None
    remembered = peer.life
    for start in range(3 * older + 3):
        assert peer.meets(copy.start()) is Recall.FOREIGN, f"start {start + 1}"
        again = copy.copy()  # a copy of the copy, too
        assert peer.meets(again.start()) is Recall.FOREIGN
        assert peer.life == remembered, "a refused start changes nothing"
    assert peer.meets(node.start()) is None, "and the original goes on"


def test_a_copy_beside_the_original_is_refused_in_either_order():
    node, peer = Directory().start(), Judge()
    peer.meets(node)
    inside = node.copy()  # taken while this life lasts
    before = Directory(node.epoch - 1, node.lives[:-1])
    for _ in range(5):
        assert peer.meets(inside.start(), is_alive=True) is Refusal.RUNS
        assert peer.meets(before.start(), is_alive=True) is Recall.FOREIGN
        assert peer.meets(node, is_alive=True) is None


def test_a_life_that_lasts_gets_new_numbers_and_a_copy_of_before_is_an_older_one():
    node, peer = Directory().start(), Judge()
    peer.meets(node)
    copy = node.copy()  # as a machine's snapshot, while it runs
    node.lives = (*node.lives, Life(node.epoch, DURABLE | next(Directory.numbers)))
    assert peer.meets(node, is_alive=True) is None, "it is the same life"
    for _ in range(5):
        assert peer.meets(copy.start()) is Recall.FOREIGN, "though the original has ended"
    assert peer.meets(node.start()) is None


def test_what_is_registered_refuses_a_copy_that_started_less_often():
    node = Directory().start()
    copy = node.copy()
    for _ in range(3):
        node.start()
    assert Judge(registered=node.epoch).meets(copy.start()) is Recall.FOREIGN


def test_lives_of_earlier_releases_are_judged_by_their_epoch():
    peer = Judge()
    assert refusal(Introduction(PEER, 77, 9, 5), Known(77, 9, Life(8, 4))) is None
    peer.life = Life(8, 4)  # heard of in memory, before it was upgraded
    node = Directory(epoch=8)
    assert peer.meets(node.start()) is None
    assert peer.meets(node.start()) is None
    back = Introduction(PEER, 77, 20, 5)  # a copy, run by the release before
    assert refusal(back, Known(77, 9, peer.life)) is Refusal.STALE_LIFE


def test_a_peer_that_was_away_for_more_starts_than_are_kept_cannot_be_answered():
    node, peer = Directory().start(), Judge()
    peer.meets(node)
    pinned = node.lives[-1]
    for _ in range(LIVES_KEPT):
        node.start()
    assert peer.meets(node) is Recall.FORGOTTEN
    assert History(node.lives, [pinned]).recall(peer.life) is Recall.OWN
    copy = Directory(node.epoch, node.lives)
    peer.meets(Directory(node.epoch, (peer.life,)).start())
    assert peer.meets(copy.start()) is Recall.FOREIGN, "what it must have had it is asked for"


def test_a_number_of_a_long_life_from_before_those_that_are_kept_is_no_copy_s():
    """The answer to an introduction was lost, and the peer away for half a day of writes."""
    kept = [Life(3, DURABLE | number) for number in range(100, 100 + LIVES_KEPT)]
    assert History(kept).recall(Life(3, DURABLE | 99)) is Recall.FORGOTTEN
    assert History(kept).recall(Life(3, DURABLE | 1 << 40)) is Recall.FOREIGN
    assert History(kept[:-1]).recall(Life(3, DURABLE | 99)) is Recall.FOREIGN
