"""The driver of partition switches: its steps, and a crash between any two of them.

Three nodes' drivers over one copy of each group's log. Consensus is simulated: an entry is
committed with the round that its proposer requests, or is lost with its leader.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.errors import NotLeader
from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.state import PartitionStates
from multiraft.types import BatchInfo, Entry, EntryKind
from multiraft.wire import placements as wire
from multiraft.wire.errors import AmbiguousOutcome, RequestError, StaleEpoch, StaleMetadata
from node.loop.applied_waiters import AppliedEntries
from node.metadata.state_machine import (
    CreateTopic,
    DecideSwitch,
    DeleteTopic,
    MetadataState,
    PublishSwitch,
)
from node.replicas.partition_switch import PartitionSwitcher
from tests.node.harness import silent_log
from tests.node.metadata.test_state_machine import bootstrap

NODES = (1, 2, 3)
P = 1  # the partition
LIMIT_S = 120  # of mocked time
RECORDS = 4


class Crash(Exception):
    """The crash of a node at this point."""


class Group:
    """A log of which all nodes have the same copy."""

    def __init__(self, number: int, leader: int):
        self.tail = PartitionStates(number)
        self.log: list[Entry] = []
        self.leader = leader
        self.term = number  # they differ, so that stamps have to be kept above each other
        self.settled = True
        self.has_room = True

    def append(self, kind: EntryKind, payload=b"", base_offset=-1, batch=None) -> None:
        entry = Entry(kind, self.tail.group, 1, self.term, self.tail.last_index + 1, P, base_offset,
                      payload, batch)
        assert self.tail.check_entry(entry) == "", self.tail.check_entry(entry)
        self.tail.append(entry)
        self.log.append(entry)

    def elect(self, leader: int, survives: bool) -> None:
        """Replace the leader; its uncommitted entries stay in the next leader's log, or do not."""
        if survives:
            self.tail.apply(self.tail.last_index)
        elif self.tail.last_index > self.tail.applied_index:
            self.tail.truncate(self.tail.applied_index + 1)
            del self.log[self.tail.applied_index:]
        self.leader, self.term = leader, self.term + 1


class Node:
    """One node's driver, and its view of the rest of the node."""

    def __init__(self, world: ClusterView, number: int):
        self.status = self  # as core.status
        self.world, self.node = world, number
        partition_states = {group: found.tail for group, found in world.groups.items()}
        self.applied = AppliedEntries(partition_states)
        leader = SimpleNamespace(ask=lambda request: self.ask_metadata(request))
        self.driver = PartitionSwitcher(self, partition_states, self, self.applied, self, leader,
                                        self.round, silent_log())

    # the core
    def is_leader(self, group: int) -> bool:
        return self.world.groups[group].leader == self.node

    def has_applied_in_term(self, group: int) -> bool:
        return self.is_leader(group) and self.world.groups[group].settled

    def records_fit(self, group: int) -> bool:
        return self.world.groups[group].has_room

    def leader_hint(self, group: int) -> tuple[int, int]:
        return self.world.groups[group].leader, self.world.groups[group].term

    def of(self, group: int) -> SimpleNamespace:
        return SimpleNamespace(term=self.world.groups[group].term)

    def propose(self, group: int, kind: EntryKind, payload: bytes, partition: int,
                base_offset: int = -1) -> None:
        assert self.is_leader(group) and partition == P
        self.world.effect(self.node, f"{kind.name} in {group}")
        self.world.groups[group].append(kind, payload, base_offset)

    def round(self) -> None:
        """Commit the entries proposed on this node."""
        for group, found in self.world.groups.items():
            if found.leader == self.node and found.tail.applied_index < found.tail.last_index:
                self.world.effect(self.node, f"commit in {group}")
                found.tail.apply(found.tail.last_index)
                for node in self.world.nodes.values():
                    node.applied.notify(group)

    # what nodes ask each other
    async def ask(self, peer: int, request) -> object:
        what = "prepare" if request.prepare else "open"
        self.world.effect(self.node, f"ask {peer} to {what}")
        await trio.lowlevel.checkpoint()
        try:
            reply = await self.world.nodes[peer].driver.open(request)
        except Crash as error:
            self.world.die(peer)
            raise AmbiguousOutcome("it died") from error
        self.world.effect(self.node, f"told {what}")
        return reply

    async def ask_metadata(self, request: wire.PublishSwitch) -> None:
        self.world.effect(self.node, "ask to publish")
        await trio.lowlevel.checkpoint()
        result = self.world.apply(PublishSwitch(*request))
        self.world.effect(self.node, "told published")
        assert result.error is None, result


