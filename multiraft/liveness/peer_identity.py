"""Admission of peers: is the data directory that says hello the one known under its node id?

Contract.  ``check_peer`` is a function of a peer's hello and of what is known of that node;
``BootHistory`` holds the boot ids of a data directory.  The driver keeps what is known, and makes
it durable where necessary (``node/peers/registry.py``, ``multiraft.storage.identity``).

Theory.  A wiped data directory has lost its votes and acknowledgements, so its node must not
continue under the same id (scenario S28f): an id belongs to one directory incarnation permanently.
A directory restored from an older copy has lost what later starts did, and enough starts raise its
boot epoch to theirs.  So each start draws a random number, which with the boot epoch makes a *boot
id*, and the directory keeps its boot ids.  A peer remembers the boot id that it admitted last.  It
admits another one only if the hello names the remembered boot id: a directory without that
start is a copy from before it, whatever its epoch (docs/decisions/0008, 0052).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Random numbers from here on are durable: the directory keeps them.  Earlier releases drew 63 bits
#: for each process and kept nothing.
DURABLE = 1 << 63

#: Boot ids that a directory keeps, the latest ones, 16 bytes each in its identity file.  They must
#: cover the starts while a peer is away.  A start takes some tenths of a second.  A process draws a
#: new boot id for each 10 s in which data is written, so half a day of writes fills the list.
BOOT_IDS_KEPT = 4096


class Refusal(enum.Enum):
    """Reason for which a peer is not admitted."""

    REMOVED = enum.auto()  # its id was removed from the cluster, permanently
    UNKNOWN = enum.auto()  # no such node is known, yet or at all
    OTHER_DIRECTORY = enum.auto()  # the id belongs to another directory incarnation
    STALE_BOOT_ID = enum.auto()  # its directory has been started since
    # The boot id before it is connected and supported: perhaps a copy, perhaps too early.
    DUPLICATE_NODE = enum.auto()
    # It does not name the remembered boot id, and may say hello again.
    UNLINKED = enum.auto()


class BootId(NamedTuple):
    """Boot id: one start of a data directory, or a part of it.  A long-running process draws new
    boot ids, each larger than the one before."""

    boot_epoch: int
    process: int  # random; durable from ``DURABLE`` on

    @property
    def is_durable(self) -> bool:
        """True if the directory keeps this boot id."""
        return self.process >= DURABLE


NO_BOOT_ID = BootId(0, 0)


class PeerHello(NamedTuple):
    """A peer's statement about itself.

    ``after`` is the boot id of its directory that the receiver remembers, if the receiver has named
    it; None = it has not."""

    node: int
    incarnation: int
    boot_epoch: int
    process: int
    after: BootId | None = None

    @property
    def boot_id(self) -> BootId:
        """Boot id of the peer that says hello."""
        return BootId(self.boot_epoch, self.process)


class KnownPeer(NamedTuple):
    """Knowledge about a node.

    ``incarnation`` 0 = the node has not said hello; ``boot_epoch`` is the highest that was
    registered; ``boot_id`` is the boot id that was admitted last."""

    incarnation: int
    boot_epoch: int = 0
    boot_id: BootId = NO_BOOT_ID

    @property
    def remembered(self) -> BootId:
        """Boot id that the next hello has to name; ``NO_BOOT_ID`` = none, because the last one was
        not kept by its directory."""
        return self.boot_id if self.boot_id.is_durable else NO_BOOT_ID


class Rejection(NamedTuple):
    """A refusal and its text.  ``remembered`` is the boot id known to the receiver, for a peer
    whose directory keeps boot ids."""

    refusal: Refusal
    text: str
    remembered: BootId | None = None


def check_peer(hello: PeerHello, receiver: int, known: KnownPeer | None, is_removed: bool,
               is_alive: Callable[[BootId], bool]) -> Rejection | None:
    """Return the reason for which node ``receiver`` refuses the hello; None = the peer is
    admitted.

    ``is_alive`` returns whether a boot id is connected and supported right now.  O(1)."""
    node = hello.node
    if is_removed:
        return Rejection(Refusal.REMOVED, f"node {node} was removed from the cluster permanently")
    if known is None or node == receiver:
        return Rejection(Refusal.UNKNOWN, f"node {node} is no member of this cluster that node "
                         f"{receiver} knows of")
    if not hello.incarnation or known.incarnation not in (0, hello.incarnation):
        return Rejection(Refusal.OTHER_DIRECTORY, f"node {node} is another data directory here: "
                         f"incarnation {known.incarnation:x}, not {hello.incarnation:x}")
    # The admitted process itself, unless a later start has registered meanwhile.
    if hello.boot_id == known.boot_id and known.boot_id.boot_epoch >= known.boot_epoch:
        return None
    return _check_other_boot_id(hello, known, is_alive)


def _check_other_boot_id(hello: PeerHello, known: KnownPeer,
                         is_alive: Callable[[BootId], bool]) -> Rejection | None:
    node, boot_id = hello.node, known.boot_id
    epoch = max(known.boot_epoch, boot_id.boot_epoch)
    if hello.boot_epoch < epoch:
        return _stale(hello, f"node {node} has started since, with boot epoch {epoch}; this is "
                      f"{hello.boot_epoch}",
                      boot_id if boot_id.boot_epoch == epoch else BootId(epoch, 0))
    if not hello.boot_id.is_durable and boot_id.is_durable:
        return _stale(hello, f"node {node} has started since, by a release that keeps boot "
                      f"ids, and this one by an earlier release", boot_id)
    if hello.boot_id.is_durable and hello.after != known.remembered:
        return Rejection(Refusal.UNLINKED, f"node {node} has to name the boot id with boot epoch "
                         f"{known.remembered.boot_epoch} as one of its directory", known.remembered)
    if hello.boot_epoch == boot_id.boot_epoch and not boot_id.is_durable:
        return _stale(hello, f"another process has started as node {node} with the same boot epoch "
                      f"{epoch}", boot_id)
    if hello.boot_epoch > boot_id.boot_epoch and is_alive(boot_id):
        return Rejection(Refusal.DUPLICATE_NODE, f"node {node} runs already, with boot epoch "
                         f"{boot_id.boot_epoch}; this is {hello.boot_epoch}")
    return None


def _stale(hello: PeerHello, text: str, boot_id: BootId) -> Rejection:
    return Rejection(Refusal.STALE_BOOT_ID, text, boot_id if hello.boot_id.is_durable else None)


class BootIdOrigin(enum.Enum):
    """Answer of a directory about the boot id that a peer remembers."""

    OWN = enum.auto()  # one of its own, or the peer remembers none
    FOREIGN = enum.auto()  # not one of its own: the directory is a copy from before that start
    FORGOTTEN = enum.auto()  # older than the boot ids that are kept, so unknown


class BootHistory:
    """Boot ids of one data directory, as far as they are kept.  ``pinned`` are older ones that a
    peer is known to remember."""

    def __init__(self, boot_ids: Iterable[BootId], pinned: Iterable[BootId] = ()):
        kept = tuple(boot_ids)
        self._own = {*kept, *pinned}
        self._oldest = kept[0] if len(kept) >= BOOT_IDS_KEPT else NO_BOOT_ID

    def origin_of(self, remembered: BootId) -> BootIdOrigin:
        """Return the origin of the boot id that a peer remembers: this directory (also for
        ``NO_BOOT_ID``), another copy of it, or too old to know. O(1)."""
        if remembered == NO_BOOT_ID or remembered in self._own:
            return BootIdOrigin.OWN
        return BootIdOrigin.FORGOTTEN if remembered < self._oldest else BootIdOrigin.FOREIGN
