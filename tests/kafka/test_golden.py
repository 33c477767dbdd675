"""Messages that Kafka's own classes have read and written again to the same bytes.

Contract.  ``golden/kafka-4.4.0.txt`` has a request and a response of each API in each version of
its schema: key, kind, version, bytes in hex.  ``python -m tests.kafka.test_golden FILE`` writes
such a file with ever new values; Kafka checks it:

    java -cp kafka-clients-4.4.0.jar:slf4j-api-1.7.36.jar tests/kafka/golden/ReadAndWrite.java FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from multiraft.kafka import generic_encoder, hot_messages
from multiraft.kafka.messages.table import REQUESTS, RESPONSES
from tests.kafka import values

GOLDEN = Path(__file__).parent / "golden" / "kafka-4.4.0.txt"
TABLES = {"request": REQUESTS, "response": RESPONSES}
ROWS = [line.split(" ") for line in GOLDEN.read_text().splitlines()]


def test_there_is_a_message_of_each_version():
    wanted = {(str(key), kind, str(version)) for kind, table in TABLES.items()
              for key, message in table.items()
              for version in range(message.versions[0], message.versions[1] + 1)}
    assert {(key, kind, version) for key, kind, version, _ in ROWS} == wanted


@pytest.mark.parametrize("key,kind", sorted({(int(row[0]), row[1]) for row in ROWS}))
def test_each_message_is_read_and_written_as_by_kafka(key, kind):
    message = TABLES[kind][key]
    for version, digits in [row[2:] for row in ROWS if row[:2] == [str(key), kind]]:
        data = bytes.fromhex(digits)
        value, end = hot_messages.decode(message, data, 0, int(version), values.ELEMENTS_MAX)
        assert end == len(data)
        again = hot_messages.encode(message, value, int(version), b"")
        assert b"".join(again) == data, f"version {version}"


def write(path: Path, seed: int) -> None:
    """Write a file with random messages."""
    samples, lines = values.Samples(seed), []
    for kind, table in TABLES.items():
        for key, message in table.items():
            for version in range(message.versions[0], message.versions[1] + 1):
                value = values.built(message, samples.of(message, version))
                data = b"".join(generic_encoder.encode(message, value, version, b""))
                lines.append(f"{key} {kind} {version} {data.hex()}\n")
    path.write_text("".join(lines))


if __name__ == "__main__":
    write(Path(sys.argv[1]), time.time_ns())
