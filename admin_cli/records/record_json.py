"""Records as lines of JSON: written by `consume --json`, read by `produce --from-json`.

Contract.  Pure.  Bytes that are not UTF-8 go into ``key_base64``, ``value_base64`` and
``name_base64`` (of a header), so that nothing is ever altered: a line that ``json_line`` wrote is
read back by ``parse_line`` with the same key, value, headers, partition and time.  Topic and offset
are read over, because the producer's topic decides them.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from admin_cli.records.format_input import Header, Row, header_name
from admin_cli.values.text import json_printable
from multiraft.wire.schema import I64_MAX

#: Keys of a line; those that are not read may stand there, because `consume` writes them.
_KEYS = {"topic", "partition", "offset", "timestamp", "key", "key_base64", "value",
         "value_base64", "headers"}
_HEADER_KEYS = {"name", "name_base64", "value", "value_base64"}
#: Characters of the input that an error quotes.
_QUOTED_CHARACTERS = 40


def json_line(batch: Any, record: Any, with_topic: bool = False) -> str:
    """Return a record as a JSON object in one line, without the newline and without characters that
    a terminal obeys."""
    row: dict[str, Any] = {"topic": batch.topic} if with_topic else {}
    row.update(partition=batch.partition, offset=record.offset, timestamp=record.timestamp_ms)
    row.update(_text("key", record.key))
    row.update(_text("value", record.value))
    if record.headers:
        row["headers"] = [_text("value", value)
                          | _text("name", name.encode("utf-8", "surrogateescape"))
                          for name, value in record.headers]
    return json_printable(json.dumps(row, ensure_ascii=False))


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return ``{"key": text}``, or ``{"key_base64": ...}`` when the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}


def parse_line(line: bytes) -> Row:
    """Return the record of a line.  Raises ``ValueError`` that says what is wrong with it."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        where = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ValueError(f"it is not JSON{where}") from None
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object, as in {\"value\": \"hello\"}")
    _require_keys(row, _KEYS, "")
    if "value" not in row and "value_base64" not in row:
        raise ValueError("it has no value; write null for a record without one")
    return Row(_bytes(row, "key"), _bytes(row, "value"),
               _number(row, "partition"), _number(row, "timestamp"), _headers(row.get("headers")))


def _require_keys(row: dict[str, Any], known: set[str], where: str) -> None:
    unknown = next((key for key in row if key not in known), None)
    if unknown is not None:
        raise ValueError(f"it has the unknown key {unknown!r:.{_QUOTED_CHARACTERS}}{where}; there "
                         f"are {', '.join(sorted(known))}")


def _bytes(row: dict[str, Any], name: str) -> bytes | None:
    """Return the text or the base64 of a field; None = null, or neither of them."""
    encoded = f"{name}_base64"
    if name in row and encoded in row:
        raise ValueError(f"it has both {name} and {encoded}")
    value = row.get(encoded if encoded in row else name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"its {name} is no text; write it in quotes")
    if encoded not in row:
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError(f"its {name} has half of a surrogate pair; write {encoded}") from None
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError(f"its {encoded} is not base64") from None


def _number(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= I64_MAX:
        raise ValueError(f"its {name} is not a whole number from 0")
    return value


def _headers(rows: Any) -> tuple[Header, ...]:
    if rows is None:
        return ()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("its headers are no list of objects, as in "
                         "[{\"name\": \"source\", \"value\": \"radar\"}]")
    headers = []
    for row in rows:
        _require_keys(row, _HEADER_KEYS, " in a header")
        name = _bytes(row, "name")
        if name is None:
            raise ValueError("a header has no name")
        headers.append((header_name(name), _bytes(row, "value")))
    return tuple(headers)
