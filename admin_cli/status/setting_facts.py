"""Settings of a topic or of the cluster, as tables and JSON show them.

Contract.  Rows are those of ``client.describe_settings``, by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

#: Columns of the table, as ``shown`` fills them.
COLUMNS = ("setting", "value", "source", "effect")


def shown(rows: Iterable[Any]) -> list[tuple[str, str, str, str]]:
    """Return a row per setting, those that were set before the others."""
    ordered = sorted(rows, key=lambda row: row.source == "default")
    return [(row.name, row.value or "-", row.source, row.effect) for row in ordered]


def as_json(rows: Iterable[Any]) -> list[dict]:
    """Return the settings by name, each with all its values; the first one holds."""
    return [{"name": row.name, "value": row.value, "source": row.source, "effect": row.effect,
             "type": row.type, "values": [value._asdict() for value in row.values]}
            for row in rows]
