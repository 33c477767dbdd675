"""Topics that are created and deleted during a run, and the clients' knowledge of them.

Contract.  ``Topics`` is the operator.  It proposes commands to the leader of group 0 until they are
committed, and keeps every node a learner of group 0 (as ``node/cluster/metadata_learners.py``).  It
also is the metadata cache that all clients share: now and then it takes the metadata of some node,
and never older metadata than before.  Clients append to the incarnation that they know until a node
replies definitely that it is gone.

Quiescence.  In a run without topics nothing of this is scheduled.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from chaos.simulator.oracle import metadata_oracle
from multiraft.types import METADATA_GROUP
from multiraft.wire import plans as wire

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from chaos.simulator.ports import SimulationPort

#: Interval of the operator's checks and of the clients' updates.
CHECK_US = 200_000
#: Maximum number of topics at a time, and of partitions of a topic.
TOPICS_MAX = 4
PARTITIONS_MAX = 3
#: Maximum number of partitions of a topic that grew, and of those that are added at a time.
GROWN_MAX, ADDED_MAX = 8, 3
#: Topics that are created at the begin of a run.
FIRST_TOPICS = 2
#: Limits of batches that the operator sets: some refuse most batches of the workload.
BATCH_LIMITS = ("80", "120", "200", "1000", "1048576", None)
#: Clocks of timestamps that the operator sets.
TIMESTAMP_TYPES = ("LogAppendTime", "CreateTime", "LogAppendTime", None)
#: Limits of retention that the operator sets: age in milliseconds, bytes, records.
AGES_MS = (1_500, 5_000, 20_000, metadata_oracle.UNLIMITED_MS, metadata_oracle.UNLIMITED_MS)
SIZES = ("0", "200", "2000", "20000", None, None)
RECORDS = ("0", "1", "10", "100", None, None)
#: Probability that a change of settings is one of the cluster's defaults.
CLUSTER_SETTINGS = 0.3
#: Share of appends and reads that go to topics.
SHARE = 0.4
#: Probability that a command is proposed before the previous one is known to be committed.
HURRIED = 0.3


class Intent(NamedTuple):
    """Command that must be committed."""

    payload: bytes
    name: str
    topic_id: bytes  # empty = the bootstrap
    deletes: bool


class Topics:
    """Operator of topics and shared metadata cache of clients, in one run."""

    def __init__(self, world: SimulationPort, rng: random.Random, limits_rng: random.Random,
                 growth_rng: random.Random):
        """``limits_rng`` draws limits of retention, ``growth_rng`` additions of partitions."""
        self._world = world
        self._rng = rng
        self._limits_rng = limits_rng
        self._growth_rng = growth_rng
        self.seen_index = 0  # the newest metadata that clients know
        self._known: list[metadata_oracle.LivingTopic] = []
        self._extents: dict[int, list[metadata_oracle.Extent]] = {}
        self._gone: set[int] = set()  # partitions that a node has reported as deleted
        self._intents: deque[Intent] = deque()
        #: name -> id of its newest requested incarnation, b"" = its deletion was requested.
        self._wanted: dict[str, bytes] = {}
        self._alterations: deque[bytes] = deque()  # commands that must be committed
        self._sizes: dict[bytes, int] = {}  # id of a topic -> partitions that were requested
        self._additions: deque[bytes] = deque()  # commands that must be committed
        self._altered = 0  # changes of settings that were requested
        self._is_running = False
        self._plan_end = ""  # action that ends a plan which is active after the faults
        self._asked: dict[Intent, int] = {}  # operations of the history

    # ---- the operator ----------------------------------------------------------------------

    def start(self) -> None:
        """Bootstrap the metadata, create the first topics, and check every ``CHECK_US`` from now on
        until ``stop``."""
        world = self._world
        payload = metadata_oracle.bootstrap(world.parameters, world.voters)
        self._intents.append(Intent(payload, "", b"", False))
        for _ in range(FIRST_TOPICS):
            self.create()
        self._is_running = True
        self._check()

    def create(self) -> bool:
        """Request one more topic with a free name and return True; False when all ``TOPICS_MAX``
        names are taken."""
        free = [name for name in map("t{}".format, range(TOPICS_MAX)) if not self._wanted.get(name)]
        if not free:
            return False
        name = self._rng.choice(free)
        topic_id = self._rng.randbytes(16)
        partitions = self._rng.randrange(1, PARTITIONS_MAX + 1)
        self._wanted[name] = topic_id
        self._sizes[topic_id] = partitions
        self._ask(
            Intent(metadata_oracle.create_topic(name, topic_id, partitions), name, topic_id, False)
        )
        return True

    def delete(self) -> str:
        """Request the deletion of a random topic and return its name; "" = there is no topic."""
        names = sorted(name for name, topic_id in self._wanted.items() if topic_id)
        if not names:
            return ""
        name = self._rng.choice(names)
        topic_id, self._wanted[name] = self._wanted[name], b""
        self._ask(Intent(metadata_oracle.delete_topic(name, topic_id), name, topic_id, True))
        return name

    def recreate(self) -> bool:
        """Request the deletion of a random topic and the creation of another one of its name at
        once. Return False if there is no topic, else True."""
        name = self.delete()
        if not name:
            return False
        topic_id = self._rng.randbytes(16)
        partitions = self._rng.randrange(1, PARTITIONS_MAX + 1)
        self._wanted[name] = topic_id
        self._sizes[topic_id] = partitions
        self._ask(
            Intent(metadata_oracle.create_topic(name, topic_id, partitions), name, topic_id, False)
        )
        return True

    def grow(self) -> bool:
        """Request more partitions for a random topic and return True; False when none may grow."""
        rng = self._growth_rng
        names = sorted(name for name, topic_id in self._wanted.items()
                       if topic_id and self._sizes[topic_id] < GROWN_MAX)
        if not names:
            return False
        name = rng.choice(names)
        topic_id = self._wanted[name]
        self._sizes[topic_id] = min(GROWN_MAX,
                                    self._sizes[topic_id] + rng.randrange(1, ADDED_MAX + 1))
        self._world.trace.line(0, METADATA_GROUP, "topic", f"grow {name} {self._sizes[topic_id]}")
        self._additions.append(metadata_oracle.add_partitions(
            name, topic_id, self._sizes[topic_id], rng.randbytes(16)))
        return True

    def alter(self) -> bool:
        """Request other settings of a random topic, or of the cluster, and return True."""
        names = sorted(name for name, topic_id in self._wanted.items() if topic_id)
        if not names or self._rng.random() < CLUSTER_SETTINGS:
            self._alter("", metadata_oracle.NO_TOPIC_ID, self._rng.choice(BATCH_LIMITS))
        else:
            name = self._rng.choice(names)
            self._alter(name, self._wanted[name], self._rng.choice(BATCH_LIMITS))
        return True

    def alter_retention(self) -> bool:
        """Request other limits of retention of a random topic, or of the cluster, and return
        True."""
        rng = self._limits_rng
        names = sorted(name for name, topic_id in self._wanted.items() if topic_id)
        name, topic_id = "", metadata_oracle.NO_TOPIC_ID
        if names and rng.random() >= CLUSTER_SETTINGS:
            name = rng.choice(names)
            topic_id = self._wanted[name]
        self._altered += 1
        age_ms, size, records = rng.choice(AGES_MS), rng.choice(SIZES), rng.choice(RECORDS)
        self._world.trace.line(0, METADATA_GROUP, "topic",
                               f"retention {name or '*'} {age_ms} {size} {records}")
        self._alterations.append(metadata_oracle.alter_settings(name, topic_id, {
            metadata_oracle.RETENTION_MS: str(age_ms + self._altered),
            metadata_oracle.RETENTION_BYTES: size, metadata_oracle.RETENTION_RECORDS: records}))
        return True

    def _alter(self, name: str, topic_id: bytes, limit: str | None) -> None:
        """Request a limit of batches (None = no limit) and the next clock of timestamps, with a
        number that no command before had."""
        self._altered += 1
        clock = TIMESTAMP_TYPES[self._altered % len(TIMESTAMP_TYPES)]
        self._world.trace.line(0, METADATA_GROUP, "topic",
                               f"settings {name or '*'} {limit} {clock}")
        values = {metadata_oracle.BATCH_BYTES: limit, metadata_oracle.TIMESTAMP_TYPE: clock,
                  metadata_oracle.RETENTION_MS: str(self._altered)}
        if self._world.parameters.has_retention:
            values |= {metadata_oracle.RETENTION_BYTES: None,
                       metadata_oracle.RETENTION_RECORDS: None,
                       metadata_oracle.RETENTION_MS: str(metadata_oracle.UNLIMITED_MS
                                                         + self._altered)}
        self._alterations.append(metadata_oracle.alter_settings(name, topic_id, values))

    def _ask(self, intent: Intent) -> None:
        self._world.trace.line(0, METADATA_GROUP, "topic",
                               f"{'delete' if intent.deletes else 'create'} {intent.name}")
        self._intents.append(intent)

    def _check(self) -> None:
        if not self._is_running:
            return
        while self._intents and self._is_done(self._intents[0]):
            self._record_completion(self._intents.popleft())
        for node in list(self._world.nodes.values()):
            if node.is_up and not node.paused and node.view.leads(METADATA_GROUP):
                for intent in self._next():
                    if intent not in self._asked:
                        self._asked[intent] = self._record_request(intent)
                    node.boot.metadata.command(intent.payload)
                self._propose_additions(node)
                self._propose_alterations(node)
                self._keep_learners(node)
                self._end_plan(node)
        self._refresh_metadata()
        self._world.queue.after(CHECK_US, self._check)

    def _record_request(self, intent: Intent) -> int:
        history = self._world.workload.history
        if history is None or not intent.topic_id:
            return 0
        return history.topic_asked(intent.name, intent.deletes)

    def _record_completion(self, intent: Intent) -> None:
        history, oracle = self._world.workload.history, self._world.oracle.metadata
        if history is not None and intent.topic_id:
            asked = self._asked.pop(intent, 0) or self._record_request(intent)
            incarnation = oracle.created[intent.topic_id]
            history.topic_done(asked, intent.name, incarnation, intent.deletes,
                               oracle.partitions_of(incarnation))

    def _next(self) -> list[Intent]:
        """Return the commands to propose now: the first that is not committed, if any, and
        sometimes the one behind it.

        The deletion of a topic never leaves before its creation is committed.  A real client does
        not know the id before that.  Moreover a command is proposed repeatedly, so a creation could
        be committed behind its deletion, and the topic would never be deleted.
        """
        first = list(self._intents)[:1]
        hurried = list(self._intents)[1:] if self._rng.random() < HURRIED else []
        return first + [each for each in hurried[:1] if each.topic_id != first[0].topic_id]

    def _is_done(self, intent: Intent) -> bool:
        oracle = self._world.oracle.metadata
        if not intent.topic_id:
            return bool(oracle.state.cluster_id)
        incarnation = oracle.created.get(intent.topic_id)
        if incarnation is None or not intent.deletes:
            return incarnation is not None
        return metadata_oracle.FIRST + incarnation in oracle.deleted_at

    def _end_plan(self, node: SimulatedNode) -> None:
        """Send through ``node``, the metadata leader, the command that ends a plan which outlives
        the faults: cancel it, or resume it if paused. No-op during the faults and without a plan.
        The choice holds for the whole run."""
        world, plan = self._world, self._world.oracle.metadata.state.plans.active
        if plan is None or world.network.faulty:
            return
        if not self._plan_end:
            self._plan_end = (wire.CANCEL if world.minority.nodes
                              else self._rng.choice((wire.RESUME, wire.CANCEL)))
        if self._plan_end == wire.CANCEL or (plan.state == "paused" and not plan.by_safety):
            node.boot.metadata.command(metadata_oracle.control_plan(plan.plan_id, self._plan_end, 0,
                                               world.queue.now_ms))

    def _propose_additions(self, node: SimulatedNode) -> None:
        """Propose through ``node``, the metadata leader, the first addition of partitions that is
        not decided, and now and then one that is, as a repetition of the request."""
        oracle, history = self._world.oracle.metadata, self._world.workload.history
        while self._additions and self._additions[0] in oracle.additions:
            payload = self._additions.popleft()
            incarnation = oracle.additions[payload]
            if incarnation and history is not None:
                history.partitions_added(oracle.names[incarnation], incarnation,
                                         oracle.partitions_of(incarnation))
            self._world.event_counts["additions of partitions"] += incarnation > 0
            if self._growth_rng.random() < HURRIED:
                node.boot.metadata.command(payload)
        if self._additions:
            node.boot.metadata.command(self._additions[0])

    def _propose_alterations(self, node: SimulatedNode) -> None:
        """Propose through ``node``, the metadata leader, the first change of settings that is not
        committed. After the faults, request that each limit is removed first, because a limit may
        refuse what clients are still sending."""
        oracle = self._world.oracle.metadata
        while self._alterations and self._alterations[0] in oracle.altered:
            self._alterations.popleft()
        if not self._alterations and not self._world.network.faulty:
            for name, topic_id in self._limited()[:1]:
                self._alter(name, topic_id, None)
        if self._alterations:
            node.boot.metadata.command(self._alterations[0])

    def _limited(self) -> list[tuple[str, bytes]]:
        """Return (name, id) of the topics with limits, by the committed commands."""
        return self._world.oracle.metadata.limited(self._world.parameters.has_retention)

    def _keep_learners(self, node: SimulatedNode) -> None:
        """Propose through ``node``, the metadata leader, that every node is a member of group 0, so
        that it has a copy of the metadata. No-op while a change is open, or ``node`` does not know
        a missing one as its peer."""
        present = node.view.configuration(METADATA_GROUP)
        missing = [number for number in sorted(self._world.nodes)
                   if number not in present.members()]
        if missing and not present.outgoing and node.peers.has(missing):
            node.boot.membership.set_members(METADATA_GROUP, present.voters,
                                             (*present.learners, *missing))

    # ---- clients ---------------------------------------------------------------------------

    def _refresh_metadata(self) -> None:
        """Take the metadata of a random running node, if newer than the known ones, and then update
        the clients' placement. No-op while no node is up."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if node.is_up and not node.paused]
        if not nodes:
            return
        state = self._rng.choice(nodes).view.metadata
        if state.version > self.seen_index:
            self.seen_index = state.version
            self._known = metadata_oracle.topics_of(state)
            self._extents = metadata_oracle.extents_in(state, self._known)
            self._world.workload.locate(self.places())

    def places(self) -> Iterable[tuple[int, int]]:
        """Return (partition, group) of all partitions of topics that clients believe to exist."""
        return [place for topic in self._known for place in topic.partitions
                if place[0] not in self._gone]

    def group_at(self, partition: int, offset: int) -> int:
        """Return the group that holds an offset of a topic's partition, as far as clients know; 0 =
        unknown.
        """
        found = self._extents.get(partition, ())
        return next((each.group for each in reversed(found) if each.start <= offset), 0)

    def extents(self) -> list[metadata_oracle.Extent]:
        """Return the extents of all partitions of topics, by the committed metadata."""
        state = self._world.oracle.metadata.state
        found = metadata_oracle.extents_in(state, metadata_oracle.topics_of(state))
        return [extent for extents in found.values() for extent in extents]

    def some_partition(self) -> int:
        """Return a random partition of a topic that clients know. 0 = the caller takes one of its
        own partitions this time; always when no topic is known."""
        if self._rng.random() >= SHARE:
            return 0
        places = self.places()
        return self._rng.choice(places)[0] if places else 0

    def record_gone(self, node: int, partition: int) -> None:
        """Record that a node replied definitely that a partition does not exist: clients use it no
        longer.  Raises ``Violation`` unless its deletion is committed."""
        self._world.oracle.metadata.refused(node, partition)
        self._gone.add(partition)
        self._world.event_counts["partition gone"] += 1

    # ---- the end ---------------------------------------------------------------------------

    def incomplete(self, live: list[int]) -> str:
        """Describe the first thing that is not complete: commands, switches, or the metadata of
        clients or of a node of ``live``; "" = all is."""
        world, oracle = self._world, self._world.oracle.metadata
        if self._intents:
            return f"{len(self._intents)} commands, {self._intents[0].name} first"
        if self._additions:
            return f"{len(self._additions)} additions of partitions"
        if self._alterations or self._limited():
            return f"{len(self._alterations)} changes of settings, limits {self._limited()}"
        if oracle.state.placed.switches:
            return f"switches {oracle.state.placed.switches}"
        behind = [number for number in live
                  if world.nodes[number].view.metadata.version != oracle.state.version]
        if behind or self.seen_index != oracle.state.version:
            return f"metadata {oracle.state.version} at {behind}, clients have {self.seen_index}"
        return ""

    def plan(self, all_nodes: bool) -> str:
        """Describe the active plan and its open moves; "" = there is none.

        A plan that is being cancelled does not count unless ``all_nodes``, because it may wait for
        a node that stays down.
        """
        plan = self._world.oracle.metadata.state.plans.active
        if plan is None or (plan.state == "cancelling" and not all_nodes):
            return ""
        left = [f"{plan.moves[seq].move_id} {record.phase.name}" for seq, record
                in plan.records.items() if not record.has_ended]
        return f"{plan.plan_id} is {plan.state} ({plan.reason}): {', '.join(left)}"

    def stop(self) -> None:
        """End the checks of the operator: no command is proposed any longer."""
        self._is_running = False

    def check_metadata(self, live: list[int]) -> None:
        """Check the metadata of each node of ``live`` against the committed commands. Raises
        ``Violation``."""
        written = sum(batches.next_offset > 0 for group in self._world.state_checker.groups.values()
                      for partition, batches in group.partitions.items()
                      if partition >= metadata_oracle.FIRST)
        self._world.event_counts["partitions of topics written"] += written
        for number in live:
            self._world.oracle.metadata.check(number, self._world.nodes[number].view.metadata)
