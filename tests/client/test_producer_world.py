"""Producer state machine against correct leaders, with random network faults and elections.

Each seed is one simulation.  Requests and answers are lost or delayed; leaders change, and
uncommitted entries are lost with them; retriable refusals of each kind occur at random; partitions
are switched to other groups, whose terms are lower.  After each simulation:

- an acknowledged batch is in the log, at the offset that was acknowledged, once
- no value is in the log twice, and values of one partition keep their order
- a batch that ended in a definite error is not in the log
"""

from __future__ import annotations

import random

import pytest

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, NetworkLimits
from multiraft.client._producer import ProducerState
from multiraft.client._records import BatchReceipt, Record
from multiraft.wire import messages as m
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, RequestError
from tests.client.fake_cluster import Partition

NODES = (1, 2, 3)
PARTITIONS = 2
REFUSALS = (Code.LEADER_UNKNOWN, Code.QUEUE_FULL, Code.STALE_METADATA, Code.SHUTTING_DOWN,
            Code.TIMED_OUT, Code.STORAGE_FULL, Code.UNKNOWN_PARTITION)


class World:
    """Simulation of three nodes with one leader and one log per partition, whose suffix may be
    uncommitted."""

    def __init__(self, seed: int, acks: str, settings: dict, switches: float = 0.0):
        self.switches = switches  # odds, per record
        self.rng = random.Random(seed)
        self.now = 0
        self.parts = [Partition("t", number, 100 + number, number) for number in range(PARTITIONS)]
        self.leaders = {part.incarnation: 1 for part in self.parts}
        self.terms = {part.incarnation: 1 for part in self.parts}
        self.committed = {part.incarnation: 0 for part in self.parts}  # entries of the log
        self.places = dict.fromkeys(self.terms, 1)  # epoch of each partition
        self.moving: dict[int, int] = {}  # sealed partitions -> leader of the next group
        self.events: list = []  # (time, order, action)
        self.order = 0
        self.metadata = MetadataCache()
        self.producer = ProducerState(
            ProducerSettings(**{"acks": acks, "batch_bytes": 200, "linger_ms": 3,
                                "delivery_timeout_ms": 4_000, "suspect_ms": 200,
                                "request_timeout_ms": 600, **settings}),
            self.metadata, random.Random(seed + 1), limits=NetworkLimits(retry_ms_max=200))
        self.epochs = 0
        self.sent: list[tuple[bytes, object]] = []
        self.faults = True
        self.refreshing = False

    def later(self, delay: int, action) -> None:
        self.order += 1
        self.events.append((self.now + delay, self.order, action))

    def chance(self, probability: float) -> bool:
        return self.faults and self.rng.random() < probability

    # ---- the cluster ----

    def metadata_answer(self) -> m.MetadataReply:
        return m.MetadataReply(
            bytes(16), tuple(m.NodeAddress(node, f"n{node}:1", "") for node in NODES),
            (m.TopicMetadata("t", bytes(16), 1, tuple(
                m.PartitionMetadata(part.number, part.incarnation, part.group,
                                    self.leaders[part.incarnation], self.terms[part.incarnation],
                                    self.places[part.incarnation])
                for part in self.parts)),))

    def change_leader(self, part: Partition) -> None:
        """Elect a leader that has all committed entries, and a random prefix of the others."""
        if part.incarnation in self.moving:
            return
        keep = self.rng.randint(self.committed[part.incarnation], len(part.log))
        part.log = part.log[:keep]
        self.rebuild(part)
        self.committed[part.incarnation] = len(part.log)
        self.leaders[part.incarnation] = self.rng.choice(NODES)
        self.terms[part.incarnation] += 1

    def switch(self, part: Partition) -> None:
        """Seal a partition after an election; later the next group takes appends."""
        if part.incarnation in self.moving:
            return
        self.change_leader(part)
        self.moving[part.incarnation] = self.rng.choice(NODES)
        self.later(self.rng.randint(1, 80), lambda: self.opened(part))

    def opened(self, part: Partition) -> None:
        """Open the partition in the next group, with its producer state, in that group's term."""
        part.group += 10
        self.places[part.incarnation] += 1
        self.leaders[part.incarnation] = self.moving.pop(part.incarnation)
        self.terms[part.incarnation] = self.rng.randint(1, 3)

    def refusal(self, part: Partition, node: int) -> m.ProduceResult | None:
        """Return the refusal of a node that takes no appends of this partition now; None = it
        does."""
        incarnation = part.incarnation
        leader, epoch = self.leaders[incarnation], self.places[incarnation]
        hint = leader if self.rng.random() < 0.5 else 0
        if leader != node:
            if epoch > 1 and self.rng.random() < 0.7:
                return m.ProduceResult(Code.MOVED, -1, ErrorDetail(
                    "", hint, "", group=part.group, epoch=epoch))
            return m.ProduceResult(Code.NOT_LEADER, -1, ErrorDetail("", hint, group=part.group))
        if incarnation not in self.moving:
            return None
        if self.rng.random() < 0.3:
            return m.ProduceResult(Code.STALE_METADATA, -1, ErrorDetail("sealed"))
        return m.ProduceResult(Code.MOVED, -1, ErrorDetail(
            "", self.moving[incarnation], "", group=part.group + 10, epoch=epoch + 1))

    def rebuild(self, part: Partition) -> None:
        """Rebuild the producer state from the log."""
        log, part.log, part.windows, part.next_offset = part.log, [], {}, 0
        for base, data in log:
            plain = bytearray(data)
            plain[0:8] = bytes(8)
            plain[12:16] = b"\xff" * 4
            code, offset = part.append(bytes(plain))
            assert (code, offset) == (Code.OK, base)

    def serve(self, attempt) -> None:
        """Serve a request at ``attempt.node``."""
        results, at, waits = [], 0, []
        payload = b"".join(map(bytes, attempt.payload))
        for incarnation, length in attempt.request.batches:
            part = self.parts[incarnation - 100]
            data = payload[at:at + length]
            at += length
            refused = self.refusal(part, attempt.node)
            if refused is not None:
                results.append(refused)
            elif self.chance(0.1):
                results.append(m.ProduceResult(self.rng.choice(REFUSALS), -1, ErrorDetail("no")))
            else:
                results.append(m.ProduceResult(*part.append(data)))
                waits.append((len(results) - 1, incarnation, self.life(incarnation)))
        self.later(self.rng.randint(0, 30), lambda: self.commit(attempt, results, waits))

    def commit(self, attempt, results, waits) -> None:
        """Commit the entries, if the term is unchanged; else the outcome is ambiguous."""
        for at, incarnation, life in waits:
            if self.life(incarnation) == life:
                self.committed[incarnation] = len(self.parts[incarnation - 100].log)
            elif results[at].code == Code.OK:
                results[at] = m.ProduceResult(Code.AMBIGUOUS, -1, ErrorDetail("stepped down"))
        if self.chance(0.1):
            outcome = Lost(True, "cut before the answer")
        else:
            outcome = ResponseEvent(1, m.ProduceReply(tuple(results)))
        self.later(self.rng.randint(0, 20), lambda: self.producer.done(attempt, outcome, self.now))

    def life(self, incarnation: int) -> tuple[int, int]:
        """Return partition epoch and term, one of which changes when the leader is deposed."""
        return self.places[incarnation], self.terms[incarnation]

    # ---- the network ----

    def send(self, attempt) -> None:
        attempt = attempt._replace(payload=[bytes(data) for data in attempt.payload])
        if self.chance(0.05):
            self.later(5, lambda: self.producer.done(attempt, Lost(False, "refused"), self.now))
        elif self.chance(0.05):  # arrives after the client has given the attempt up
            self.later(700, lambda: self.producer.done(attempt, Lost(True, "timed out"), self.now))
            self.later(self.rng.randint(0, 1500), lambda: self.serve(attempt))
        elif self.chance(0.05):
            self.later(50, lambda: self.producer.done(attempt, Lost(True, "cut"), self.now))
        else:
            self.in_order(attempt)

    def in_order(self, attempt) -> None:
        """Schedule an arrival after all earlier ones of the same connection."""
        at = max(self.now + self.rng.randint(1, 10), getattr(self, "_last", {}).get(
            attempt.address, 0))
        self.__dict__.setdefault("_last", {})[attempt.address] = at
        self.later(at - self.now, lambda: self.serve(attempt))

    def refresh(self) -> None:
        if self.metadata.wanted() and not self.refreshing:
            self.refreshing = True
            asked, stale = self.metadata.wanted(), self.metadata_answer()

            def arrive() -> None:
                self.refreshing = False
                reply = stale if self.chance(0.3) else self.metadata_answer()
                self.metadata.apply(asked, reply, self.now)

            self.later(self.rng.randint(5, 60), arrive)

    # ---- time ----

    def step(self) -> None:
        for attempt in self.producer.poll(self.now):
            self.send(attempt)
        if self.producer.wants_identity and not getattr(self, "identifying", False):
            self.identifying = True
            self.later(20, self.identify)
        self.refresh()
        for queue in self.producer.records.partitions.values():
            queue._check()
        times = [at for at, _, _ in self.events]
        deadline = self.producer.next_deadline_ms()
        if deadline is not None:
            times.append(max(deadline, self.now + 1))
        self.now = min(times, default=self.now + 10)
        self.events.sort(key=lambda event: event[:2])
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[2]()

    def identify(self) -> None:
        self.identifying = False
        self.producer.identify(7, self.epochs)
        self.epochs += 1

    def run(self, records: int) -> None:
        for number in range(len(self.sent), len(self.sent) + records):
            value = b"v%06d" % number
            delivery = self.producer.records.send(
                Record("t", value, partition=number % PARTITIONS), self.now, 1)
            self.sent.append((value, delivery))
            if self.rng.random() < 0.3:
                until = self.now + self.rng.randint(0, 20)
                while self.now < until:
                    self.step()
            if self.chance(0.02):
                self.change_leader(self.rng.choice(self.parts))
            if self.chance(self.switches):
                self.switch(self.rng.choice(self.parts))
        self.faults = False
        self.producer.records.seal_all()
        for _ in range(20_000):
            if all(delivery.done for _, delivery in self.sent):
                return
            self.step()
        raise AssertionError("the producer did not come to an end after the faults")


