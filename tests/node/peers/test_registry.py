"""The nodes that a node admits: incarnations are bound before an answer, and later boots replace
earlier ones."""

import errno
import threading

import pytest
import trio

from multiraft.storage import identity
from multiraft.storage.errors import CorruptFile, UnknownFormat
from multiraft.storage.filesystem import RealFilesystem
from multiraft.wire.errors import Code
from multiraft.wire.messages import BootIdRow, Hello
from node.errors import DiskFailed
from node.metadata.state_machine import (
    MetadataState,
    NodeRecord,
    RegisterNode,
    RemoveNode,
    plan_bootstrap,
)
from node.peers import registry as known_nodes_module
from node.peers.registry import (
    KNOWN_NODES_FILE,
    BootId,
    PeerRegistry,
    of_joined,
    of_new_cluster,
    read,
    write,
)
from tests.node.harness import in_trio, until

CLUSTER = bytes(16)
FIRST_HOUR = tuple(NodeRecord(node, 0, 0, f"h:{node}", f"p:{node}") for node in (1, 2, 3, 4, 5))


def hello(node: int, incarnation: int, epoch: int = 1, process: int = 1) -> Hello:
    return Hello("append", CLUSTER, node, epoch, incarnation=incarnation, process=process)


def nobody(_node: int, _boot_id: BootId) -> bool:
    return False


def new_cluster(directory, nodes: int = 3) -> PeerRegistry:
    """Return the registry of node 1 of a new cluster."""
    return PeerRegistry(RealFilesystem(), str(directory), 1,
                      of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR[:nodes]))


def again(directory) -> PeerRegistry:
    """Return the registry of the same node after a restart."""
    return PeerRegistry(RealFilesystem(), str(directory), 1, read(RealFilesystem(), str(directory)))


async def let_in(known: PeerRegistry, said: Hello, is_alive=nobody) -> Code:
    """Judge and bind a hello, as the peer port does."""
    rejection = known.check(said, is_alive) or await known.pin(said, is_alive)
    return rejection.code if rejection is not None else Code.OK


@in_trio
async def test_the_first_incarnation_heard_of_is_bound_before_the_answer(tmp_path):
    known = new_cluster(tmp_path)
    assert await let_in(known, hello(2, 7)) == Code.OK
    assert again(tmp_path).facts.bound == {2: 7}, "durable when the hello is answered"
    assert await let_in(again(tmp_path), hello(2, 8)) == Code.WRONG_INCARNATION
    assert await let_in(again(tmp_path), hello(2, 7, epoch=2)) == Code.OK


@in_trio
async def test_of_two_first_incarnations_at_a_time_one_is_bound(tmp_path):
    known = new_cluster(tmp_path)
    codes = []

    async def ask(said):
        codes.append(await let_in(known, said))

    async with trio.open_nursery() as nursery:
        for incarnation in (7, 8):
            nursery.start_soon(ask, hello(2, incarnation, process=incarnation))
    assert sorted(codes) == [Code.OK, Code.WRONG_INCARNATION]


@in_trio
async def test_a_disk_that_does_not_take_the_binding_stops_the_node(tmp_path):
    known = new_cluster(tmp_path / "absent")
    with pytest.raises(DiskFailed):
        await let_in(known, hello(2, 7))


@in_trio
async def test_the_metadata_win_over_what_was_bound(tmp_path):
    known = new_cluster(tmp_path)
    await let_in(known, hello(2, 7))
    state = MetadataState()
    state.apply(1, plan_bootstrap(CLUSTER, FIRST_HOUR[:3], 8, 3, 0))
    assert known.follow(state)
    assert known.facts.bound == {2: 7}, "the bootstrap knows no incarnations"
    state.apply(2, RegisterNode(FIRST_HOUR[1]._replace(incarnation=9)))
    known.follow(state)
    assert await let_in(known, hello(2, 7)) == Code.WRONG_INCARNATION
    assert await let_in(known, hello(2, 9)) == Code.OK
    assert not known.follow(state), "nothing is new"


@in_trio
async def test_nodes_come_and_go_with_the_metadata(tmp_path):
    known = new_cluster(tmp_path)
    state = MetadataState()
    state.apply(1, plan_bootstrap(CLUSTER, FIRST_HOUR[:3], 8, 3, 0))
    assert await let_in(known, hello(4, 44)) == Code.UNKNOWN_NODE
    state.apply(2, RegisterNode(NodeRecord(4, 44, 3, "h:4", "p:4"), new=True))
    known.follow(state)
    assert [node.id for node in known.peers()] == [2, 3, 4]
    assert known.client_address(4) == "h:4"
    assert await let_in(known, hello(4, 44, epoch=2)) == Code.STALE_BOOT_ID, "it registered epoch 3"
    assert await let_in(known, hello(4, 44, epoch=3)) == Code.OK
    state.apply(3, RemoveNode(4))
    known.follow(state)
    await known.save()
    assert await let_in(again(tmp_path), hello(4, 44, epoch=4)) == Code.NODE_REMOVED
    assert again(tmp_path).client_address(4) == ""


