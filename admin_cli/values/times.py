"""Points in time on the command line: a calendar date, milliseconds, or a duration ago.

Contract.  ``parse_time`` is pure: the time that "ago" counts from is a parameter.  Results are
milliseconds since 1970, as in records.
"""

from __future__ import annotations

import datetime
import re
from typing import NamedTuple

#: Unit -> seconds.
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d{1,9}(?:ms|[smhdw]))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+)(ms|[smhdw])", re.ASCII)
_MILLIS = re.compile(r"@(\d{1,18})", re.ASCII)

#: The forms of times, for help and errors.
FORMS = "2026-11-20T10:00:00Z, @MILLISECONDS or -1h30m"


class At(NamedTuple):
    """The first record at or after ``ms``, milliseconds since 1970."""

    ms: int


def parse_duration(text: str) -> int | None:
    """Return the milliseconds of ``1h30m``, ``10s`` or ``500ms``; None = it is no duration."""
    if _DURATION.fullmatch(text) is None:
        return None
    return sum(int(count) * (1 if unit == "ms" else 1_000 * _UNITS[unit])
               for count, unit in _DURATION_PART.findall(text))


def parse_time(text: str, now_ms: int) -> At | None:
    """Return the point in time of ``text``, never before 1970; None = it is not a time. Without a
    zone a time is in UTC."""
    if found := _MILLIS.fullmatch(text):
        return At(int(found[1]))
    if text.startswith("-") and (ago_ms := parse_duration(text[1:])) is not None:
        return At(max(0, now_ms - ago_ms))
    if "-" not in text[1:]:
        return None  # 20261120 is an offset
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    return At(max(0, since // datetime.timedelta(milliseconds=1)))
