"""Structured logs: one line per event, with the node's id in each, as JSON or text.

Contract.  ``logger`` returns a standard ``logging.Logger``; ``extra`` fields become keys.  Text
from outside (client ids, reasons of strangers) is escaped and cannot forge a line, in either form.
A flood of one event becomes a few lines and the number of those that were left out.  A caller that
logs never waits for the reader of the log: ``LineWriter`` has a thread and a bound, and counts
dropped lines.

Theory.  The loop logs.  If it wrote into a full pipe, it would block and lose its leases.
Repetitions are recognised by the event alone: ``log_events.py`` lists all events, and they are few.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import sys
import threading
from datetime import datetime, timezone
from typing import TextIO

import trio

from node.clock import monotonic_ms
from node.loop.threads import name_this_thread

FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")

#: Lines of one event per window.
BURST = 50
#: The same for errors, which are rarer; each may name another group, and those of a large pool stay
#: readable.
ERROR_BURST = 1_000
#: Events that bound themselves and that explain an outage: a line about each node of a large
#: cluster, or about each of its failovers, may come at once.  They have the burst of errors.
OUTAGES = frozenset({"node_lost", "node_returned", "peer_stopped", "quorum_lost",
                     "quorum_regained", "leadership_changed"})
WINDOW_S = 10.0
#: Events that are tracked; a few dozen exist.
EVENTS_MAX = 1_000
#: Lines that wait for the thread; more are dropped and counted.
LINES_MAX = 10_000
#: Time to write the remaining lines at the end, in seconds.
CLOSE_S = 2.0

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_PLAIN = re.compile(r"[\w.:/+\[\]@-]+", re.ASCII)


def _fields(record: logging.LogRecord) -> dict:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")


class JsonLines(logging.Formatter):
    """Formatter that makes a record one line of JSON."""

    def __init__(self, node: int):
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        line = {"at": _at(record), "level": record.levelname.lower(),
                "node": self._node, "event": record.getMessage(), **_fields(record)}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Formatter for people: time, level, event, node and fields.

    For example ``2026-01-01T00:00:00.123Z WARNING leadership_resigned node=1 group=3 term=9``.
    A traceback follows behind bars, so that none of its lines can be taken for an event.
    """

    def __init__(self, node: int):
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        words = [_at(record).replace("+00:00", "Z"), f"{record.levelname:<7}",
                 _shown(record.getMessage(), _PLAIN), f"node={self._node}"]
        words += [f"{key}={_shown(value, _PLAIN)}" for key, value in _fields(record).items()]
        if record.exc_info:
            lines = self.formatException(record.exc_info).splitlines()
            words += [f"\n  | {_escaped(line)}" for line in lines]
        return " ".join(words)


def _shown(value: object, plain: re.Pattern) -> str:
    """Return the value itself when it is unambiguous, else as JSON text."""
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, default=str)
    text = str(value)
    return text if plain.fullmatch(text) else json.dumps(text)


def _escaped(line: str) -> str:
    """Return the line with its control characters escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


class _Window:
    """The count of one event's lines since its window began."""

    __slots__ = ("began_ms", "count", "left_out", "level")

    def __init__(self, began_ms: int, level: int):
        self.began_ms = began_ms
        self.level = level
        self.count = 0
        self.left_out = 0


class RateLimit(logging.Filter):
    """Filter that admits ``BURST`` lines of an event per window.

    Critical lines always pass.  So do lines of the level debug: an operator who enables that level
    wants all of them, and tools check from them which node led what.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[str, _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the line is written; otherwise count it as left out of its event's window.
        """
        if (record.levelno >= logging.CRITICAL or record.levelno <= logging.DEBUG
                or record.msg == LEFT_OUT):
            return True
        now_ms = monotonic_ms()
        event = record.getMessage()
        window = self._windows.get(event)
        if window is None or (not window.left_out and _is_over(window, now_ms)):
            if len(self._windows) >= EVENTS_MAX:
                self._windows.clear()
            window = self._windows[event] = _Window(now_ms, record.levelno)
        window.count += 1
        has_large_burst = record.levelno >= logging.ERROR or event in OUTAGES
        if window.count <= (ERROR_BURST if has_large_burst else BURST):
            return True
        window.left_out += 1
        return False

    def take_left_out(self, now_ms: int | None = None) -> list[tuple[str, int, int]]:
        """Return (event, level, lines left out) of windows that are over, or of all windows if
        ``now_ms`` is None.

        Those events start with a new window."""
        due = [(event, window) for event, window in self._windows.items()
               if window.left_out and (now_ms is None or _is_over(window, now_ms))]
        for event, _window in due:
            del self._windows[event]
        return [(event, window.level, window.left_out) for event, window in due]