def judge(world: World, ordered: bool = True) -> dict[str, int]:
    """Check the guarantees on the final logs; without idempotence order is not guaranteed."""
    logs = {part.number: part.values() for part in world.parts}
    counts = {"ok": 0, "refused": 0, "ambiguous": 0}
    for number, values in logs.items():
        assert len(set(values)) == len(values), f"partition {number}: a record is doubled"
        assert not ordered or values == sorted(values), f"partition {number}: records are reordered"
    everything = set().union(*logs.values())
    by_delivery: dict[int, list] = {}
    for value, delivery in world.sent:
        by_delivery.setdefault(id(delivery), [delivery]).append(value)
    for delivery, *values in by_delivery.values():
        outcome = delivery.outcome
        if isinstance(outcome, BatchReceipt):
            counts["ok"] += 1
            there = logs[outcome.partition][outcome.base_offset:outcome.base_offset + outcome.count]
            there = [value for value in there if value in values]  # several may share a batch
            assert there == values, "what was acknowledged is not at its offset"
        elif isinstance(outcome, AmbiguousOutcome):
            counts["ambiguous"] += 1
        else:
            assert isinstance(outcome, RequestError)
            counts["refused"] += 1
            assert everything.isdisjoint(values), f"a definite error was not: {outcome}"
    return counts


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_doubled_reordered_or_wrongly_reported(seed):
    world = World(seed, "commit", {})
    world.run(120)
    judge(world)
    records = world.producer.records
    assert records.buffered_bytes == 0
    assert records.settled(records.seal_all())