class Metadata:
    """The metadata as the driver sees them: always the newest of the world."""

    def __init__(self, world: ClusterView):
        self._world = world

    @property
    def state(self) -> MetadataState:
        return self._world.state

    async def applied(self, index: int, _timeout_s: float) -> bool:
        await trio.lowlevel.checkpoint()
        return self._world.state.version >= index


class ClusterView:
    """Groups 1 to 3 are led by nodes 1 to 3; the partition is in group 1 and moves to group 2."""

    def __init__(self, leaders: tuple[int, int] = (1, 2)):
        self.groups = {number: Group(number, leader) for number, leader in enumerate(leaders, 1)}
        self.trace: list[str] = []
        self.crashes: dict[int, bool] = {}  # number of the effect -> does the proposed survive
        self.scopes: dict[int, trio.CancelScope] = {}
        self.deaths = 0
        self.state = MetadataState()
        self.apply(bootstrap(nodes=3, pool_size=2))
        self.apply(CreateTopic("t", bytes(16), 1))
        self.here = self.state.locate(P).group
        self.there = 3 - self.here
        self.nodes = {number: self._node(number) for number in NODES}

    def _node(self, number: int) -> Node:
        node = Node(self, number)
        node.driver._metadata_log = Metadata(self)
        return node

    def apply(self, command):
        result = self.state.apply(self.state.version + 1, command)
        for node in getattr(self, "nodes", {}).values():
            node.driver.check()
        return result

    def fill(self, records: int) -> None:
        """Commit batches of one producer."""
        group = self.groups[self.here]
        group.append(EntryKind.PARTITION_OPEN, open_payload(1))
        for number in range(records):
            group.append(EntryKind.DATA, b"", number, BatchInfo(1, 5, 0, number, 0, 0))
        group.tail.apply(group.tail.last_index)

    def decide(self, epoch: int = 2) -> None:
        result = self.apply(DecideSwitch(P, epoch, self.there))
        assert result.error is None, result

    def effect(self, node: int, what: str) -> None:
        """Record an effect that other nodes observe, before or after it happens."""
        self.trace.append(f"{node}: {what}")
        if len(self.trace) in self.crashes:
            raise Crash(what)

    def die(self, node: int) -> None:
        """End the node. The next node leads its groups; the node comes back without any memory."""
        self.deaths += 1
        survives = self.crashes.get(len(self.trace), False)
        for found in self.groups.values():
            if found.leader == node:
                found.elect(node % len(NODES) + 1, survives)
        self.nodes[node] = self._node(node)
        if node in self.scopes:
            self.scopes[node].cancel()
        for other in self.nodes.values():
            other.driver.check()

    async def keep(self, number: int) -> None:
        """Run the node's process, and restart it after each crash."""
        while True:
            with trio.CancelScope() as self.scopes[number]:
                try:
                    await self.nodes[number].driver.run()
                except* Crash:
                    self.die(number)
                    self.scopes[number].cancel()

    def run(self, over) -> ClusterView:
        """Run until ``over()``, in mocked time."""
        async def main():
            with trio.fail_after(LIMIT_S):
                async with trio.open_nursery() as nursery:
                    for number in NODES:
                        nursery.start_soon(self.keep, number)
                    while not over():
                        await trio.sleep(0.01)
                    nursery.cancel_scope.cancel()

        trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        return self

    @property
    def published(self) -> bool:
        return self.state.locate(P).epoch == 2 and not self.state.placed.switches


def switched(leaders=(1, 2), crashes=None, records=RECORDS) -> ClusterView:
    world = ClusterView(leaders)
    world.crashes = crashes or {}
    if records:
        world.fill(records)
    world.decide()
    return world.run(lambda: world.published)


