"""Logs of the nodes of a development cluster: the last lines, and those that follow.

Contract.  `tail` returns the position in a log from which a number of its lines are of a level;
`LogFile.read` returns what was appended since, through restarts of the node and through truncation
and replacement of the file; `shown` makes a line readable.  Memory: one block and one line per log,
whatever its size.  A line that is no event (a traceback, a message of the interpreter) has no level
and is always shown.

Theory.  A log is read backwards from its end, so that the last lines of a file of gigabytes cost a
block.  With a level the search continues to the beginning if such lines are rare.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from admin_cli.values.text import in_one_line, json_printable

#: Levels of a node's log, the least important first.
LEVELS = ("debug", "info", "warning", "error", "critical")
#: Bytes that are read at a time.
BLOCK_BYTES = 64 << 10
#: Longer lines are cut: none that a node writes has so many bytes.
LINE_BYTES_MAX = BLOCK_BYTES
#: Bytes of one log that are read at a time; the next read takes the rest.
READ_BYTES_MAX = 256 << 10
#: Lines from before the command that may be requested per node.
LINES_MAX = 100_000
#: Keys of an event that have a place of their own in a readable line.
_PLACED = ("at", "level", "node", "event", "traceback")


class Line(NamedTuple):
    """One line of a node's log, without its end.  ``event`` None: it is no event.  ``at``: the time
    of the event, or of the one before."""

    node: int
    raw: bytes
    event: dict[str, Any] | None
    at: str


def line_of(node: int, raw: bytes, before: str = "") -> Line:
    """Return a line of a node's log, parsed if it is an event; ``before``: the time of the line
    before it."""
    if len(raw) <= LINE_BYTES_MAX and raw.startswith(b"{"):
        with contextlib.suppress(ValueError, RecursionError):  # RecursionError: nested too deeply
            event = json.loads(raw)
            return Line(node, raw, event, str(event.get("at", before)))
    return Line(node, raw, None, before)


def is_of(line: Line, level: str) -> bool:
    """Return True if a line is of ``level`` or above, or has none of the known levels."""
    said = line.event.get("level") if line.event is not None else None
    return said not in LEVELS or LEVELS.index(said) >= LEVELS.index(level)


def shown(line: Line) -> str:
    """Return a line as a person reads it: time, node, level, event and fields; a traceback follows
    in lines behind bars. Control characters are escaped."""
    if line.event is not None:
        with contextlib.suppress(RecursionError):  # nested too deeply
            return _shown_event(line, line.event)
    text = in_one_line(line.raw.decode("utf-8", "backslashreplace"))
    return f"node {line.node} | {text}"


def _shown_event(line: Line, event: dict[str, Any]) -> str:
    head = [str(event.get("at", "")), f"node {event.get('node', line.node)}",
            str(event.get("level", "")).upper(), str(event.get("event", ""))]
    fields = [f"{name}={_value(value)}" for name, value in event.items() if name not in _PLACED]
    text = in_one_line(" ".join(part for part in (*head, *fields) if part))
    return "\n".join([text, *(f"  | {in_one_line(each)}"
                              for each in str(event.get("traceback") or "").splitlines())])


def as_json(line: Line) -> str:
    """Return a line as JSON: an event as the node wrote it, any other as ``{"node", "text"}``."""
    text = line.raw.decode("utf-8", "backslashreplace")
    if line.event is None:
        return json_printable(json.dumps({"node": line.node, "text": text}, ensure_ascii=False))
    return json_printable(text)


def by_time(line: Line) -> tuple[str, int]:
    """Return the key by which lines of several nodes are ordered."""
    return line.at, line.node


def _value(value: object) -> str:
    if isinstance(value, str) and value and not any(mark in value for mark in " =\"\n\t"):
        return value
    return json.dumps(value, ensure_ascii=False)


def tail(path: Path, node: int, count: int, level: str) -> int:
    """Return the position from which a log has its last ``count`` lines of ``level`` or above; 0
    when it has fewer or does not exist. O(bytes after that position)."""
    if count == 0:
        return _size(path)
    try:
        with open(path, "rb") as file:
            wanted = count
            for position, raw in _backwards(file):
                if is_of(line_of(node, raw), level):
                    wanted -= 1
                if wanted == 0:
                    return position
    except FileNotFoundError:
        pass
    return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _backwards(file: io.BufferedReader) -> Iterator[tuple[int, bytes]]:
    """Yield position and content of each line, the last one first. A line that is longer than
    ``LINE_BYTES_MAX`` is one of these bytes and some more, and so no event."""
    end = file.seek(0, os.SEEK_END)
    rest = b""  # the beginning of the line that the blocks read so far end in
    is_last = True
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        file.seek(start)
        lines = (file.read(end - start) + rest).split(b"\n")
        if is_last and not lines[-1]:
            lines.pop()  # the file ends with the end of a line
        is_last = False
        position = start + sum(len(line) + 1 for line in lines)
        for line in reversed(lines[1:]):
            position -= len(line) + 1
            yield position, line
        rest = lines[0][:LINE_BYTES_MAX + 1] if lines else b""
        end = start
    yield 0, rest


class LogFile:
    """A log that is read on from ``position`` as the node appends to it."""

    def __init__(self, path: Path, node: int, position: int):
        self._path = path
        self._node = node
        self._position = position
        self._file_id: tuple[int, int] | None = None
        self._rest = b""  # of a line that has no end yet
        self._is_cut = False  # the line that has no end yet is too long: its end is left out
        self._last_at = ""
        self.is_at_end = False  # nothing was there at the last `read`

    def read(self) -> list[Line]:
        """Return complete lines that follow those returned before, of at most ``READ_BYTES_MAX``
        bytes; none when there is nothing new or the file is away. A file that was truncated or
        replaced is read from its beginning."""
        try:
            with open(self._path, "rb") as file:
                self._find_place(os.fstat(file.fileno()))
                file.seek(self._position)
                data = file.read(READ_BYTES_MAX)
        except FileNotFoundError:
            self.is_at_end = True
            return []
        self._position += len(data)
        self.is_at_end = not data
        return [self._dated(raw) for raw in self._complete(data)]

    def read_all(self) -> Iterator[Line]:
        """Yield the lines that are there now, the last one also if it has no end."""
        while not self.is_at_end:
            yield from self.read()
        if self._rest:
            rest, self._rest = self._rest, b""
            yield self._dated(rest)

    def _dated(self, raw: bytes) -> Line:
        """Return a line with the time of the event before it, if it has none itself."""
        line = line_of(self._node, raw, self._last_at)
        self._last_at = line.at
        return line

    def _find_place(self, found: os.stat_result) -> None:
        file_id = (found.st_dev, found.st_ino)
        if self._file_id not in (None, file_id) or found.st_size < self._position:
            self._position, self._rest, self._is_cut = 0, b"", False
        self._file_id = file_id

    def _complete(self, data: bytes) -> Iterator[bytes]:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self._is_cut:
                yield line[:LINE_BYTES_MAX]
            self._is_cut = False
        if len(rest) > LINE_BYTES_MAX:
            if not self._is_cut:
                yield rest[:LINE_BYTES_MAX]
            self._is_cut, rest = True, b""
        self._rest = rest
