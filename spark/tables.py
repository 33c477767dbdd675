"""Tables of a snapshot in Parquet: writing, reading, and conversion for ``placement``.

Contract.  ``write`` writes a ``Snapshot`` as a directory.  ``read`` returns the three small tables
of one and the path of the large one; it raises ``BadSnapshot`` when a table is missing, is no
Parquet, or has other columns, for *every* file, so that Spark never reads such a file.  It needs no
Java.  Paths may be local or a URI that Arrow has a filesystem for.

Several windows become one row per node and group: members, state and bytes are those of the last
window, rates are the greatest of all windows, because the greatest rate has to fit.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from placement import cluster
from spark import schema
from spark.errors import BadSnapshot


class Head(NamedTuple):
    """The row of ``snapshot.parquet``."""

    format: int
    snapshot_id: int
    cluster_id: str
    taken_ms: int
    metadata_version: int
    hash_version: int
    hash_seed: str
    pool_size: int
    replication_factor: int
    exceptions: int
    window_ms: int
    windows: int
    partitions: int


#: column -> the least and the greatest value
Ranges = Mapping[str, tuple[Any, Any]]


class Tables(NamedTuple):
    """A snapshot without its partitions, which stay in their files; one row per node and group.
    ``ranges``: of the columns of partitions whose file footers contain statistics and report no
    missing value."""

    directory: str
    head: Head
    nodes: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    ranges: Ranges = {}


class Measured(NamedTuple):
    """Fields of a node that a snapshot has beside ``cluster.NodeRow``."""

    measured_ms: int
    disk_used: int = 0
    fsync_p99_us: int = -1
    commit_p99_us: int = -1


def snapshot_id(cluster_id: str, taken_ms: int, metadata_version: int) -> int:
    """Return the id of a snapshot: 63 bits of a digest of cluster, time and metadata version."""
    text = f"{cluster_id} {taken_ms} {metadata_version}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 1


# ---- writing ------------------------------------------------------------------------------------

def head_of(snapshot: cluster.Snapshot, window_ms: int, partitions: int) -> Head:
    """Return the head of a snapshot of one window."""
    return Head(
        schema.SNAPSHOT_FORMAT,
        snapshot_id(snapshot.cluster_id, snapshot.taken_ms, snapshot.metadata_version),
        snapshot.cluster_id, snapshot.taken_ms, snapshot.metadata_version, snapshot.hash_version,
        f"{snapshot.hash_seed:016x}", snapshot.pool_size, snapshot.replication_factor,
        snapshot.exceptions, window_ms, 1, partitions)


def write(snapshot: cluster.Snapshot, directory: str, window_ms: int,
          measured: Mapping[int, Measured], records: Mapping[int, int]) -> None:
    """Write all tables.  ``records``: per second appended to each partition, by incarnation.

    Raises ``BadSnapshot`` when the directory cannot be written, or holds a snapshot already.
    O(rows).
    """
    head = head_of(snapshot, window_ms, len(snapshot.partitions))
    stamp = {"snapshot_id": head.snapshot_id, "window_ms": head.taken_ms - window_ms}
    nodes = [{**stamp, "node": row.id, "rack": row.rack, "weight": row.weight, "state": row.state,
              "disk_capacity": row.disk_capacity, "ingress_capacity": row.ingress_capacity,
              "egress_capacity": row.egress_capacity,
              **measured.get(row.id, Measured(0))._asdict()} for row in snapshot.nodes]
    groups = [{**stamp, **_renamed(row, id="group")} for row in snapshot.groups]
    partitions = [{**stamp, **row._asdict(), "records": records.get(row.incarnation, 0)}
                  for row in snapshot.partitions]
    write_tables(directory, head, {schema.NODES: nodes, schema.GROUPS: groups,
                                   schema.PARTITIONS: partitions})


def write_tables(directory: str, head: Head,
                 rows: Mapping[str, list[dict[str, Any]] | pa.Table]) -> None:
    """Write the tables; the head last and atomically, so that a directory without one is no
    snapshot yet, whenever the process is killed.

    Files of an earlier attempt are overwritten. Raises ``BadSnapshot`` if there is a head already,
    or the directory cannot be written."""
    system, path = located(directory)
    try:
        system.create_dir(path)
        if system.get_file_info(f"{path}/{schema.SNAPSHOT}.parquet").type != fs.FileType.NotFound:
            raise BadSnapshot(f"{directory} holds a snapshot already.",
                              "Name a directory that is not there yet.")
        for table in (*rows, schema.SNAPSHOT):
            found = rows[table] if table in rows else [head._asdict()]
            if not isinstance(found, pa.Table):
                found = pa.Table.from_pylist(found, schema=schema.arrow_schema(table))
            with written(system, f"{path}/{table}.parquet") as file:
                pq.write_table(found, file, compression="zstd")
    except OSError as error:
        raise BadSnapshot(f"{directory} cannot be written: {error}.",
                          "Name a directory that may be created.") from error


@contextlib.contextmanager
def written(system: fs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """Yield a file that becomes visible, whole, when the block ends: until then it has another
    name. Raises ``OSError`` if it cannot be written."""
    folder, _, name = path.rpartition("/")
    # Spark and Arrow ignore files whose name begins with an underscore
    unfinished = f"{folder}/_{name}"
    with system.open_output_stream(unfinished) as file:
        yield file
    system.move(unfinished, path)


def _renamed(row: Any, **names: str) -> dict[str, Any]:
    plain = {names.get(name, name): value for name, value in row._asdict().items()}
    return {name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()}


def place_of(directory: str) -> str:
    """Return the URI of a directory, as Spark takes it."""
    return directory if "://" in directory else Path(directory).absolute().as_uri()


def time_text(milliseconds: int) -> str:
    """Return a time since 1970 as readable text."""
    moment = datetime.datetime.fromtimestamp(milliseconds // 1000, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


# ---- reading ------------------------------------------------------------------------------------

def read(directory: str) -> Tables:
    """Return the tables of nodes and groups, and the ranges of the columns of the partitions, whose
    files are only opened. Raises ``BadSnapshot`` for a missing, damaged or mixed snapshot."""
    system, path = located(directory)
    if system.get_file_info(path).type != fs.FileType.Directory:
        raise BadSnapshot(f"there is no snapshot {directory}: it is no directory.",
                          "`multiraft metrics export --output DIR` writes one.")
    heads = _rows(system, directory, path, schema.SNAPSHOT)
    if len(heads) != 1:
        raise BadSnapshot(f"{directory}/{schema.SNAPSHOT}.parquet has {len(heads)} rows instead of "
                          f"one.", _ANEW)
    head = Head(*(heads[0][name] for name in Head._fields))
    if head.format != schema.SNAPSHOT_FORMAT:
        raise BadSnapshot(f"{directory} is a snapshot of format {head.format}, this program reads "
                          f"format {schema.SNAPSHOT_FORMAT}.",
                          "Export it with the release of the program that plans.")
    nodes = _rows(system, directory, path, schema.NODES)
    groups = _rows(system, directory, path, schema.GROUPS)
    partitions = _dataset(system, directory, path, schema.PARTITIONS)
    for table, rows in ((schema.NODES, nodes), (schema.GROUPS, groups)):
        others = sum(row["snapshot_id"] != head.snapshot_id for row in rows)
        if others:
            raise BadSnapshot(foreign(directory, table, others, len(rows)), _ANEW)
    return Tables(directory, head, _latest(nodes, "node", ()),
                  _latest(groups, "group", ("ingress", "read")), _ranges(partitions))


_ANEW = "Write it anew: multiraft metrics export --output DIR"


def foreign(directory: str, table: str, others: int, rows: int) -> str:
    """Return the sentence about rows of another snapshot or cluster."""
    return (f"{others:,} of {rows:,} rows of {directory}/{table}.parquet are of another snapshot, "
            f"perhaps of another cluster: files were mixed.")


def located(directory: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a directory, and its path there. Raises ``BadSnapshot`` for a URI
    that names no filesystem."""
    try:
        if "://" in directory:
            return fs.FileSystem.from_uri(directory)
        return fs.LocalFileSystem(), directory.rstrip("/") or "/"
    except (pa.ArrowInvalid, OSError) as error:
        raise BadSnapshot(f"{directory} names no place that can be read: {error}.",
                          "Name a directory, or a URI such as s3://bucket/directory.") from error


