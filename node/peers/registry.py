"""The registry of the other nodes: addresses, incarnations, boot ids, and the decision which of
them are admitted.

Contract. The registry is kept in ``known_nodes.json`` of the data directory, because a starting
node has to find the others before it has applied any metadata. ``follow`` takes over the nodes of
the metadata. ``check`` decides about a peer's hello by the rule of
``multiraft.liveness.peer_identity``. ``save`` makes the facts durable that must be durable before
use, off the loop.

Invariants. The file is never older than any answer that this node has given, except for boot ids of
peers while the disk is full. The incarnation of an initial node of the cluster is *bound* at its
first hello: it is made durable before the answer. An incarnation in the metadata takes precedence.
Each boot id of a peer is made durable in the same way: a later boot of that peer has to name the
boot id in the file.

Theory. A wiped data directory has lost its votes and acknowledgements, so its node must not
continue under the same id (scenario S28f). The metadata know the incarnation of a node from its
first registration on. Before that, in the first second of a cluster, the peers know it: an initial
node takes part only when a majority of the *other* initial nodes has bound its incarnation
(``admission_needs``). Two directories of one node, one of them wiped, would both need such a
majority, and each peer binds only one incarnation. The cost: a new cluster starts when that many of
its nodes have met once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from multiraft.codec import shapes
from multiraft.liveness import peer_identity
from multiraft.liveness.peer_identity import BootId
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.identity import read_signed, write_signed
from multiraft.wire.errors import Code
from multiraft.wire.messages import Hello
from multiraft.wire.schema import without_default
from node.errors import DiskFailed
from node.metadata.commands import NODE_SHAPE, NodeRecord
from node.metadata.state_machine import MetadataState

KNOWN_NODES_FILE = "known_nodes.json"

#: Pause before the file is written again on a full disk, in seconds.
FULL_RETRY_S = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


_PAIRS = [(shapes.UINT, shapes.UINT)]
_BOOT_IDS = [(shapes.UINT, shapes.UINT, shapes.UINT)]
_SHAPE = {"cluster_id": shapes.TEXT, "groups": shapes.UINT, "replication_factor": shapes.UINT,
          "initial": [shapes.ANYTHING], "nodes": [shapes.ANYTHING], "removed": _PAIRS,
          "version": shapes.UINT, "bound": _PAIRS, "admitted": shapes.FLAG,
          "lives": _BOOT_IDS, "met": _BOOT_IDS, "topic_defaults": [(shapes.TEXT, shapes.TEXT)]}


class Facts(NamedTuple):
    """The content of the file.

    ``initial``: the nodes that the cluster began with, empty at a node that joined; together with
    the size of the pool they determine the first groups. ``version``: the metadata index of
    ``nodes`` and ``removed``, 0 = from the configuration. ``boot_ids``: of each peer, the boot id
    admitted last. ``met``: of this node, the boot id that each peer admitted last.
    ``topic_defaults``: (name, value) of the settings of topics that the cluster began with.
    """

    cluster: bytes
    groups: int
    replication_factor: int
    initial: tuple[NodeRecord, ...]
    nodes: dict[int, NodeRecord]
    removed: dict[int, int]
    version: int
    bound: dict[int, int]  # incarnations from hellos, as long as the metadata do not know them
    admitted: bool
    boot_ids: dict[int, BootId] = {}
    met: dict[int, BootId] = {}
    topic_defaults: tuple[tuple[str, str], ...] = ()


def of_new_cluster(cluster: bytes, groups: int, replication_factor: int,
                   initial: tuple[NodeRecord, ...],
                   topic_defaults: tuple[tuple[str, str], ...] = ()) -> Facts:
    """Return the facts of a node of a new cluster: its initial nodes and settings of topics."""
    return Facts(cluster, groups, replication_factor, initial,
                 {node.id: node for node in initial}, {}, 0, {}, False,
                 topic_defaults=topic_defaults)


def of_joined(cluster: bytes, groups: int, replication_factor: int,
              nodes: Iterable[NodeRecord], removed: Iterable[int], version: int) -> Facts:
    """Return the facts that a joining node received; the metadata know its incarnation."""
    return Facts(cluster, groups, replication_factor, (), {node.id: node for node in nodes},
                 dict.fromkeys(removed, 0), version, {}, True)


class RefusedHello(NamedTuple):
    """The refusal of a hello. ``remembered``: the boot id that the next hello of the node has to
    name."""

    code: int
    text: str
    remembered: BootId | None = None


_CODES = {
    peer_identity.Refusal.REMOVED: Code.NODE_REMOVED,
    peer_identity.Refusal.UNKNOWN: Code.UNKNOWN_NODE,
    peer_identity.Refusal.OTHER_DIRECTORY: Code.WRONG_INCARNATION,
    peer_identity.Refusal.STALE_BOOT_ID: Code.STALE_BOOT_ID,
    peer_identity.Refusal.DUPLICATE_NODE: Code.DUPLICATE_NODE,
    peer_identity.Refusal.UNLINKED: Code.UNLINKED_BOOT_ID,
}


class PeerRegistry:
    """The registry of one node, in memory and in its file."""

    def __init__(self, filesystem: Filesystem, directory: str, node: int, facts: Facts):
        self._filesystem = filesystem
        self._directory = directory
        self._node = node
        self.facts = facts
        self._processes: dict[int, BootId] = {}  # boot ids of peers that do not keep them on disk
        self._saving = trio.Lock()
        self._saved = facts
        self._unsaved = trio.Event()
        self._changed = trio.Event()

    # ---- known nodes -----------------------------------------------------------------------------

    def nodes(self) -> list[NodeRecord]:
        """Return all nodes by id, this one included."""
        return [node for _, node in sorted(self.facts.nodes.items())]

    def peers(self) -> list[NodeRecord]:
        """Return all other nodes by id."""
        return [node for node in self.nodes() if node.id != self._node]

    def client_address(self, node: int) -> str:
        """Return the client address of a node; empty if the node is not known."""
        known = self.facts.nodes.get(node)
        return known.client_address if known is not None else ""

    def follow(self, state: MetadataState) -> bool:
        """Take over the nodes of the metadata unless the registry has newer facts. Return True if
        anything was new."""
        return self.learn(state.table.nodes, state.table.removed, state.table.version)

    def applied(self, state: MetadataState) -> bool:
        """Take over the nodes of metadata that were just applied, as ``follow`` does. Return True
        if anything was new. Facts learned from other nodes may come from metadata entries that a
        forced recovery has undone. They are replaced once the applied metadata reach the same
        index: a shorter prefix may lack the node that leads now."""
        table = state.table
        if not table.version < self.facts.version <= state.version:
            return self.follow(state)
        self._take(table.nodes, table.removed, table.version)
        return True

    def learn(self, nodes: dict[int, NodeRecord], removed: dict[int, int], version: int) -> bool:
        """Take over nodes and removed ids as of metadata index ``version``, unless the known ones
        are as new. Return True if they were taken over."""
        if version <= self.facts.version:
            return False
        self._take(nodes, removed, version)
        return True

    def _take(self, nodes: dict[int, NodeRecord], removed: dict[int, int], version: int) -> None:
        facts = self.facts
        bound = {id_: incarnation for id_, incarnation in facts.bound.items()
                 if id_ in nodes and not nodes[id_].incarnation}
        self._replace(facts._replace(nodes=dict(nodes), removed=dict(removed), version=version,
                                     bound=bound, boot_ids=_of(facts.boot_ids, nodes),
                                     met=_of(facts.met, nodes)))
        self._processes = _of(self._processes, nodes)

    # ---- admission of peers ----------------------------------------------------------------------

    def check(self, hello: Hello, is_alive: Callable[[int, BootId], bool]) -> RefusedHello | None:
        """Return the refusal of a peer's hello; None = the peer is admitted once ``pin`` has
        completed. ``is_alive(node, boot_id)`` is True if that boot of a peer is connected and
        supported right now."""
        facts, id_ = self.facts, hello.node
        record = facts.nodes.get(id_)
        known = (
            peer_identity.KnownPeer(
                record.incarnation or facts.bound.get(id_, 0), record.boot_epoch,
                self.boot_id_of(id_)
            )
            if record is not None
            else None
        )
        after = BootId(*hello.after) if hello.after is not None else None
        said = peer_identity.PeerHello(
            id_, hello.incarnation, hello.boot_epoch, hello.process, after
        )
        rejection = peer_identity.check_peer(said, self._node, known, id_ in facts.removed,
                                           lambda boot_id: is_alive(id_, boot_id))
        if rejection is None:
            return None
        return RefusedHello(_CODES[rejection.refusal], rejection.text, rejection.remembered)

    def boot_id_of(self, peer: int) -> BootId:
        """Return the boot id of a peer that was admitted last; ``NO_BOOT_ID`` = none."""
        return self.facts.boot_ids.get(peer) or self._processes.get(peer, peer_identity.NO_BOOT_ID)

    async def pin(self, hello: Hello,
                   is_alive: Callable[[int, BootId], bool]) -> RefusedHello | None:
        """Admit a peer: record its boot id, and its incarnation if this is its first hello, both
        durably. The hello is judged again if the write took time. While the disk is full the boot
        id is kept in memory only, so that a node can restart. Return a refusal or None."""
        facts, id_ = self.facts, hello.node
        if not facts.nodes[id_].incarnation and id_ not in facts.bound:
            facts = facts._replace(bound={**facts.bound, id_: hello.incarnation})
        boot_id = BootId(hello.boot_epoch, hello.process)
        if not boot_id.is_durable:
            self._processes[id_] = boot_id
        elif facts.boot_ids.get(id_) != boot_id:
            facts = facts._replace(boot_ids={**facts.boot_ids, id_: boot_id})
        if facts is not self.facts:
            self._replace(facts)
        # The file must hold them before the answer: the peer may vote and acknowledge as soon as it
        # is admitted, and this node must recognize its boot id after a crash.
        is_bound = id_ in self._saved.bound or id_ not in facts.bound
        if not is_bound or boot_id.is_durable and self._saved.boot_ids.get(id_) != boot_id:
            if not await self._saved_if_room() and not is_bound:
                return RefusedHello(Code.STORAGE_FULL, f"the disk of node {self._node} is full, it "
                                    f"cannot remember node {id_}: free some space")
            return self.check(hello, is_alive)
        return None

    def met(self, peer: int, boot_id: BootId) -> None:
        """Record that ``peer`` admitted this boot id of this node; written when the disk has
        space."""
        if self.facts.met.get(peer) != boot_id:
            self._replace(self.facts._replace(met={**self.facts.met, peer: boot_id}))

    # ---- admission of this node ------------------------------------------------------------------

    @property
    def admission_needs(self) -> frozenset[int]:
        """Initial nodes of the cluster of which a majority must have bound this node's incarnation
        before it takes part; empty = it may."""
        if self.facts.admitted or not self.facts.initial:
            return frozenset()
        return frozenset(node.id for node in self.facts.initial if node.id != self._node)

    async def admit(self) -> None:
        """Record durably that a majority has bound this node's incarnation."""
        self._replace(self.facts._replace(admitted=True))
        await self.save()

    # ---- the file ------------------------------------------------------------------------------

    def _replace(self, facts: Facts) -> None:
        self.facts = facts
        self._unsaved.set()
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until a fact changes after this call."""
        await self._changed.wait()

    async def run(self) -> None:
        """Run the task that saves changed facts, until cancelled. On a full disk it retries after
        ``FULL_RETRY_S``. Raises ``DiskFailed`` for another error."""
        while True:
            await self._unsaved.wait()
            # Replaced only in this task: a caller of ``_replace`` could otherwise set an event that
            # this task no longer waits for.
            self._unsaved = trio.Event()
            if not await self._saved_if_room():
                self._unsaved.set()
                await trio.sleep(FULL_RETRY_S)

    async def _saved_if_room(self) -> bool:
        """Save the facts. Return False if the disk is full. Raises ``DiskFailed`` for another
        error."""
        try:
            await self.save()
        except DiskFailed as error:
            if getattr(error.__cause__, "errno", None) not in _FULL:
                raise
            return False
        return True

    async def save(self) -> None:
        """Make the present facts durable. Raises ``DiskFailed`` if they cannot be written, also on
        a full disk."""
        async with self._saving:
            facts = self.facts
            if facts is self._saved:
                return
            try:
                await trio.to_thread.run_sync(write, self._filesystem, self._directory, facts)
            except OSError as error:
                raise DiskFailed(f"{KNOWN_NODES_FILE} could not be written: {error}") from error
            self._saved = facts


def write(filesystem: Filesystem, directory: str, facts: Facts) -> None:
    """Replace the file. Blocks until it is durable."""
    # a file without defaults has the fields that it had before there were any
    defaults = ({"topic_defaults": list(map(list, facts.topic_defaults))} if facts.topic_defaults
                else {})
    write_signed(filesystem, directory, KNOWN_NODES_FILE, {
        "cluster_id": facts.cluster.hex(), "groups": facts.groups,
        "replication_factor": facts.replication_factor,
        "initial": list(map(without_default, facts.initial)),
        "nodes": list(map(without_default, facts.nodes.values())),
        "removed": [list(row) for row in facts.removed.items()], "version": facts.version,
        "bound": [list(row) for row in facts.bound.items()], "admitted": facts.admitted,
        "lives": _rows(facts.boot_ids), "met": _rows(facts.met), **defaults})


def read(filesystem: Filesystem, directory: str) -> Facts | None:
    """Return the facts of a data directory; None = no file. Raises ``CorruptFile`` for a damaged
    file, ``UnknownFormat`` for one of a later release."""
    fields = read_signed(filesystem, directory, KNOWN_NODES_FILE)
    if fields is None:
        return None
    # version 1 has no boot ids
    fields = {"lives": [], "met": [], "topic_defaults": [], **fields}
    try:
        shapes.check(fields, _SHAPE)
        return Facts(
            bytes.fromhex(fields["cluster_id"]), fields["groups"], fields["replication_factor"],
            _records(fields["initial"]), {node.id: node for node in _records(fields["nodes"])},
            dict(fields["removed"]), fields["version"], dict(fields["bound"]), fields["admitted"],
            _boot_ids(fields["lives"]), _boot_ids(fields["met"]),
            tuple((name, value) for name, value in fields["topic_defaults"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"{directory}/{KNOWN_NODES_FILE}", f"malformed ({error!r})") from error


def _records(rows: Iterable[list]) -> tuple[NodeRecord, ...]:
    records = tuple(NodeRecord(*row) for row in rows)
    shapes.check(records, [NODE_SHAPE], "nodes")
    return records


def _of(known: dict[int, BootId], nodes: dict[int, NodeRecord]) -> dict[int, BootId]:
    """Return the boot ids of the given nodes."""
    return {id_: boot_id for id_, boot_id in known.items() if id_ in nodes}


def _rows(known: dict[int, BootId]) -> list[list[int]]:
    return [[id_, *boot_id] for id_, boot_id in known.items()]


def _boot_ids(rows: Iterable[list[int]]) -> dict[int, BootId]:
    return {id_: BootId(*boot_id) for id_, *boot_id in rows}
