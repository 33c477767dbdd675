"""Partitions that are switched to other groups, again and again, while real clients write and
read."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from chaos import replicas
from chaos.checkers import check
from chaos.history import END, FINAL, HEAL, key_of
from multiraft.client import Record, Timestamp
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import InvalidRequest, LimitExceeded, StaleEpoch, UnknownPartition
from tests.e2e.test_checked import RUN, Recorded
from tests.e2e.world import WAIT_S, steady, wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}
SWITCHES = 30
PARTITION = 0
#: Timeout of clients: these tests do not measure how soon a busy machine resumes.
PATIENCE_MS = int(WAIT_S * 1000)


def row_of(client, topic: str):
    return client.explain_placement(topic)[PARTITION]


def begin_switch(client, topic: str) -> int:
    """Decide the switch of the partition to the next group of the pool; return its epoch there."""
    row = row_of(client, topic)
    last = row.epoch_history[-1]
    client.switch_partition(row.incarnation, last.epoch + 1, last.group % SHAPE["groups"] + 1)
    return last.epoch + 1


def is_at(client, topic: str, epoch: int) -> bool:
    return row_of(client, topic).epoch_history[-1].epoch == epoch


def switch(client, topic: str) -> None:
    """Switch the partition and wait until the switch is published."""
    epoch = begin_switch(client, topic)
    wait_for(lambda: is_at(client, topic, epoch), f"{topic} goes on at epoch {epoch}")


class Tail(threading.Thread):
    """A consumer that follows the partition's end from another thread."""

    def __init__(self, world, topic: str):
        super().__init__(daemon=True)
        self._world, self._topic = world, topic
        self.offsets: list[int] = []
        self.values: list[bytes] = []
        self.error: Exception | None = None
        self.end: int | None = None

    def run(self) -> None:
        try:
            with self._world.client() as client:
                for batch in client.consume(self._topic, PARTITION, unavailable_ms=PATIENCE_MS):
                    for record in batch:
                        self.offsets.append(record.offset)
                        self.values.append(record.value)
                    if self.end is not None and len(self.offsets) >= self.end:
                        return
        except MultiRaftError as error:  # reported by ``finish``
            self.error = error

    def finish(self, end: int) -> None:
        """Check that everything up to ``end`` was read, once and in order."""
        self.end = end
        wait_for(lambda: len(self.offsets) >= end or self.error is not None, "the tail is read")
        if self.error is not None:
            raise self.error
        assert self.offsets == list(range(end))


class Pump(threading.Thread):
    """An idempotent producer with several batches in flight, all the time."""

    def __init__(self, world, topic: str):
        super().__init__(daemon=True)
        self._world, self._topic = world, topic
        self._over = threading.Event()
        self.sent = 0
        self.receipts: list[tuple[int, int, int]] = []  # first value, base offset, records
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self._world.client() as client:
                with client.producer(linger_ms=0, batch_bytes=512,
                                     delivery_timeout_ms=PATIENCE_MS) as producer:
                    # Until the topic's partitions are known, records of one batch have several
                    # deliveries.
                    self._handful(producer, 1)
                    while not self._over.is_set():
                        self._handful(producer)
        except MultiRaftError as error:
            self.error = error

    def _handful(self, producer, count: int = 60) -> None:
        deliveries = []
        for _ in range(count):
            delivery = producer.send_nowait(Record(self._topic, b"%08d" % self.sent,
                                                   partition=PARTITION))
            if not deliveries or deliveries[-1][1] != delivery:
                deliveries.append((self.sent, delivery))
            self.sent += 1
        producer.flush()
        for first, delivery in deliveries:
            receipt = delivery.wait()
            self.receipts.append((first, receipt.base_offset, receipt.count))

    def finish(self) -> int:
        """Return the records sent; each was acknowledged, at the offset that is its number."""
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error
        for first, base_offset, _count in self.receipts:
            assert first == base_offset
        assert sum(count for *_, count in self.receipts) == self.sent
        return self.sent


