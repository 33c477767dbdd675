"""Records that are never sent: errors and warnings name their number and topics, whatever ended the
producer."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings

import pytest
import trio

from multiraft import client as trio_client
from multiraft.client import Closed, Record, RecordsNotSent, blocking
from multiraft.wire.messages import Produce
from tests.client.fake_cluster import unused_addresses
from tests.client.scripts import produced


def test_closing_a_client_counts_what_its_producers_never_sent(driver, cluster):
    cluster.add_topic("a")
    client = driver.client(cluster.servers())
    with pytest.raises(Closed, match="10 records for topic 'a' were not sent: the client was clo"):
        with client as opened:
            producer = opened.producer(linger_ms=60_000)
            for _ in range(10):
                producer.send_nowait(Record("a", b"x"))


def test_a_block_that_an_exception_left_warns_and_keeps_its_error(driver, cluster):
    cluster.add_topic("a")
    with driver.client(cluster.servers()) as client:
        for error in (KeyError, SystemExit, KeyboardInterrupt):
            with pytest.warns(RecordsNotSent, match=f"1 record for topic 'a' was never sent: "
                                                    f"{error.__name__} left the block"):
                with pytest.raises(error):
                    with client.producer(linger_ms=60_000) as producer:
                        producer.send_nowait(Record("a", b"x"))
                        raise error


def test_records_behind_one_in_flight_are_counted_when_an_exception_leaves_the_block(cluster):
    cluster.add_topic("a")
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, Produce) else None)
    with blocking.Client(cluster.servers()) as client:
        with pytest.warns(RecordsNotSent, match="3 records for topic 'a' were never sent"):
            with pytest.raises(KeyError) as raised:
                with client.producer(linger_ms=0, in_flight_max=1) as producer:
                    producer.send_nowait(Record("a", b"in flight"))
                    for _turn in range(10_000):
                        client.poll(1)
                        if produced(cluster):
                            break
                    for _ in range(3):
                        producer.send_nowait(Record("a", b"behind it"))
                    raise KeyError
        assert "AmbiguousOutcome" in " ".join(raised.value.__notes__)


def test_a_block_of_trio_that_is_cancelled_warns(cluster):
    cluster.add_topic("a")

    async def cancelled():
        async with trio_client.Client(cluster.servers()) as client:
            with trio.CancelScope() as scope:
                async with client.producer(linger_ms=60_000) as producer:
                    producer.send_nowait(Record("a", b"x"))
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

    with pytest.warns(RecordsNotSent, match="1 record for topic 'a' was never sent: Cancelled"):
        trio.run(cancelled)


def test_closing_a_client_names_what_each_of_its_producers_lost(driver, cluster):
    cluster.add_topic("a")
    cluster.add_topic("b")
    client = driver.client(cluster.servers())
    with pytest.raises(Closed, match="3 records for topic 'a'") as raised:
        with client as opened:
            for topic, count in (("a", 3), ("b", 5)):
                producer = opened.producer(linger_ms=60_000)
                for _ in range(count):
                    producer.send_nowait(Record(topic, b"x"))
    assert "5 records for topic 'b'" in " ".join(raised.value.__notes__)


def test_a_blocking_client_that_is_collected_warns():
    with unused_addresses(1) as addresses:
        client = blocking.Client(addresses)
        producer = client.producer()
        for number in range(10):
            producer.send_nowait(Record(f"topic-{number % 7}", b"x"))
        with pytest.warns(RecordsNotSent, match="10 records for topics 'topic-0', .*'topic-4' and "
                                                "2 more were never sent.*blocking client sends"):
            del client, producer
            gc.collect()


def test_a_trio_client_that_is_collected_warns():
    client = trio_client.Client(["127.0.0.1:1"])
    producer = client.producer()
    with pytest.raises(trio_client.NeedsTrio):
        producer.send_nowait(Record("a", b"x"))
    producer._core.intake.send(Record("a", b"x"), 0, 0)  # as a task does before its client ends
    with pytest.warns(RecordsNotSent, match="1 record for topic 'a' was never sent"):
        del client, producer
        gc.collect()


def test_a_program_that_ends_without_a_flush_says_so_by_default():
    program = """
from multiraft.client.blocking import Client, Record
client = Client("127.0.0.1:1")
producer = client.producer()
for _ in range(10):
    producer.send_nowait(Record("greetings", b"hello"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stderr
    assert "10 records for topic 'greetings' were never sent: the program ended" in done.stderr
    assert "flush()" in done.stderr
    assert done.stderr.count("were never sent") == 1


@pytest.mark.parametrize("chosen", ["ignore::DeprecationWarning", "error"])
def test_choosing_other_warnings_hides_no_lost_record(chosen):
    program = """
from multiraft.client.blocking import Client, Record
clients = [Client("127.0.0.1:1") for _ in range(3)]
for number, client in enumerate(clients):
    client.producer().send_nowait(Record(f"topic-{number}", b"hello"))
"""
    done = subprocess.run([sys.executable, "-W", chosen, "-c", program], capture_output=True,
                          text=True, timeout=120, check=False)
    for number in range(3):
        assert f"1 record for topic 'topic-{number}' was never sent" in done.stderr, done.stderr


def test_what_was_sent_or_refused_is_not_counted(driver, cluster):
    cluster.add_topic("a")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with driver.client(cluster.servers()) as client:
            producer = client.producer()
            producer.send(Record("a", b"x")).wait()
            with pytest.raises(trio_client.UnknownTopic):
                producer.send(Record("no-such", b"x")).wait()
        with pytest.raises(KeyError):
            with driver.client(cluster.servers()) as client:
                client.producer().send(Record("a", b"x")).wait()
                raise KeyError
        gc.collect()


def test_polling_sends_while_a_program_works(world, cluster):
    cluster.add_topic("a")
    with blocking.Client(cluster.servers()) as client:
        delivery = client.producer(linger_ms=0).send_nowait(Record("a", b"x"))
        for _ in range(1_000):
            client.poll(10)
            if delivery.done:
                break
        assert delivery.result().offset == 0
        client.poll()
    with pytest.raises(Closed):
        client.poll()
