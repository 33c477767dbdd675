"""The other nodes, as far as this one knows: addresses, incarnations, and whom it lets in.

Contract.  Kept in ``known_nodes.json`` of the data directory, because a node that starts has to
find the others before it has heard of any metadata.  ``follow`` takes over what the metadata say;
``judge`` decides about a peer's hello, by the rule of ``multiraft.liveness.peer_identity``.  What
must be durable before it may be acted upon is saved by ``save``, off the loop.

Invariants.  The file is never older than what this node has told anybody, but for lives of others
while its disk is full.  The incarnation of a node of the first hour is *bound* when it is first
heard of, durably, before its hello is answered; what the metadata say of it wins.  So is each life
of a peer: what a later one has to name is what the file says.

Theory.  A data directory that was wiped has forgotten what it voted and acknowledged, so its node
may not go on under the same id (scenario S28f).  Metadata know the incarnation of a node from its
first registration on.  Before that, in the first second of a cluster, its peers do: a node of the
first hour takes part only when a majority of the *other* ones has bound its incarnation
(``admission_needs``).  Two lives of a directory, one of them wiped, would both need such a
majority, and a node binds one of them only.  What a new cluster pays for it: it begins when that
many of its nodes have met once.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import NamedTuple

import trio

from multiraft.codec import shapes
from multiraft.liveness import peer_identity
from multiraft.liveness.peer_identity import Life
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.identity import read_signed, write_signed
from multiraft.wire.errors import Code
from multiraft.wire.messages import Hello
from node.errors import DiskFailed
from node.metadata.commands import NODE_SHAPE, NodeRecord
from node.metadata.state_machine import MetadataState

KNOWN_NODES_FILE = "known_nodes.json"

#: On a full disk the file is written again after this, in seconds.
FULL_RETRY_S = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


_PAIRS = [(shapes.WHOLE, shapes.WHOLE)]
_LIVES = [(shapes.WHOLE, shapes.WHOLE, shapes.WHOLE)]
_SHAPE = {"cluster_id": shapes.TEXT, "groups": shapes.WHOLE, "replication_factor": shapes.WHOLE,
          "initial": [shapes.ANYTHING], "nodes": [shapes.ANYTHING], "removed": _PAIRS,
          "version": shapes.WHOLE, "bound": _PAIRS, "admitted": shapes.FLAG,
          "lives": _LIVES, "met": _LIVES}


class Facts(NamedTuple):
    """What the file holds.  ``initial``: the nodes that the cluster began with, empty for a node
    that joined; they and the pool say which groups there were at first.  ``version``: the metadata
    index that ``nodes`` and ``removed`` are from, 0 = from the configuration.  ``lives``: of each
    peer the one that was let in last.  ``met``: of this node the last one that each peer let in."""

    cluster: bytes
    groups: int
    replication_factor: int
    initial: tuple[NodeRecord, ...]
    nodes: dict[int, NodeRecord]
    removed: dict[int, int]
    version: int
    bound: dict[int, int]  # incarnations that the metadata did not know yet when they were heard of
    admitted: bool
    lives: dict[int, Life] = {}
    met: dict[int, Life] = {}


def of_new_cluster(cluster: bytes, groups: int, replication_factor: int,
                   initial: tuple[NodeRecord, ...]) -> Facts:
    """What the nodes of a new cluster know: each other's addresses."""
    return Facts(cluster, groups, replication_factor, initial,
                 {node.id: node for node in initial}, {}, 0, {}, False)


def of_joined(cluster: bytes, groups: int, replication_factor: int,
              nodes: Iterable[NodeRecord], removed: Iterable[int], version: int) -> Facts:
    """What a node was told when it joined; the metadata know its incarnation."""
    return Facts(cluster, groups, replication_factor, (), {node.id: node for node in nodes},
                 dict.fromkeys(removed, 0), version, {}, True)


class Verdict(NamedTuple):
    """Why a hello is refused.  ``remembered``: what its node has to say that its directory had."""

    code: int
    text: str
    remembered: Life | None = None


_CODES = {
    peer_identity.Refusal.REMOVED: Code.NODE_REMOVED,
    peer_identity.Refusal.UNKNOWN: Code.UNKNOWN_NODE,
    peer_identity.Refusal.OTHER_DIRECTORY: Code.WRONG_INCARNATION,
    peer_identity.Refusal.STALE_LIFE: Code.STALE_LIFE,
    peer_identity.Refusal.RUNS: Code.NODE_RUNS,
    peer_identity.Refusal.UNLINKED: Code.UNLINKED_LIFE,
}


