"""Parts of the texts of errors: durations, and what each address answered; texts of settings.

Contract.  Pure functions, which client and command line share: one duration has one form.
"""

from __future__ import annotations

from collections.abc import Mapping

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS


def duration(milliseconds: int) -> str:
    """Return a duration to read: ``350 ms``, ``1.5 s``, ``30 s``, ``1 min 30 s``, ``2 h 5 min``."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < _MINUTE_MS:
        tenths = milliseconds // 100
        return f"{tenths / 10:.1f} s" if tenths % 10 else f"{tenths // 10} s"
    if milliseconds < _HOUR_MS:
        return _pair(milliseconds, _MINUTE_MS, "min", 1_000, "s")
    return _pair(milliseconds, _HOUR_MS, "h", _MINUTE_MS, "min")


def _pair(milliseconds: int, large_ms: int, large: str, small_ms: int, small: str) -> str:
    whole, rest = divmod(milliseconds, large_ms)
    return f"{whole} {large}" + (f" {rest // small_ms} {small}" if rest >= small_ms else "")


def by_reason(errors: Mapping[str, str]) -> str:
    """Return the error of each address or node; those with the same error share it.
    O(addresses)."""
    alike: dict[str, list[str]] = {}
    for name, why in errors.items():
        alike.setdefault(why, []).append(name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in alike.items())


def setting_text(value: str | int | float) -> str:
    """Return the value of a topic's setting as the text that nodes read.  O(1)."""
    return str(value).lower() if type(value) is bool else str(value)