# ---- lives ---------------------------------------------------------------------------------------


@in_trio
async def test_an_older_boot_id_is_refused_whatever_the_metadata_know(tmp_path):
    known = new_cluster(tmp_path)
    assert await let_in(known, hello(2, 7, epoch=5)) == Code.OK
    assert await let_in(known, hello(2, 7, epoch=4)) == Code.STALE_BOOT_ID
    assert await let_in(known, hello(2, 7, epoch=5)) == Code.OK, "it merely connects again"
    assert await let_in(known, hello(2, 7, epoch=5, process=2)) == Code.STALE_BOOT_ID, "a twin"


@in_trio
async def test_a_newer_boot_id_waits_until_the_older_is_gone(tmp_path):
    known = new_cluster(tmp_path)
    alive = {BootId(5, 1)}
    await let_in(known, hello(2, 7, epoch=5))

    def is_alive(_node, boot_id):
        return boot_id in alive

    assert await let_in(known, hello(2, 7, epoch=6, process=2), is_alive) == Code.DUPLICATE_NODE
    alive.clear()
    assert await let_in(known, hello(2, 7, epoch=6, process=2), is_alive) == Code.OK
    assert await let_in(known, hello(2, 7, epoch=5), is_alive) == Code.STALE_BOOT_ID


@in_trio
async def test_nobody_is_this_node_itself(tmp_path):
    assert await let_in(new_cluster(tmp_path), hello(1, 7)) == Code.UNKNOWN_NODE


NUMBER = 1 << 63


async def meets(known: PeerRegistry, epoch: int, process: int) -> Code:
    """Let node 2 name the boot id that the file remembers, as it does on request."""
    said = hello(2, 7, epoch, NUMBER | process)
    rejection = known.check(said, nobody)
    if rejection is not None and rejection.code == Code.UNLINKED_BOOT_ID:
        said = said._replace(after=BootIdRow(*rejection.remembered))
    return await let_in(known, said)


@in_trio
async def test_the_boot_id_that_was_let_in_is_remembered_over_a_restart(tmp_path):
    known = new_cluster(tmp_path)
    assert await let_in(known, hello(2, 7, 5, NUMBER | 1)) == Code.UNLINKED_BOOT_ID, "asked first"
    assert await meets(known, 5, 1) == Code.OK
    assert again(tmp_path).facts.boot_ids == {2: BootId(5, NUMBER | 1)}, "durable before the answer"
    later = again(tmp_path)
    for said in (None, BootIdRow(0, 0), BootIdRow(5, NUMBER | 2), BootIdRow(6, NUMBER | 1)):
        copy = hello(2, 7, 9, NUMBER | 3)._replace(after=said)
        assert later.check(copy, nobody).remembered == BootId(5, NUMBER | 1)
        assert await let_in(later, copy) == Code.UNLINKED_BOOT_ID
    assert later.boot_id_of(2) == BootId(5, NUMBER | 1), "a refusal notes nothing"
    assert await let_in(later, hello(2, 7, 9, 3)) == Code.STALE_BOOT_ID, "a release that keeps none"
    assert await meets(later, 9, 4) == Code.OK
    assert await let_in(later, hello(2, 7, 5, NUMBER | 1)) == Code.STALE_BOOT_ID


@in_trio
async def test_of_two_boot_ids_that_name_the_same_one_the_first_is_let_in(tmp_path):
    known = new_cluster(tmp_path)
    await meets(known, 5, 1)
    after = BootIdRow(5, NUMBER | 1)
    codes = []

    async def ask(process):
        codes.append(await let_in(known, hello(2, 7, 6, NUMBER | process)._replace(after=after)))

    async with trio.open_nursery() as nursery:
        for process in (2, 3):
            nursery.start_soon(ask, process)
    assert sorted(codes) == [Code.OK, Code.UNLINKED_BOOT_ID]


@in_trio
async def test_a_peer_that_starts_again_is_let_in_while_the_disk_is_full(tmp_path):
    disk = FullDisk()
    disk.full = False
    known = PeerRegistry(disk, str(tmp_path), 1, of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR))
    await meets(known, 5, 1)
    disk.full = True
    assert await meets(known, 6, 2) == Code.OK
    assert await let_in(known, hello(2, 7, 7, NUMBER | 3)) == Code.UNLINKED_BOOT_ID
    disk.full = False
    await known.save()
    assert again(tmp_path).facts.boot_ids == {2: BootId(6, NUMBER | 2)}


@in_trio
async def test_boot_ids_of_removed_nodes_are_forgotten(tmp_path):
    known = new_cluster(tmp_path)
    await meets(known, 5, 1)
    known.met(2, BootId(3, NUMBER | 9))
    known.learn({node.id: node for node in FIRST_HOUR if node.id != 2}, {2: 7}, 7)
    assert known.facts.boot_ids == known.facts.met == {}


