"""Base of nemeses: one fault from its beginning to its healing, and the choice of its targets.

Contract.  A ``Nemesis`` is used once: ``plan`` chooses targets and parameters, ``begin`` injects
the fault, ``heal`` ends it, however far ``begin`` came.  Choices are drawn from ``Field.rng``.  A
nemesis never starts nodes that are down at the end: the scheduler does, after everything has been
healed, so that no order of two nemeses can wait for each other.  All methods raise ``BackendError``
when the fault is impossible at the moment.
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

#: Targets of a nemesis.
ONE, LEADER, MINORITY, ALL = "one", "leader", "minority", "all"
#: Time for the end of a nemesis that runs in a loop: it ends at its next step, and the longest step
#: is an operator's command.
LOOP_END_S = 60.0


class Strike(NamedTuple):
    """Targets and text of a fault that is going to begin."""

    # with ``CLIENTS`` among them: these nodes continue to lead, and clients cannot reach them
    nodes: list[int]
    text: str


class Field:
    """View of a nemesis: the cluster, random numbers, and the groups with much load."""

    def __init__(self, backend: Backend, rng: random.Random,
                 hot_groups: Callable[[], Sequence[int]] = tuple):
        self.backend = backend
        self.rng = rng
        self._hot_groups = hot_groups

    def aim(self, *aims: str) -> list[int]:
        """Return the nodes of an aim drawn from ``aims``: all nodes, a random minority (one at
        least), or a single node. A random node stands for a leader that is unknown or no member."""
        nodes = self.backend.nodes()
        aim = self.rng.choice(aims)
        if aim == ALL:
            return nodes
        if aim == MINORITY:
            return sorted(self.rng.sample(nodes, max(1, (len(nodes) - 1) // 2)))
        leader = self.hot_leader() if aim == LEADER else 0
        return [leader if leader in nodes else self.rng.choice(nodes)]

    def hot_leader(self) -> int:
        """Return the leader of a random group with much load, or of any group when no such leader
        is known; 0 = no leader is."""
        leaders = self.leaders()
        hot = [group for group in self._hot_groups() if group in leaders]
        group = self.rng.choice(hot or sorted(leaders) or [0])
        return leaders.get(group, 0)

    def leaders(self) -> dict[int, int]:
        """Return group -> leader, as a node that answers knows; groups without one are left out.
        Empty when no node answers."""
        rows = self.ask(lambda client: client.group_list()) or []
        return {row.group: row.leader for row in rows if row.leader}

    def ask(self, question: Callable[[blocking.Client], object]) -> object:
        """Return the result of ``question``, called with a client of the nodes that run. None when
        none runs or answers, which a nemesis expects."""
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
    #: Text in a history when the fault is over.
    healing = "healed"

    def __init__(self, field: Field):
        self.field = field
        self.backend = field.backend
        self.rng = field.rng
        self.nodes: list[int] = []

    @abc.abstractmethod
    def plan(self) -> Strike:
        """Choose targets and parameters, and return them for the history; nothing is injected
        yet."""

    @abc.abstractmethod
    def begin(self) -> None:
        """Inject the fault that ``plan`` has chosen."""

    def heal(self) -> None:
        """End the fault, however far ``begin`` came; does nothing where starting the nodes is
        enough. A loop waits for its last step, at most ``LOOP_END_S``."""
        return None

    def is_over(self) -> bool:
        """True if nothing of the fault remains once the backend has healed everything; False for a
        loop that still runs."""
        return True


class Loop(Nemesis):
    """A nemesis that repeats a step in a thread of its own until it is healed. A step that raises
    ``BackendError`` counts as refused; a defect ends the loop, and ``heal`` raises it as
    ``BackendError``."""

    #: Between two steps, in seconds.
    pause_s = (0.2, 1.5)

    def __init__(self, field: Field):
        super().__init__(field)
        # A generator of its own: the draws of the loop must not depend on when other threads draw.
        self.rng = random.Random(field.rng.random())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nemesis {self.name}", daemon=True)
        self.done = 0
        self.refused = 0
        self._ended_by: Exception | None = None

    @abc.abstractmethod
    def step(self) -> None:
        """Do one step, in the thread of the loop; raises ``BackendError`` when that is impossible
        at the moment, which the loop counts as refused."""

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
        """Block for ``seconds``, or until the nemesis is healed; return True if it is healed."""
        return self._over.wait(seconds)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self.step()
                self.done += 1
            except BackendError:
                self.refused += 1  # other nemeses are active as well
            except DEFECTS as error:  # a bug of the harness: reported when the turn is over
                self._ended_by = error
                return
            self.wait(self.rng.uniform(*self.pause_s))
