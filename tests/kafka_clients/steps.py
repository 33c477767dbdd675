"""Steps that each client performs against three nodes, and the checks of what it saw.

Contract.  ``STEPS`` is in order: later steps read what earlier ones produced.  A step raises
``ClientFailed`` or ``Mismatch``; what the client saw is compared with the native client's view of
the same partitions.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from tests.e2e.world import World, wait_for
from tests.kafka_clients.catalog import Client
from tests.kafka_clients.driver import Driver
from tests.kafka_clients.records import Mismatch, Record, Records, Row, cut, in_sequence

PARTITIONS = 3
REPLICATION = 3
#: Partition of the steps without faults, and those of the kills.
CALM, KILLED, KILLED_IDEMPOTENT = range(PARTITIONS)
ROUND = 150
#: Rounds that must be acknowledged whole after a change, before it counts as survived.
WHOLE_ROUNDS = 2
#: Bound of a failover, or of a return, with rounds meanwhile.
CHANGE_S = 120.0
SETTING, SET_TO = "retention.ms", "86400001"
DELETED = 10
FAR_FUTURE_MS = 4_102_444_800_000  # the year 2100


class Trial:
    """One client in one cluster, with a topic of its own."""

    def __init__(self, client: Client, driver: Driver, world: World, topic: str, seed: int):
        self.client, self.driver, self.world, self.topic = client, driver, world, topic
        self.native = world.client()
        self.records = Records(seed, client.is_text, client.sends_null, client.header)
        self.acknowledged: dict[int, list[Record]] = {each: [] for each in range(PARTITIONS)}
        #: Offsets that the client received, by partition and key.
        self.told: dict[int, dict[bytes, int]] = {each: {} for each in range(PARTITIONS)}
        self.rows: list[Row] = []

    def produce(self, partition: int, acks: str = "all", compression: str = "none",
                idempotent: bool = False, count: int = ROUND) -> bool:
        """Produce records, and note those acknowledged. Return True if all are."""
        records = self.records.take(count)
        offsets = self.driver.produce(self.topic, partition, acks, compression, idempotent,
                                      self.client.header, records)
        for record, offset in zip(records, offsets, strict=True):
            if offset is not None:
                self.acknowledged[partition].append(record)
                # Some clients say 0 for what they were not told.
                if acks != "0" and self.client.tells_offsets:
                    self.told[partition][record.key] = offset
        return None not in offsets

    def produce_all(self, partition: int = CALM, **options) -> None:
        """Produce records. Raises ``Mismatch`` if one is not acknowledged."""
        if not self.produce(partition, **options):
            raise Mismatch(f"a record was not acknowledged: {options}")

    def end(self, partition: int) -> int:
        """Return the end of a partition, as a native client sees it."""
        return self.native.list_offsets(self.topic)[partition].end_offset

    def check(self, partition: int, may_repeat: bool) -> list[Row]:
        """Read a partition from the beginning to its end and compare it with what was
        acknowledged. Return the rows."""
        end = self.end(partition)
        rows = self.driver.fetch(self.topic, partition, "beginning", end) \
            if self.client.can_fetch else self.read_natively(partition)
        if len(rows) != end:
            raise Mismatch(f"{len(rows)} of {end} records were read")
        in_sequence(rows, 0)
        self.records.check(rows, self.acknowledged[partition], may_repeat, self.told[partition])
        return rows

    def read_natively(self, partition: int, topic: str = "") -> list[Row]:
        """Return all records of a partition, of this trial's topic or another one, as the native
        client reads them."""
        rows: list[Row] = []
        with contextlib.closing(self.native.consume(topic or self.topic, partition,
                                                    until_end=True)) as batches:
            for batch in batches:
                rows += [Row(*each[:4], each.headers[0][1]) for each in batch.records()]
        return rows

    def same(self, found: Sequence[Row], first: int) -> None:
        """Return if ``found`` are the rows known from ``first`` on. Raises ``Mismatch``."""
        if not found or list(found) != self.rows[first:first + len(found)]:
            raise Mismatch(f"from offset {first} on {len(found)} others were read, first "
                           f"{cut(found[0]) if found else 'none'}")

    def leader_of(self, partition: int) -> int | None:
        """Return the leader of a partition, None while there is none."""
        return self.native.describe_topic(self.topic).partitions[partition].leader or None


def create(trial: Trial) -> None:
    """Create the topic, by the native client if this one cannot, and wait for its leaders."""
    if "create" in trial.client.lacks:
        trial.native.create_topic(trial.topic, PARTITIONS)
    else:
        trial.driver.create(trial.topic, PARTITIONS, REPLICATION)
    wait_for(lambda: all(trial.leader_of(each) for each in range(PARTITIONS)),
             f"{trial.topic} has leaders")


def metadata(trial: Trial) -> None:
    """Ask for the brokers and the partitions."""
    expected = {"brokers": trial.world.ids(), "partitions": PARTITIONS}
    found = trial.driver.metadata(trial.topic)
    if found != expected:
        raise Mismatch(f"metadata is {found}, not {expected}")


def acks_leader(trial: Trial) -> None:
    """Produce with the leader's acknowledgement."""
    trial.produce_all(acks="1")


