"""One fault, from its beginning to its healing; and whom it may be aimed at.

Contract.  A ``Nemesis`` is used once: ``plan`` says to whom and what, ``begin`` does it, ``heal``
undoes it, however far ``begin`` came.  What it chooses it draws from ``Field.rng``.  It never
starts nodes that are down at the end: whoever schedules does, after everything has been healed, so
that no order of two nemeses can wait for each other.  All raise ``BackendError`` when it cannot be
done just now.
"""

from __future__ import annotations

import abc
import random
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chaos.backends.backend import Backend, BackendError
from chaos.defects import DEFECTS
from multiraft.client import blocking
from multiraft.errors import MultiRaftError

#: Whom a nemesis is aimed at.
ONE, LEADER, MINORITY, ALL = "one", "leader", "minority", "all"
#: A loop of a nemesis ends at its next step; the longest is a command of an operator.
LOOP_END_S = 60.0


class Strike(NamedTuple):
    """What is going to be done."""

    nodes: list[int]  # ``CLIENTS`` with them: these lead on, and clients cannot reach them
    text: str


class Field:
    """What a nemesis sees: the cluster, its chance, and which groups are worth the trouble."""

    def __init__(self, backend: Backend, rng: random.Random,
                 hot_groups: Callable[[], Sequence[int]] = tuple):
        self.backend = backend
        self.rng = rng
        self._hot_groups = hot_groups

    def aim(self, *aims: str) -> list[int]:
        """Nodes, by one of these aims; one node where the aimed ones cannot be found."""
        nodes = self.backend.nodes()
        aim = self.rng.choice(aims)
        if aim == ALL:
            return nodes
        if aim == MINORITY:
            return sorted(self.rng.sample(nodes, max(1, (len(nodes) - 1) // 2)))
        leader = self.hot_leader() if aim == LEADER else 0
        return [leader if leader in nodes else self.rng.choice(nodes)]

    def hot_leader(self) -> int:
        """Who leads a group with much to do; 0 when nobody can say."""
        leaders = self.leaders()
        hot = [group for group in self._hot_groups() if group in leaders]
        group = self.rng.choice(hot or sorted(leaders) or [0])
        return leaders.get(group, 0)

    def leaders(self) -> dict[int, int]:
        """Group -> its leader, as a node that answers knows; those without are left out."""
        rows = self.ask(lambda client: client.group_list()) or []
        return {row.group: row.leader for row in rows if row.leader}

    def ask(self, question: Callable[[blocking.Client], object]) -> object:
        """An answer of the cluster; None when there is none now, which is what a nemesis is for."""
        up = [node for node in self.backend.nodes() if self.backend.is_running(node)]
        if not up:
            return None
        try:
            with blocking.Client(self.backend.servers(*up)) as client:
                return question(client)
        except (MultiRaftError, OSError):
            return None


class Nemesis(abc.ABC):
    """One fault of one kind."""

    #: A name in schedules and on the command line, and the kind of fault in a history.
    name: str
    kind: str
    #: Nemeses of one turn begin in this order: what hangs comes last, what restarts first.
    order = 1
    #: What a history is told when it is over.
    healing = "healed"

    def __init__(self, field: Field):
        self.field = field
        self.backend = field.backend
        self.rng = field.rng
        self.nodes: list[int] = []

    @abc.abstractmethod
    def plan(self) -> Strike:
        """Chooses whom and how; nothing has been done yet."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Does it."""

    def heal(self) -> None:
        """Undoes it; nothing, when all it takes is that nodes are started."""
        return None

    def is_over(self) -> bool:
        """Whether nothing of it goes on once the backend has healed everything."""
        return True


class Loop(Nemesis):
    """A nemesis that does something again and again until it is healed."""

    #: Between two steps, in seconds.
    pause_s = (0.2, 1.5)

    def __init__(self, field: Field):
        super().__init__(field)
        # Its own: what the loop draws must not depend on when others draw.
        self.rng = random.Random(field.rng.random())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nemesis {self.name}", daemon=True)
        self.done = 0
        self.refused = 0
        self._ended_by: Exception | None = None

    @abc.abstractmethod
    def step(self) -> None:
        """Once; ``BackendError`` when it cannot be done just now."""

    def begin(self) -> None:
        self._thread.start()

    def heal(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(LOOP_END_S)
            if self._thread.is_alive():
                raise BackendError(f"the nemesis {self.name} does not come to an end")
        if self._ended_by is not None:
            error, self._ended_by = self._ended_by, None
            raise BackendError(f"the nemesis {self.name} ended early: {error!r}") from error

    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, seconds: float) -> bool:
        """Waits; True when it is over meanwhile."""
        return self._over.wait(seconds)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.step()
                self.done += 1
            except BackendError:
                self.refused += 1  # the cluster is being hurt by others as well
            except DEFECTS as error:  # a bug of ours: told when the turn is over
                self._ended_by = error
                return
            self.wait(self.rng.uniform(*self.pause_s))