class PeerRegistry:
    """See the module's docstring.  ``is_alive(node, life)`` tells whether that life of a peer is
    connected and supported right now."""

    def __init__(self, filesystem: Filesystem, directory: str, node: int, facts: Facts):
        self._filesystem = filesystem
        self._directory = directory
        self._node = node
        self.facts = facts
        self._processes: dict[int, Life] = {}  # of peers whose directories keep no lives
        self._saving = trio.Lock()
        self._saved = facts
        self._unsaved = trio.Event()
        self._changed = trio.Event()

    # ---- whom there is -------------------------------------------------------------------------

    def nodes(self) -> list[NodeRecord]:
        """All nodes by id, this one included."""
        return [node for _, node in sorted(self.facts.nodes.items())]

    def peers(self) -> list[NodeRecord]:
        """All others by id."""
        return [node for node in self.nodes() if node.id != self._node]

    def client_address(self, node: int) -> str:
        """Empty when the node is not known."""
        known = self.facts.nodes.get(node)
        return known.client_address if known is not None else ""

    def follow(self, state: MetadataState) -> bool:
        """Take over what the metadata say of nodes; whether there was anything new."""
        return self.learn(state.table.nodes, state.table.removed, state.table.version)

    def applied(self, state: MetadataState) -> bool:
        """``follow``, of metadata that were applied just now.  What is known from others that a
        forced recovery has undone is replaced when those that stand in their place are as long:
        their first part may not know whoever leads now."""
        table = state.table
        if not table.version < self.facts.version <= state.version:
            return self.follow(state)
        self._take(table.nodes, table.removed, table.version)
        return True

    def learn(self, nodes: dict[int, NodeRecord], removed: dict[int, int], version: int) -> bool:
        """As ``follow``: nodes and removed ids at a metadata index."""
        if version <= self.facts.version:
            return False
        self._take(nodes, removed, version)
        return True

    def _take(self, nodes: dict[int, NodeRecord], removed: dict[int, int], version: int) -> None:
        facts = self.facts
        bound = {id_: incarnation for id_, incarnation in facts.bound.items()
                 if id_ in nodes and not nodes[id_].incarnation}
        self._replace(facts._replace(nodes=dict(nodes), removed=dict(removed), version=version,
                                     bound=bound, lives=_of(facts.lives, nodes),
                                     met=_of(facts.met, nodes)))
        self._processes = _of(self._processes, nodes)

    # ---- whom this node lets in ----------------------------------------------------------------

    def judge(self, hello: Hello, is_alive: Callable[[int, Life], bool]) -> Verdict | None:
        """Why the peer that says ``hello`` is refused; None = it is let in, once ``bind`` is
        through."""
        facts, id_ = self.facts, hello.node
        record = facts.nodes.get(id_)
        known = (
            peer_identity.Known(
                record.incarnation or facts.bound.get(id_, 0), record.boot_epoch, self.life_of(id_)
            )
            if record is not None
            else None
        )
        after = Life(*hello.after) if hello.after is not None else None
        said = peer_identity.Introduction(
            id_, hello.incarnation, hello.boot_epoch, hello.process, after
        )
        verdict = peer_identity.judge(said, self._node, known, id_ in facts.removed,
                              lambda life: is_alive(id_, life))
        if verdict is None:
            return None
        return Verdict(_CODES[verdict.refusal], verdict.text, verdict.remembered)

    def life_of(self, peer: int) -> Life:
        """The life of a peer that was let in last; ``NO_LIFE`` = none."""
        return self.facts.lives.get(peer) or self._processes.get(peer, peer_identity.NO_LIFE)

    async def bind(self, hello: Hello,
                   is_alive: Callable[[int, Life], bool]) -> Verdict | None:
        """The peer is let in: its life is noted, and its incarnation when it is the first that is
        heard of, both durably.  Judged again when that took a while.  While the disk is full a life
        is noted in memory only: a node that starts again is worth more than that."""
        facts, id_ = self.facts, hello.node
        if not facts.nodes[id_].incarnation and id_ not in facts.bound:
            facts = facts._replace(bound={**facts.bound, id_: hello.incarnation})
        life = Life(hello.boot_epoch, hello.process)
        if not life.is_durable:
            self._processes[id_] = life
        elif facts.lives.get(id_) != life:
            facts = facts._replace(lives={**facts.lives, id_: life})
        if facts is not self.facts:
            self._replace(facts)
        is_bound = id_ in self._saved.bound or id_ not in facts.bound
        if not is_bound or life.is_durable and self._saved.lives.get(id_) != life:
            if not await self._saved_if_room() and not is_bound:
                return Verdict(Code.STORAGE_FULL, f"the disk of node {self._node} is full, it "
                               f"cannot remember node {id_}: free some space")
            return self.judge(hello, is_alive)
        return None

    def met(self, peer: int, life: Life) -> None:
        """``peer`` let this life of this node in; kept, whenever there is room."""
        if self.facts.met.get(peer) != life:
            self._replace(self.facts._replace(met={**self.facts.met, peer: life}))

    # ---- taking part ---------------------------------------------------------------------------

    @property
    def admission_needs(self) -> frozenset[int]:
        """The nodes of the first hour of which a majority has to know this one's incarnation before
        it takes part; empty = it may."""
        if self.facts.admitted or not self.facts.initial:
            return frozenset()
        return frozenset(node.id for node in self.facts.initial if node.id != self._node)

    async def admit(self) -> None:
        """A majority knows this node; durable."""
        self._replace(self.facts._replace(admitted=True))
        await self.save()

    # ---- the file ------------------------------------------------------------------------------

    def _replace(self, facts: Facts) -> None:
        self.facts = facts
        self._unsaved.set()
        changed, self._changed = self._changed, trio.Event()
        changed.set()

    async def changed(self) -> None:
        """Wait until there is something new."""
        await self._changed.wait()

    async def run(self) -> None:
        """Task: saves what changed.  What the metadata said can be learned from them again, so a
        full disk is no reason to stop: it is tried again."""
        while True:
            await self._unsaved.wait()
            # Here only: an event that somebody else replaced is one that nobody sets any more.
            self._unsaved = trio.Event()
            if not await self._saved_if_room():
                self._unsaved.set()
                await trio.sleep(FULL_RETRY_S)

    async def _saved_if_room(self) -> bool:
        """``save``; False = the disk is full."""
        try:
            await self.save()
        except DiskFailed as error:
            if getattr(error.__cause__, "errno", None) not in _FULL:
                raise
            return False
        return True

    async def save(self) -> None:
        """Make the present facts durable.  Raises ``DiskFailed``."""
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
    """Replace the file; blocks until it is durable."""
    write_signed(filesystem, directory, KNOWN_NODES_FILE, {
        "cluster_id": facts.cluster.hex(), "groups": facts.groups,
        "replication_factor": facts.replication_factor,
        "initial": list(map(list, facts.initial)),
        "nodes": list(map(list, facts.nodes.values())),
        "removed": [list(row) for row in facts.removed.items()], "version": facts.version,
        "bound": [list(row) for row in facts.bound.items()], "admitted": facts.admitted,
        "lives": _rows(facts.lives), "met": _rows(facts.met)})


