"""Waits of readers: each has a bound and a reason, and unread partitions are listed."""

from __future__ import annotations

import pytest

from multiraft import core
from multiraft.client import (
    DecompressionTooLarge,
    OversizedBatch,
    Record,
    Timestamp,
    UnreadableBatch,
    _consumer,
    _operations,
    _search,
    _transactions,
    blocking,
    staging,
)
from multiraft.client.ranges import Range, offset_ranges, read_ranges
from multiraft.codec import layout
from multiraft.errors import CorruptBatch
from multiraft.wire import errors
from multiraft.wire.connection import Connection, RequestEvent, ResponseEvent, Role
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    EARLIEST,
    OPS,
    PARTITIONS_MAX,
    PARTITIONS_PER_REQUEST_MAX,
    REFUSALS_PER_REPLY_MAX,
    Fetch,
    FetchReply,
    FetchResult,
    Hello,
    ListOffsets,
    ListOffsetsReply,
    Metadata,
    OffsetResult,
    Welcome,
)
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    ResolveTransactionsReply,
    TransactionDescription,
    TransactionRef,
    TransactionState,
    TransactionStatesReply,
)
from tests.client.scripts import values_of
from tests.client.unreadable import BOMB, UNREADABLE, crafted, records_block

NONCE = bytes(16)


def put(client, *values: bytes, partition: int = 0, topic: str = "a", identity=None) -> None:
    with client.producer(identity=identity) as producer:
        for value in values:
            producer.send_nowait(Record(topic, value, partition=partition)).wait()


def filled(cluster, data: bytearray):
    """Fill topic "a" with a batch of 2 records, ``batch``, and a batch of 1."""
    [part] = cluster.add_topic("a")
    builder = core.BatchBuilder(8 << 20)
    for value in (b"one", b"two"):
        assert builder.append(1_600_000_000_000, None, value)
    assert part.append(builder.build()) == (Code.OK, 0)
    assert part.append(bytes(data)) == (Code.OK, 2)
    assert part.append(crafted(0, records_block(1)))[0] == Code.OK
    return part


# ---- batches that cannot be opened -------------------------------------------------------------


@pytest.mark.parametrize("data", UNREADABLE)
def test_a_batch_that_cannot_be_opened_is_named_and_the_consumer_goes_on(client, cluster, data):
    filled(cluster, data)
    count, read = core.batch_info(data).count, []
    for batch in client.consume("a", until_end=True):
        try:
            read += values_of([batch])
        except UnreadableBatch as error:
            found = error
    assert read == [b"one", b"two", b"0"]
    assert (found.topic, found.partition, found.base_offset, found.last_offset,
            found.next_offset) == ("a", 0, 2, 1 + count, 2 + count)
    assert str(found).startswith("a/0: the batch at offset 2") and isinstance(found, CorruptBatch)
    assert found.cause is not None and str(found.cause) in str(found)
    assert values_of(client.consume("a", 0, found.next_offset, until_end=True)) == [b"0"]


def test_a_batch_that_would_fill_the_memory_is_named(client, cluster):
    filled(cluster, BOMB)
    [_, bomb, _] = client.consume("a", until_end=True)
    with pytest.raises(OversizedBatch, match="a/0: the batch at offset 2") as raised:
        bomb.records()
    assert isinstance(raised.value, DecompressionTooLarge) and raised.value.limit >= 8 << 20


@pytest.mark.parametrize("data", [UNREADABLE[0].values[0], BOMB])
def test_a_search_for_a_time_gives_what_it_cannot_open(client, cluster, data):
    """Its header says that it has such a record: reading it raises its error."""
    filled(cluster, data)
    batches = list(client.consume("a", start=Timestamp(1_650_000_000_000), until_end=True))
    assert [batch.base_offset for batch in batches] == [2, 3]
    with pytest.raises(UnreadableBatch, match="offset 2"):
        batches[0].records()
    assert client.offsets_at("a", 1_650_000_000_000) == {0: 2}
    assert client.offsets_at("a", 1_500_000_000_000) == {0: 0}


