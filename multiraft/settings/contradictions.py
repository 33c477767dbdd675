"""Contradictions between the values of several settings.

Contract.  ``check`` takes the values that hold for one topic, defaults included, and the names that
a change sets.  It raises ``InvalidSetting`` that names both settings and their values.  Only pairs
of which the change sets at least one are judged, so that an older contradiction does not refuse an
unrelated change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from multiraft.settings.registry import InvalidSetting

#: (lower, higher, reason): the first value is at most the second, unless that is negative, which
#: means that there is no limit.
_ORDERED = (
    ("min.compaction.lag.ms", "max.compaction.lag.ms",
     "the shortest time without compaction exceeds the longest"),
    ("local.retention.ms", "retention.ms", "more would be kept locally than at all"),
    ("local.retention.bytes", "retention.bytes", "more would be kept locally than at all"),
    ("segment.jitter.ms", "segment.ms", "the variation exceeds the time that varies"),
)


def check(values: Mapping[str, str], changed: Collection[str]) -> None:
    """Return if the ``values`` of a topic do not contradict each other, as far as ``changed``
    settings are concerned.  Raises ``InvalidSetting``.  O(1)."""
    for low, high, why in _ORDERED:
        lower, higher = int(values[low]), int(values[high])
        if (low in changed or high in changed) and lower > higher >= 0:
            named, other = (low, high) if low in changed else (high, low)
            raise InvalidSetting(named, f"{values[named]} contradicts {other}={values[other]}: "
                                 f"{why}")
