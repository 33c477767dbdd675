"""Clients in a process that is paused for longer than each timeout, and then resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from multiraft import core
from multiraft.client import AmbiguousOutcome, Record, blocking
from multiraft.client import _blocking_sockets as sockets

BLOCKING = """
import sys
from multiraft.client.blocking import Client, Record
with Client(sys.argv[1:]) as client, Client(sys.argv[1:]) as other:
    producer = client.producer(linger_ms=0, delivery_timeout_ms=300)
    reading = other.consume("a", unavailable_ms=300)
    for number in range(1_000_000):
        value = b"%d" % number
        try:
            producer.send(Record("a", value)).wait()
            outcome = "ok"
            next(reading)
        except Exception as error:
            outcome = type(error).__name__
        print(number, outcome, flush=True)
"""
TRIO = """
import sys, trio
from multiraft.client import Client, Record
async def main():
    async with Client(sys.argv[1:]) as client, Client(sys.argv[1:]) as other:
        producer = client.producer(linger_ms=0, delivery_timeout_ms=300)
        reading = other.consume("a", unavailable_ms=300)
        for number in range(1_000_000):
            value = b"%d" % number
            try:
                await (await producer.send(Record("a", value))).wait()
                outcome = "ok"
                await reading.__anext__()
            except Exception as error:
                outcome = type(error).__name__
            print(number, outcome, flush=True)
trio.run(main)
"""
#: Longer than the timeouts above, so that all of them are over at once.
STOPPED_S = 0.7
POLL_S = 0.005


@pytest.mark.parametrize("program", [BLOCKING, TRIO], ids=["blocking", "trio"])
def test_a_process_that_was_stopped_goes_on(world, cluster, program):
    cluster.add_topic("a")
    with subprocess.Popen([sys.executable, "-c", program, *cluster.servers()],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            told = [process.stdout.readline().split() for _ in range(50)]
            for _ in range(3):
                os.kill(process.pid, signal.SIGSTOP)
                until = time.monotonic() + STOPPED_S
                while time.monotonic() < until:  # time itself has to pass
                    time.sleep(POLL_S)
                os.kill(process.pid, signal.SIGCONT)
                told += [process.stdout.readline().split() for _ in range(300)]
        finally:
            process.kill()
    outcomes = {outcome for _, outcome in told}
    assert outcomes <= {"ok", "AmbiguousOutcome", "TimedOut"}
    assert [outcome for _, outcome in told[-200:]] == ["ok"] * 200
    values = cluster.topics["a"][0].values()
    assert len(values) == len(set(values)), "nothing is doubled"
    assert {number.encode() for number, outcome in told if outcome == "ok"} <= set(values)


def test_what_was_answered_while_the_process_stood_still_is_no_loss(world, cluster, monkeypatch):
    """The clock jumps; the answer is in the socket's buffer already."""
    cluster.add_topic("a")
    jumped_ns = 0

    class Clock:
        @staticmethod
        def monotonic_ns():
            return time.monotonic_ns() + jumped_ns

    monkeypatch.setattr(sockets, "time", Clock)
    with blocking.Client(cluster.servers()) as client:
        producer = client.producer(linger_ms=0)
        producer.send(Record("a", b"0")).wait()
        delivery = producer.send_nowait(Record("a", b"1"))
        client.advance()
        while cluster.topics["a"][0].next_offset < 2:
            time.sleep(POLL_S)
        jumped_ns = 60_000_000_000
        try:
            assert delivery.wait().base_offset == 1
        except AmbiguousOutcome:
            pass  # no task read the answer before the timeout
        assert producer.send(Record("a", b"2")).wait().base_offset == 2
        log = [record.value for batch in client.consume("a", until_end=True) for record in batch]
    assert log == [b"0", b"1", b"2"]
    assert core.batch_header(cluster.topics["a"][0].log[0][1]).count == 1
