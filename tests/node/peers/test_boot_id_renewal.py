"""A running node that renews its boot id: durable first, then sent to its peers."""

import errno

import pytest
import trio

from multiraft.liveness.peer_identity import DURABLE, NO_BOOT_ID, BootId
from multiraft.storage import identity
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.wire.errors import Code
from node.errors import DiskFailed, NodeRefused
from node.peers import boot_id_renewal as renewal_module
from node.peers.admission import Admission
from node.peers.boot_id_renewal import Renewal
from node.peers.handshake import NotAccepted
from tests.node.harness import in_trio, silent_log, until
from tests.node.peers.test_registry import new_cluster

DISK = RealFilesystem()


class Sock:
    """A connection that carries no bytes."""

    def close(self):
        pass


class Running:
    """Node 1 of three, whose peers answer from ``answers``; the default is to accept."""

    def __init__(self, directory, monkeypatch, earlier=()):
        self.directory = str(directory)
        started = identity.claim(DISK, self.directory, Identity(bytes(16), 1, 77, DURABLE | 1),
                                 False)
        self.position = 0
        self.told: list[tuple] = []
        self.answers: dict[int, list[NotAccepted]] = {}
        self.problem: Exception | None = None
        self.marks: list[BootId] = []
        self.known = new_cluster(directory)
        self.admission = Admission(self.known, silent_log(), started.boot_ids,
                                   lambda reason, boot_id: self.marks.append(boot_id))
        self.admission.admitted.set()
        for peer in (2, 3):
            if peer not in earlier:
                self.admission.refused(peer, Code.UNLINKED_BOOT_ID, "which?", NO_BOOT_ID)
            self.admission.welcomed(peer)
        self.away: set[int] = set()
        self.renewal = Renewal(self.admission, self.known, lambda: self.position, self._renew,
                               self._dial, lambda peer: peer, silent_log())
        monkeypatch.setattr(renewal_module, "introduce", self._introduce)

    def _renew(self):
        if self.problem is not None:
            raise self.problem
        return identity.renew(DISK, self.directory, 1)

    @property
    def boot_ids(self):
        return identity.read(DISK, self.directory).boot_ids

    async def _dial(self, peer):
        return None if peer in self.away else Sock()

    async def _introduce(self, sock, peer):
        boot_id = self.boot_ids[-1]
        assert self.admission.number(peer) == boot_id.process, "durable before it is said"
        self.told.append((peer, boot_id, self.admission.after(peer)))
        if self.answers.get(peer):
            raise self.answers[peer].pop(0)
        return sock, None


def boot_ids(*numbers: int) -> list[BootId]:
    return [BootId(1, DURABLE | number) for number in numbers]


@in_trio
async def test_each_peer_is_told_the_new_number_behind_the_one_it_remembers(tmp_path, monkeypatch):
    node = Running(tmp_path, monkeypatch)
    await node.renewal.renew()
    await node.renewal.renew()
    first, second, third = boot_ids(1, 2, 3)
    assert node.boot_ids == (first, second, third)
    assert sorted(node.told) == [(2, second, first), (2, third, second),
                                 (3, second, first), (3, third, second)]
    assert node.known.facts.met == {2: third, 3: third}


@in_trio
async def test_a_peer_that_was_away_is_told_what_it_asks_for(tmp_path, monkeypatch):
    node = Running(tmp_path, monkeypatch)
    node.away = {3}
    await node.renewal.renew()
    node.away.clear()
    first, second, third = boot_ids(1, 2, 3)
    node.answers[2] = [NotAccepted("which?", Code.UNLINKED_BOOT_ID, True, first)]
    await node.renewal.renew()
    assert (3, third, first) in node.told, "it missed one"
    assert (2, third, second) in node.told and (2, third, first) in node.told
    assert not node.marks


@in_trio
async def test_a_peer_of_the_release_before_hears_of_one_number_only(tmp_path, monkeypatch):
    """It permanently refuses a second number of one start, and a hello with a field that it does
    not know."""
    node = Running(tmp_path, monkeypatch, earlier=(3,))
    await node.renewal.renew()
    first, second = boot_ids(1, 2)
    assert node.told == [(2, second, first)]
    assert (node.admission.number(3), node.admission.after(3)) == (first.process, None)
    assert node.known.facts.met == {2: second}
    node.admission.refused(3, Code.UNLINKED_BOOT_ID, "which?", NO_BOOT_ID)  # it was upgraded since
    assert await node.admission.linked(3)
    assert (node.admission.number(3), node.admission.after(3)) == (second.process, NO_BOOT_ID)


@in_trio
async def test_a_number_that_is_foreign_here_ends_the_node(tmp_path, monkeypatch):
    node = Running(tmp_path, monkeypatch)
    foreign = BootId(9, DURABLE | 9)
    node.answers[2] = [NotAccepted("which?", Code.UNLINKED_BOOT_ID, True, foreign)]
    with pytest.raises(BaseExceptionGroup) as raised:
        await node.renewal.renew()
    assert raised.value.subgroup(NodeRefused) and node.marks == [foreign]


@in_trio
async def test_only_who_is_written_to_gets_a_number(tmp_path, monkeypatch):
    monkeypatch.setattr(renewal_module, "RENEW_S", 0.005)
    node = Running(tmp_path, monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.renewal.run)
        await trio.sleep(0.05)
        assert len(node.boot_ids) == 1
        node.position = 64
        await until(lambda: len(node.boot_ids) == 2, "a new number")
        await trio.sleep(0.05)
        assert len(node.boot_ids) == 2
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_full_disk_keeps_the_number_and_a_broken_one_ends_the_node(tmp_path, monkeypatch):
    node = Running(tmp_path, monkeypatch)
    node.problem = OSError(errno.ENOSPC, "full")
    await node.renewal.renew()
    assert not node.told and node.admission.number(2) == DURABLE | 1
    node.problem = OSError(errno.EIO, "broken")
    with pytest.raises(DiskFailed):
        await node.renewal.renew()
