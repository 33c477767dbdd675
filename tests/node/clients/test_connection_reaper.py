"""Slow and idle connections, and clients that do not read replies, by a clock that the test
sets."""

import pytest

from node.clients.connection_reaper import CONTENDED_BYTES_MIN, ConnectionReaper, ConnectionSample
from node.limits import Limits

LIMITS = Limits(frame_timeout_ms=60, idle_timeout_ms=600, write_timeout_ms=30)
QUIET = ConnectionSample(events=1, mid_frame=False, owed=False, arrived=0, unsent=0, sent=0)


class Session:
    """A session whose counters the test sets."""

    def __init__(self, sample: ConnectionSample = QUIET):
        self.now = sample
        self.ended = ""
        self.accounts = 0

    def sample(self) -> ConnectionSample:
        return self.now

    def account(self) -> None:
        self.accounts += 1

    def end(self, reason: str) -> None:
        self.ended = reason

    def change(self, **fields) -> None:
        self.now = self.now._replace(**fields)


def swept(*looks: tuple[int, dict], memory_contended: bool = False) -> str:
    """Return the reason for which a session with these changes was ended; it is swept every 10
    ms."""
    session = Session()
    deadlines = ConnectionReaper(LIMITS, lambda: [session], lambda: memory_contended)
    at = 0
    for until, fields in looks:
        session.change(**fields)
        while at <= until and not session.ended:
            deadlines.sweep(at)
            at += 10
    assert deadlines.ended == bool(session.ended)
    return session.ended


@pytest.mark.parametrize(("looks", "says"), [
    ([(600, {})], ""),
    ([(620, {})], "idle for 610 ms, the limit is 600"),
    ([(500, {}), (1000, {"events": 2})], ""),
    ([(5000, {"owed": True})], ""),
    ([(60, {"mid_frame": True})], ""),
    ([(80, {"mid_frame": True})], "a frame has been arriving for 70 ms, the limit is 60"),
    ([(50, {"mid_frame": True}), (100, {"mid_frame": True, "events": 2})], ""),
    ([(500, {}), (550, {"mid_frame": True})], ""),
    ([(500, {}), (580, {"mid_frame": True})], "a frame has been arriving"),
    ([(80, {"mid_frame": True, "owed": True})], "a frame has been arriving"),
    ([(50, {"unsent": 9, "owed": True})], "answers have not been read for 40 ms, the limit is 30"),
    ([(20, {"unsent": 9, "owed": True}), (50, {"sent": 1}), (70, {"sent": 2})], ""),
    ([(20, {"unsent": 9, "owed": True}), (100, {"unsent": 0})], ""),
])
def test_a_connection_ends_when_it_stands_still_for_too_long(looks, says):
    ended = swept(*looks)
    assert ended.startswith(says) and bool(ended) == bool(says), ended


LARGE = {"mid_frame": True, "arrived": 1}
ENOUGH = {"arrived": 1 + CONTENDED_BYTES_MIN}


@pytest.mark.parametrize(("memory_contended", "looks", "ends"), [
    (True, [(0, {}), (10, LARGE)], False),
    (True, [(0, LARGE), (10, ENOUGH)], False),
    (True, [(0, LARGE), (10, {"arrived": CONTENDED_BYTES_MIN})], True),
    (True, [(0, LARGE), (10, {"events": 2})], False),
    (False, [(0, LARGE), (50, {})], False),
])
def test_while_others_wait_a_large_frame_keeps_moving(memory_contended, looks, ends):
    ended = swept(*looks, memory_contended=memory_contended)
    why = "a large frame makes no progress" if ends else ""
    assert ended.startswith(why) and bool(ended) == ends


def test_who_is_gone_is_forgotten_and_the_others_are_accounted_for():
    sessions = [Session(), Session()]
    deadlines = ConnectionReaper(LIMITS, lambda: sessions, lambda: True)
    deadlines.sweep(0)
    gone = sessions.pop()
    deadlines.sweep(10)
    assert deadlines._seen.keys() == set(sessions)
    assert (sessions[0].accounts, gone.accounts) == (2, 1)
