"""Formatting and parsing of sizes, times and bars."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))

BAR_CELLS = 12

#: ``k``, ``KB`` and ``KiB`` are all 1,024 bytes: rates need no precision of two per cent.
_LETTERS = "BKMGT"
_SIZE = re.compile(r"(?P<number>\d{1,15}(?:\.\d+)?) ?(?P<unit>[kmgt](?:i?b)?|b)?",
                   re.IGNORECASE | re.ASCII)


def size(count: int | None) -> str | None:
    """Return a size in words: ``1.5 GiB``; None stays None."""
    if count is None:
        return None
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if not unit or value >= 100 else (
        f"{value:.1f} {_UNITS[unit]}")


def parse_size(text: str) -> int:
    """Return the bytes of ``64MiB``, ``1.5 GiB``, ``65536``, rounded down. Raises ``ValueError``
    for other text."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size")
    return int(float(found["number"]) * 1024 ** _LETTERS.index((found["unit"] or "B")[0].upper()))


def span(milliseconds: int | None) -> str | None:
    """Return a duration as its two largest units: ``3 d 4 h``, ``12 min 5 s``; None stays None."""
    # Not ``multiraft.client.texts``: help and Tab completion start without the client.
    if milliseconds is None:
        return None
    seconds = milliseconds // 1000
    words: list[str] = []
    for length, name in _SPANS:
        if seconds >= length and len(words) < 2:
            words.append(f"{seconds // length} {name}")
        elif words:
            break
        seconds %= length
    return " ".join(words) or "0 s"


def bar(value: int, most: int, cell: str) -> str:
    """Return ``value`` of ``most`` as a bar of at most ``BAR_CELLS`` times ``cell``; a value above
    0 has at least one."""
    if most <= 0 or value <= 0:
        return ""
    return cell * max(1, round(BAR_CELLS * value / most))
