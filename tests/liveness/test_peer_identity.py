"""Admission of peers by boot id (docs/decisions/0008, 0052)."""

from __future__ import annotations

import pytest

from multiraft.liveness.peer_identity import (
    BOOT_IDS_KEPT,
    DURABLE,
    NO_BOOT_ID,
    BootHistory,
    BootId,
    BootIdOrigin,
    KnownPeer,
    PeerHello,
    Refusal,
    check_peer,
)

HERE, PEER = 1, 2


def refusal(said: PeerHello, known: KnownPeer | None, is_removed: bool = False,
            is_alive: bool = False) -> Refusal | None:
    verdict = check_peer(said, HERE, known, is_removed, lambda _: is_alive)
    return verdict.refusal if verdict is not None else None


def test_whoever_is_as_known_is_let_in():
    assert refusal(PeerHello(PEER, 77, 3, 5), KnownPeer(77, 3, BootId(3, 5))) is None
    assert refusal(PeerHello(PEER, 77, 4, 6), KnownPeer(77, 3, BootId(3, 5))) is None
    assert refusal(PeerHello(PEER, 77, 1, 1), KnownPeer(0)) is None  # the first that is heard of it


def test_an_id_belongs_to_one_directory_for_ever():
    wiped = PeerHello(PEER, 78, 1, 1)
    assert refusal(wiped, KnownPeer(77)) is Refusal.OTHER_DIRECTORY
    assert refusal(PeerHello(PEER, 0, 1, 1), KnownPeer(0)) is Refusal.OTHER_DIRECTORY
    assert refusal(wiped, None, is_removed=True) is Refusal.REMOVED
    assert refusal(PeerHello(PEER, 77, 9, 9), KnownPeer(77), is_removed=True) is Refusal.REMOVED


def test_nobody_is_let_in_whom_nobody_knows_or_who_claims_to_be_here():
    assert refusal(PeerHello(PEER, 77, 1, 1), None) is Refusal.UNKNOWN
    assert refusal(PeerHello(HERE, 77, 1, 1), KnownPeer(77)) is Refusal.UNKNOWN


@pytest.mark.parametrize("known, said", [
    (KnownPeer(77, 4, NO_BOOT_ID), (3, 1)),  # as it was registered
    (KnownPeer(77, 0, BootId(4, 1)), (3, 2)),  # as it was heard of
    (KnownPeer(77, 0, BootId(4, 1)), (4, 2)),  # a copy that started as often
])
def test_of_two_processes_of_one_directory_one_is_admitted(known, said):
    assert refusal(PeerHello(PEER, 77, *said), known) is Refusal.STALE_BOOT_ID


def test_the_next_boot_id_waits_until_the_one_before_is_gone():
    known = KnownPeer(77, 0, BootId(4, 1))
    assert refusal(PeerHello(PEER, 77, 5, 2), known, is_alive=True) is Refusal.DUPLICATE_NODE
    assert refusal(PeerHello(PEER, 77, 5, 2), known, is_alive=False) is None
    assert refusal(PeerHello(PEER, 77, 4, 1), known, is_alive=True) is None  # itself


# ---- lives that are linked -----------------------------------------------------------------------


class Directory:
    """A data directory that is started, copied and started again."""

    numbers = iter(range(1, 1 << 20))

    def __init__(self, epoch: int = 0, boot_ids: tuple[BootId, ...] = ()):
        self.epoch, self.boot_ids = epoch, boot_ids

    def start(self) -> Directory:
        self.epoch += 1
        started = BootId(self.epoch, DURABLE | next(self.numbers))
        self.boot_ids = (*self.boot_ids, started)[-BOOT_IDS_KEPT:]
        return self

    def copy(self) -> Directory:
        return Directory(self.epoch, self.boot_ids)

    def hello(self, after: BootId | None = None) -> PeerHello:
        return PeerHello(PEER, 77, *self.boot_ids[-1], after)


class Peer:
    """A node that remembers the boot ids that it admitted."""

    def __init__(self, registered: int = 0):
        self.registered, self.boot_id = registered, NO_BOOT_ID

    def meets(self, directory: Directory, is_alive: bool = False) -> BootIdOrigin | Refusal | None:
        """Carry out both sides until the peer is admitted; None = it is."""
        after = None
        for _ in range(2):
            verdict = check_peer(directory.hello(after), HERE,
                                 KnownPeer(77, self.registered, self.boot_id), False,
                                 lambda _: is_alive)
            if verdict is None:
                self.boot_id = directory.boot_ids[-1]
                return None
            if verdict.remembered is None:
                return verdict.refusal
            origin = BootHistory(directory.boot_ids).origin_of(verdict.remembered)
            if origin is not BootIdOrigin.OWN:
                return origin
            if verdict.refusal is not Refusal.UNLINKED:
                return verdict.refusal
            after = verdict.remembered
        return verdict.refusal


