"""Driver of kcat, a command that is run for each verb."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.kafka_clients.driver import VERB_S, run
from tests.kafka_clients.records import Record, Row

#: Fields of a record are separated by this in the output, and each record ends with a line feed.
FORMAT = r"%o\t%T\t%h\t%k\t%s\n"
HEADER = "from"
#: Size of a batch: small, so that several are in flight.
BATCH_BYTES = 16_384


class KcatDriver:
    """The verbs that kcat has."""

    def __init__(self, servers: str):
        self._kcat = ["kcat", "-b", servers]

    def produce(self, topic: str, partition: int, acks: str, compression: str, idempotent: bool,
                header: bytes, records: Sequence[Record]) -> list[int | None]:
        """Produce records. kcat tells no offsets, and fails unless all are acknowledged."""
        settings = {"acks": acks, "compression.codec": compression, "batch.size": BATCH_BYTES,
                    "enable.idempotence": str(idempotent).lower(),
                    "message.timeout.ms": int(VERB_S * 1000)}
        options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        lines = b"".join(b"%s\t%s\n" % record for record in records)
        run([*self._kcat, "-P", "-t", topic, "-p", str(partition), "-K", r"\t",
             "-H", f"{HEADER}={header.decode()}", *options], lines)
        return [-1] * len(records)

    def fetch(self, topic: str, partition: int, start: str | int | dict[str, int],
              count: int) -> list[Row]:
        """Return up to ``count`` records from ``start`` on."""
        place = f"s@{start['time']}" if isinstance(start, dict) else str(start)
        said = run([*self._kcat, "-C", "-q", "-t", topic, "-p", str(partition), "-o", place,
                    "-c", str(count), "-f", FORMAT])
        rows = []
        for line in said.split(b"\n")[:-1]:
            offset, at, headers, key, value = line.split(b"\t")
            rows.append(Row(int(offset), int(at), key, value,
                            headers.removeprefix(HEADER.encode() + b"=")))
        return rows

    def offsets(self, topic: str, partition: int, at: str | dict[str, int]) -> int:
        """Return the offset of ``at``."""
        time = at["time"] if isinstance(at, dict) else {"earliest": -2, "latest": -1}[at]
        said = run([*self._kcat, "-Q", "-t", f"{topic}:{partition}:{time}"]).decode()
        return int(said.rsplit(maxsplit=1)[-1])

    def metadata(self, topic: str) -> dict[str, Any]:
        """Return ids of ``brokers`` and the number of ``partitions``."""
        found = json.loads(run([*self._kcat, "-L", "-J", "-t", topic]))
        return {"brokers": sorted(each["id"] for each in found["brokers"]),
                "partitions": len(found["topics"][0]["partitions"])}

    def close(self) -> None:
        """Return: each command has ended."""