def check(world: ClusterView, records: int = RECORDS) -> None:
    """Check for one seal, one effective opening, and complete records."""
    link = world.state.locate(P).epoch_history[-1]
    assert (link.epoch, link.group, link.start_offset) == (2, world.there, records)
    old, new = world.groups[world.here], world.groups[world.there]
    kinds = [entry.kind for entry in old.log]
    assert kinds.count(EntryKind.PARTITION_SEAL) == 1 and kinds[-1] == EntryKind.PARTITION_SEAL
    sealed, opened = old.tail.sealed(P), new.tail.applied(P)
    assert (sealed.epoch, opened.epoch, opened.start_offset) == (1, 2, records)
    assert opened.leader_epoch_base == link.leader_epoch_base
    opening = next(entry for entry in new.log if entry.kind == EntryKind.PARTITION_OPEN)
    assert link.leader_epoch_base + opening.term > sealed.leader_epoch
    if records:
        retry = new.tail.validate_append(P, BatchInfo(1, 5, 0, records - 1, 0, 0))
        assert retry.duplicate and retry.base_offset == records - 1
    following = new.tail.validate_append(P, BatchInfo(1, 5, 0, records, 0, 0))
    assert following.base_offset == records


# ---- step by step -------------------------------------------------------------------------------

#: What the nodes do, in order: node 1 leads the old group, node 2 the new one.
SCRIPT = [
    "1: ask 2 to prepare", "1: told prepare",
    "1: PARTITION_SEAL in {here}", "1: commit in {here}",
    "1: ask 2 to open",
    "2: PARTITION_OPEN in {there}", "2: commit in {there}",
    "1: told open",
    "2: ask to publish", "2: told published"]


def leaders_of(old: int, new: int) -> tuple[int, int]:
    """Return leaders of groups 1 and 2, so that ``old`` leads the partition's group."""
    return (old, new) if ClusterView().here == 1 else (new, old)


def script(world: ClusterView, lines) -> list[str]:
    return [line.format(here=world.here, there=world.there) for line in lines]


def test_a_switch_step_by_step():
    world = switched(leaders_of(1, 2))
    check(world)
    assert sorted(world.trace) == sorted(script(world, SCRIPT))
    assert world.trace[:7] == script(world, SCRIPT[:7])


def test_one_leader_of_both_groups_asks_nobody():
    world = switched((1, 1))
    check(world)
    assert world.trace == script(world, [
        "1: PARTITION_SEAL in {here}", "1: commit in {here}", "1: PARTITION_OPEN in {there}",
        "1: commit in {there}", "1: ask to publish", "1: told published"])


def test_a_partition_that_was_never_used_is_opened_to_be_sealed():
    """Otherwise a leader that does not know of the switch could open it at the first batch."""
    world = switched(leaders_of(1, 2), records=0)
    check(world, records=0)
    assert script(world, ["1: PARTITION_OPEN in {here}"])[0] in world.trace
    assert world.state.locate(P).epoch_history == world.state.locate(P).epoch_history[-1:]


STEPS = len(SCRIPT)


@pytest.mark.parametrize("survives", [False, True])
@pytest.mark.parametrize("leaders", [(1, 2), (2, 1), (3, 3)])
def test_whoever_acts_may_die_before_any_step(leaders, survives):
    """S33: a node crashes right before it acts, or right after it received a request."""
    for step in range(1, STEPS + 4):
        world = switched(leaders, {step: survives})
        check(world)
        assert world.deaths == (len(world.trace) >= step)


@pytest.mark.parametrize("leaders", [(1, 2), (3, 3)])
def test_two_may_die_before_any_two_steps(leaders):
    for steps in itertools.combinations(range(1, STEPS + 6), 2):
        for survives in itertools.product((False, True), repeat=2):
            check(switched(leaders, dict(zip(steps, survives, strict=True))))


def test_dying_again_and_again_only_delays():
    check(switched((1, 2), {step: step % 3 == 0 for step in range(1, 40)}))


# ---- obstacles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("is_stale_for", ["settled", "has_room"])
def test_nothing_is_sealed_while_the_next_group_would_not_take_it(is_stale_for):
    world = ClusterView((1, 2))
    world.fill(RECORDS)
    setattr(world.groups[world.there], is_stale_for, False)
    world.decide()
    asked = f"ask {world.groups[world.there].leader} to prepare"
    world.run(lambda: sum(asked in line for line in world.trace) > 5)
    assert world.groups[world.here].tail.is_open(P), "appends go on"
    setattr(world.groups[world.there], is_stale_for, True)
    check(world.run(lambda: world.published))


