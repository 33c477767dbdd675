"""Settings of producers and consumers as keyword arguments: their types, and errors of wrong names.

Contract.  ``ProducerOptions`` and ``ConsumerOptions`` have the fields of ``ProducerSettings`` and
``ConsumerSettings``, all optional (PEP 692), so that type checkers find unknown names and wrong
types, and editors complete.  Defaults, reasons and limits stand at the settings themselves.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, TypeVar

_Settings = TypeVar("_Settings")

Acks = Literal["commit", "leader", "none"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Prefer = Literal["leader", "nearest"]
Isolation = Literal["read_committed", "read_uncommitted"]
OffsetReset = Literal["none", "earliest", "latest"]


class ProducerOptions(TypedDict, total=False):
    """Settings that ``Client.producer`` takes by name."""

    acks: Acks
    linger_ms: int
    batch_bytes: int
    compression: Compression
    in_flight_max: int
    delivery_timeout_ms: int
    idempotent: bool
    buffer_bytes_max: int
    request_bytes_max: int
    request_timeout_ms: int
    suspect_ms: int
    identity: tuple[int, int] | None


class ConsumerOptions(TypedDict, total=False):
    """Settings that ``Client.consume`` takes by name."""

    partition_bytes_max: int
    fetch_bytes_max: int
    wait_max_ms: int
    unavailable_ms: int
    request_timeout_ms: int
    prefer: Prefer
    rack: str
    isolation: Isolation
    offset_reset: OffsetReset


def settings_of(kind: type[_Settings], method: str, given: Mapping[str, Any]) -> _Settings:
    """Return the settings of class ``kind`` with the values that were given to ``method``.  Raises
    ``TypeError`` that names an unknown setting and the most similar one."""
    try:
        return kind(**given)
    except TypeError:
        names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
        unknown = next((name for name in given if name not in names), None)
        if unknown is None:
            raise
        similar = difflib.get_close_matches(unknown, names, 1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"it takes {', '.join(names)}"
        raise TypeError(f"{method}() has no setting {unknown!r}: {hint}") from None
