"""Schema of a topic as a Spark table.

Contract.  Light to import: every query on the driver does.  ``rows.py`` has the same schema for
Arrow; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_multiraft.failures import SourceError

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
#: The type of the column ``headers``.
HEADERS = ArrayType(_HEADER)
_TYPES = {"topic": StringType(), "partition": IntegerType(), "offset": LongType(),
          "timestamp": TimestampType(), "key": BinaryType(), "value": BinaryType(),
          "headers": HEADERS, "epoch": IntegerType()}


def spark_schema(columns: Sequence[str]) -> StructType:
    """Return the table's schema."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def require_schema(asked: StructType, columns: Sequence[str]) -> None:
    """Return if the query requests the schema of these columns. Raises ``SourceError`` otherwise.
    """
    ours = spark_schema(columns)
    if [(field.name, field.dataType) for field in asked] != [
            (field.name, field.dataType) for field in ours]:
        raise SourceError(f"a topic is no table with the schema ({said(asked)}). Leave .schema() "
                          f"out: it is ({said(ours)}); the option 'columns' chooses from it, and "
                          "casts belong into the query.")


def said(schema: StructType) -> str:
    """Return a schema in SQL notation."""
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
