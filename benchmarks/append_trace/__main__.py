"""Trace single appends against three nodes of this machine, and print where their time goes.

    python -m benchmarks.append_trace [--count 10000] [--picture FILE.svg] [--keep DIR]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from admin_cli.connection import open_client, partitions
from admin_cli.dev_cluster import DevCluster
from admin_cli.development.dev_process import node_command
from admin_cli.failures import CommandFailed
from admin_cli.session import NodeCommand
from benchmarks.append_trace import points
from benchmarks.append_trace.path import Process, paths
from benchmarks.append_trace.recorder import Recorder, TracedWaits, read
from benchmarks.append_trace.report import Report, draw
from benchmarks.ours import RECORD_BYTES, TOPIC, UP_S
from benchmarks.processes import BenchmarkError, free_base_port
from multiraft.client import blocking

NODES, GROUPS = 3, 8
#: Appends before the traced ones, so that files exist and connections are warm.
WARM_UP = 500


def traced(directory: Path) -> NodeCommand:
    """Return the function that makes the command lines of nodes: a node that starts is traced."""
    def command(config: Path, action: str = "start", *options: str) -> list[str]:
        words = node_command(config, action, *options)
        if action != "start":
            return words
        return [sys.executable, "-P", "-m", "benchmarks.append_trace.traced_node", str(directory),
                *words[words.index("node") + 1:]]

    return command


def measure(directory: Path, count: int) -> tuple[Process, dict[int, Process], int]:
    """Append ``count`` records one at a time.  Return the events of the client, those of the nodes
    by id, and the id of the leader.  Raises ``CommandFailed`` and ``BenchmarkError``."""
    dev = DevCluster(directory / "cluster", open_client, os.environ,
                     command=traced(directory))
    dev.create(nodes=NODES, groups=GROUPS, replication_factor=NODES,
               base_port=free_base_port(NODES))
    recorder = Recorder()
    try:
        dev.up(UP_S)
        processes = {node.id: node.pid for node in dev.record.nodes}
        leader = _append(dev.addresses, count, recorder)
    finally:
        dev.down()
    recorder.write(directory / "client.trace")
    nodes = {}
    for node, pid in processes.items():
        record = directory / f"{pid}.trace"
        if not record.exists():
            raise BenchmarkError(f"node {node} left no record: {directory}")
        nodes[node] = Process(read(record))
    return Process(read(directory / "client.trace")), nodes, leader


def _append(addresses: list[str], count: int, recorder: Recorder) -> int:
    """Append one record after the other, and return the leader of their partition."""
    payload = os.urandom(RECORD_BYTES)
    with blocking.Client(list(addresses)) as client:
        client.create_topic(TOPIC)
        with client.producer(acks="commit", linger_ms=0) as producer:
            record = blocking.Record(TOPIC, payload)
            for _ in range(WARM_UP):
                producer.send(record).wait()
            client._poll = TracedWaits(client._poll, recorder)
            for _ in range(count):
                recorder.mark(points.APPEND_BEGIN)
                producer.send(record).wait()
                recorder.mark(points.APPEND_END)
        leader = partitions(client, TOPIC)[0].leader
    if leader is None:
        raise BenchmarkError(f"{TOPIC} has no leader after the appends")
    return leader


def main() -> int:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000, help="traced appends")
    parser.add_argument("--picture", type=Path, help="write the picture to this file")
    parser.add_argument("--dir", help="where the files go (default: a new temporary directory)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="append-trace-", dir=chosen.dir) as home:
        try:
            client, nodes, leader = measure(Path(home), chosen.count)
        except (BenchmarkError, CommandFailed) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    found, without = paths(client, nodes, leader)
    if not found:
        print(f"not measured: none of {without} appends has a whole path", file=sys.stderr)
        return 1
    report = Report(found, without)
    print("\n".join(report.lines()))
    if chosen.picture:
        draw(report, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
