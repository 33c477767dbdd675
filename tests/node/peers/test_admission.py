"""Admission of a node by its peers, and the refusals that stop it."""

import pytest
import trio.testing

from multiraft.liveness.peer_identity import BOOT_IDS_KEPT, DURABLE, NO_BOOT_ID, BootId
from multiraft.storage.filesystem import RealFilesystem
from multiraft.wire.errors import Code
from node.clock import monotonic_ms
from node.errors import NodeRefused
from node.peers import admission as admission_module
from node.peers.admission import Admission
from node.peers.registry import read
from tests.node.harness import in_trio, silent_log
from tests.node.peers.test_registry import again, new_cluster


@in_trio
@pytest.mark.parametrize(("nodes", "enough"), [(2, 1), (3, 2), (4, 2), (5, 3)])
async def test_a_majority_of_the_others_admits(tmp_path, nodes, enough):
    known = new_cluster(tmp_path, nodes)
    admission = Admission(known, silent_log())
    passed = []

    async def wait():
        await admission.wait_admitted()
        passed.append(read(RealFilesystem(), str(tmp_path)).admitted)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        for peer in range(2, 2 + enough):
            await trio.testing.wait_all_tasks_blocked()
            assert not passed
            admission.welcomed(peer)
            admission.welcomed(peer)  # it reconnects: still one
    assert passed == [True], "and it is durable"


BOOT_IDS = tuple(BootId(epoch, DURABLE | epoch) for epoch in (1, 2, 3))
LATER = BootId(9, DURABLE | 9)


@pytest.mark.parametrize(("code", "way_out"), [
    (Code.WRONG_INCARNATION, "can rejoin only as a new one"),
    (Code.NODE_REMOVED, "under another id"),
    (Code.STALE_BOOT_ID, "copy of a data directory"),
])
def test_what_will_never_change_ends_the_node_with_the_way_out(tmp_path, code, way_out):
    records = []
    admission = Admission(new_cluster(tmp_path), silent_log(),
                          record_refusal=lambda *record: records.append(record))
    with pytest.raises(NodeRefused, match=way_out) as raised:
        admission.refused(2, code, "no", LATER)
    assert raised.value.exit_code == 3
    assert records == [(str(raised.value), LATER)], "the directory says so before the node ends"


@pytest.mark.parametrize("code", [0, Code.UNKNOWN_NODE, Code.WRONG_CLUSTER, Code.INVALID_REQUEST])
def test_what_may_change_is_said_once_and_asked_again(tmp_path, caplog, code):
    admission = Admission(new_cluster(tmp_path), silent_log())
    for _ in range(3):
        admission.refused(2, code, "not yet")
    assert len(caplog.records) == 1
    admission.welcomed(2)
    admission.refused(2, code, "not yet")
    assert len(caplog.records) == 2


