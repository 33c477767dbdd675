"""Append each line of standard input to a topic, and print where it is stored.

    echo hello | python examples/produce.py 127.0.0.1:9101 greetings
"""

from __future__ import annotations

import sys

import trio

from multiraft.client import AmbiguousOutcome, BatchDelivery, Client, Record, RequestError

#: Lines whose outcome is awaited together: enough to fill batches.
LINES_AT_ONCE = 1_000


async def main(servers: str, topic: str) -> None:
    async with Client(servers) as client:
        await client.create_topic(topic, partitions=2, if_not_exists=True)
        async with client.producer() as producer:
            sent: list[BatchDelivery] = []
            for line in sys.stdin.buffer:
                sent.append(await producer.send(Record(topic, line.rstrip(b"\n"))))
                if len(sent) == LINES_AT_ONCE:
                    await report(sent)
                    sent = []
            await report(sent)


async def report(sent: list[BatchDelivery]) -> None:
    """Wait for the outcome of each line, and print it."""
    for delivery in sent:
        try:
            receipt = await delivery.wait()
            print(f"partition {receipt.partition}, offset {receipt.offset}")
        except AmbiguousOutcome as error:
            print(f"may be stored: {error}", file=sys.stderr)
        except RequestError as error:
            print(f"not stored: {error}", file=sys.stderr)


servers, topic = sys.argv[1:]
trio.run(main, servers, topic)