def _is_over(window: _Window, now_ms: int) -> bool:
    return now_ms - window.began_ms >= WINDOW_S * 1000


#: The event that reports lines left out.
LEFT_OUT = "log_lines_suppressed"


def tell_left_out(log: logging.Logger, now_ms: int | None = None) -> None:
    """Log the number of lines left out in windows that are over, or in all windows if ``now_ms`` is
    None."""
    for limit in log.filters:
        if isinstance(limit, RateLimit):
            for event, level, lines in limit.take_left_out(now_ms):
                log.log(level, LEFT_OUT, extra={"suppressed_event": event, "lines": lines})


async def tell_suppressed(log: logging.Logger) -> None:
    """Report lines left out every ``WINDOW_S``, until cancelled; also after the flood has ended."""
    while True:
        await trio.sleep(WINDOW_S)
        tell_left_out(log, monotonic_ms())


class LineWriter:
    """A stream for a log handler whose lines are written by a thread of its own.

    A stream with a descriptor is written past Python's buffers: a thread that is blocked in a
    buffer's write holds its lock, which the interpreter needs when it flushes standard output at
    exit.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._descriptor = _descriptor_of(stream)
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="log", daemon=True)
        self._told = 0
        self.dropped = 0  # lines
        self._thread.start()

    def write(self, line: str) -> None:
        """Queue one line for the thread; never wait. While ``LINES_MAX`` lines are queued, drop the
        line and count it."""
        if self._lines.qsize() >= LINES_MAX:
            self.dropped += 1
            return
        self._lines.put(line)

    def flush(self) -> None:
        """Do nothing: the thread flushes after each line."""

    def close(self) -> None:
        """Wait until the thread has written the remaining lines, ``CLOSE_S`` at most."""
        self._lines.put(None)
        self._thread.join(CLOSE_S)

    def _main(self) -> None:
        name_this_thread(self._thread.name)
        while (line := self._lines.get()) is not None:
            try:
                self._out(line)
                if self.dropped != self._told:
                    lost, self._told = self.dropped - self._told, self.dropped
                    self._out(json.dumps({"event": "log_lines_dropped", "level": "warning",
                                          "lines": lost}) + "\n")
            except (OSError, ValueError):
                self.dropped += 1  # the reader is gone; the node keeps running


    def _out(self, text: str) -> None:
        if self._descriptor is None:
            self._stream.write(text)
            self._stream.flush()
            return
        data = memoryview(text.encode("utf-8", "backslashreplace"))
        while data:
            data = data[os.write(self._descriptor, data):]


def _descriptor_of(stream: TextIO) -> int | None:
    """Return the descriptor of ``stream``, or None when it has none."""
    try:
        stream.flush()
        return stream.fileno()
    except OSError:  # ``io.UnsupportedOperation`` is one
        return None


def logger(node: int, stream: TextIO | LineWriter | None = None, style: str = "json",
           level: str = "info") -> logging.Logger:
    """Return the node's logger with one handler that writes to ``stream`` (None = standard output),
    and a rate limit. ``style``: ``json`` or ``text``."""
    log = logging.getLogger(f"multiraft.node.{node}")
    log.propagate = False
    log.setLevel(level.upper())
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter(JsonLines(node) if style == "json" else TextLines(node))
    log.handlers = [handler]
    log.filters = [RateLimit()]
    return log
