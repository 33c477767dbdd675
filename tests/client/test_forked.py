"""Clients in a forked process: each use raises at once, without effect on the parent."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import traceback

import pytest

from multiraft import client as trio_client
from multiraft.client import Forked, Record, blocking
from multiraft.errors import MultiRaftError
from tests.client.scripts import values_of


def in_child(work):
    """Return the result of ``work`` in a forked process, which exits after it."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        answer = None
        try:
            answer = ("gave", work())
        finally:
            answer = answer or ("failed", traceback.format_exc())
            os.write(writing, pickle.dumps(answer))
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        how, what = pickle.load(pipe)
    os.waitpid(process, 0)
    assert how == "gave", what
    return what


def refusals(uses):
    """Return type and text of the error that each of ``uses`` raises."""
    told = []
    for use in uses:
        with pytest.raises(Forked) as caught:
            use()
        told.append(str(caught.value))
    return told


def test_every_use_in_a_child_is_refused_and_says_what_to_do(world, cluster):
    with blocking.Client(cluster.servers()) as client:
        client.create_topic("a")
        with client.producer(linger_ms=0) as producer:
            producer.send(Record("a", b"first")).wait()
            consumer = client.consume("a")
            next(consumer)
            open_delivery = producer.send_nowait(Record("a", b"second"))
            told = in_child(lambda: refusals([
                lambda: producer.send(Record("a", b"x")),
                lambda: producer.send_nowait(Record("a", b"x")),
                lambda: producer.send_many("a", [b"x"]),
                lambda: producer.send_many("a", [Record("a", b"x")]),
                producer.flush, producer.__enter__, open_delivery.wait,
                lambda: next(consumer), lambda: client.consume("a"), client.producer,
                client.list_topics, lambda: client.create_topic("b"), client.catch_up,
                client.__enter__]))
            assert all(f"process {os.getpid()}" in text and "after the fork" in text
                       for text in told)
            open_delivery.wait()
            producer.send(Record("a", b"third")).wait()
        assert values_of(client.consume("a", until_end=True)) == [b"first", b"second", b"third"]
    assert "b" not in cluster.topics


def test_a_child_that_closes_leaves_and_exits_disturbs_nothing(world, cluster):
    with blocking.Client(cluster.servers()) as client:
        client.create_topic("a")
        with client.producer(linger_ms=0) as producer:
            producer.send(Record("a", b"first")).wait()
            connections = len(cluster.hellos)
            held = producer.send_nowait(Record("a", b"second"))

            def leave():
                consumer = client.consume("a") if client._core.ended is None else None
                producer.close()
                producer.__exit__(None, None, None)
                client.close()
                client.__exit__(None, None, None)
                del consumer
                gc.collect()
                return "left"

            assert in_child(leave) == "left"
            held.wait()
            producer.send(Record("a", b"third")).wait()
            assert len(cluster.hellos) == connections, "its connections are those of before"
    assert cluster.topics["a"][0].values() == [b"first", b"second", b"third"]


def test_a_child_and_its_child_have_clients_of_their_own(world, cluster):
    with blocking.Client(cluster.servers()) as client:
        client.create_topic("a")
        producer = client.producer(linger_ms=0)
        producer.send(Record("a", b"parent")).wait()

        def work():
            with blocking.Client(cluster.servers()) as mine:
                own = mine.producer(linger_ms=0)
                own.send(Record("a", b"child")).wait()

                def below():
                    refusals([lambda: own.send(Record("a", b"x")), mine.list_topics,
                              client.list_topics])
                    with blocking.Client(cluster.servers()) as deepest:
                        deepest.producer().send(Record("a", b"grandchild")).wait()
                    return "done"

                assert in_child(below) == "done"
                own.send(Record("a", b"child again")).wait()
            return "done"

        assert in_child(work) == "done"
        producer.send(Record("a", b"parent again")).wait()
    assert cluster.topics["a"][0].values() == [b"parent", b"child", b"grandchild", b"child again",
                                               b"parent again"]


def test_what_the_parent_holds_is_sent_once(world, cluster):
    """Records of an open batch are in the memory of both processes."""
    with blocking.Client(cluster.servers()) as client:
        client.create_topic("a")
        with client.producer(linger_ms=60_000) as producer:
            producer.send_many("a", [b"waits"])

            def leave():
                with pytest.raises(Forked):
                    producer.flush()
                producer.__exit__(None, None, None)
                return "left"

            assert in_child(leave) == "left"
    assert cluster.topics["a"][0].values() == [b"waits"]


def test_a_child_does_not_keep_the_parents_connections_open(world, cluster):
    """Else the node would keep the connection of a client that has ended."""
    with blocking.Client(cluster.servers()) as client:
        client.list_topics()
        mine = {os.fstat(sock._sock.fileno()).st_ino for sock in client._sockets.values()}

        def look():
            inodes = set()
            for name in os.listdir("/proc/self/fd"):
                with contextlib.suppress(OSError):  # that of the listing
                    inodes.add(os.fstat(int(name)).st_ino)
            return inodes & mine

        assert mine and in_child(look) == set()
        client.list_topics()


def test_a_trio_client_is_refused_in_a_child_and_goes_on_in_its_parent(world, cluster):
    cluster.add_topic("a")

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            async with client.producer(linger_ms=0) as producer:
                delivery = await producer.send(Record("a", b"first"))
                await delivery.wait()
                consumer = client.consume("a")
                await consumer.__anext__()
                open_delivery = producer.send_nowait(Record("a", b"second"))

                def at_once(use):
                    """Run an async function up to its first wait, which must not come."""
                    coroutine = use()
                    coroutine.send(None)

                told = in_child(lambda: refusals([
                    lambda: producer.send_nowait(Record("a", b"x")), client.producer,
                    lambda: client.consume("a"),
                    lambda: at_once(lambda: producer.send(Record("a", b"x"))),
                    lambda: at_once(lambda: producer.send_many("a", [b"x"])),
                    lambda: at_once(producer.flush), lambda: at_once(open_delivery.wait),
                    lambda: at_once(consumer.__anext__), lambda: at_once(client.list_topics)]))
                assert len(told) == 9
                await open_delivery.wait()
                for number in range(5):
                    await (await producer.send(Record("a", b"%d" % number))).wait()

    world.run(run)
    assert cluster.topics["a"][0].next_offset == 7


def test_a_fork_inside_of_a_listener_leaves_a_client_that_is_refused_in_the_child(world, cluster):
    cluster.add_topic("a")
    processes = []
    reading, writing = os.pipe()
    with blocking.Client(cluster.servers()) as client:
        producer = client.producer(linger_ms=0)
        delivery = producer.send_nowait(Record("a", b"first"))
        delivery.when_done(lambda: processes.append(os.fork()))
        told = []
        # The outcome is known when the listener runs: in both processes flush has nothing to wait
        # for, and releases the guard.
        for use in (producer.flush, client.list_topics):
            try:
                use()
                told.append("no error")
            except (MultiRaftError, RuntimeError) as error:
                told.append(type(error).__name__)
            if processes != [0]:
                break
        if processes == [0]:
            os.write(writing, " / ".join(told).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            assert pipe.read() == "no error / Forked"
        os.waitpid(processes[0], 0)
        assert told == ["no error"]
        producer.send(Record("a", b"second")).wait()
    assert cluster.topics["a"][0].values() == [b"first", b"second"]