@pytest.mark.parametrize("seed", range(60))
def test_batches_in_flight_go_on_in_order_where_their_partition_does(seed):
    world = World(seed, "commit", {}, switches=0.06)
    world.run(150)
    judge(world)
    assert max(world.places.values()) > 1


def test_without_other_faults_a_switch_costs_no_batch_and_no_epoch():
    for seed in range(10):
        world = World(seed, "commit", {})
        world.faults = False
        for _ in range(6):
            world.run(20)
            world.switch(world.rng.choice(world.parts))
        world.run(20)
        assert judge(world)["ok"] == len({id(delivery) for _, delivery in world.sent})
        assert world.epochs == 1


def test_the_worlds_reach_every_kind_of_end():
    totals = {"ok": 0, "refused": 0, "ambiguous": 0}
    for seed in range(8):
        world = World(seed, "commit", {"delivery_timeout_ms": 150})
        world.run(120)
        for kind, count in judge(world).items():
            totals[kind] += count
    assert all(totals.values()), totals


@pytest.mark.parametrize("in_flight_max", [1, 5])
@pytest.mark.parametrize("seed", range(20))
def test_short_deadlines_keep_every_promise(seed, in_flight_max):
    world = World(seed, "commit", {"delivery_timeout_ms": 150, "in_flight_max": in_flight_max})
    world.run(120)
    judge(world)


@pytest.mark.parametrize("seed", range(20))
def test_without_idempotence_nothing_is_doubled_or_wrongly_reported(seed):
    world = World(seed, "commit", {"idempotent": False})
    world.run(120)
    judge(world, ordered=False)