def read(filesystem: Filesystem, directory: str) -> Facts | None:
    """The facts of a data directory; None = there is no such file.  Raises ``CorruptFile``,
    ``UnknownFormat``."""
    fields = read_signed(filesystem, directory, KNOWN_NODES_FILE)
    if fields is None:
        return None
    fields = {"lives": [], "met": [], **fields}  # version 1 knows none
    try:
        shapes.check(fields, _SHAPE)
        return Facts(
            bytes.fromhex(fields["cluster_id"]), fields["groups"], fields["replication_factor"],
            _records(fields["initial"]), {node.id: node for node in _records(fields["nodes"])},
            dict(fields["removed"]), fields["version"], dict(fields["bound"]), fields["admitted"],
            _lives(fields["lives"]), _lives(fields["met"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"{directory}/{KNOWN_NODES_FILE}", f"malformed ({error!r})") from error


def _records(rows: Iterable[list]) -> tuple[NodeRecord, ...]:
    records = tuple(NodeRecord(*row) for row in rows)
    shapes.check(records, [NODE_SHAPE], "nodes")
    return records


def _of(known: dict[int, Life], nodes: dict[int, NodeRecord]) -> dict[int, Life]:
    """What is known of those nodes."""
    return {id_: life for id_, life in known.items() if id_ in nodes}


def _rows(known: dict[int, Life]) -> list[list[int]]:
    return [[id_, *life] for id_, life in known.items()]


def _lives(rows: Iterable[list[int]]) -> dict[int, Life]:
    return {id_: Life(*life) for id_, *life in rows}
