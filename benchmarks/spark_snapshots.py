"""Synthetic snapshots: millions of partitions in Parquet, for tests and benchmarks of planning.

Contract.  The same arguments give the same files.  Every partition is where the hash puts it, with
``placement.hashing`` computed for all at once (a test compares the two); every group is on nodes of
different racks, drawn by a seed, as the rendezvous hash would spread them.

    python -m benchmarks.spark_snapshots DIR [--partitions 10000000] [--nodes 1000]
        [--groups 32768] [--loads "zipf 0.8"]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from placement.cluster import ALIVE
from placement.hashing import HASH_VERSION
from spark import schema
from spark.tables import Head, snapshot_id, write_tables

LOADS = ("lognormal 2", "lognormal 1.5", "zipf 0.8", "uniform")
WINDOW_MS = 60_000
RACKS = 20
FACTOR = 3
#: Mean bytes per second that a partition takes in.
MEAN_RATE = 1_000
#: Retention: a group's bytes are its rate for this long.
RETAINED_S = 3_600
FILES = 8
TOPIC_PARTITIONS = 100
CLUSTER = "be" * 16

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


class Size(NamedTuple):
    """Size of a cluster."""

    partitions: int = 10_000_000
    nodes: int = 1_000
    groups: int = 32_768


def mix64(values: np.ndarray) -> np.ndarray:
    """Return ``placement.hashing.mix64`` of many values."""
    values = values.astype(np.uint64)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def default_groups(incarnations: np.ndarray, pool_size: int, seed: int) -> np.ndarray:
    """Return ``placement.default_group`` of many incarnations."""
    with np.errstate(over="ignore"):
        stirred = mix64(incarnations.astype(np.uint64)
                        + mix64(np.array([seed], np.uint64) + _GAMMA))
        key = mix64(stirred)
        bucket = np.zeros(len(key), np.int64)
        jump = np.zeros(len(key), np.int64)
        active = np.arange(len(key))
        while len(active):
            bucket[active] = jump[active]
            part = key[active] * np.uint64(2862933555777941757) + np.uint64(1)
            key[active] = part
            jump[active] = ((bucket[active] + 1)
                            * (2147483648.0 / ((part >> np.uint64(33)).astype(np.float64) + 1))
                            ).astype(np.int64)
            active = active[jump[active] < pool_size]
    return (1 + bucket).astype(np.int32)


def drawn(loads: str, count: int, seed: int) -> np.ndarray:
    """Return bytes per second of ``count`` partitions, in no particular order."""
    rng = np.random.default_rng(seed)
    kind, _, parameter = loads.partition(" ")
    if kind == "uniform":
        return rng.integers(MEAN_RATE // 2, 3 * MEAN_RATE // 2, count, dtype=np.int64)
    if kind == "zipf":
        ranks = rng.permutation(count) + 1.0
        weights = ranks ** -float(parameter)
        return 1 + (weights * (MEAN_RATE * count / weights.sum())).astype(np.int64)
    sigma = float(parameter)
    return 1 + (rng.lognormal(-sigma * sigma / 2, sigma, count) * MEAN_RATE).astype(np.int64)


def voters(groups: int, nodes: int, seed: int) -> np.ndarray:
    """Return for each of ``groups`` the nodes of its replicas, in different racks; node ``n`` is in
    rack ``n % RACKS``."""
    rng = np.random.default_rng(seed + 1)
    racks = min(RACKS, nodes)
    chosen = np.argsort(rng.random((groups, racks)), axis=1)[:, :min(FACTOR, racks)]
    each = (nodes - chosen - 1) // racks + 1  # nodes of that rack
    place = (rng.random(chosen.shape) * each).astype(np.int64)
    return chosen + place * racks + 1


def write(directory: Path, loads: str, size: Size, seed: int, taken_ms: int) -> Path:
    """Write the snapshot in ``directory``, which is created."""
    stamp = snapshot_id(CLUSTER, taken_ms, 1)
    rates = drawn(loads, size.partitions, seed)
    incarnations = np.arange(1, size.partitions + 1, dtype=np.int64)
    groups = default_groups(incarnations, size.groups, seed)
    sums = np.zeros(size.groups + 1, np.int64)
    np.add.at(sums, groups, rates)
    directory.mkdir(parents=True)
    _write_partitions(directory / f"{schema.PARTITIONS}.parquet", incarnations, groups, rates,
                      stamp, taken_ms)
    members = voters(size.groups + 1, size.nodes, seed)
    head = Head(schema.SNAPSHOT_FORMAT, stamp, CLUSTER, taken_ms, 1, HASH_VERSION, f"{seed:016x}",
                size.groups, members.shape[1], 0, WINDOW_MS, 1, size.partitions)
    write_tables(str(directory), head, {
        schema.NODES: _nodes(size.nodes, stamp, taken_ms),
        schema.GROUPS: _groups(members, sums, stamp, taken_ms)})
    return directory


def _write_partitions(path: Path, incarnations: np.ndarray, groups: np.ndarray,
                      rates: np.ndarray, stamp: int, taken_ms: int) -> None:
    """Write the partitions in several files, as a job that compacts windows does."""
    path.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(len(incarnations)), FILES)):
        ids = incarnations[rows]
        numbers = pa.array((ids - 1) // TOPIC_PARTITIONS)
        topics = pa.compute.binary_join_element_wise("t", numbers.cast(pa.string()), "")
        constant = {"snapshot_id": stamp, "window_ms": taken_ms - WINDOW_MS, "epoch": 1,
                    "links": 0, "bytes": 0, "copied": False, "moved_ms": 0}
        columns = {"incarnation": ids, "topic": topics,
                   "partition": ((ids - 1) % TOPIC_PARTITIONS).astype(np.int32),
                   "group": groups[rows], "ingress": rates[rows], "read": rates[rows],
                   "records": rates[rows] // 100}
        shape = schema.arrow_schema(schema.PARTITIONS)
        arrays = [pa.array(columns[field.name], field.type) if field.name in columns
                  else pa.repeat(pa.scalar(constant[field.name], field.type), len(rows))
                  for field in shape]
        pq.write_table(pa.Table.from_arrays(arrays, schema=shape), path / f"part-{part}.parquet",
                       compression="zstd")


def _nodes(count: int, stamp: int, taken_ms: int) -> list[dict]:
    return [{"snapshot_id": stamp, "window_ms": taken_ms - WINDOW_MS, "node": node,
             "rack": f"r{(node - 1) % RACKS}", "weight": 100, "state": ALIVE,
             "measured_ms": taken_ms, "disk_capacity": 0, "ingress_capacity": 0,
             "egress_capacity": 0, "disk_used": 0, "fsync_p99_us": -1, "commit_p99_us": -1}
            for node in range(1, count + 1)]


def _groups(members: np.ndarray, sums: np.ndarray, stamp: int, taken_ms: int) -> list[dict]:
    return [{"snapshot_id": stamp, "window_ms": taken_ms - WINDOW_MS, "group": group,
             "incarnation": 1, "conf_index": 1, "voters": sorted(nodes), "learners": [],
             "leader": nodes[0], "in_joint": False, "bytes": int(rate) * RETAINED_S,
             "ingress": int(rate), "read": int(rate), "moved_ms": 0}
            for group, (nodes, rate) in enumerate(zip(members.tolist(), sums, strict=True))]


def main() -> None:
    """Write one snapshot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--partitions", type=int, default=Size().partitions)
    parser.add_argument("--nodes", type=int, default=Size().nodes)
    parser.add_argument("--groups", type=int, default=Size().groups)
    parser.add_argument("--loads", choices=LOADS, default=LOADS[0])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    write(arguments.directory, arguments.loads,
          Size(arguments.partitions, arguments.nodes, arguments.groups), arguments.seed,
          time.time_ns() // 1_000_000)


if __name__ == "__main__":
    main()