def _dataset(system: fs.FileSystem, directory: str, path: str, table: str) -> ds.Dataset:
    """Return every file of a table as a dataset. Raises ``BadSnapshot`` if a file is missing or
    damaged, or has other columns."""
    name = f"{directory}/{table}.parquet"
    try:
        return _compared(ds.dataset(f"{path}/{table}.parquet", format="parquet",
                                    filesystem=system), table, name)
    except FileNotFoundError as error:
        raise BadSnapshot(f"{name} is missing: {directory} is no snapshot, or one that was not "
                          f"written to the end.", _ANEW) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise BadSnapshot(f"{name} is no Parquet, or is damaged: {str(error):.200}.",
                          _ANEW) from error


def _ranges(dataset: ds.Dataset) -> Ranges:
    """Return column -> (least, greatest value) from the statistics of all row groups. Left out are
    columns that have nulls, or of which a row group has no least and greatest value or no count of
    nulls. O(row groups * columns)."""
    found: dict[str, tuple[Any, Any]] = {}
    unknown: set[str] = set()
    for fragment in dataset.get_fragments():
        footer = fragment.metadata
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                name, said = column.path_in_schema, column.statistics
                if said is None or not said.has_min_max or said.null_count != 0:
                    unknown.add(name)
                elif name in found:
                    least, greatest = found[name]
                    found[name] = min(least, said.min), max(greatest, said.max)
                else:
                    found[name] = said.min, said.max
    return {name: pair for name, pair in found.items() if name not in unknown}