def test_a_boot_id_is_let_in_however_many_the_peer_has_missed():
    node, peer = Directory(), Peer()
    for missed in (0, 1, 7, 0, 300, BOOT_IDS_KEPT - 2):
        for _ in range(missed):
            node.start()
        assert peer.meets(node.start()) is None
        assert peer.meets(node) is None, "it merely connects again"


@pytest.mark.parametrize("older", [1, 2, 5])
def test_an_older_copy_is_never_let_in_whatever_the_number_of_its_starts(older):
    node, peer = Directory().start(), Peer()
    assert peer.meets(node) is None
    copy = node.copy()
    for _ in range(older):
        assert peer.meets(node.start()) is None
    remembered = peer.boot_id
    for start in range(3 * older + 3):
        assert peer.meets(copy.start()) is BootIdOrigin.FOREIGN, f"start {start + 1}"
        again = copy.copy()  # a copy of the copy, too
        assert peer.meets(again.start()) is BootIdOrigin.FOREIGN
        assert peer.boot_id == remembered, "a refused start changes nothing"
    assert peer.meets(node.start()) is None, "and the original goes on"


def test_a_copy_beside_the_original_is_refused_in_either_order():
    node, peer = Directory().start(), Peer()
    peer.meets(node)
    inside = node.copy()  # taken while this life lasts
    before = Directory(node.epoch - 1, node.boot_ids[:-1])
    for _ in range(5):
        assert peer.meets(inside.start(), is_alive=True) is Refusal.DUPLICATE_NODE
        assert peer.meets(before.start(), is_alive=True) is BootIdOrigin.FOREIGN
        assert peer.meets(node, is_alive=True) is None


def test_a_boot_id_that_lasts_gets_new_numbers_and_a_copy_of_before_is_an_older_one():
    node, peer = Directory().start(), Peer()
    peer.meets(node)
    copy = node.copy()  # as a machine's snapshot, while it runs
    node.boot_ids = (*node.boot_ids, BootId(node.epoch, DURABLE | next(Directory.numbers)))
    assert peer.meets(node, is_alive=True) is None, "it is the same life"
    for _ in range(5):
        assert peer.meets(copy.start()) is BootIdOrigin.FOREIGN, "though the original has ended"
    assert peer.meets(node.start()) is None


def test_what_is_registered_refuses_a_copy_that_started_less_often():
    node = Directory().start()
    copy = node.copy()
    for _ in range(3):
        node.start()
    assert Peer(registered=node.epoch).meets(copy.start()) is BootIdOrigin.FOREIGN


def test_boot_ids_of_earlier_releases_are_judged_by_their_epoch():
    peer = Peer()
    assert refusal(PeerHello(PEER, 77, 9, 5), KnownPeer(77, 9, BootId(8, 4))) is None
    peer.boot_id = BootId(8, 4)  # heard of in memory, before it was upgraded
    node = Directory(epoch=8)
    assert peer.meets(node.start()) is None
    assert peer.meets(node.start()) is None
    back = PeerHello(PEER, 77, 20, 5)  # a copy, run by the release before
    assert refusal(back, KnownPeer(77, 9, peer.boot_id)) is Refusal.STALE_BOOT_ID


def test_a_peer_that_was_away_for_more_starts_than_are_kept_cannot_be_answered():
    node, peer = Directory().start(), Peer()
    peer.meets(node)
    pinned = node.boot_ids[-1]
    for _ in range(BOOT_IDS_KEPT):
        node.start()
    assert peer.meets(node) is BootIdOrigin.FORGOTTEN
    assert BootHistory(node.boot_ids, [pinned]).origin_of(peer.boot_id) is BootIdOrigin.OWN
    copy = Directory(node.epoch, node.boot_ids)
    peer.meets(Directory(node.epoch, (peer.boot_id,)).start())
    assert peer.meets(copy.start()) is BootIdOrigin.FOREIGN, "what it must have had it is asked for"


def test_a_boot_id_of_a_long_process_from_before_those_that_are_kept_is_no_copy_s():
    """The answer to an hello was lost, and the peer away for half a day of writes."""
    kept = [BootId(3, DURABLE | number) for number in range(100, 100 + BOOT_IDS_KEPT)]
    assert BootHistory(kept).origin_of(BootId(3, DURABLE | 99)) is BootIdOrigin.FORGOTTEN
    assert BootHistory(kept).origin_of(BootId(3, DURABLE | 1 << 40)) is BootIdOrigin.FOREIGN
    assert BootHistory(kept[:-1]).origin_of(BootId(3, DURABLE | 99)) is BootIdOrigin.FOREIGN
