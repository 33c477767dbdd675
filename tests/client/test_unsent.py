"""Records that are never sent: errors and warnings name their number and topics, whatever ended the
producer."""

from __future__ import annotations

import gc
import subprocess
import sys
import warnings

import pytest

from multiraft import client as trio_client
from multiraft.client import Closed, Record, RecordsNotSent, blocking
from tests.client.fake_cluster import unused_addresses


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
        with pytest.warns(RecordsNotSent, match="1 record for topic 'a' was not sent.*KeyError"):
            with pytest.raises(KeyError):
                with client.producer(linger_ms=60_000) as producer:
                    producer.send_nowait(Record("a", b"x"))
                    raise KeyError


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
