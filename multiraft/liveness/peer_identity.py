"""Which life of a node is let in: the judgement about a peer that says who it is.

Contract.  ``judge`` is a function of what the peer says and of what is known of it; ``History`` is
what a data directory says of its own lives.  Who keeps what is known, and makes durable what has to
be, is the driver's business (``node/peers/registry.py``, ``multiraft.storage.identity``).

Theory.  A data directory that was wiped has forgotten what it voted and acknowledged, so its node
may not go on under the same id (scenario S28f): an id belongs to one incarnation for ever.  A
directory that was put back to an older copy has forgotten what its later lives did, and its boot
epoch catches up with theirs when it is started often enough.  So each life has a random number
beside its epoch, which its directory keeps with those of the lives before it.  A peer remembers the
life that it let in last.  It lets another one in only when that names the life remembered: a
directory that has not had this life is a copy from before it, whatever its epoch (docs/decisions/
0008, 0052).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

#: Numbers of lives from here on are durable: the directory keeps them.  Earlier releases drew a
#: number of 63 bits for each process, which nobody kept.
DURABLE = 1 << 63

#: Lives that a directory remembers, the last ones, 16 bytes each in its identity file.  What counts
#: is the starts while a peer is away; a start takes some tenths of a second.  A life that lasts has
#: one for each 10 s in which it is written to: half a day has all of them.
LIVES_KEPT = 4096


class Refusal(enum.Enum):
    """Why a peer is not let in."""

    REMOVED = enum.auto()  # its id was, for ever
    UNKNOWN = enum.auto()  # no such node is known, yet or at all
    OTHER_DIRECTORY = enum.auto()  # the id belongs to another incarnation
    STALE_LIFE = enum.auto()  # its directory has started since
    RUNS = enum.auto()  # the life before it is connected and well: perhaps a copy, perhaps early
    UNLINKED = enum.auto()  # it does not name the life that is remembered: it may say it again


class Life(NamedTuple):
    """One start of a data directory, or a stretch of it: a life that lasts gets new numbers, each
    larger than the one before."""

    boot_epoch: int
    process: int  # random; durable from ``DURABLE`` on

    @property
    def is_durable(self) -> bool:
        """Tell whether its directory keeps its number."""
        return self.process >= DURABLE


NO_LIFE = Life(0, 0)


class Introduction(NamedTuple):
    """What a peer says of itself.  ``after``: the life of its directory that the judging node
    remembers, as far as the peer was told; None = it was not."""

    node: int
    incarnation: int
    boot_epoch: int
    process: int
    after: Life | None = None

    @property
    def life(self) -> Life:
        """The life that introduces itself."""
        return Life(self.boot_epoch, self.process)


class Known(NamedTuple):
    """What is known of a node.  ``incarnation`` 0 = not heard yet; ``boot_epoch``: the highest that
    was registered; ``life``: the one that was let in last."""

    incarnation: int
    boot_epoch: int = 0
    life: Life = NO_LIFE

    @property
    def remembered(self) -> Life:
        """The life that the next one has to name."""
        return self.life if self.life.is_durable else NO_LIFE


class Verdict(NamedTuple):
    """A refusal, in words.  ``remembered``: the life that the judging node knows of, for one whose
    directory keeps its lives."""

    refusal: Refusal
    text: str
    remembered: Life | None = None


def judge(said: Introduction, judging: int, known: Known | None, is_removed: bool,
          is_alive: Callable[[Life], bool]) -> Verdict | None:
    """Why node ``judging`` refuses who says so; None = it is let in.  ``is_alive`` tells whether a
    life is connected and supported right now."""
    node = said.node
    if is_removed:
        return Verdict(Refusal.REMOVED, f"node {node} was removed from the cluster for ever")
    if known is None or node == judging:
        return Verdict(Refusal.UNKNOWN, f"node {node} is no member of this cluster that node "
                       f"{judging} knows of")
    if not said.incarnation or known.incarnation not in (0, said.incarnation):
        return Verdict(Refusal.OTHER_DIRECTORY, f"node {node} is another data directory here: "
                       f"incarnation {known.incarnation:x}, not {said.incarnation:x}")
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
    """What a directory says of a life that a peer remembers."""

    OWN = enum.auto()  # it has had that life, or the peer remembers none
    FOREIGN = enum.auto()  # it has not: it is a copy from before that life
    FORGOTTEN = enum.auto()  # it is from before the lives that are kept: nobody can tell


class History:
    """The lives of one data directory, as far as they are kept.  ``pinned``: lives before those
    that a peer is known to remember."""

    def __init__(self, lives: Iterable[Life], pinned: Iterable[Life] = ()):
        kept = tuple(lives)
        self._own = {*kept, *pinned}
        self._oldest = kept[0] if len(kept) >= LIVES_KEPT else NO_LIFE

    def recall(self, remembered: Life) -> Recall:
        """Compare the life that a peer remembers with those of this directory.  O(1)."""
        if remembered == NO_LIFE or remembered in self._own:
            return Recall.OWN
        return Recall.FORGOTTEN if remembered < self._oldest else Recall.FOREIGN
