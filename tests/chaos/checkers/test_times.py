"""The checker of offsets that are looked up by a time: A34."""

from __future__ import annotations

from tests.chaos.checkers.timeline import KEY, Timeline


def timed(*times_ms: int) -> Timeline:
    """Return a history with a record of each of these times, at offsets 0.., as one append each."""
    line = Timeline()
    for offset, time_ms in enumerate(times_ms):
        operation = line.invoke("append", key=KEY, values=[offset + 1], acks="commit", producer=-1,
                                epoch=-1, sequence=-1, times=[time_ms], port="kafka")
        line.ok(operation, offset=offset)
    line.was_read(list(range(1, len(times_ms) + 1)))
    return line


def ask(line: Timeline, time_ms: int, offset: int) -> Timeline:
    line.ok(line.invoke("offset_for_time", 4, key=KEY, time_ms=time_ms, port="kafka"),
            offset=offset)
    return line


def test_the_first_record_at_or_after_a_time_is_right():
    line = timed(100, 300, 200, 400)
    for time_ms, offset in ((50, 0), (100, 0), (150, 1), (300, 1), (301, 3), (401, -1)):
        ask(line, time_ms, offset)
    assert line.ids() == set()


def test_a_record_of_an_earlier_time_is_wrong():
    assert ask(timed(100, 300, 200), 150, 0).ids() == {"A34"}


def test_a_later_record_than_the_first_is_wrong():
    assert ask(timed(100, 300, 200), 150, 2).ids() == {"A34"}


def test_none_is_wrong_where_a_record_of_that_time_was_acknowledged_before():
    assert ask(timed(100, 300), 300, -1).ids() == {"A34"}


def test_none_is_right_while_the_record_is_not_acknowledged():
    line = Timeline()
    append = line.invoke("append", key=KEY, values=[1], acks="commit", times=[100])
    ask(line, 50, -1)
    line.ok(append, offset=0)
    line.was_read([1])
    assert line.ids() == set()


def test_a_record_whose_time_nobody_knows_may_be_of_any():
    line = Timeline()
    line.appended([1], 0)
    line.ok(line.invoke("append", key=KEY, values=[2], acks="commit", times=[100]), offset=1)
    line.was_read([1, 2])
    assert ask(line, 100, 0).ids() == set()


def test_an_answer_without_an_outcome_is_not_judged():
    line = timed(100)
    line.info(line.invoke("offset_for_time", 4, key=KEY, time_ms=50))
    line.fail(line.invoke("offset_for_time", 4, key=KEY, time_ms=50))
    assert line.ids() == set()
