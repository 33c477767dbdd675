"""Schema of a snapshot's tables: columns, meanings and version.

Contract.  ``TABLES`` is the format; docs/spark-planning.md carries the same table and a test
compares the two.  Every number that is summed is a BIGINT: sums of doubles depend on the order of
addition, and a plan must not.  No column of ``SNAPSHOT_FORMAT`` changes its meaning; a reader
ignores columns that it does not know, so columns may be added under the same version.

One directory is one snapshot.  ``snapshot.parquet``, ``nodes.parquet`` and ``groups.parquet`` are
small; ``partitions.parquet`` may be a directory of files and have any number of rows.  It may have
rows of several windows: the window in which a row was measured begins at ``window_ms``.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

#: Another meaning of any column is another version.
SNAPSHOT_FORMAT = 1

SNAPSHOT, NODES, GROUPS, PARTITIONS = "snapshot", "nodes", "groups", "partitions"

LONG, INT, TEXT, FLAG, INTS = "bigint", "int", "string", "boolean", "array<int>"

_ARROW = {LONG: pa.int64(), INT: pa.int32(), TEXT: pa.string(), FLAG: pa.bool_(),
          INTS: pa.list_(pa.int32())}


class Column(NamedTuple):
    """A column, never null."""

    name: str
    type: str  # Spark's name of the type
    meaning: str


TABLES: dict[str, tuple[Column, ...]] = {
    SNAPSHOT: (
        Column("format", INT, "version of these tables"),
        Column("snapshot_id", LONG, "repeated in every row of the other tables"),
        Column("cluster_id", TEXT, "hexadecimal"),
        Column("taken_ms", LONG, "end of the last window, since 1970"),
        Column("metadata_version", LONG, "index of the metadata it was made from"),
        Column("hash_version", INT, "of the hash that places partitions"),
        Column("hash_seed", TEXT, "its seed, hexadecimal"),
        Column("pool_size", INT, "groups that hold partitions"),
        Column("replication_factor", INT, "of new groups"),
        Column("exceptions", INT, "fill of the table of chains"),
        Column("window_ms", INT, "length of a window"),
        Column("windows", INT, "number of windows"),
        Column("partitions", LONG, "partitions whose loads should be here"),
    ),
    NODES: (
        Column("snapshot_id", LONG, ""),
        Column("window_ms", LONG, "beginning of the window, since 1970"),
        Column("node", INT, "id"),
        Column("rack", TEXT, "\"\" = none"),
        Column("weight", INT, "100 = ordinary"),
        Column("state", TEXT, "alive, draining, maintenance, dead"),
        Column("measured_ms", LONG, "when it answered, since 1970; 0 = it did not"),
        Column("disk_capacity", LONG, "bytes for replicas; 0 = not known, as for all capacities"),
        Column("ingress_capacity", LONG, "bytes per second"),
        Column("egress_capacity", LONG, "bytes per second"),
        Column("disk_used", LONG, "bytes of its data directory"),
        Column("fsync_p99_us", LONG, "99 of 100 writes to disk took less; -1 = not known"),
        Column("commit_p99_us", LONG, "99 of 100 appends took less; -1 = not known"),
    ),
    GROUPS: (
        Column("snapshot_id", LONG, ""),
        Column("window_ms", LONG, "beginning of the window, since 1970"),
        Column("group", INT, "id; 0 holds the metadata"),
        Column("incarnation", LONG, ""),
        Column("conf_index", LONG, "index of the configuration in force"),
        Column("voters", INTS, "nodes"),
        Column("learners", INTS, "nodes"),
        Column("leader", INT, "node; 0 = none"),
        Column("in_joint", FLAG, "its members are changing"),
        Column("bytes", LONG, "of its log"),
        Column("ingress", LONG, "bytes per second appended"),
        Column("read", LONG, "bytes per second sent to readers"),
        Column("moved_ms", LONG, "when its voters last changed; 0 = never"),
    ),
    PARTITIONS: (
        Column("snapshot_id", LONG, ""),
        Column("window_ms", LONG, "beginning of the window, since 1970"),
        Column("incarnation", LONG, "identifies the partition"),
        Column("topic", TEXT, ""),
        Column("partition", INT, "number within the topic"),
        Column("group", INT, "that takes its appends"),
        Column("epoch", LONG, "of its last link"),
        Column("links", INT, "length of its chain; 0 = where the hash puts it"),
        Column("ingress", LONG, "bytes per second appended"),
        Column("read", LONG, "bytes per second sent to readers"),
        Column("records", LONG, "records per second appended"),
        Column("bytes", LONG, "that switching it would copy"),
        Column("copied", FLAG, "switching it would copy it: compacted, or kept without limit"),
        Column("moved_ms", LONG, "when it was last switched; 0 = never"),
    ),
}


def arrow_schema(table: str) -> pa.Schema:
    """Return the table's columns as an Arrow schema."""
    return pa.schema([pa.field(column.name, _ARROW[column.type], nullable=False)
                      for column in TABLES[table]])


def spark_schema(table: str) -> str:
    """Return the table's columns as Spark's DDL."""
    return ", ".join(f"`{column.name}` {column.type}" for column in TABLES[table])


def differences(table: str, found: pa.Schema) -> list[str]:
    """Return a text for each column of the table that a file lacks or has with another type."""
    wrong = []
    for column in TABLES[table]:
        place = found.get_field_index(column.name)
        if place < 0:
            wrong.append(f"the column {column.name} ({column.type}) is missing")
        elif _spark_name(found.field(place).type) != column.type:
            wrong.append(f"the column {column.name} is {found.field(place).type}, and has to be "
                         f"{column.type}")
    return wrong


def _spark_name(type_: pa.DataType) -> str:
    if pa.types.is_large_string(type_):
        return TEXT
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return INTS if type_.value_type == pa.int32() else str(type_)
    return next((name for name, arrow in _ARROW.items() if arrow == type_), str(type_))
