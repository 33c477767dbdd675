"""Rolling restart benchmark: the time for which groups refuse appends while each node restarts.

Contract.  Three nodes, every group of the pool in use and asked for appends all the time, leaders a
third each.  Then each node is restarted as ``multiraft dev restart --all`` does it.  The time of a
group is the longest that one append to it took, from its first attempt to its acknowledgement.
"""

from __future__ import annotations

import threading
from pathlib import Path

from benchmarks.failover import Bench, cluster
from benchmarks.processes import BenchmarkError


def longest_refusals(directory: Path, groups: int) -> list[float]:
    """Return the seconds of each group, sorted."""
    with cluster(directory, groups, namespaces=False) as dev:
        bench = Bench(dev)
        bench.prepare()
        bench.spread()
        places = bench.places()
        ended = threading.Event()
        watched: list[dict[int, float]] = []
        watcher = threading.Thread(
            target=lambda: watched.append(bench.prober.watch(places, ended.is_set)))
        watcher.start()
        try:
            dev.restart([node.id for node in dev.record.nodes])
        finally:
            ended.set()
            watcher.join()
        bench.prober.close()
        if not watched:
            raise BenchmarkError("the watch over the groups broke off; its error is above")
        return sorted(watched[0].values())
