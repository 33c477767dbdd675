"""Steps of connectors of stream processors, beyond those of each client: a stream from topic to
topic, and a source of all topics that match a pattern.

Contract.  As in ``steps``; they come after those steps, and read what those produced.  A stream
delivers at least once: where nothing fails, the copy is equal to its source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.e2e.world import wait_for
from tests.kafka_clients.connector import ConnectorDriver
from tests.kafka_clients.records import Mismatch, Row
from tests.kafka_clients.steps import (
    CALM,
    CHANGE_S,
    KILLED,
    PARTITIONS,
    Trial,
    later,
    rounds_during,
    whole_again,
)

#: Parts into which a source splits the partitions of a pattern: more than there are partitions.
SPLITS = 12
#: Records that are read from a time.
SINCE = 20


def connector_of(trial: Trial) -> ConnectorDriver:
    """Return the driver of a client that has these steps."""
    assert isinstance(trial.driver, ConnectorDriver), trial.client
    return trial.driver


def copy_of(trial: Trial) -> str:
    """Return the name of the topic that the stream writes."""
    return f"{trial.topic}-copy"


def contents(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return key, value and header of records: a copy has other times."""
    return [row[2:] for row in rows]


def stream(trial: Trial) -> None:
    """Copy the topic, and once more what is produced after that: nothing is lost or repeated."""
    target, copied = copy_of(trial), 0
    trial.native.create_topic(target, PARTITIONS)
    for _ in range(2):
        trial.produce_all(CALM)
        copied += connector_of(trial).copy(trial.topic, target)
        ends = [trial.end(each) for each in range(PARTITIONS)]
        if copied != sum(ends):
            raise Mismatch(f"{copied} of {sum(ends)} records were copied")
        for partition in range(PARTITIONS):
            read = contents(trial.read_natively(partition))
            if contents(trial.read_natively(partition, target)) != read:
                raise Mismatch(f"partition {partition} of {target} is not a copy")


def pattern(trial: Trial) -> None:
    """Read both topics by a pattern, in more parts than they have partitions."""
    parts, found = connector_of(trial).match(f"{trial.topic}.*", SPLITS)
    if parts <= len(found):
        raise Mismatch(f"the source has {parts} parts for {len(found)} partitions")
    for topic in (trial.topic, copy_of(trial)):
        for partition in range(PARTITIONS):
            if found.get((topic, partition), []) != trial.read_natively(partition, topic):
                raise Mismatch(f"partition {partition} of {topic} was not read as it is")


def killed_stream(trial: Trial) -> None:
    """Kill the leader in the middle of a stream, which continues; read both topics while the leader
    is dead and after it has returned."""
    def copied() -> bool:
        whole = trial.produce(KILLED)
        connector_of(trial).copy(trial.topic, copy_of(trial))
        return whole

    begun = time.monotonic()
    copied()
    round_s = time.monotonic() - begun
    leader = wait_for(lambda: trial.leader_of(KILLED), "the partition has a leader")
    with ThreadPoolExecutor(1) as pool:
        with whole_again(trial.world):
            rounds_during(copied, later(pool, round_s / 2, trial.world.kill, leader))
            check_both(trial)
            rounds_during(copied, pool.submit(trial.world.dev.start, leader, CHANGE_S))
        check_both(trial)


def check_both(trial: Trial) -> None:
    """Read both topics by a pattern, the copy natively, and the source from the time of a
    record. Raises ``Mismatch``."""
    pattern(trial)
    for partition, acknowledged in trial.acknowledged.items():
        trial.records.check(trial.read_natively(partition, copy_of(trial)), acknowledged,
                            may_repeat=True, offsets={})
    rows = trial.read_natively(KILLED)
    time_ms = rows[len(rows) // 2].timestamp_ms
    first = next(row.offset for row in rows if row.timestamp_ms >= time_ms)
    if trial.driver.fetch(trial.topic, KILLED, {"time": time_ms}, SINCE) != \
            rows[first:first + SINCE]:
        raise Mismatch(f"others than those from offset {first} on were read from a time")


#: Names of steps in the table, in order; a client's ``has`` has names of this table.
CONNECTOR_STEPS: dict[str, Callable[[Trial], None]] = {
    "stream": stream, "pattern": pattern, "killed stream": killed_stream,
}
