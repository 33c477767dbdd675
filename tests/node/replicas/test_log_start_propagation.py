"""The log start of a last epoch in groups of earlier ones: the step, and nodes that ask each
other."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.errors import NotLeader, PartitionSealed, ProposalError, UnknownPartition
from multiraft.partitions.state import PartitionStates
from multiraft.types import EntryKind
from multiraft.wire import placements as wire
from multiraft.wire.errors import StaleEpoch
from multiraft.wire.schema import Malformed
from node.clients.log_starts import LogStarts
from node.peers.errors import NoAnswer
from node.replicas import log_start_propagation
from node.replicas.log_start_propagation import (
    OP,
    EarlierEpoch,
    LogStartPropagation,
    earlier_epochs,
    is_first_deleted,
    offsets,
    propose_log_start,
)
from tests.node.clients.test_log_start import HOME, NEXT, Partition
from tests.node.harness import silent_log
from tests.partitions.test_state import P, control, seal


def switched(*starts: int) -> Partition:
    """Return a partition of 10 records per epoch, and a log start for each of its groups."""
    partition = Partition()
    partition.append(10)
    partition.switch()
    partition.append(10)
    for group, start in zip((HOME, NEXT), starts):
        partition.delete_below(start, group)
    partition.apply()
    return partition


def found(partition: Partition, *led: int) -> list[EarlierEpoch]:
    return [*earlier_epochs(P, tuple(partition.history), partition.groups, led.__contains__)]


# ---- the step ------------------------------------------------------------------------------------


def test_the_leader_of_an_earlier_epoch_raises_its_log_start_to_the_authority_or_its_own_end():
    [earlier] = found(switched(4, 0), HOME, NEXT)
    assert earlier == (P, HOME, 4, 10)
    assert [earlier.raised(authority) for authority in (0, 4, 5, 10, 17)] == [-1, -1, 5, 10, 10]


def test_only_leaders_of_earlier_epochs_with_records_left_have_something_to_raise():
    assert found(switched(4, 0), NEXT) == found(switched(10, 12), HOME) == []
    once = Partition()
    once.append(10)
    once.apply()
    assert found(once, HOME) == []


def test_a_group_that_holds_the_last_epoch_too_is_not_an_earlier_one():
    partition = switched(0, 0)
    partition.switch()
    partition.apply()
    assert [each.group for each in found(partition, HOME, NEXT)] == [NEXT]


def test_a_group_to_which_the_partition_has_returned_unpublished_is_left_alone():
    partition = switched(0, 0)
    partition.switch()  # back, and the metadata here do not know it
    partition.history.pop()
    assert found(partition, HOME) == []


@pytest.mark.parametrize("starts,is_deleted", [((9, 12), False), ((10, 12), True)])
def test_an_entry_is_dropped_when_its_own_group_has_deleted_it(starts, is_deleted):
    partition = switched(*starts)
    history = tuple(partition.history)
    assert is_first_deleted(P, history, partition.groups, (HOME,).__contains__) is is_deleted
    assert not is_first_deleted(P, history, partition.groups, (NEXT,).__contains__)
    assert not is_first_deleted(P, history[1:], partition.groups, (NEXT,).__contains__)


# ---- a proposal and a seal -----------------------------------------------------------------------


class Core:
    """A core that leads some groups; what it proposes is applied at once."""

    def __init__(self, partition: Partition, *led: int):
        self.status = self
        self.partition, self.led = partition, led
        self.groups = {*led}

    def is_leader(self, group: int) -> bool:
        return group in self.led

    def has_group(self, group: int) -> bool:
        return group in self.groups

    def leader_hint(self, group: int) -> tuple[int, int]:
        return group, 1  # node N leads group N

    def propose(self, group, kind, payload, partition=0, base_offset=-1):
        if group not in self.led:
            raise NotLeader(group, 0)
        assert (kind, partition, payload) == (EntryKind.LOG_START, P, b"")
        control(self.partition.groups[group], kind, base_offset=base_offset)
        self.partition.apply()


def proposed(partition: Partition, group: int, epoch: int, log_start: int) -> None:
    propose_log_start(Core(partition, HOME, NEXT), partition.groups, group, P, epoch, log_start)


def test_a_log_start_that_lost_the_race_with_a_seal_is_refused_and_fits_the_next_group():
    partition = Partition()
    partition.append(10)
    proposed(partition, HOME, 1, 4)
    seal(partition.last)
    with pytest.raises(PartitionSealed, match="raised in its next group"):
        proposed(partition, HOME, 1, 6)  # the seal is in the log, and not applied
    partition.groups[HOME].truncate(partition.groups[HOME].last_index)
    partition.switch()
    partition.apply()
    assert partition.groups[HOME].applied(P).log_start == 4
    assert partition.last.applied(P).log_start == 4, "the seal carried it"
    with pytest.raises(StaleEpoch, match="is at epoch 2 in group 2, not at 1"):
        proposed(partition, NEXT, 1, 6)
    proposed(partition, NEXT, 2, 6)
    assert partition.last.applied(P).log_start == 6


def test_an_opening_takes_the_larger_of_the_carried_log_start_and_its_own():
    partition = switched(8, 3)
    partition.switch()  # back to the first group, which knows 8; the seal carries 3
    partition.apply()
    assert partition.last.applied(P).log_start == 8


def test_a_log_start_beyond_the_end_or_of_a_foreign_group_is_refused_by_the_core():
    partition = Partition()
    with pytest.raises(UnknownPartition):
        propose_log_start(Core(partition, HOME), partition.groups, HOME, P + 1, 1, 4)
    with pytest.raises(ProposalError):
        propose_log_start(Core(partition), partition.groups, HOME, P, 1, 4)


# ---- two nodes -----------------------------------------------------------------------------------


async def take(_rows: int) -> None:
    await trio.lowlevel.checkpoint()


class Node:
    """A node with a replica of one group, which it leads."""

    def __init__(self, partition: Partition, group: int, nodes: dict[int, Node]):
        self.partition, self.nodes = partition, nodes
        self.asked: list[tuple[int, dict]] = []
        self.trimmed: list[wire.TrimEpochHistory] = []
        self.is_answering = True
        here = {group: partition.groups[group]}
        self.log_starts = LogStarts(here)
        self.rounds = 0
        self.core = Core(partition, group)
        self.propagation = LogStartPropagation(
            self.core, here, SimpleNamespace(state=self), self.log_starts, self,
            SimpleNamespace(ask=self.trim), self.request_round, SimpleNamespace(take=take),
            silent_log())
        nodes[group] = self

    @property
    def placed(self):
        history = tuple(self.partition.history)
        return SimpleNamespace(epoch_histories={P: history} if len(history) > 1 else {})

    def locate(self, partition: int):
        history = tuple(self.partition.history)
        return SimpleNamespace(group=history[-1].group, epoch_history=history) if (
            partition == P) else None

    def request_round(self) -> None:
        self.rounds += 1

    async def ask(self, peer: int, header: dict):
        await trio.lowlevel.checkpoint()
        self.asked.append((peer, header))
        if not self.nodes[peer].is_answering:
            raise NoAnswer(f"node {peer}: down")
        reply, _ = await self.nodes[peer].propagation.handlers[OP](1, header, memoryview(b""))
        return SimpleNamespace(header=reply)

    async def trim(self, request: wire.TrimEpochHistory) -> None:
        self.trimmed.append(request)
        del self.partition.history[0]

    def log_start(self, group: int) -> int:
        return self.partition.groups[group].applied(P).log_start


def two_nodes(partition: Partition) -> tuple[Node, Node]:
    nodes: dict[int, Node] = {}
    return Node(partition, HOME, nodes), Node(partition, NEXT, nodes)


def passes(*nodes: Node) -> None:
    async def step() -> None:
        for node in nodes:
            await node.propagation.step()

    trio.run(step)


def test_an_earlier_group_is_told_by_the_leader_of_the_last_one_and_follows():
    partition = switched(0, 6)
    home, following = two_nodes(partition)
    passes(home, following)
    assert home.asked == [(NEXT, {"op": OP, "partitions": [P]})] and following.asked == []
    assert home.log_start(HOME) == 6 and home.rounds == 1
    assert home.log_starts.highest(home.locate(P), P) == 6
    passes(home)
    assert home.rounds == 1, "nothing is missing"
    assert home.trimmed == following.trimmed == []


def test_a_deletion_that_passes_the_epoch_ends_it_in_its_group_and_then_in_the_history():
    partition = switched(0, 13)
    home, following = two_nodes(partition)
    passes(following)
    assert following.trimmed == [] and len(partition.history) == 2, "its own group knows nothing"
    passes(home)
    assert home.log_start(HOME) == 10 and following.log_start(NEXT) == 13
    assert home.trimmed == [wire.TrimEpochHistory(P, 10)]
    passes(home, following)
    assert len(home.trimmed) == 1 and home.log_starts._told == {}


def test_a_leader_that_does_not_answer_is_asked_again_and_nothing_is_deleted_meanwhile():
    partition = switched(0, 6)
    home, following = two_nodes(partition)
    following.is_answering = False
    passes(home)
    assert home.log_start(HOME) == 0 and len(home.asked) == 1
    following.is_answering = True
    passes(home)
    assert home.log_start(HOME) == 6


def test_a_node_with_the_last_group_asks_nobody():
    partition = switched(0, 6)
    nodes: dict[int, Node] = {}
    home = Node(partition, HOME, nodes)
    home.propagation._partition_states[NEXT] = partition.groups[NEXT]
    home.core.groups.add(NEXT)
    passes(home)
    assert home.asked == [] and home.log_start(HOME) == 6


def test_a_node_from_which_the_last_group_was_removed_asks_its_leader():
    """The storage keeps empty states of a removed replica, with its tombstone."""
    partition = switched(0, 6)
    home, _ = two_nodes(partition)
    home.propagation._partition_states[NEXT] = PartitionStates(NEXT)
    passes(home)
    assert home.asked == [(NEXT, {"op": OP, "partitions": [P]})] and home.log_start(HOME) == 6


def test_questions_and_answers_are_checked_and_bounded(monkeypatch):
    monkeypatch.setattr(log_start_propagation, "PARTITIONS_PER_QUESTION_MAX", 2)
    assert offsets({"at": [1, 0]}, "at", 2) == [1, 0]
    for wrong in (None, 7, [-1], [True], ["1"]):
        with pytest.raises(Malformed, match="no list of numbers"):
            offsets({"at": wrong}, "at")
    with pytest.raises(Malformed, match="3 at exceed the limit of 2"):
        offsets({"at": [1, 2, 3]}, "at")
    with pytest.raises(Malformed, match="1 at, 2 were asked for"):
        offsets({"at": [1]}, "at", 2)
    home, _ = two_nodes(switched(0, 6))

    async def ask(header: dict):
        return await home.propagation.handlers[OP](2, header, memoryview(b""))

    with pytest.raises(Malformed, match="takes partitions"):
        trio.run(ask, {"op": OP})
    assert trio.run(ask, {"op": OP, "partitions": [P, P + 1]}) == ({"log_starts": [0, 0]}, ())


def test_the_task_makes_a_pass_per_interval():
    home, _ = two_nodes(switched(0, 6))

    async def run() -> None:
        with trio.move_on_after(3 * log_start_propagation.INTERVAL_S):
            await home.propagation.run()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
    assert home.log_start(HOME) == 6
