"""One line per event, with any text from outside; floods become few lines; no caller waits for a
pipe.
"""

import io
import json
import logging
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from node.observability import logging as log_module
from node.observability.logging import LineWriter, RateLimit, logger, tell_left_out

ROOT = Path(__file__).parents[3]
FORGED = 'x\n{"event": "node_started"}\r\n\x1b[31m\u2028"quoted"'


def written(style: str, level: str = "info"):
    """(logger, its stream)."""
    stream = io.StringIO()
    return logger(7, stream, style, level), stream


@pytest.mark.parametrize("style", ["json", "text"])
def test_what_strangers_say_cannot_forge_a_line(style):
    log, stream = written(style)
    log.warning("peer_connection_refused", extra={"reason": FORGED, "group": 3})
    line, end = stream.getvalue().split("\n")
    assert end == ""
    assert "\x1b" not in line and "\r" not in line and "\u2028" not in line


def test_json_has_the_fields_as_they_are():
    log, stream = written("json")
    log.warning("peer_connection_refused", extra={"reason": FORGED, "group": 3, "term": 9})
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("+00:00")
    assert line == {"level": "warning", "node": 7, "event": "peer_connection_refused",
                    "reason": FORGED, "group": 3, "term": 9}


def test_text_is_for_people_and_quotes_what_could_be_mistaken():
    log, stream = written("text")
    log.info("node_started", extra={"address": "127.0.0.1:9", "why": "a b=c", "peers": [1, 2]})
    at, line = stream.getvalue().split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    assert line == ('INFO    node_started node=7 address=127.0.0.1:9 why="a b=c" peers=[1, 2]\n')


@pytest.mark.parametrize("style", ["json", "text"])
def test_a_traceback_is_kept_and_passes_for_no_event(style):
    log, stream = written(style)
    try:
        raise ValueError("first\nnode=7 node_started")
    except ValueError:
        log.critical("node_crashed", exc_info=True)
    text = stream.getvalue()
    assert "ValueError: first" in text
    assert not any(line.startswith("node=7 node_started") for line in text.splitlines())


def test_a_level_hides_what_is_below_it():
    log, stream = written("json", "warning")
    log.info("quiet")
    log.warning("loud")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["loud"]


# ---- floods --------------------------------------------------------------------------------------


class Clock:
    """The clock of the rate limit."""

    def __init__(self, monkeypatch):
        self.now_ms = 0
        monkeypatch.setattr(log_module, "monotonic_ms", lambda: self.now_ms)


def events(stream) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_flood_is_a_few_lines_and_the_number_of_those_left_out(monkeypatch):
    clock = Clock(monkeypatch)
    log, stream = written("json")
    for number in range(1000):
        log.info("client_connection_closed", extra={"reason": str(number)})
    log.info("another event")
    assert len(events(stream)) == log_module.BURST + 1
    clock.now_ms += 10_000
    tell_left_out(log, clock.now_ms)
    last = events(stream)[-1]
    assert (last["event"], last["suppressed_event"], last["lines"], last["level"]) == (
        "log_lines_suppressed", "client_connection_closed", 950, "info")
    log.info("client_connection_closed")
    assert events(stream)[-1]["event"] == "client_connection_closed", "a window begins anew"


def test_lost_nodes_and_moved_leadership_of_a_large_cluster_are_not_left_out(monkeypatch):
    Clock(monkeypatch)
    log, stream = written("json")
    for peer in range(200):
        log.warning("node_lost", extra={"peer": peer})
        log.info("leadership_changed", extra={"groups": peer})
    assert len(events(stream)) == 400
    for _ in range(2_000):
        log.warning("node_lost")
    assert len(events(stream)) == 200 + log_module.ERROR_BURST, "but not without a bound"


def test_nothing_is_told_before_the_window_is_over_but_at_the_end_all(monkeypatch):
    clock = Clock(monkeypatch)
    log, stream = written("json")
    for _ in range(60):
        log.info("again")
    tell_left_out(log, clock.now_ms + 9_999)
    assert len(events(stream)) == 50
    tell_left_out(log)
    assert events(stream)[-1]["lines"] == 10


def test_a_trickle_is_never_left_out(monkeypatch):
    clock = Clock(monkeypatch)
    log, stream = written("json")
    for _ in range(500):
        log.info("now and then")
        clock.now_ms += 1_000
    assert len(events(stream)) == 500


def test_debug_lines_are_all_written(monkeypatch):
    """They are asked for: who led what, and when, is checked from them."""
    Clock(monkeypatch)
    log, stream = written("json", level="debug")
    for term in range(5 * log_module.BURST):
        log.debug("replica_role_changed", extra={"group": 1, "term": term})
    assert [line["term"] for line in events(stream)] == list(range(5 * log_module.BURST))


def test_errors_have_more_room_and_critical_lines_are_never_left_out(monkeypatch):
    Clock(monkeypatch)
    log, stream = written("json")
    for group in range(log_module.ERROR_BURST + 5):
        log.error("replica_quarantined", extra={"group": group})
    for _ in range(log_module.ERROR_BURST + 5):
        log.critical("node_crashed")
    said = [line["event"] for line in events(stream)]
    assert said.count("replica_quarantined") == log_module.ERROR_BURST
    assert said.count("node_crashed") == log_module.ERROR_BURST + 5


def test_events_beyond_the_bound_do_not_pile_up(monkeypatch):
    Clock(monkeypatch)
    limit = RateLimit()
    for number in range(3 * log_module.EVENTS_MAX):
        limit.filter(logging.makeLogRecord({"msg": f"event {number}", "levelno": logging.INFO}))
        assert len(limit._windows) <= log_module.EVENTS_MAX


# ---- the writer ----------------------------------------------------------------------------------


class Stuck(io.StringIO):
    """A pipe without a reader, until it is ``released``."""

    def __init__(self):
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def write(self, text: str) -> int:
        self.entered.set()
        self.released.wait()
        return super().write(text)


def test_who_logs_does_not_wait_for_a_reader_and_what_is_dropped_is_counted(monkeypatch):
    monkeypatch.setattr(log_module, "LINES_MAX", 10)
    stuck = Stuck()
    writer = LineWriter(stuck)
    writer.write("first\n")
    assert stuck.entered.wait(10)
    for number in range(25):
        writer.write(f"{number}\n")
    assert writer.dropped == 15
    stuck.released.set()
    writer.close()
    lines = stuck.getvalue().splitlines()
    assert [line for line in lines if not line.startswith("{")] == [
        "first", *map(str, range(10))]
    assert json.loads(lines[1])["lines"] == 15, "and it is said where they are missing"


def test_a_reader_that_has_gone_ends_nothing():
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    writer = LineWriter(Gone())
    writer.write("nobody\n")
    writer.close()
    assert writer.dropped == 1


STUCK = '''
import sys
from node.observability.logging import LineWriter
writer = LineWriter(sys.stdout)
for _ in range(50):
    writer.write("x" * 100_000 + "\\n")
writer.close()
sys.exit(7)
'''


def test_a_process_whose_log_nobody_reads_ends_as_it_means_to():
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(timeout=180) == 7
        finally:
            process.kill()


def test_everything_is_written_before_the_end():
    stream = io.StringIO()
    writer = LineWriter(stream)
    log = logger(7, writer)
    for number in range(40):
        log.info("line", extra={"number": number})
    writer.close()
    assert [line["number"] for line in events(stream)] == list(range(40))