def test_a_partition_is_switched_dozens_of_times_under_load(world):
    """No record is lost, doubled or reordered, with several batches in flight; a tailing consumer
    and one from the beginning cross all groups."""
    with world.client() as client:
        client.create_topic("moving", 1)
        pump, tail = Pump(world, "moving"), Tail(world, "moving")
        pump.start(), tail.start()
        wait_for(lambda: pump.receipts, "the first batch is acknowledged")
        for _ in range(SWITCHES):
            switch(client, "moving")
            # A group without records is not in the chain: the last acknowledged records may have
            # been appended in an earlier one.
            start = row_of(client, "moving").epoch_history[-1].start_offset
            wait_for(lambda start=start: pump.receipts[-1][1] >= start or pump.error,
                     "appends go on in the new group")
        sent = pump.finish()
        tail.finish(sent)
        assert tail.values == [b"%08d" % number for number in range(sent)]
        row = row_of(client, "moving")
        assert (
            len(row.epoch_history) == SWITCHES + 1 and row.epoch_history[-1].epoch == SWITCHES + 1
        )
        read = [record.value for batch in client.consume("moving", until_end=True)
                for record in batch]
        assert read == tail.values
        assert client.list_offsets("moving")[0] == (0, sent)
        middle = row.epoch_history[SWITCHES // 2].start_offset
        first = next(iter(client.consume("moving", PARTITION, start=middle - 1)))
        assert first.base_offset <= middle - 1 < first.next_offset


def test_a_time_is_found_in_whichever_group_it_is(world):
    with world.client() as client:
        client.create_topic("timed", 1)
        for hour in range(4):
            with client.producer() as producer:
                for minute in range(3):
                    producer.send_nowait(Record("timed", b"%d:%d" % (hour, minute), partition=0,
                                                timestamp_ms=1000 * hour + minute))
            switch(client, "timed")
        for hour in range(4):
            for minute in range(3):
                at = 1000 * hour + minute
                assert client.offsets_at("timed", at) == {0: 3 * hour + minute}
                batch = next(iter(client.consume("timed", start=Timestamp(at))))
                assert [record.value for record in batch][0] == b"%d:%d" % (hour, minute)
        assert client.offsets_at("timed", 3003) == {0: None}


def test_an_idle_partition_leaves_nothing_behind(world):
    with world.client() as client:
        client.create_topic("idle", 1)
        for _ in range(3):
            switch(client, "idle")
        row = row_of(client, "idle")
        assert [(link.epoch, link.start_offset) for link in row.epoch_history] == [(4, 0)]
        with client.producer() as producer:
            assert producer.send(Record("idle", b"x")).wait().base_offset == 0


def test_what_cannot_be_switched_is_refused_with_the_cause(world):
    with world.client() as client:
        client.create_topic("refused", 1)
        row = row_of(client, "refused")
        here = row.epoch_history[-1].group
        there = here % SHAPE["groups"] + 1
        for epoch in (1, 3, 0):
            with pytest.raises(StaleEpoch, match="is at epoch 1") as refused:
                client.switch_partition(row.incarnation, epoch, there)
            assert refused.value.detail.value == 1
        with pytest.raises(InvalidRequest, match=f"is in group {here} already"):
            client.switch_partition(row.incarnation, 2, here)
        for group in (0, SHAPE["groups"] + 1, 1 << 31):
            with pytest.raises(InvalidRequest, match="the pool has groups 1 to 4"):
                client.switch_partition(row.incarnation, 2, group)
        with pytest.raises(UnknownPartition):
            client.switch_partition(1 << 60, 2, there)
        client.switch_partition(row.incarnation, 2, there)
        client.switch_partition(row.incarnation, 2, there)  # requested twice
        wait_for(lambda: is_at(client, "refused", 2), "it is switched once")


def test_a_chain_has_a_limit_that_says_so(world):
    with world.client() as client:
        client.create_topic("long", 1)
        with client.producer(linger_ms=0) as producer:
            for _ in range(63):
                producer.send(Record("long", b"x")).wait()
                switch(client, "long")
            producer.send(Record("long", b"x")).wait()
            with pytest.raises(LimitExceeded, match="limit of 64") as refused:
                begin_switch(client, "long")
            assert (refused.value.detail.limit, refused.value.detail.value) == (64, 65)
            producer.send(Record("long", b"x")).wait()
        assert client.list_offsets("long")[0] == (0, 65)
        assert sum(batch.count for batch in client.consume("long", until_end=True)) == 65


def test_a_topic_that_is_deleted_while_it_moves_comes_back_empty(world):
    with world.client() as client:
        for _ in range(3):
            client.create_topic("again", 1)
            with client.producer() as producer:
                producer.send(Record("again", b"x")).wait()
            switch(client, "again")
            begin_switch(client, "again")
            client.delete_topic("again")
        client.create_topic("again", 1)
        assert row_of(client, "again").epoch_history[-1][::2] == (1, 0)
        with client.producer() as producer:
            assert producer.send(Record("again", b"y")).wait().base_offset == 0


def test_leaders_are_killed_while_a_partition_moves(tmp_path_factory):
    """The leader of the old group, of the new one or of the metadata dies during the switch; the
    switch resumes when a leader is elected, and the checkers find no anomaly."""
    from tests.e2e import world as worlds  # its own cluster: its logs are read at the end
    folder = tmp_path_factory.mktemp("killed")
    with worlds.start(folder / "dev", 3, SHAPE["groups"], 3) as world:
        line = Recorded()
        with world.client() as client:
            topic = client.create_topic("killed", 1)
            key = key_of("killed", topic.incarnation, 0)
            line.phase("faults")
            with client.producer(acks="commit", linger_ms=60_000) as producer:
                for number in range(9):
                    for _ in range(4):
                        line.append(producer, key, "killed", 0, 2)
                    victim = victim_of(client, number)
                    epoch = begin_switch(client, "killed")
                    world.kill(victim)
                    line.fault("kill", victim, True)
                    for _ in range(4):
                        line.append(producer, key, "killed", 0, 2)
                    wait_for(lambda epoch=epoch: is_at(client, "killed", epoch),
                             f"epoch {epoch} is published")
                    world.dev.start(victim)
                    line.fault("kill", victim, False)
                    wait_for(lambda victim=victim: all(
                        node.state == "up" for node in client.cluster_status().nodes),
                        "all nodes are up")
            line.phase(HEAL)
            line.phase(FINAL)
            ends = client.list_offsets("killed")
            line.read_all(client, key, "killed", 0, ends[0].end_offset)
            line.phase(END)
        world.dev.down()
        for node in world.ids():
            shutil.copytree(Path(world.directory) / f"node-{node}" / "data",
                            folder / f"data-{node}")
            replicas.dump(folder / f"data-{node}", node, RUN, folder / "replicas")
        verdict = check(line.events, replicas=replicas.load_all(folder / "replicas"))
        assert verdict.anomalies == []
        assert verdict.checked["acknowledged_commit"] == 9 * 16


def victim_of(client, number: int) -> int:
    """Return in turn the leader of the old group, of the new one, of the metadata."""
    group = row_of(client, "killed").epoch_history[-1].group
    wanted = (group, group % SHAPE["groups"] + 1, 0)[number % 3]
    return wait_for(lambda: client.group_list()[wanted].leader, f"group {wanted} has a leader")