def acks_all(trial: Trial) -> None:
    """Produce with a majority's acknowledgement."""
    trial.produce_all(acks="all")


def acks_none(trial: Trial) -> None:
    """Produce without acknowledgements to nodes that all run: nothing may be lost."""
    expected = trial.end(CALM) + ROUND
    trial.produce_all(acks="0")
    wait_for(lambda: trial.end(CALM) == expected, f"the end is {expected}")


def compressions(trial: Trial) -> None:
    """Produce with each compression that the client has."""
    for name in trial.client.compressions:
        trial.produce_all(compression=name)


def idempotent(trial: Trial) -> None:
    """Produce with a producer's identity, twice."""
    trial.produce_all(idempotent=True)
    trial.produce_all(idempotent=True)


def from_beginning(trial: Trial) -> None:
    """Read all records."""
    trial.rows = trial.check(CALM, may_repeat=False)


def from_offset(trial: Trial) -> None:
    """Read from an offset in the middle on."""
    first = len(trial.rows) // 2
    trial.same(trial.driver.fetch(trial.topic, CALM, first, 50), first)


def first_since(trial: Trial, time_ms: int) -> int:
    """Return the offset of the first record that is not before a time."""
    return next(row.offset for row in trial.rows if row.timestamp_ms >= time_ms)


def from_time(trial: Trial) -> None:
    """Read from the time of a record on."""
    time_ms = trial.rows[-ROUND].timestamp_ms
    found = trial.driver.fetch(trial.topic, CALM, {"time": time_ms}, 20)
    trial.same(found, first_since(trial, time_ms))


def offsets(trial: Trial) -> None:
    """Ask for the first offset, the next one, and those of times."""
    last_ms = trial.rows[-1].timestamp_ms
    asked: list[tuple[str | dict[str, int], int]] = [
        ("earliest", 0), ("latest", len(trial.rows)),
        ({"time": last_ms}, first_since(trial, last_ms))]
    if "no record at a time" not in trial.client.lacks:
        asked.append(({"time": FAR_FUTURE_MS}, trial.client.none_is_end and len(trial.rows) or -1))
    for at, expected in asked:
        found = trial.driver.offsets(trial.topic, CALM, at)
        if found != expected:
            raise Mismatch(f"the offset of {at} is {found}, not {expected}")


def settings(trial: Trial) -> None:
    """Change a setting and ask for it."""
    if "alter" in trial.client.lacks:
        trial.native.alter_settings(trial.topic, {SETTING: int(SET_TO)})
    else:
        trial.driver.alter(trial.topic, SETTING, SET_TO)
    found = trial.driver.describe(trial.topic, SETTING)
    if found != SET_TO:
        raise Mismatch(f"{SETTING} is {found}, not {SET_TO}")