# ---- taking part ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "others"), [(1, 0), (2, 1), (3, 2), (5, 4)])
def test_a_node_of_the_first_hour_needs_the_others(tmp_path, nodes, others):
    assert len(new_cluster(tmp_path, nodes).admission_needs) == others


@in_trio
async def test_who_was_admitted_once_need_not_ask_again(tmp_path):
    known = new_cluster(tmp_path)
    await known.admit()
    assert not again(tmp_path).admission_needs
    joined = of_joined(CLUSTER, 8, 3, FIRST_HOUR, (9,), 17)
    assert not PeerRegistry(None, "", 4, joined).admission_needs, "the metadata know it"


class FullDisk(RealFilesystem):
    """A filesystem that takes no file while it is full."""

    full = True

    def create(self, path):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().create(path)


@in_trio
async def test_a_full_disk_does_not_end_a_node_that_hears_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr(known_nodes_module, "FULL_RETRY_S", 0.001)
    disk = FullDisk()
    known = PeerRegistry(disk, str(tmp_path), 1, of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.run)
        known.learn({node.id: node for node in FIRST_HOUR[:2]}, {}, 7)
        for _ in range(3):
            await trio.sleep(0.001)
        assert read(RealFilesystem(), str(tmp_path)) is None
        disk.full = False
        await until(lambda: (facts := read(RealFilesystem(), str(tmp_path)))
                    and facts.version == 7, "it is written when there is room")
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_full_disk_lets_nobody_in_whom_it_could_not_remember_and_ends_no_node(tmp_path):
    disk = FullDisk()
    known = PeerRegistry(disk, str(tmp_path), 1, of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR))
    assert await let_in(known, hello(2, 7)) == Code.STORAGE_FULL
    assert await let_in(known, hello(2, 8)) == Code.WRONG_INCARNATION
    disk.full = False
    assert await let_in(known, hello(2, 7)) == Code.OK
    assert again(tmp_path).facts.bound == {2: 7}


@in_trio
async def test_what_is_learned_is_saved_whoever_else_has_saved(tmp_path, monkeypatch):
    """Two connections of a new peer, and the saving task between them: the event that is set stays
    the one that the task waits for. (Otherwise a node that restarted later knew no node that had
    joined.)"""
    known, disk = new_cluster(tmp_path), threading.Event()

    def slow(*arguments):
        assert disk.wait(30)
        write(*arguments)

    def waiting(tasks: int):
        return lambda: known._saving.statistics().tasks_waiting == tasks

    monkeypatch.setattr(known_nodes_module, "write", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(known.run)
        nursery.start_soon(let_in, known, hello(2, 7))
        await until(waiting(1), "the task wants to save, too")
        nursery.start_soon(let_in, known, hello(2, 7))
        await until(waiting(2), "and so does the second connection")
        disk.set()
        await until(lambda: not known._saving.locked(), "all have saved")
        known.learn({node.id: node for node in FIRST_HOUR}, {}, 7)
        await until(lambda: read(RealFilesystem(), str(tmp_path)).version == 7, "it is saved")
        nursery.cancel_scope.cancel()


# ---- the file ------------------------------------------------------------------------------------


def test_facts_survive_the_file(tmp_path):
    facts = of_joined(CLUSTER, 8, 3, FIRST_HOUR, (9, 10), 17)._replace(
        bound={2: 1 << 62}, boot_ids={2: BootId(5, NUMBER | 1)}, met={3: BootId(7, NUMBER)})
    write(RealFilesystem(), str(tmp_path), facts)
    assert read(RealFilesystem(), str(tmp_path)) == facts
    path = tmp_path / KNOWN_NODES_FILE
    path.write_text(path.read_text().replace("17", "18"))
    with pytest.raises(CorruptFile):
        read(RealFilesystem(), str(tmp_path))


def test_a_file_of_a_later_format_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(identity, "FORMAT_VERSION", identity.FORMAT_VERSION + 1)
        write(RealFilesystem(), str(tmp_path), of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR))
    with pytest.raises(UnknownFormat, match="format version 3, this program reads 2"):
        read(RealFilesystem(), str(tmp_path))


def test_a_file_of_the_last_release_is_read(tmp_path, monkeypatch):
    facts = of_joined(CLUSTER, 8, 3, FIRST_HOUR, (9, 10), 17)
    with monkeypatch.context() as earlier:
        earlier.setattr(identity, "FORMAT_VERSION", 1)
        earlier.setattr(known_nodes_module, "write_signed", lambda *given: identity.write_signed(
            *given[:3], {name: value for name, value in given[3].items()
                         if name not in ("lives", "met")}))
        write(RealFilesystem(), str(tmp_path), facts)
    assert '"lives"' not in (tmp_path / KNOWN_NODES_FILE).read_text()
    assert read(RealFilesystem(), str(tmp_path)) == facts