def _compared(dataset: ds.Dataset, table: str, name: str) -> ds.Dataset:
    if not dataset.files:
        raise BadSnapshot(f"{name} has no files.", _ANEW)
    for fragment in dataset.get_fragments():
        wrong = schema.differences(table, fragment.physical_schema)
        if wrong:
            raise BadSnapshot(f"{fragment.path} is no table of {table}: {'; '.join(wrong[:5])}.",
                              "The columns are in docs/spark-planning.md; loads are whole numbers.")
    return dataset


def _rows(system: fs.FileSystem, directory: str, path: str, table: str) -> list[dict[str, Any]]:
    columns = [column.name for column in schema.TABLES[table]]
    rows = _dataset(system, directory, path, table).to_table(columns).to_pylist()
    for row in rows:
        for name, value in row.items():
            if value is None:
                raise BadSnapshot(f"{directory}/{table}.parquet has a row without {name}.", _ANEW)
    return rows


def _latest(rows: Iterable[dict[str, Any]], key: str,
            rates: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return one row per ``key``, by key: the last window's, with the greatest rates of all
    windows.  A window in which a key occurs twice is left for ``cluster.checked`` to refuse."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (row[key], row["window_ms"])):
        found.setdefault(row[key], []).append(row)
    latest = []
    for same in found.values():
        last = [row for row in same if row["window_ms"] == same[-1]["window_ms"]]
        latest += [{**row, **{rate: max(each[rate] for each in same) for rate in rates}}
                   for row in last]
    return latest


# ---- as ``placement`` has it --------------------------------------------------------------------

def as_snapshot(tables: Tables, partitions: Iterable[cluster.PartitionRow]) -> cluster.Snapshot:
    """Return the snapshot with these of its partitions, not checked yet."""
    head = tables.head
    return cluster.Snapshot(
        cluster.SNAPSHOT_FORMAT, head.cluster_id, head.metadata_version, head.taken_ms,
        head.hash_version, int(head.hash_seed, 16), head.pool_size, head.replication_factor,
        head.exceptions,
        tuple(cluster.NodeRow(row["node"], row["rack"], row["weight"], row["state"],
                              row["disk_capacity"], row["ingress_capacity"],
                              row["egress_capacity"]) for row in tables.nodes),
        tuple(cluster.GroupRow(row["group"], row["incarnation"], row["conf_index"],
                               tuple(row["voters"]), row["leader"], tuple(row["learners"]),
                               row["in_joint"], row["bytes"], row["ingress"], row["read"],
                               row["moved_ms"]) for row in tables.groups),
        tuple(partitions))