class Turned:
    """Node 1, which node 2 refuses because node 1's previous boot is still connected there."""

    def __init__(self, directory, monkeypatch):
        self.now = 1_000
        monkeypatch.setattr(admission_module, "monotonic_ms", lambda: self.now)
        self.records = []
        self.admission = Admission(new_cluster(directory), silent_log(),
                                   record_refusal=lambda *record: self.records.append(record))

    def away_after(self, pause_ms):
        self.now += pause_ms
        self.admission.refused(2, Code.DUPLICATE_NODE, "node 1 runs already")

    def for_long(self, patience_ms):
        for _ in range(patience_ms // 200):
            self.away_after(200)


def test_a_twin_that_is_alive_is_waited_for_only_so_long(tmp_path, monkeypatch):
    patience_ms = admission_module.DUPLICATE_WAIT_MS
    node = Turned(tmp_path, monkeypatch)
    node.away_after(0)
    node.for_long(patience_ms - 200)
    node.admission.welcomed(2)  # connections of the old process were only slow to end
    node.away_after(10)
    node.for_long(patience_ms - 200)
    assert not node.records
    with pytest.raises(NodeRefused, match="original"):
        node.away_after(200)
    assert len(node.records) == 1


def test_a_node_that_was_paused_itself_does_not_take_that_for_a_twin(tmp_path, monkeypatch):
    node = Turned(tmp_path, monkeypatch)
    node.away_after(0)
    node.away_after(60_000)  # the answer had been there all the time
    node.away_after(60_000)
    assert not node.records


# ---- which start came before ---------------------------------------------------------------------


class Asked:
    """Node 1 of three in its third boot, which has been in the cluster before."""

    def __init__(self, directory):
        self.records = []
        self.known = new_cluster(directory)
        self.known.facts = self.known.facts._replace(admitted=True)
        self.admission = Admission(self.known, silent_log(), BOOT_IDS,
                                   lambda *record: self.records.append(record))
        self.linked: list[int] = []

    def asks(self, peer, boot_id):
        self.admission.refused(peer, Code.UNLINKED_BOOT_ID, "which one?", boot_id)

    async def link(self, peer):
        assert await self.admission.linked(peer)
        self.linked.append(peer)


def test_a_boot_id_that_this_directory_has_not_had_ends_the_node(tmp_path):
    for number, remembered in enumerate((LATER, BootId(2, DURABLE | 7), BootId(3, DURABLE | 7))):
        node = Asked(tmp_path / str(number))
        with pytest.raises(NodeRefused, match="copy of a data directory must never be started"):
            node.asks(2, remembered)
        assert [boot_id for _, boot_id in node.records] == [remembered]


@in_trio
async def test_no_peer_is_told_anything_before_all_have_answered(tmp_path):
    node = Asked(tmp_path)
    assert not await node.admission.linked(2), "nothing was asked"
    async with trio.open_nursery() as nursery:
        node.asks(2, BOOT_IDS[1])
        nursery.start_soon(node.link, 2)
        await trio.testing.wait_all_tasks_blocked()
        assert not node.linked and node.admission.after(2) is None
        node.asks(3, NO_BOOT_ID)
        nursery.start_soon(node.link, 3)
    assert sorted(node.linked) == [2, 3]
    assert (node.admission.after(2), node.admission.after(3)) == (BOOT_IDS[1], NO_BOOT_ID)
    assert not await node.admission.linked(2), "it was told"
    node.asks(2, BOOT_IDS[2])  # its file has another one now
    assert await node.admission.linked(2)
    await node.admission.wait_admitted()
    assert not node.records


@in_trio
async def test_one_peer_that_knows_a_later_boot_id_is_enough(tmp_path):
    node = Asked(tmp_path)
    node.asks(2, BOOT_IDS[2])
    with pytest.raises(NodeRefused):
        node.asks(3, LATER)
    assert node.admission.after(2) is None


@in_trio
async def test_a_peer_that_is_away_or_says_nothing_is_not_waited_for_longer_than_that(
        tmp_path, monkeypatch):
    node = Asked(tmp_path)
    node.asks(2, BOOT_IDS[2])
    node.admission.on_unreachable(3)
    await node.link(2)
    monkeypatch.setattr(admission_module, "ASK_MS_MAX", 20)
    silent = Asked(tmp_path)
    silent.asks(2, BOOT_IDS[2])
    begin_ms = monotonic_ms()  # the clock of the wait, which counts whole milliseconds
    await silent.link(2)
    assert monotonic_ms() - begin_ms >= 20
    await silent.admission.wait_admitted()


@in_trio
async def test_a_peer_that_supports_the_boot_id_before_has_not_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(admission_module, "ASK_MS_MAX", 5)
    node = Asked(tmp_path)
    node.asks(2, BOOT_IDS[2])
    node.admission.refused(3, Code.DUPLICATE_NODE, "node 1 runs already")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.link, 2)
        await trio.sleep(0.05)
        assert not node.linked
        node.asks(3, BOOT_IDS[2])
    assert node.linked == [2]


@in_trio
async def test_what_a_peer_was_told_is_kept_for_one_that_stays_away(tmp_path):
    node = Asked(tmp_path)
    node.asks(2, BOOT_IDS[1])
    node.admission.welcomed(2)
    await node.known.save()
    later = Admission(again(tmp_path), silent_log(),
                      [BootId(epoch, DURABLE | epoch) for epoch in range(50, 50 + BOOT_IDS_KEPT)])
    later.refused(2, Code.UNLINKED_BOOT_ID, "which one?", BOOT_IDS[2])


def test_boot_ids_that_nobody_can_compare_any_more_end_nothing(tmp_path, caplog):
    admission = Admission(
        new_cluster(tmp_path), silent_log(),
        [BootId(epoch, DURABLE | epoch) for epoch in range(50, 50 + BOOT_IDS_KEPT)])
    admission.refused(2, Code.UNLINKED_BOOT_ID, "which one?", BOOT_IDS[2])
    assert "replace node 2" in caplog.records[-1].reason