def delete_records(trial: Trial) -> None:
    """Delete records and read what is left."""
    trial.driver.delete_records(trial.topic, CALM, DELETED)
    found = trial.driver.offsets(trial.topic, CALM, "earliest")
    if found != DELETED:
        raise Mismatch(f"the log starts at {found}, not {DELETED}")
    if trial.client.can_fetch:
        trial.same(trial.driver.fetch(trial.topic, CALM, "beginning", 50), DELETED)


def killed(trial: Trial) -> None:
    """Kill the leader under load; repeated records are allowed."""
    survive(trial, KILLED, is_idempotent=False)


def killed_idempotent(trial: Trial) -> None:
    """Kill the leader under load; each record is there once, in order."""
    survive(trial, KILLED_IDEMPOTENT, is_idempotent=True)


def survive(trial: Trial, partition: int, is_idempotent: bool) -> None:
    """Produce while the partition's leader is killed and returns; read everything while it is dead
    and after it has returned."""
    def produced() -> bool:
        return trial.produce(partition, idempotent=is_idempotent)

    begun = time.monotonic()
    for _ in range(WHOLE_ROUNDS):
        produced()
    round_s = (time.monotonic() - begun) / WHOLE_ROUNDS
    leader = wait_for(lambda: trial.leader_of(partition), "the partition has a leader")
    with ThreadPoolExecutor(1) as pool:
        with whole_again(trial.world):
            rounds_during(produced, later(pool, round_s / 2, trial.world.kill, leader))
            trial.check(partition, may_repeat=not is_idempotent)
            rounds_during(produced, pool.submit(trial.world.dev.start, leader, CHANGE_S))
        trial.check(partition, may_repeat=not is_idempotent)


def later(pool: ThreadPoolExecutor, wait_s: float, change: Callable[[int], None],
          node: int) -> Future:
    """Begin a change of a node in the middle of a round of records."""
    def begin() -> None:
        threading.Event().wait(wait_s)
        change(node)

    return pool.submit(begin)


@contextlib.contextmanager
def whole_again(world: World) -> Iterator[None]:
    """Start every node that does not run at the end."""
    try:
        yield
    finally:
        world.dev.up()


def rounds_during(produced: Callable[[], bool], change: Future) -> None:
    """Produce rounds until the change is over and ``WHOLE_ROUNDS`` more are acknowledged. Raises
    ``Mismatch`` after ``CHANGE_S``."""
    give_up, whole = time.monotonic() + CHANGE_S, 0
    while whole < WHOLE_ROUNDS:
        was_over = change.done()
        whole = whole + 1 if produced() and was_over else 0
        if time.monotonic() > give_up:
            raise Mismatch(f"not every record was acknowledged within {CHANGE_S:.0f} s")
    change.result()


def delete(trial: Trial) -> None:
    """Delete the topic and wait until it is gone."""
    trial.driver.delete(trial.topic)
    wait_for(lambda: trial.topic not in [each.name for each in trial.native.list_topics()],
             f"{trial.topic} is gone")


#: Steps that others build on: where a client lacks them, the native client does them.
NEEDED = ("create", "beginning")
#: Name of each step in the table. A client's ``lacks`` has names of this table.
STEPS: dict[str, Callable[[Trial], None]] = {
    "create": create, "metadata": metadata, "acks 1": acks_leader, "acks all": acks_all,
    "acks 0": acks_none, "codecs": compressions, "idempotent": idempotent,
    "beginning": from_beginning, "offset": from_offset, "time": from_time, "offsets": offsets,
    "settings": settings, "delete records": delete_records, "killed": killed,
    "killed idempotent": killed_idempotent, "delete": delete,
}