def test_a_group_without_a_leader_is_waited_for():
    world = ClusterView((1, 2))
    world.fill(RECORDS)
    leader, world.groups[world.there].leader = world.groups[world.there].leader, 0
    world.decide()

    async def soon():
        await trio.sleep(5)
        world.groups[world.there].leader = leader

    keep = world.keep

    async def and_come_back(number: int) -> None:
        if number == 3:
            await soon()
        await keep(number)

    world.keep = and_come_back
    check(world.run(lambda: world.published))


def test_a_leader_of_both_groups_with_old_metadata_waits_for_newer_ones():
    """The switch is complete, and the partition came back to the group since.  A step that opened
    nothing and published nothing would follow itself at once, without limit."""
    world = ClusterView((1, 1))
    world.fill(RECORDS)
    world.decide()
    here, there = world.groups[world.here], world.groups[world.there]
    here.append(EntryKind.PARTITION_SEAL, seal_payload(1), RECORDS)
    here.tail.apply(here.tail.last_index)
    there.append(EntryKind.PARTITION_OPEN, open_payload(4, RECORDS, log_start=0))
    there.tail.apply(there.tail.last_index)
    driver, switch = world.nodes[1].driver, world.state.placed.switches[P]
    with pytest.raises(StaleMetadata, match=f"epoch 4 in group {world.there}"):
        trio.run(driver.step, P, switch)
    world.run(lambda: trio.current_time() > 1)
    assert not world.published and there.tail.epoch_of(P) == 4


def test_a_deleted_topic_ends_its_switch():
    world = ClusterView((1, 2))
    world.fill(RECORDS)
    world.groups[world.there].settled = False
    world.decide()
    world.run(lambda: len(world.trace) > 3)
    world.apply(DeleteTopic("t", bytes(16)))
    world.groups[world.there].settled = True
    before = len(world.trace)
    world.run(lambda: trio.current_time() > 60 or not any(
        node.driver._at_work for node in world.nodes.values()))
    assert len(world.trace) - before <= 1 and world.groups[world.here].tail.is_open(P)


# ---- at the next group's leader -----------------------------------------------------------------


def ask(world: ClusterView, **changes):
    """Send one request to open, as node 1 would."""
    request = wire.OpenPartition(P, 2, world.there, world.state.version, False, RECORDS, 0, 1,
                                 b"")._replace(**changes)
    leader = world.nodes[changes.pop("node", world.groups[world.there].leader)]

    async def main():
        return await leader.driver.open(request)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_is_not_decided_is_not_opened():
    world = ClusterView((1, 2))
    with pytest.raises(StaleEpoch, match="no switch to group"):
        ask(world)
    world.decide()
    for changes in ({"epoch": 3}, {"to_group": world.here}):
        with pytest.raises((StaleEpoch, NotLeader)):
            ask(world, **changes)
    with pytest.raises(Exception, match="no partition has the incarnation 99"):
        ask(world, incarnation=99)
    with pytest.raises(StaleMetadata, match="is needed"):
        ask(world, metadata_index=world.state.version + 1)
    assert world.groups[world.there].tail.epoch_of(P) == 0
    ask(world)
    assert world.groups[world.there].tail.epoch_of(P) == 2


def test_opening_twice_is_opening_once_and_late_is_not_at_all():
    world = switched((1, 2))
    log = [*world.groups[world.there].log]
    ask(world)
    ask(world, end_offset=0)
    assert world.groups[world.there].log == log


def test_only_the_leader_opens():
    world = ClusterView((1, 2))
    world.decide()
    leader = world.groups[world.there].leader
    world.groups[world.there].leader = 3
    request = wire.OpenPartition(P, 2, world.there, world.state.version)
    with pytest.raises(NotLeader):
        trio.run(world.nodes[leader].driver.open, request)


def test_a_refusal_of_the_metadata_is_no_end():
    """The publication is refused, lost, refused: it is repeated until the metadata have it."""
    world = ClusterView((1, 2))
    world.fill(RECORDS)
    problems = [RequestError("no"), AmbiguousOutcome("lost"), RequestError("no")]
    for node in world.nodes.values():
        real = node.ask_metadata

        async def ask_metadata(request, real=real):
            if problems:
                raise problems.pop()
            await real(request)

        node.ask_metadata = ask_metadata
    world.decide()
    check(world.run(lambda: world.published))
    assert not problems
