"""Spans of offsets on the command line: `consume --offset`.

Contract.  Pure.  The forms are those of rpk.  ``parse_span`` reads a text (the time that "ago"
counts from is a parameter); ``Span.resolve`` gives the offsets of one partition.  The end is
exclusive: ``10:20`` are the ten records from 10 to 19.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from admin_cli.values.times import At, parse_duration, parse_time

#: The forms, for help and errors.
FORMS = "start, end, 10, -5 (the last five), +5, 10:20, :end, @TIME, @-1h:end"

_EXACT = re.compile(r"(?P<start>start|end|[+-]?[0-9]{1,18})?"
                    r"(?P<range>:(?P<end>end|-?[0-9]{1,18})?)?")
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
_INSTANT = rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}(?:[T ]{_CLOCK})?"
_TIME = rf"{_INSTANT}|[0-9]{{13}}|[0-9]{{9,10}}|-?(?:[0-9]{{1,9}}(?:ms|[smhdw]))+"
_TIMES = re.compile(rf"@(?P<start>{_TIME})?(?P<range>:(?P<end>{_TIME}|end)?)?")
_SECONDS = re.compile("[0-9]{9,10}")
_MILLISECONDS = re.compile("[0-9]{13}")
#: Words of Kafka, rpk and kcat for the two ends of a partition -> the word of `consume --from`.
ENDS = {"earliest": "earliest", "start": "earliest", "beginning": "earliest", "oldest": "earliest",
        "smallest": "earliest", "latest": "latest", "end": "latest", "newest": "latest",
        "largest": "latest"}
_OF_RPK = {"earliest": "start", "latest": "end"}


@dataclass(frozen=True, slots=True)  # no tuple, which would equal one of another kind
class FromStart:
    """So many records after the first offset of a partition."""

    records: int


@dataclass(frozen=True, slots=True)
class FromEnd:
    """So many records before the end of a partition."""

    records: int


Point = int | At | FromStart | FromEnd
START, END = FromStart(0), FromEnd(0)


class Span(NamedTuple):
    """A part of every partition; ``end`` None = there is no end."""

    start: Point
    end: Point | None

    @property
    def times(self) -> list[At]:
        """The times that have to be looked up before the span is resolved."""
        return [point for point in (self.start, self.end) if isinstance(point, At)]

    def resolve(self, first: int, last: int,
                found: Mapping[At, int | None]) -> tuple[int, int | None]:
        """Return the first offset and the end of the span in a partition that has the offsets from
        ``first`` up to, not including, ``last``.  ``found``: time -> offset of the first record at
        or after it, None = there is none.

        Relative points stay within the partition; offsets that were named do not."""
        return (_resolve(self.start, first, last, found),
                None if self.end is None else _resolve(self.end, first, last, found))


def _resolve(point: Point, first: int, last: int, found: Mapping[At, int | None]) -> int:
    if isinstance(point, At):
        at = found[point]
        return last if at is None else at
    if isinstance(point, FromStart):
        return min(first + point.records, last)
    if isinstance(point, FromEnd):
        return max(first, last - point.records)
    return point


def parse_span(text: str, now_ms: int) -> Span:
    """Return the span of a text.  Raises ``ValueError`` with a sentence."""
    times = _TIMES.fullmatch(text) if text.startswith("@") else None
    if times is not None and text not in ("@", "@:"):
        return _of_times(times, now_ms)
    words = ":".join(_OF_RPK.get(ENDS.get(word, word), word) for word in text.lower().split(":"))
    exact = _EXACT.fullmatch(words)
    if exact is None or words in ("", ":"):
        raise ValueError(f"is not one of {FORMS}.")
    start = _point(exact["start"]) if exact["start"] else START
    end = _end_point(exact["end"]) if exact["end"] else None
    if isinstance(start, int) and isinstance(end, int) and end < start:
        raise ValueError("ends before it begins.")
    return Span(start, end)


def _point(text: str) -> Point:
    if text in ("start", "end"):
        return START if text == "start" else END
    if text.startswith("+"):
        return FromStart(int(text))
    return FromEnd(-int(text)) if text.startswith("-") else int(text)


def _end_point(text: str) -> Point:
    if text == "end":
        return END
    return FromEnd(-int(text)) if text.startswith("-") else int(text)


def _of_times(found: re.Match[str], now_ms: int) -> Span:
    start = _moment(found["start"], now_ms, now_ms) if found["start"] else None
    if not found["end"]:
        return Span(start or START, None)
    if found["end"] == "end":
        return Span(start or START, END)
    # A duration at the end counts from the start if that is a point in time, else from now.
    base_ms = now_ms if start is None or parse_duration(found["start"].lstrip("-")) is not None \
        else start.ms
    end = _moment(found["end"], base_ms, now_ms)
    if start is not None and end.ms < start.ms:
        raise ValueError("ends before it begins.")
    return Span(start or START, end)


def _moment(text: str, base_ms: int, now_ms: int) -> At:
    """Return the time that a text names; durations count from ``base_ms``."""
    if _MILLISECONDS.fullmatch(text):
        return At(int(text))
    if _SECONDS.fullmatch(text):
        return At(1_000 * int(text))
    duration_ms = parse_duration(text.removeprefix("-"))
    if duration_ms is not None:
        return At(max(0, base_ms + (-duration_ms if text.startswith("-") else duration_ms)))
    at = parse_time(text, now_ms)
    if at is None:
        raise ValueError(f"has {text!r}, which is no time.")
    return at
