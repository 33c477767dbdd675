"""Spans of offsets: the forms of rpk, and what they are in a partition."""

from __future__ import annotations

import pytest

from admin_cli.values.spans import END, START, FromEnd, FromStart, Span, parse_span
from admin_cli.values.times import At, parse_duration

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
DAY_MS = 1_644_796_800_000  # 2022-02-14


@pytest.mark.parametrize("text, span", [
    ("start", Span(START, None)), ("end", Span(END, None)), ("earliest", Span(START, None)),
    ("beginning", Span(START, None)), ("latest", Span(END, None)), ("10", Span(10, None)),
    ("10:", Span(10, None)), (":end", Span(START, END)), (":20", Span(START, 20)),
    ("10:20", Span(10, 20)), ("10:end", Span(10, END)), ("-5", Span(FromEnd(5), None)),
    ("-5:end", Span(FromEnd(5), END)), ("+5", Span(FromStart(5), None)),
    ("5:-1", Span(5, FromEnd(1))),
    ("@1700000000000", Span(At(NOW_MS), None)), ("@1700000000", Span(At(NOW_MS), None)),
    ("@1700000000:", Span(At(NOW_MS), None)), ("@-1h", Span(At(NOW_MS - HOUR_MS), None)),
    ("@-1h:end", Span(At(NOW_MS - HOUR_MS), END)), ("@:-1h", Span(START, At(NOW_MS - HOUR_MS))),
    ("@-48h:-24h", Span(At(NOW_MS - 48 * HOUR_MS), At(NOW_MS - 24 * HOUR_MS))),
    ("@2022-02-14", Span(At(DAY_MS), None)), ("@2022-02-14:1h", Span(At(DAY_MS),
                                                                     At(DAY_MS + HOUR_MS))),
    ("@2022-02-14T00:00:00Z:2022-02-14T01:00:00+00:00", Span(At(DAY_MS), At(DAY_MS + HOUR_MS))),
    ("@-1m30s500ms", Span(At(NOW_MS - 90_500), None)),
])
def test_a_span_is_written_as_in_rpk(text, span):
    assert parse_span(text, NOW_MS) == span


def test_points_of_different_kinds_are_different():
    assert len({START, END, At(0), 0}) == 4


@pytest.mark.parametrize("text", ["", ":", "@", "@:", "x", "-", "+", "1.5", "s@5", "@x", "@-1y",
                                  "10:x", "end:x", "1" * 19, "٣", "@2022-02-1", "@12345"])
def test_what_is_no_span_lists_the_forms(text):
    with pytest.raises(ValueError, match="10:20, :end, @TIME"):
        parse_span(text, NOW_MS)


@pytest.mark.parametrize("text", ["20:10", "@2022-02-15:2022-02-14", "@-1h:-2h"])
def test_an_end_before_the_start_is_refused(text):
    with pytest.raises(ValueError, match="ends before it begins"):
        parse_span(text, NOW_MS)


@pytest.mark.parametrize("text", ["@2022-13-14", "@2022-02-14T25:00:00Z"])
def test_a_date_that_no_calendar_has_is_named(text):
    with pytest.raises(ValueError, match="is no time"):
        parse_span(text, NOW_MS)


@pytest.mark.parametrize("span, resolved", [
    (Span(START, None), (3, None)), (Span(END, None), (10, None)), (Span(START, END), (3, 10)),
    (Span(FromEnd(5), None), (5, None)), (Span(FromEnd(50), None), (3, None)),
    (Span(FromStart(2), END), (5, 10)), (Span(FromStart(50), None), (10, None)),
    (Span(7, 20), (7, 20)), (Span(At(1), At(2)), (6, 10)),
])
def test_relative_points_stay_within_the_partition(span, resolved):
    assert span.resolve(3, 10, {At(1): 6, At(2): None}) == resolved


@pytest.mark.parametrize("text, ms", [("10s", 10_000), ("500ms", 500), ("1h30m", 5_400_000),
                                      ("1m3ms", 60_003), ("2d", 172_800_000), ("10", None),
                                      ("-1h", None), ("", None), ("1y", None)])
def test_a_duration_has_units(text, ms):
    assert parse_duration(text) == ms
