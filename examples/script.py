"""Write ten records from a plain script, and read them back.

    python examples/script.py 127.0.0.1:9101 readings
"""

from __future__ import annotations

import json
import sys
import time

from multiraft.client.blocking import Client, Record, Timestamp


def main(servers: str, topic: str) -> None:
    began_ms = int(time.time() * 1_000)
    with Client(servers, client_id="script") as client:
        client.create_topic(topic, partitions=4, if_not_exists=True)
        with client.producer(compression="zstd") as producer:
            for number in range(10):
                sensor = f"sensor-{number % 3}"
                producer.send(Record(topic, json.dumps({"celsius": 20 + number}).encode(),
                                     key=sensor.encode(), headers=[("unit", b"celsius")]))
        # The end of the block above has waited until every record is stored, or has raised.
        for batch in client.consume(topic, start=Timestamp(began_ms), until_end=True):
            for record in batch:
                print((record.key or b"").decode(), json.loads(record.value or b"{}")["celsius"])


main(*sys.argv[1:])
