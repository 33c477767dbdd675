"""The comparison with Kafka's own broker: ``make kafka-compare``."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.e2e import world as worlds
from tests.kafka_clients.__main__ import INSTALLED, tell
from tests.kafka_clients.catalog import NotInstalled
from tests.kafka_compare import broker
from tests.kafka_compare.comparison import differences, judged
from tests.kafka_compare.known import KNOWN
from tests.kafka_compare.scenario import PARTS
from tests.kafka_compare.server import Server
from tests.needs import SKIPPED


def ask_all(server: Server) -> Server:
    """Send all requests of the scenario."""
    for part in PARTS:
        tell(f"{server.name}: {part.__doc__}")
        part(server)
    server.close()
    return server


def main() -> int:
    """Compare, and print the differences.  Return the exit status: 1 after one that is not listed,
    or for one that is listed and does not occur."""
    parser = argparse.ArgumentParser(prog="make kafka-compare")
    parser.add_argument("--all", action="store_true", help="print the listed differences as well")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    INSTALLED.mkdir(parents=True, exist_ok=True)
    try:
        jars = broker.install(INSTALLED)
    except NotInstalled as error:
        print(f"{SKIPPED}Kafka's broker - {error}")
        return 1
    with tempfile.TemporaryDirectory(prefix="kafka-compare-") as directory:
        with broker.running(jars, Path(directory) / "kafka") as port:
            kafka = ask_all(Server("Kafka", "127.0.0.1", port))
        with worlds.start(Path(directory) / "dev", nodes=1, factor=1) as world:
            host, _, text = world.dev.record.nodes[0].kafka_address.rpartition(":")
            node = ask_all(Server("the node", host, int(text)))
    return show(kafka, node, given.all)


def show(kafka: Server, node: Server, every: bool) -> int:
    """Print the differences, and what is listed in vain. Return the exit status."""
    unexpected, expected = judged(differences(kafka.outcomes, node.outcomes), KNOWN)
    in_vain = [row for row, found in expected.items() if not found]
    if every:
        for row, found in expected.items():
            for each in found:
                print(f"[{row.reason}] {each}")
    for each in unexpected:
        print(f"NOT LISTED {each}")
    for row in in_vain:
        print(f"LISTED IN VAIN {row}")
    print(f"{len(kafka.outcomes)} requests: {sum(map(len, expected.values()))} fields differ as "
          f"listed, {len(unexpected)} differ otherwise, {len(in_vain)} rows are in vain")
    return 1 if unexpected or in_vain else 0


if __name__ == "__main__":
    sys.exit(main())
