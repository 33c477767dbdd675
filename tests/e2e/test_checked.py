"""A history of real nodes that are killed, with their logs: the checkers find no anomaly in it, and
find planted ones.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from chaos import replicas, values
from chaos.checkers import check
from chaos.history import (
    END,
    FAIL,
    FAULT,
    FAULTS,
    FINAL,
    HEAL,
    INFO,
    INVOKE,
    OK,
    PHASE,
    Event,
    key_of,
)
from multiraft.client import Record
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import RequestError
from multiraft.wire.messages import NodeStatus
from tests.e2e.world import wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3}
PARTITIONS, RUN, PRODUCER = 2, 77, 1
APPENDS = 30


class Recorded:
    """Recorder of one client, one event at a time."""

    def __init__(self):
        self.events: list[Event] = []
        self._operations = 0
        self._number = 0

    def add(self, kind: str, operation: int, name: str, **data) -> None:
        self.events.append(Event(1000 * len(self.events), kind, operation, 1, name, data))

    def phase(self, name: str) -> None:
        self.add(PHASE, -1, name)

    def fault(self, name: str, node: int, on: bool) -> None:
        self.add(FAULT, -1, name, on=on, nodes=[node], text="")

    def append(self, producer, key: str, topic: str, partition: int, count: int) -> None:
        """Append one batch and record its outcome."""
        numbers = [values.value_of(PRODUCER, self._number + place) for place in range(count)]
        self._number += count
        self._operations += 1
        self.add(INVOKE, self._operations, "append", key=key, values=numbers, acks="commit",
                 producer=PRODUCER, epoch=-1, sequence=-1)
        sent = [producer.send(Record(topic, values.encode(RUN, key, number, 30),
                                     partition=partition)) for number in numbers]
        try:
            producer.flush()  # one batch, however slowly this machine passed its records on
            receipt = sent[0].wait()
        except RequestError as error:
            self.add(FAIL, self._operations, "append", error=type(error).__name__, text="")
        except MultiRaftError as error:
            self.add(INFO, self._operations, "append", error=type(error).__name__, text="")
        else:
            assert receipt.count == count
            self.add(OK, self._operations, "append", offset=receipt.base_offset)

    def read_all(self, client, key: str, topic: str, partition: int, end: int) -> None:
        """Read everything up to a certain end, as a final read."""
        self._operations += 1
        self.add(INVOKE, self._operations, "read", key=key, offset=0, mode="linearizable",
                 final=True)
        found: list[int] = []
        for batch in client.consume(topic, partition, until_end=True):
            assert batch.base_offset == len(found)
            found += [values.decode(RUN, key, record.value) for record in batch]
        self.add(OK, self._operations, "read", runs=[[0, found]], start=0, high_watermark=end,
                 node=-1)


def record(world) -> Recorded:
    """Append while each node is killed and restarts; then read all records."""
    line = Recorded()
    with world.client() as client:
        topic = client.create_topic("checked", PARTITIONS)
        keys = [key_of("checked", topic.incarnation, partition) for partition in range(PARTITIONS)]
        line.phase(FAULTS)
        with client.producer(acks="commit", linger_ms=60_000) as producer:
            for node in world.ids():
                world.dev.kill(node)
                line.fault("kill", node, True)
                for number in range(APPENDS):
                    partition = number % PARTITIONS
                    line.append(producer, keys[partition], "checked", partition, 1 + number % 3)
                world.dev.start(node)
                line.fault("kill", node, False)
        line.phase(HEAL)
        line.phase(FINAL)
        ends = client.list_offsets("checked")
        for partition, key in enumerate(keys):
            line.read_all(client, key, "checked", partition, ends[partition].end_offset)
        line.phase(END)
    return line


def knows_all_commits(world, node: int) -> bool:
    """Wait for the commit index: a restarted node learns last of commits in groups that are
    quiesced."""
    with world.session(node) as session:
        status = session.reply(NodeStatus()).status
    return status["ready"] == 1 and status["lag_entries"] == 0


def test_nodes_that_are_killed_leave_a_history_and_logs_without_an_anomaly(world, tmp_path):
    line = record(world)
    for node in world.ids():
        wait_for(lambda node=node: knows_all_commits(world, node), f"node {node} knows its commits")
    world.dev.down()
    for node in world.ids():
        data = Path(world.directory) / f"node-{node}" / "data"
        shutil.copytree(data, tmp_path / f"data-{node}")
        replicas.dump(tmp_path / f"data-{node}", node, RUN, tmp_path / "replicas")
    dumps = replicas.load_all(tmp_path / "replicas")
    verdict = check(line.events, replicas=dumps)
    assert verdict.anomalies == []
    assert verdict.checked["acknowledged_commit"] > 3 * APPENDS
    assert verdict.checked["groups"] == 1 + SHAPE["groups"]
    assert verdict.checked["log_entries"] > 3 * 3 * APPENDS
    assert all(log.commit for each in dumps for log in each.logs.values()), "stopped in order"
    _what_is_put_in_is_found(line, tmp_path / "replicas")


def _what_is_put_in_is_found(line: Recorded, folder: Path) -> None:
    """Change one byte of one entry of one replica, and cut the end of two logs; both must be
    found.  The nodes' own records of loads are not in the history, and are left alone."""
    path = folder / "2.jsonl"
    head, *rows = path.read_text().splitlines()
    entries = [json.loads(row) for row in rows]
    at = next(place for place, row in enumerate(entries)
              if row[3] == "data" and row[7] != replicas.NO_KEY)
    entries[at][4] ^= 1
    path.write_text("\n".join([head, *map(json.dumps, entries)]) + "\n")
    verdict = check(line.events, replicas=replicas.load_all(folder))
    assert {found.id for found in verdict.anomalies} == {"A18"}
    dumps = replicas.load_all(folder)
    group = entries[at][0]
    log = dumps[0].logs[group]
    last = max(index for index in range(1, log.last_index + 1)
               if (batch := log.batch(index)) and batch.key != replicas.NO_KEY)
    for each in dumps[1:]:
        each.logs[group].drop_from(last)
    verdict = check(line.events, replicas=dumps)
    assert {"A3", "A17", "A25"} <= {found.id for found in verdict.anomalies}
