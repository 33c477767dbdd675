"""Durations and reasons in the texts of errors."""

from __future__ import annotations

import pytest

from multiraft.client.texts import by_reason, duration


@pytest.mark.parametrize("milliseconds, text", [
    (0, "0 ms"), (688, "688 ms"), (999, "999 ms"), (1_000, "1 s"), (1_540, "1.5 s"),
    (3_000, "3 s"), (30_049, "30 s"), (59_999, "59.9 s"), (60_000, "1 min"), (90_500, "1 min 30 s"),
    (3_600_000, "1 h"), (7_500_000, "2 h 5 min"), (86_400_000, "24 h")])
def test_a_duration_has_readable_units(milliseconds, text):
    assert duration(milliseconds) == text


def test_addresses_with_the_same_error_share_it():
    assert by_reason({"a:1": "refused", "b:1": "silent", "c:1": "refused"}) == \
        "a:1, c:1: refused; b:1: silent"
    assert by_reason({}) == ""
