"""Topics that come and go: who asks for it, and what clients know of it.

Contract.  ``Topics`` is the operator, who proposes commands to whoever leads group 0 until they are
committed, keeps every node a learner of group 0 (as ``node/cluster/metadata_learners.py``), and is
the clients' common knowledge: now and then they take what some node says, and never go back to
older metadata. Clients append to the incarnation they know until a node says for certain that it is
gone.

Sleeps.  A run whose seed plays with no topics has none of this.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from chaos.simulator.clients.workload import Workload
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import Network
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.faults.partial_heal import Remainder
from chaos.simulator.node.metadata_group import StateTruth
from chaos.simulator.oracle import metadata_oracle
from chaos.simulator.oracle.observer import StateChecker
from multiraft.types import METADATA_GROUP
from multiraft.wire import plans as wire

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: How often the operator looks, and clients ask.
LOOK_US = 200_000
#: Topics at a time, and partitions of one.
TOPICS_MAX = 4
PARTITIONS_MAX = 3
#: Topics that a run begins with.
FIRST_TOPICS = 2
#: Share of appends and reads that go to topics.
SHARE = 0.4
#: Odds that the next command is proposed before the one before it is known to be committed.
HURRY = 0.3


class World(Protocol):
    """What topics may touch."""

    queue: EventQueue
    trace: Trace
    parameters: Parameters
    workload: Workload
    network: Network
    faults: Counter[str]
    marks: Counter[str]
    nodes: dict[int, SimulatedNode]
    remainder: Remainder
    truth: StateTruth
    witness: StateChecker
    voters: dict[int, tuple[int, ...]]


class Intent(NamedTuple):
    """A command that has to be committed.  ``deleted``: the partitions that end with it."""

    payload: bytes
    name: str
    topic_id: bytes  # empty = the bootstrap
    deletes: bool


class Topics:
    """See the module docstring."""

    def __init__(self, world: World, rng: random.Random):
        self._world = world
        self._rng = rng
        self.seen_index = 0  # the newest metadata that clients know
        self._known: list[metadata_oracle.LivingTopic] = []
        self._extents: dict[int, list[metadata_oracle.Extent]] = {}
        self._gone: set[int] = set()  # partitions that somebody said are gone
        self._intents: deque[Intent] = deque()
        #: name -> id of its newest life that was asked for, b"" = its end was.
        self._wanted: dict[str, bytes] = {}
        self._looking = False
        self._plan_end = ""  # what the operator does about a plan that outlives the faults
        self._asked: dict[Intent, int] = {}  # operations of the history

    # ---- the operator ----------------------------------------------------------------------

    def start(self) -> None:
        """Bootstrap, and the first topics."""
        world = self._world
        payload = metadata_oracle.bootstrap(world.parameters, world.voters)
        self._intents.append(Intent(payload, "", b"", False))
        for _ in range(FIRST_TOPICS):
            self.create()
        self._looking = True
        self._look()

    def create(self) -> bool:
        """Ask for one more topic, if there is room."""
        free = [name for name in map("t{}".format, range(TOPICS_MAX)) if not self._wanted.get(name)]
        if not free:
            return False
        name = self._rng.choice(free)
        topic_id = self._rng.randbytes(16)
        partitions = self._rng.randrange(1, PARTITIONS_MAX + 1)
        self._wanted[name] = topic_id
        self._ask(
            Intent(metadata_oracle.create_topic(name, topic_id, partitions), name, topic_id, False)
        )
        return True

    def delete(self) -> str:
        """Ask for the end of a topic; its name, empty = there is none."""
        living = sorted(name for name, topic_id in self._wanted.items() if topic_id)
        if not living:
            return ""
        name = self._rng.choice(living)
        topic_id, self._wanted[name] = self._wanted[name], b""
        self._ask(Intent(metadata_oracle.delete_topic(name, topic_id), name, topic_id, True))
        return name

    def recreate(self) -> bool:
        """End a topic and ask for another one of its name at once."""
        name = self.delete()
        if not name:
            return False
        topic_id = self._rng.randbytes(16)
        partitions = self._rng.randrange(1, PARTITIONS_MAX + 1)
        self._wanted[name] = topic_id
        self._ask(
            Intent(metadata_oracle.create_topic(name, topic_id, partitions), name, topic_id, False)
        )
        return True

    def _ask(self, intent: Intent) -> None:
        self._world.trace.line(0, METADATA_GROUP, "topic",
                               f"{'delete' if intent.deletes else 'create'} {intent.name}")
        self._intents.append(intent)

    def _look(self) -> None:
        if not self._looking:
            return
        while self._intents and self._is_done(self._intents[0]):
            self._tell_done(self._intents.popleft())
        for node in list(self._world.nodes.values()):
            if node.is_up and not node.paused and node.leads(METADATA_GROUP):
                for intent in self._next():
                    if intent not in self._asked:
                        self._asked[intent] = self._tell_asked(intent)
                    node.command(intent.payload)
                self._keep_learners(node)
                self._end_plan(node)
        self._learn()
        self._world.queue.after(LOOK_US, self._look)

    def _tell_asked(self, intent: Intent) -> int:
        history = self._world.workload.history
        if history is None or not intent.topic_id:
            return 0
        return history.topic_asked(intent.name, intent.deletes)

    def _tell_done(self, intent: Intent) -> None:
        history, truth = self._world.workload.history, self._world.truth.metadata
        if history is not None and intent.topic_id:
            asked = self._asked.pop(intent, 0) or self._tell_asked(intent)
            incarnation = truth.created[intent.topic_id]
            history.topic_done(asked, intent.name, incarnation, intent.deletes,
                               truth.partitions_of(incarnation))

    def _next(self) -> list[Intent]:
        """The first that is not done, and perhaps the one behind it; never a topic's end before its
        creation is committed.  Nobody knows a topic's id before that, and what is asked for again
        and again could be committed behind the end and begin a life that nobody ends."""
        first = list(self._intents)[:1]
        hurried = list(self._intents)[1:] if self._rng.random() < HURRY else []
        return first + [each for each in hurried[:1] if each.topic_id != first[0].topic_id]

    def _is_done(self, intent: Intent) -> bool:
        truth = self._world.truth.metadata
        if not intent.topic_id:
            return bool(truth.state.cluster_id)
        incarnation = truth.created.get(intent.topic_id)
        if incarnation is None or not intent.deletes:
            return incarnation is not None
        return metadata_oracle.FIRST + incarnation in truth.deleted_at

    def _end_plan(self, node: SimulatedNode) -> None:
        """Behind the faults an operator wants a plan to come to its end, one way or the other."""
        world, plan = self._world, self._world.truth.metadata.state.plans.active
        if plan is None or world.network.faulty:
            return
        if not self._plan_end:
            self._plan_end = (wire.CANCEL if world.remainder.nodes
                              else self._rng.choice((wire.RESUME, wire.CANCEL)))
        if self._plan_end == wire.CANCEL or (plan.state == "paused" and not plan.by_safety):
            node.command(metadata_oracle.control_plan(plan.plan_id, self._plan_end, 0,
                                               world.queue.now_ms))

    def _keep_learners(self, node: SimulatedNode) -> None:
        """Every node has a copy of the metadata."""
        present = node.configuration(METADATA_GROUP)
        missing = [number for number in sorted(self._world.nodes)
                   if number not in present.members()]
        if missing and not present.outgoing and node.knows(missing):
            node.set_members(METADATA_GROUP, present.voters, (*present.learners, *missing))

    # ---- clients ---------------------------------------------------------------------------

    def _learn(self) -> None:
        """Ask some node; older metadata than are known are nobody's news."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if node.is_up and not node.paused]
        if not nodes:
            return
        state = self._rng.choice(nodes).metadata
        if state.version > self.seen_index:
            self.seen_index = state.version
            self._known = metadata_oracle.topics_of(state)
            self._extents = metadata_oracle.extents_in(state, self._known)
            self._world.workload.locate(self.places())

    def places(self) -> Iterable[tuple[int, int]]:
        """(partition, group) of all that clients know to live."""
        return [place for living in self._known for place in living.partitions
                if place[0] not in self._gone]

    def group_at(self, partition: int, offset: int) -> int:
        """The group that holds an offset of a partition of a topic, as far as clients know; 0 = it
        is none of a topic."""
        found = self._extents.get(partition, ())
        return next((each.group for each in reversed(found) if each.start <= offset), 0)

    def extents(self) -> list[metadata_oracle.Extent]:
        """Parts of all partitions that live, by what is committed."""
        state = self._world.truth.metadata.state
        found = metadata_oracle.extents_in(state, metadata_oracle.topics_of(state))
        return [extent for extents in found.values() for extent in extents]

    def some_partition(self) -> int:
        """One of a topic; 0 = another one, this time."""
        if self._rng.random() >= SHARE:
            return 0
        places = self.places()
        return self._rng.choice(places)[0] if places else 0

    def is_gone(self, node: int, partition: int) -> None:
        """A node says for certain that there is no such partition."""
        self._world.truth.metadata.refused(node, partition)
        self._gone.add(partition)
        self._world.marks["partition gone"] += 1

    # ---- the end ---------------------------------------------------------------------------

    def unsettled(self, live: list[int]) -> str:
        """What is still to come, for people; empty = all is done and known everywhere."""
        world, truth = self._world, self._world.truth.metadata
        if self._intents:
            return f"{len(self._intents)} commands, {self._intents[0].name} first"
        if truth.state.placed.switches:
            return f"switches {truth.state.placed.switches}"
        behind = [number for number in live
                  if world.nodes[number].metadata.version != truth.state.version]
        if behind or self.seen_index != truth.state.version:
            return f"metadata {truth.state.version} at {behind}, clients have {self.seen_index}"
        return ""

    def plan(self, everybody: bool) -> str:
        """The plan under way, for people; empty = there is none, or none but one that is being
        cancelled while not ``everybody`` is there."""
        plan = self._world.truth.metadata.state.plans.active
        if plan is None or (plan.state == "cancelling" and not everybody):
            return ""
        left = [f"{plan.moves[seq].move_id} {record.phase.name}" for seq, record
                in plan.records.items() if not record.has_ended]
        return f"{plan.plan_id} is {plan.state} ({plan.reason}): {', '.join(left)}"

    def rest(self) -> None:
        """Nothing is asked for any more."""
        self._looking = False

    def settled(self, live: list[int]) -> None:
        """Every live node knows the living from the dead.  Raises ``Violation``."""
        written = sum(batches.next_offset > 0 for group in self._world.witness.groups.values()
                      for partition, batches in group.partitions.items()
                      if partition >= metadata_oracle.FIRST)
        self._world.marks["partitions of topics written"] += written
        for number in live:
            self._world.truth.metadata.check(number, self._world.nodes[number].metadata)
