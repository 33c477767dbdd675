"""Schema checks: rows give the same result, checked by columns or one by one."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.wire.schema import (
    COLUMNS_FROM,
    Malformed,
    integer,
    list_of,
    nullable,
    one_of,
    row,
    text,
)


class Sample(NamedTuple):
    number: int
    mark: int
    word: str
    note: str | None


CHECK = row(Sample, integer(0, 100), integer(-1, 5), one_of("a", "b"), nullable(text(3)))
GOOD = [5, -1, "a", None]
FIELD = st.one_of(st.integers(-3, 200), st.booleans(), st.none(),
                  st.sampled_from(["a", "b", "cdef"]), st.just([]))


def outcome(read):
    """Return the result of a check, or the text of its error."""
    try:
        return read()
    except Malformed as error:
        return str(error)


@given(bad=st.lists(st.one_of(FIELD, st.lists(FIELD, max_size=5)), max_size=3),
       at=st.integers(0, 40))
def test_many_rows_are_accepted_and_refused_as_each_of_them_is(bad, at):
    rows = [GOOD] * 40
    rows[at:at] = bad
    assert outcome(lambda: list_of(CHECK, 100)(rows)) == outcome(
        lambda: tuple(CHECK(one) for one in rows))


@pytest.mark.parametrize("count", [0, 1, COLUMNS_FROM - 1, COLUMNS_FROM, 1000])
def test_rows_are_named_tuples_however_many_they_are(count):
    rows = list_of(CHECK, 1000)([[number % 100, 5, "b", "x"] for number in range(count)])
    assert rows == tuple(Sample(number % 100, 5, "b", "x") for number in range(count))
    assert all(type(one) is Sample for one in rows)


def test_rows_above_the_limit_are_not_looked_at():
    with pytest.raises(Malformed, match="at most 1000 items, got 1001"):
        list_of(CHECK, 1000)([None] * 1001)
