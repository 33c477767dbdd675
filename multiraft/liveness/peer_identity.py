"""Admission of peers: is the data directory that introduces itself the one known under its node id?

Contract.  ``judge`` is a function of a peer's introduction and of what is known of that node;
``History`` holds the boot ids of a data directory.  The driver keeps what is known, and makes it
durable where necessary (``node/peers/registry.py``, ``multiraft.storage.identity``).

Theory.  A wiped data directory has lost its votes and acknowledgements, so its node must not
continue under the same id (scenario S28f): an id belongs to one directory incarnation permanently.
A directory restored from an older copy has lost what later starts did, and enough starts raise its
boot epoch to theirs.  So each start draws a random number, which with the boot epoch makes a *boot
id*, and the directory keeps its boot ids.  A peer remembers the boot id that it admitted last.  It
admits another one only if the introduction names the remembered boot id: a directory without that
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
LIVES_KEPT = 4096


class Refusal(enum.Enum):
    """Reason for which a peer is not admitted."""

    REMOVED = enum.auto()  # its id was removed from the cluster, permanently
    UNKNOWN = enum.auto()  # no such node is known, yet or at all
    OTHER_DIRECTORY = enum.auto()  # the id belongs to another directory incarnation
    STALE_LIFE = enum.auto()  # its directory has been started since
    # The boot id before it is connected and supported: perhaps a copy, perhaps too early.
    RUNS = enum.auto()
    # It does not name the remembered boot id, and may introduce itself again.
    UNLINKED = enum.auto()


class Life(NamedTuple):
    """Boot id: one start of a data directory, or a part of it.  A long-running process draws new
    boot ids, each larger than the one before."""

    boot_epoch: int
    process: int  # random; durable from ``DURABLE`` on

    @property
    def is_durable(self) -> bool:
        """True if the directory keeps this boot id."""
        return self.process >= DURABLE


NO_LIFE = Life(0, 0)


class Introduction(NamedTuple):
    """A peer's statement about itself.

    ``after`` is the boot id of its directory that the judging node remembers, if the judging node
    has named it; None = it has not."""

    node: int
    incarnation: int
    boot_epoch: int
    process: int
    after: Life | None = None

    @property
    def life(self) -> Life:
        """Boot id of the peer that introduces itself."""
        return Life(self.boot_epoch, self.process)


class Known(NamedTuple):
    """Knowledge about a node.

    ``incarnation`` 0 = the node has not introduced itself; ``boot_epoch`` is the highest that was
    registered; ``life`` is the boot id that was admitted last."""

    incarnation: int
    boot_epoch: int = 0
    life: Life = NO_LIFE

    @property
    def remembered(self) -> Life:
        """Boot id that the next introduction has to name."""
        return self.life if self.life.is_durable else NO_LIFE


class Verdict(NamedTuple):
    """A refusal and its text.  ``remembered`` is the boot id known to the judging node, for a peer
    whose directory keeps boot ids."""

    refusal: Refusal
    text: str
    remembered: Life | None = None


def judge(said: Introduction, judging: int, known: Known | None, is_removed: bool,
          is_alive: Callable[[Life], bool]) -> Verdict | None:
    """Return the reason for which node ``judging`` refuses the introduction; None = the peer is
    admitted.

    ``is_alive`` returns whether a boot id is connected and supported right now.  O(1)."""
    node = said.node
    if is_removed:
        return Verdict(Refusal.REMOVED, f"node {node} was removed from the cluster for ever")
    if known is None or node == judging:
        return Verdict(Refusal.UNKNOWN, f"node {node} is no member of this cluster that node "
                       f"{judging} knows of")
    if not said.incarnation or known.incarnation not in (0, said.incarnation):
        return Verdict(Refusal.OTHER_DIRECTORY, f"node {node} is another data directory here: "
                       f"incarnation {known.incarnation:x}, not {said.incarnation:x}")
    # The admitted process itself, unless a later start has registered meanwhile.
    if said.life == known.life and known.life.boot_epoch >= known.boot_epoch:
        return None
    return _judge_other_life(said, known, is_alive)


def _judge_other_life(said: Introduction, known: Known,
                      is_alive: Callable[[Life], bool]) -> Verdict | None:
    node, life = said.node, known.life
    epoch = max(known.boot_epoch, life.boot_epoch)
    if said.boot_epoch < epoch:
        return _stale(said, f"node {node} has started since, with boot epoch {epoch}; this is "
                      f"{said.boot_epoch}", life if life.boot_epoch == epoch else Life(epoch, 0))
    if not said.life.is_durable and life.is_durable:
        return _stale(said, f"node {node} has started since, by a release that tells its lives "
                      f"apart, and this one by an earlier release", life)
    if said.life.is_durable and said.after != known.remembered:
        return Verdict(Refusal.UNLINKED, f"node {node} has to say that its directory has had the "
                       f"life with boot epoch {known.remembered.boot_epoch}", known.remembered)
    if said.boot_epoch == life.boot_epoch and not life.is_durable:
        return _stale(said, f"another process has started as node {node} with the same boot epoch "
                      f"{epoch}", life)
    if said.boot_epoch > life.boot_epoch and is_alive(life):
        return Verdict(Refusal.RUNS, f"node {node} runs already, with boot epoch "
                       f"{life.boot_epoch}; this is {said.boot_epoch}")
    return None


def _stale(said: Introduction, text: str, life: Life) -> Verdict:
    return Verdict(Refusal.STALE_LIFE, text, life if said.life.is_durable else None)


class Recall(enum.Enum):
    """Answer of a directory about the boot id that a peer remembers."""

    OWN = enum.auto()  # one of its own, or the peer remembers none
    FOREIGN = enum.auto()  # not one of its own: the directory is a copy from before that start
    FORGOTTEN = enum.auto()  # older than the boot ids that are kept, so unknown


class History:
    """Boot ids of one data directory, as far as they are kept.  ``pinned`` are older ones that a
    peer is known to remember."""

    def __init__(self, lives: Iterable[Life], pinned: Iterable[Life] = ()):
        kept = tuple(lives)
        self._own = {*kept, *pinned}
        self._oldest = kept[0] if len(kept) >= LIVES_KEPT else NO_LIFE

    def recall(self, remembered: Life) -> Recall:
        """Compare the boot id that a peer remembers with those of this directory.  O(1)."""
        if remembered == NO_LIFE or remembered in self._own:
            return Recall.OWN
        return Recall.FORGOTTEN if remembered < self._oldest else Recall.FOREIGN