def test_a_range_names_what_cannot_be_opened(cluster):
    part = filled(cluster, UNREADABLE[0].values[0])
    with blocking.Client(cluster.servers()) as client:
        columns = core.ColumnBuilder(True, True, False)
        with pytest.raises(UnreadableBatch, match="a/0: the batch at offset 2"):
            for _, batch in read_ranges(client, [Range("a", 0, part.incarnation, 0, 4)]):
                batch.into(columns, 4)
        assert columns.count == 2, "nothing of it"


def test_a_batch_that_is_damaged_everywhere_is_named(client, cluster):
    part = filled(cluster, crafted(0, records_block(1)))
    base, data = part.log[1]
    part.log[1] = (base, data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(UnreadableBatch, match="a/0: the batch at offset 2 cannot be read"):
        list(client.consume("a", until_end=True))


# ---- transactions that are not decided ----------------------------------------------------------


@pytest.fixture
def txn(client):
    """Open a transaction that has staged offset 1 of a/0, between plain records."""
    client.create_topic("a", partitions=2)
    opened = staging.begin_transaction(client, "delays", 7, NONCE)
    opened.stages_in(client, "a")
    put(client, b"before")
    put(client, b"staged", identity=opened.identity)
    put(client, b"behind")
    put(client, b"other", partition=1)
    return opened


def test_a_read_to_the_end_tells_what_it_left(client, txn):
    consumer = client.consume("a", until_end=True)
    assert sorted(values_of(consumer)) == [b"before", b"other"]
    [left] = unread_of(consumer)
    assert left[:4] == ("a", 0, 1, 3) and left.transaction == TransactionRef(txn.sink, txn.number)
    assert "transaction 1 of sink 1, 'delays', whose batch 7 has been open for 7 s" in left.reason
    staging.commit_transaction(client, txn.sink, txn.number, 7)
    consumer = client.consume("a", until_end=True)
    assert len(values_of(consumer)) == 4 and unread_of(consumer) == ()


def unread_of(consumer):
    """Return the property ``unread`` of either driver."""
    target = getattr(consumer, "_target", consumer)
    return target.unread


def staged_by_nobody(cluster, sink: int, txn: int) -> None:
    """Append a staged batch of no transaction to a/0, as leaders of earlier releases accepted
    it."""
    [part, *_] = cluster.topics["a"]
    data = crafted(layout.ATTRIBUTE_TRANSACTIONAL, records_block(1))
    core.stamp_producer(data, *staging.identity_of(sink, txn, 0, 0), 0)
    assert part.append(data)[0] == Code.OK


@pytest.mark.parametrize("sink, number", [(777, 0), (0, 3), (777, 1), (1, 2), (1, 900_000)])
@pytest.mark.parametrize("until_end", [True, False])
def test_what_nobody_opened_is_left_out_for_good(client, cluster, txn, sink, number, until_end):
    staging.commit_transaction(client, txn.sink, txn.number, 7)
    staged_by_nobody(cluster, sink, number)
    put(client, b"last")
    consumer = client.consume("a", 0, until_end=until_end, wait_max_ms=50)
    read: list[bytes] = []
    for batch in consumer:
        read += values_of([batch])
        if read[-1] == b"last" and not until_end:
            break
    assert read == [b"before", b"staged", b"behind", b"last"] and unread_of(consumer) == ()
    opened = staging.begin_transaction(client, "delays", 8, NONCE)
    assert (opened.sink, opened.number) != (sink, number)
    staging.commit_transaction(client, opened.sink, opened.number, 8)
    assert b"0" not in values_of(client.consume("a", 0, until_end=True))


def test_a_reader_of_what_comes_tells_what_it_waits_for(client, txn):
    consumer = client.consume("a", 0, wait_max_ms=50)
    assert values_of([next(iter(consumer))]) == [b"before"]
    if not isinstance(consumer, blocking.Consumer):
        return  # it reads on in its own task; the blocking one is driven from here
    while not (consumer.waits() and "'delays'" in consumer.waits()[0].reason):
        assert not consumer.wait(20)
    [wait] = consumer.waits()
    assert (wait.topic, wait.partition, wait.offset, wait.transaction) == (
        "a", 0, 1, TransactionRef(1, 1))
    assert "a/0 at offset 1: staged by transaction 1 of sink 1" in str(wait)
    consumer.close()


@pytest.mark.parametrize("answer, reason", [
    (Code.LEADER_UNKNOWN, "the metadata leader was not asked: an election"),
    (Code.UNSUPPORTED, "the metadata leader was not asked: an election"), ("drop", "silent for"),
    ("limit", "it is not void yet: 16384 are")])
def test_without_the_metadata_leader_a_read_to_the_end_ends_and_says_so(
        client, cluster, txn, monkeypatch, answer, reason):
    monkeypatch.setattr(_transactions, "RESOLVE_RETRY_MS", 20)
    monkeypatch.setattr("multiraft.client._client.REFRESH_TIMEOUT_MS", 100)

    def script(node, event, connection):
        if OPS[type(event.request)] != "resolve_transactions":
            return None
        if answer == "limit":
            return ResponseEvent(event.id, ResolveTransactionsReply(1, tuple(
                TransactionDescription(*asked, "unopened", why="16384 are")
                for asked in event.request.transactions)))
        return answer if answer == "drop" else ResponseEvent(event.id, code=answer,
                                                             error=ErrorDetail("an election"))

    cluster.script = script
    consumer = client.consume("a", 0, until_end=True)
    assert values_of(consumer) == [b"before"]
    [left] = unread_of(consumer)
    assert reason in left.reason and left.offset == 1


def test_a_transaction_that_is_decided_while_the_leader_is_asked_is_read(client, cluster, txn):
    def script(node, event, connection):
        if OPS[type(event.request)] == "resolve_transactions":
            cluster.sinks.apply(staging.CommitTransaction(txn.sink, txn.number, 7))
        return None

    cluster.script = script
    consumer = client.consume("a", 0, until_end=True)
    assert values_of(consumer) == [b"before", b"staged", b"behind"]
    assert unread_of(consumer) == ()


def test_nobody_asks_about_transactions_that_nobody_waits_for():
    txns, txn = _transactions.Transactions(), TransactionRef(1, 1)
    txns.want(txn)
    assert txns.wanted(0) == (txn,) and txns.resolve_due_ms() is None
    txns.learn(TransactionStatesReply((TransactionState(*txn, OPEN, ()),)), 0)
    assert txns.resolve_due_ms() is None, "its reader is gone"
    txns.want(txn)
    assert txns.resolve_due_ms() == _transactions.RESOLVE_AFTER_MS
    txns.want(txn, until_ms=3)
    assert txns.resolve_due_ms() == 3 and txns.to_resolve(3) == (txn,)
    txns.resolved(ResolveTransactionsReply(1, (TransactionDescription(*txn, COMMITTED),)))
    assert txns.decided(txn) and txns.resolve_due_ms() is None


# ---- everything else that a reader waits for ----------------------------------------------------


def test_a_replica_that_stays_behind_is_not_waited_for_for_ever(client, cluster):
    """It answers without an error, and has no records."""
    [part] = cluster.add_topic("a")
    for _ in range(3):
        assert part.append(crafted(0, records_block(1)))[0] == Code.OK

    def script(node, event, connection):
        request = event.request
        if isinstance(request, Fetch) and request.partitions[0].offset == 0:
            return ResponseEvent(event.id, FetchReply((
                FetchResult(part.incarnation, Code.OK, 0, 0, 0),)))
        return None

    cluster.script = script
    with pytest.raises(errors.OffsetNotAvailable, match="has nothing at offset 0"):
        list(client.consume("a", until_end=True, unavailable_ms=300, wait_max_ms=20))


def test_a_refusal_that_passes_is_told_while_it_lasts(cluster):
    [part] = cluster.add_topic("a")
    assert part.append(crafted(0, records_block(1)))[0] == Code.OK

    def script(node, event, connection):
        if isinstance(event.request, ListOffsets):
            return ResponseEvent(event.id, code=Code.LEADER_UNKNOWN,
                                 error=ErrorDetail("no majority"))
        return None

    cluster.script = script
    with blocking.Client(cluster.servers()) as client:
        consumer = client.consume("a")
        while not any("no majority" in wait.reason for wait in consumer.waits()):
            assert not consumer.wait(20)
        cluster.script = None
        assert values_of([next(consumer)]) == [b"0"] and consumer.waits() == ()


def test_a_topic_whose_metadata_do_not_come_is_told(cluster):
    cluster.script = lambda node, event, connection: "drop"
    with blocking.Client(cluster.servers()) as client:
        consumer = client.consume("a")
        assert not consumer.wait(50)
        [wait] = consumer.waits()
        assert str(wait) == "a: its metadata are not known yet" and wait.waiting_ms >= 0


# ---- topics with many partitions ----------------------------------------------------------------


@pytest.mark.parametrize("start", [EARLIEST, Timestamp(1_650_000_000_000)])
def test_requests_are_cut_into_what_one_may_name(client, cluster, monkeypatch, start):
    monkeypatch.setattr(_consumer, "READERS_PER_FETCH_MAX", 7)
    monkeypatch.setattr(_consumer, "READERS_PER_QUESTION_MAX", 7)
    parts = cluster.add_topic("a", partitions=100, groups=1)
    for part in parts[::9]:
        assert part.append(crafted(0, records_block(1)))[0] == Code.OK
    assert len(values_of(client.consume("a", start=start, until_end=True))) == 12
    asked = [request for _, request in cluster.requests
             if isinstance(request, (ListOffsets, Fetch))]
    for request in asked:
        assert len(dict.fromkeys(row.incarnation for row in request.partitions)) <= 7
    assert len(asked) >= 15


def test_a_topic_of_any_size_fits_into_the_requests_that_may_wait():
    for readers in (_consumer.READERS_PER_FETCH_MAX,
                    _consumer.READERS_PER_QUESTION_MAX * _consumer.QUESTIONS_MAX,
                    2 * _operations.RANGES_PER_REQUEST_MAX, 2 * _search.NAMED_PER_REQUEST_MAX):
        assert readers <= REFUSALS_PER_REPLY_MAX <= PARTITIONS_PER_REQUEST_MAX
    assert _consumer.READERS_PER_FETCH_MAX * _consumer.FETCHES_PER_NODE_MAX >= PARTITIONS_MAX


def test_an_answer_of_refusals_alone_fits_into_a_frame():
    """As of a node that has just lost its leaderships."""
    detail = ErrorDetail("x" * 200, 1 << 30, "2001:db8:0123:4567:89ab:cdef:0123:4567:65535",
                         group=32_768, epoch=1 << 20)
    reply = ListOffsetsReply((OffsetResult((1 << 63) - 1, Code.LEADER_UNKNOWN, -1, detail),)
                             * REFUSALS_PER_REPLY_MAX)
    server, client = Connection(Role.SERVER), Connection(Role.CLIENT)
    server.receive_data(b"".join(client.send(Hello())))
    assert isinstance(server.next_event(), Hello)
    client.receive_data(b"".join(server.send(Welcome(bytes(16), 1))))
    assert isinstance(client.next_event(), Welcome)
    server.receive_data(b"".join(client.send(RequestEvent(1, ListOffsets(())))))
    assert isinstance(server.next_event(), RequestEvent)
    client.receive_data(b"".join(server.send(ResponseEvent(1, reply))))
    assert client.next_event().reply == reply


def test_metadata_that_do_not_fit_into_one_answer_are_asked_for_in_parts(client, cluster):
    names = [f"t{number:02}" for number in range(10)]
    for name in names:
        cluster.add_topic(name)

    def script(node, event, connection):
        if isinstance(event.request, Metadata) and len(event.request.topics or ()) > 3:
            return ResponseEvent(event.id, code=Code.LIMIT_EXCEEDED, error=ErrorDetail("too large"))
        return None

    cluster.script = script
    if isinstance(client, blocking.Client):
        assert list(offset_ranges(client, names)) == names
    consumers = [client.consume(name, until_end=True) for name in names]
    assert [list(consumer) for consumer in consumers] == [[]] * 10


def test_who_reads_on_without_a_leader_is_told(cluster):
    [part] = cluster.add_topic("a")
    assert part.append(crafted(0, records_block(1)))[0] == Code.OK
    leader, cluster.leaders[part.group] = cluster.leaders[part.group], 0
    with blocking.Client(cluster.servers()) as client:
        consumer = client.consume("a", 0, 0, wait_max_ms=20)
        assert values_of([next(consumer)]) == [b"0"]
        [wait] = consumer.waits()
        assert "a/0 at offset 1: its leader is not known; what the other replicas" in str(wait)
        cluster.leaders[part.group] = leader
        while consumer.waits():
            assert not consumer.wait(20)
        consumer.close()
