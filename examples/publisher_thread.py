"""Publish records from asyncio, as a web server does: one thread owns the client.

    python examples/publisher_thread.py 127.0.0.1:9101 clicks

``publish`` may be awaited by any number of handlers.  With FastAPI, enter a ``Publisher`` in the
lifespan of the application.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from concurrent.futures import Future

from multiraft.client.blocking import BatchDelivery, Client, MultiRaftError, Producer, Record

#: Records that wait for the thread: more make ``publish`` raise ``queue.Full``.
WAITING_MAX = 10_000
#: Records that the thread gives to the producer before it waits for their outcome.
AT_ONCE = 500


class Publisher:
    """Thread that appends records to topics; use it with ``with``."""

    def __init__(self, servers: str):
        self._servers = servers
        self._waiting: queue.Queue[tuple[Record, Future[int]] | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="publisher")

    def __enter__(self) -> "Publisher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    async def publish(self, record: Record) -> int:
        """Append a record, and return its offset once it is stored.  Raises what the client
        raises."""
        outcome: Future[int] = Future()
        self._waiting.put_nowait((record, outcome))
        return await asyncio.wrap_future(outcome)

    def _run(self) -> None:
        with Client(self._servers) as client, client.producer(linger_ms=0) as producer:
            while self._publish_some(producer):
                pass

    def _publish_some(self, producer: Producer) -> bool:
        """Append what waits, in one go.  Returns False at the end."""
        jobs = [self._waiting.get()]
        while len(jobs) < AT_ONCE and not self._waiting.empty():
            jobs.append(self._waiting.get())
        sent: list[tuple[BatchDelivery, Future[int]]] = []
        for job in jobs:
            # A caller that has gone cancelled its future; after this check it no longer can.
            if job is not None and job[1].set_running_or_notify_cancel():
                record, outcome = job
                try:
                    sent.append((producer.send(record), outcome))
                except (MultiRaftError, TypeError, ValueError) as error:
                    outcome.set_exception(error)
        for delivery, outcome in sent:
            try:
                outcome.set_result(delivery.wait().offset)
            except MultiRaftError as error:
                outcome.set_exception(error)
        return None not in jobs


async def main(servers: str, topic: str) -> None:
    with Client(servers) as client:
        client.create_topic(topic, if_not_exists=True)
    with Publisher(servers) as publisher:
        offsets = await asyncio.gather(*(
            publisher.publish(Record(topic, b"click %d" % number)) for number in range(20)))
    print("stored at", sorted(offsets))


asyncio.run(main(*sys.argv[1:]))
