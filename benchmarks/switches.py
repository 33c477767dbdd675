"""Switch benchmark: the time for which a partition refuses appends when it changes its group.

    python -m benchmarks.switches [--switches 100]

Contract.  Three nodes on an idle machine, one partition, one connection to each node.  Appends are
sent one after the other with ``commit``; each switch goes to the next group of the pool.  *Refused*
is the time from the sending of the first append that was refused to the sending of the first that
was acknowledged: no client could have been served earlier.  *Gap* is the longest time between two
acknowledgements of a producer of the library around a switch.  Nothing is left behind; the exit
status says whether everything was measured, not whether the target holds.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.failover import cluster
from benchmarks.processes import BenchmarkError
from multiraft.client import blocking
from multiraft.core import BatchBuilder
from multiraft.wire import NEED_DATA, Connection, Hello, RequestEvent, ResponseEvent, Role
from multiraft.wire import messages as wire
from multiraft.wire.errors import Code

TOPIC = "switched"
GROUPS = 8
TARGET_MS = 50.0
#: Pause between two switches, so that they do not overlap.
BETWEEN_S = 0.2
#: Pause between two appends: the machine is otherwise idle.
APPEND_S = 0.001
PUBLISHED_S = 20.0
RECORD = b"s" * 100


class Line:
    """One blocking connection to a node."""

    def __init__(self, address: str):
        host, port = address.rsplit(":", 1)
        self._sock = socket.create_connection((host, int(port)), 5.0)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = Connection(Role.CLIENT)
        self._sock.sendall(b"".join(self._connection.send(Hello(client_id="switches"))))
        self._event()
        self._number = 0

    def append(self, incarnation: int, data: bytearray) -> wire.ProduceResult:
        """Append one record and return the result."""
        self._number += 1
        request = wire.Produce("commit", 5_000, (wire.BatchPart(incarnation, len(data)),))
        self._sock.sendall(b"".join(self._connection.send(
            RequestEvent(self._number, request), [data])))
        answer = self._event()
        if not isinstance(answer, ResponseEvent) or answer.code != Code.OK:
            raise BenchmarkError(f"an append was answered with {answer}")
        return answer.reply.results[0]

    def _event(self):
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(self._sock.recv(65_536))
        return event

    def close(self) -> None:
        self._sock.close()


class Appends(threading.Thread):
    """Appends one after the other, at the node that a refusal names."""

    def __init__(self, addresses: dict[int, str], incarnation: int, leader: int):
        super().__init__(daemon=True)
        self._lines = {node: Line(address) for node, address in addresses.items()}
        self._incarnation, self._node = incarnation, leader
        self._over = threading.Event()
        self.refused: list[float] = []  # seconds, per time that appends were refused
        self.latencies: list[float] = []
        builder = BatchBuilder(4096)
        builder.append(int(time.time() * 1000), None, RECORD)
        self._batch = bytes(builder.build())

    def run(self) -> None:
        first_refused = 0.0
        while not self._over.is_set():
            sent = time.monotonic()
            result = self._lines[self._node].append(self._incarnation, bytearray(self._batch))
            if result.code == Code.OK:
                self.latencies.append(time.monotonic() - sent)
                if first_refused:
                    self.refused.append(sent - first_refused)
                    first_refused = 0.0
                time.sleep(APPEND_S)
                continue
            first_refused = first_refused or sent
            if result.error is not None and result.error.leader:
                self._node = result.error.leader

    def finish(self) -> None:
        """Stop and close."""
        self._over.set()
        self.join()
        for line in self._lines.values():
            line.close()


class Producing(threading.Thread):
    """The library's producer, one record after the other."""

    def __init__(self, addresses: dict[int, str]):
        super().__init__(daemon=True)
        self._addresses = addresses
        self._over = threading.Event()
        self.acknowledged: list[float] = []

    def run(self) -> None:
        with blocking.Client([*self._addresses.values()]) as client:
            with client.producer(linger_ms=0) as producer:
                while not self._over.is_set():
                    producer.send(blocking.Record(TOPIC, RECORD)).wait()
                    self.acknowledged.append(time.monotonic())
                    time.sleep(APPEND_S)

    def finish(self) -> None:
        """Stop."""
        self._over.set()
        self.join()

    def gaps(self, moments: list[tuple[float, float]]) -> list[float]:
        """Return the longest time without an acknowledgement around each of these spans."""
        pairs = list(zip(self.acknowledged, self.acknowledged[1:]))
        return [max((after - before for before, after in pairs
                     if after >= begin and before <= end), default=0.0)
                for begin, end in moments]


def switch(client: blocking.Client) -> tuple[float, float]:
    """Switch to the next group; return when it was requested and when it was published."""
    row = client.explain_placement(TOPIC)[0]
    last = row.epoch_history[-1]
    begin = time.monotonic()
    client.switch_partition(row.incarnation, last.epoch + 1, last.group % GROUPS + 1)
    while client.explain_placement(TOPIC)[0].epoch_history[-1].epoch == last.epoch:
        if time.monotonic() > begin + PUBLISHED_S:
            raise BenchmarkError("a switch is not published")
        time.sleep(0.002)
    return begin, time.monotonic()


def measure(directory: Path, switches: int) -> dict[str, list[float]]:
    """Return name -> seconds, ascending."""
    found: dict[str, list[float]] = {"refused": [], "append": [], "gap": [], "decided to published":
                                     []}
    with cluster(directory, GROUPS, False) as dev:
        addresses = {node.id: node.client_address for node in dev.record.nodes}
        with blocking.Client([*addresses.values()]) as client:
            # The history of a partition has a limit: a new topic for each part of the switches.
            while switches > 0:
                part = min(switches, 24)
                switches -= part
                client.create_topic(TOPIC)
                row = client.topic_metadata(TOPIC).partitions[0]
                appends = Appends(addresses, row.incarnation, row.leader)
                appends.start()
                for _ in range(part):
                    begin, end = switch(client)
                    found["decided to published"].append(end - begin)
                    time.sleep(BETWEEN_S)
                appends.finish()
                found["refused"] += appends.refused
                found["append"] += appends.latencies
                producing = Producing(addresses)
                producing.start()
                moments = []
                for _ in range(part):
                    moments.append(switch(client))
                    time.sleep(BETWEEN_S)
                producing.finish()
                found["gap"] += producing.gaps(moments)
                client.delete_topic(TOPIC)
    return {name: sorted(values) for name, values in found.items()}


def percentile(values: list[float], part: float) -> float:
    """Return a percentile of ascending values, in milliseconds."""
    return 1000 * values[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--switches", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = measure(Path(directory), arguments.switches)
    print(f"{'':24}{'number':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    for name, values in found.items():
        print(f"{name:24}{len(values):8}{percentile(values, 0.5):10.1f}"
              f"{percentile(values, 0.99):10.1f}{percentile(values, 1.0):10.1f}")
    print(f"target: refused p99 below {TARGET_MS:.0f} ms on an idle cluster")


if __name__ == "__main__":
    main()
