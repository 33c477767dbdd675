"""Shapes of plain values: what fits, and what is said of what does not."""

from __future__ import annotations

import pytest

from multiraft.codec.shapes import ANYTHING, BYTES, FLAG, INT_OR_NONE, TEXT, UINT, Optional, check

SHAPE = {"numbers": [UINT], "row": (TEXT, INT_OR_NONE, FLAG), "more": Optional([(BYTES, ANYTHING)])}
VALUE = {"numbers": [0, (1 << 64) - 1], "row": ["a", -1, True], "more": [[b"x", {}]], "later": 1}


def test_what_fits_is_accepted():
    check(VALUE, SHAPE)
    check({**VALUE, "more": None, "numbers": ()}, SHAPE)


@pytest.mark.parametrize("change,said", [
    ({"numbers": [True]}, "numbers is True, no unsigned integer"),
    ({"numbers": [-1]}, "numbers is -1"),
    ({"numbers": [1 << 64]}, "no unsigned integer"), ({"numbers": [1.0]}, "no unsigned integer"),
    ({"numbers": 1}, "numbers is no list"), ({"numbers": "12"}, "numbers is no list"),
    ({"row": ["a", -1]}, "row has 2 fields instead of 3"),
    ({"row": ["a", -2, True]}, "no integer from -1 on"),
    ({"row": ["a", 1, 1]}, "row is 1, no flag"), ({"row": [b"a", 1, True]}, "no text"),
    ({"more": [["x", 1]]}, "no bytes"), ({"more": {}}, "more is no list")])
def test_what_does_not_fit_is_said(change, said):
    with pytest.raises(ValueError, match=said):
        check({**VALUE, **change}, SHAPE)


def test_a_map_lacks_nothing_and_is_one():
    with pytest.raises(ValueError, match="value has no row"):
        check({"numbers": []}, SHAPE)
    with pytest.raises(ValueError, match="value is no map"):
        check([], SHAPE)
